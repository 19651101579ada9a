//! What changed between two releases, as pages show it: everything in short, or the files of one
//! skill.

use vault_format::catalog::{Catalog, CatalogChanges, SkillEntry, Withdrawn};
use vault_format::name::SkillName;
use vault_store::StoreError;

use super::content::{policy_text, shelf, skill_of_bundle, unavailable};
use super::difference::{self, DIFFERENCE_BYTES, Difference, Line, Room, shortened, shown};
use super::guard::ConsolePage;
use crate::oauth::form::with_query;
use crate::oauth::pages::minute;
use crate::oauth::stop::ErrorPage;

/// Most skills of each kind on a page.
const SKILLS_SHOWN: usize = 150;
/// How many bytes of lists of skills that differ a page shows.
const LISTS_BYTES: usize = 24 * 1024;
/// How many bytes of the list of withdrawn skills a page shows.
const WITHDRAWN_BYTES: usize = 8 * 1024;
/// Bytes of the elements around a skill in a list.
const AROUND_SKILL: usize = 96;
/// How many bytes of a policy's differences a page shows.
const POLICY_BYTES: usize = 24 * 1024;
/// Most characters of a reason or an address.
const TEXT_CHARS: usize = 200;

/// A skill that differs.
pub(super) struct ShownSkill {
    pub(super) name: String,
    /// The version, or `3 → 4`.
    pub(super) version: String,
    /// Where its files are compared.
    pub(super) href: Option<String>,
}

impl ShownSkill {
    /// Takes the room that it needs in a list; false where it does not fit.
    fn fits(&self, room: &mut Room) -> bool {
        let href = self.href.as_deref().unwrap_or_default();
        let text = format!("{href}{}{}", self.name, self.version);
        room.take(&text, AROUND_SKILL)
    }
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
    /// Names and reasons of withdrawn skills.
    pub(super) withdrawn: Vec<(String, String)>,
    /// How many withdrawn skills are left out.
    pub(super) more_withdrawn: usize,
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

/// What a page shows of the differences of two releases.
pub(super) enum Comparison {
    /// Everything in short.
    Whole(Box<ShownChanges>),
    /// The files of one skill, and nothing else, since both would not fit on a page.
    Skill(SkillFiles),
}

/// The files of one skill that differ.
pub(super) struct SkillFiles {
    pub(super) name: String,
    pub(super) difference: Difference,
    /// Why they are not compared.
    pub(super) unavailable: Option<&'static str>,
}

/// The differences of `after` from `before` at the address `here`, which with `?skill=` shows the
/// files of that skill.
pub(super) async fn comparison(
    page: &ConsolePage,
    before: Option<&Catalog>,
    after: &Catalog,
    here: &str,
) -> Result<Comparison, ErrorPage> {
    match (page.query.value("skill"), before) {
        (Some(name), Some(before)) => {
            let files = skill_files(page, before, after, name).await?;
            Ok(Comparison::Skill(files))
        }
        _ => {
            let changes = shown_changes(page, before, after, here).await?;
            Ok(Comparison::Whole(Box::new(changes)))
        }
    }
}

/// The files of a skill that both releases have.
async fn skill_files(
    page: &ConsolePage,
    from: &Catalog,
    to: &Catalog,
    name: &str,
) -> Result<SkillFiles, ErrorPage> {
    let name: SkillName = name.parse().map_err(|_| ErrorPage::NotFound)?;
    let (Some(old), Some(new)) = (from.skill(&name), to.skill(&name)) else {
        return Err(ErrorPage::NotFound);
    };
    let shelf = shelf(page);
    let pair = match skill_of_bundle(&*shelf, old).await {
        Ok(old) => skill_of_bundle(&*shelf, new).await.map(|new| (old, new)),
        Err(error) => Err(error),
    };
    let (difference, unavailable) = match pair {
        Ok((old, new)) => {
            let mut room = Room::new(DIFFERENCE_BYTES);
            let found = difference::files(&old.bundle.files, &new.bundle.files, &mut room);
            (found, None)
        }
        Err(error) => (Difference::default(), Some(unavailable(error)?)),
    };
    Ok(SkillFiles {
        name: name.to_string(),
        difference,
        unavailable,
    })
}

async fn shown_changes(
    page: &ConsolePage,
    before: Option<&Catalog>,
    after: &Catalog,
    here: &str,
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
    let groups = groups(&changes, here);
    let withdrawn = withdrawn(&changes.withdrawn, &mut Room::new(WITHDRAWN_BYTES));
    Ok(ShownChanges {
        from: changes.from,
        groups,
        more_withdrawn: changes.withdrawn.len() - withdrawn.len(),
        withdrawn,
        policy,
        notes: notes(&changes, before, after),
        expires: minute(after.expires_at),
    })
}

/// The skills that differ, as many as fit: groups share the room equally. A changed skill leads to
/// its files at `here`.
fn groups(changes: &CatalogChanges, here: &str) -> Vec<SkillGroup> {
    let plain = |entry: &SkillEntry| ShownSkill {
        name: entry.name.to_string(),
        version: entry.version.to_string(),
        href: None,
    };
    let compared = |(old, new): &(SkillEntry, SkillEntry)| ShownSkill {
        name: new.name.to_string(),
        version: format!("{} → {}", old.version, new.version),
        href: Some(with_query(here, &[("skill", new.name.as_str())])),
    };
    let (added, changed, removed) = (&changes.added, &changes.changed, &changes.removed);
    let totals = [added.len(), changed.len(), removed.len()];
    let shares = totals.iter().filter(|total| **total > 0).count().max(1);
    let group = |title, total, skills: &mut dyn Iterator<Item = ShownSkill>| {
        let mut room = Room::new(LISTS_BYTES / shares);
        SkillGroup {
            title,
            total,
            skills: skills
                .take(SKILLS_SHOWN)
                .take_while(|skill| skill.fits(&mut room))
                .collect(),
        }
    };
    let groups = [
        group("Added", added.len(), &mut added.iter().map(plain)),
        group("Changed", changed.len(), &mut changed.iter().map(compared)),
        group("Removed", removed.len(), &mut removed.iter().map(plain)),
    ];
    groups.into_iter().filter(|it| it.total > 0).collect()
}

/// Names and reasons of withdrawn skills, as far as there is room.
fn withdrawn(entries: &[Withdrawn], room: &mut Room) -> Vec<(String, String)> {
    let rows = entries.iter().take(SKILLS_SHOWN).map(|entry| {
        let reason = shortened(&entry.reason, TEXT_CHARS);
        (entry.name.to_string(), reason)
    });
    rows.take_while(|(name, reason)| room.take(&format!("{name}{reason}"), AROUND_SKILL))
        .collect()
}

/// Sentences about keys, addresses and profiles.
fn notes(changes: &CatalogChanges, before: Option<&Catalog>, after: &Catalog) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(before) = before.filter(|before| before.root_version != after.root_version) {
        notes.push(format!(
            "The key list changes from version {} to version {}.",
            before.root_version, after.root_version
        ));
    }
    if before.is_some() {
        let addresses = changes.audience.iter().take(10);
        notes.extend(addresses.map(|it| {
            let address = shortened(it, TEXT_CHARS);
            format!("The release may now also be served from {address}")
        }));
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
