//! What changed between two releases, as pages show it.

use vault_format::catalog::{Catalog, CatalogChanges, SkillEntry};
use vault_store::StoreError;

use super::content::policy_text;
use super::difference::{self, Line, Room, shown};
use super::guard::ConsolePage;
use crate::oauth::form::with_query;
use crate::oauth::pages::minute;

/// Most skills of each kind on a page.
const SKILLS_SHOWN: usize = 150;
/// How many bytes of a policy's differences a page shows.
const POLICY_BYTES: usize = 24 * 1024;

/// A skill that differs.
pub(super) struct ShownSkill {
    pub(super) name: String,
    /// The version, or `3 → 4`.
    pub(super) version: String,
    /// Where its files are compared.
    pub(super) href: Option<String>,
}

/// Skills that differ in one way.
pub(super) struct SkillGroup {
    /// `Added`, `Changed` or `Removed`.
    pub(super) title: &'static str,
    pub(super) total: usize,
    pub(super) skills: Vec<ShownSkill>,
}

impl SkillGroup {
    /// How many are left out.
    pub(super) fn more(&self) -> usize {
        self.total - self.skills.len()
    }
}

/// The differences.
pub(super) struct ShownChanges {
    pub(super) from: Option<u64>,
    pub(super) groups: Vec<SkillGroup>,
    /// Name and reason of each withdrawn skill.
    pub(super) withdrawn: Vec<(String, String)>,
    /// The lines of the policy that differ, and whether all of them are there; `None` for the same
    /// policy.
    pub(super) policy: Option<(Vec<Line>, bool)>,
    /// Sentences about all else.
    pub(super) notes: Vec<String>,
    pub(super) expires: String,
}

impl ShownChanges {
    /// Whether nothing that people compare differs.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
            && self.withdrawn.is_empty()
            && self.policy.is_none()
            && self.notes.is_empty()
    }
}

/// The differences of `after` from `before`.
pub(super) async fn shown_changes(
    page: &ConsolePage,
    before: Option<&Catalog>,
    after: &Catalog,
) -> Result<ShownChanges, StoreError> {
    let changes = CatalogChanges::between(before, after);
    let policy = match changes.policy {
        None => None,
        Some((old, new)) => {
            let old = policy_text(page, old.map(|entry| entry.sha256)).await?;
            let new = policy_text(page, new.map(|entry| entry.sha256)).await?;
            let lines = old
                .zip(new)
                .map(|(old, new)| difference::text(&old, &new, &mut Room::new(POLICY_BYTES)));
            // A text that is no longer kept: that it differs is all there is to say.
            Some(lines.unwrap_or((Vec::new(), false)))
        }
    };
    let withdrawn = changes.withdrawn.iter().take(SKILLS_SHOWN);
    let withdrawn = withdrawn.map(|entry| (entry.name.to_string(), shown(&entry.reason)));
    Ok(ShownChanges {
        from: changes.from,
        groups: groups(page, &changes, after.release),
        withdrawn: withdrawn.collect(),
        policy,
        notes: notes(&changes, before, after),
        expires: minute(after.expires_at),
    })
}

fn groups(page: &ConsolePage, changes: &CatalogChanges, release: u64) -> Vec<SkillGroup> {
    let plain = |entry: &SkillEntry| ShownSkill {
        name: entry.name.to_string(),
        version: entry.version.to_string(),
        href: None,
    };
    let compared = |(old, new): &(SkillEntry, SkillEntry)| ShownSkill {
        name: new.name.to_string(),
        version: format!("{} → {}", old.version, new.version),
        href: changes.from.map(|from| {
            let address = page.address(&format!("/releases/{from}"));
            let release = release.to_string();
            with_query(&address, &[("to", &*release), ("skill", new.name.as_str())])
        }),
    };
    let group = |title, total, skills| SkillGroup {
        title,
        total,
        skills,
    };
    let added = changes.added.iter().take(SKILLS_SHOWN).map(plain).collect();
    let changed = changes.changed.iter().take(SKILLS_SHOWN);
    let changed = changed.map(compared).collect();
    let removed = changes.removed.iter().take(SKILLS_SHOWN);
    let removed = removed.map(plain).collect();
    let groups = [
        group("Added", changes.added.len(), added),
        group("Changed", changes.changed.len(), changed),
        group("Removed", changes.removed.len(), removed),
    ];
    groups.into_iter().filter(|it| it.total > 0).collect()
}

/// Sentences about keys, addresses and profiles.
fn notes(changes: &CatalogChanges, before: Option<&Catalog>, after: &Catalog) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(before) = before.filter(|before| before.root_version != after.root_version) {
        notes.push(format!(
            "The list of the vault’s keys changes from version {} to version {}.",
            before.root_version, after.root_version
        ));
    }
    if before.is_some() {
        let addresses = changes.audience.iter().take(10);
        notes.extend(addresses.map(|it| format!("It may now be served from {}", shown(it))));
    }
    let names = |names: Vec<&str>| {
        let listed: Vec<_> = names.iter().take(20).map(|name| shown(name)).collect();
        listed.join(", ")
    };
    if !changes.profiles.is_empty() {
        let profiles = changes.profiles.iter().map(|it| it.name.as_str()).collect();
        notes.push(format!(
            "Profiles that are new or changed: {}",
            names(profiles)
        ));
    }
    if !changes.lost_profiles.is_empty() {
        let profiles = changes.lost_profiles.iter().map(String::as_str).collect();
        notes.push(format!("Profiles that are gone: {}", names(profiles)));
    }
    notes
}
