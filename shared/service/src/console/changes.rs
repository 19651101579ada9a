//! Differences of two releases for a page: a summary of everything, or the files of one skill.

use std::collections::BTreeSet;

use vault_format::catalog::{Catalog, CatalogChanges, RootChanges, SkillEntry, Withdrawn};
use vault_format::name::SkillName;
use vault_format::root::{RootChain, RootState};
use vault_store::StoreError;

use super::content::{open_shelf, policy_text, readable_chain, skill_of_bundle, unavailable_text};
use super::difference::{self, DIFFERENCE_BYTES, DiffLine, Difference, HtmlBudget, shorten_text};
use super::guard::ConsolePage;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;

/// Maximum number of skills in each list on the page.
const SKILLS_SHOWN: usize = 150;
/// Maximum size of the lists of skills that differ, in bytes of HTML.
const LISTS_BYTES: usize = 24 * 1024;
/// Maximum size of the list of withdrawn skills, in bytes of HTML.
const WITHDRAWN_BYTES: usize = 8 * 1024;
/// Bytes of the HTML elements around a skill in a list.
const AROUND_SKILL: usize = 96;
/// Maximum size of a policy's differences, in bytes of HTML.
const POLICY_BYTES: usize = 24 * 1024;
/// Maximum size of the lines about all other differences, in bytes of HTML.
const NOTES_BYTES: usize = 16 * 1024;
/// Bytes of the HTML elements around one line of [`ReleaseChanges::notes`].
const AROUND_NOTE: usize = 16;
/// Maximum length of one line of [`ReleaseChanges::notes`], in characters.
const LINE_CHARS: usize = 500;
/// Maximum length of a reason or an address, in characters.
const TEXT_CHARS: usize = 200;

/// A skill that differs between the releases.
pub(super) struct ChangedSkill {
    pub(super) name: String,
    /// The version number, or `3 → 4` for a changed skill.
    pub(super) version: String,
    /// Address of the page that compares its files; `None` for an added or removed skill.
    pub(super) href: Option<String>,
}

impl ChangedSkill {
    /// Takes the bytes that the skill needs from `room`. Returns false if they do not fit.
    fn fits_in(&self, room: &mut HtmlBudget) -> bool {
        let href = self.href.as_deref().unwrap_or_default();
        let text = format!("{href}{}{}", self.name, self.version);
        room.take_text(&text, AROUND_SKILL)
    }
}

/// The skills that were added, changed or removed.
pub(super) struct SkillGroup {
    /// `Added`, `Changed` or `Removed`.
    pub(super) title: &'static str,
    pub(super) total: usize,
    pub(super) skills: Vec<ChangedSkill>,
}

impl SkillGroup {
    /// Returns the number of skills that the page leaves out.
    pub(super) fn more(&self) -> usize {
        self.total - self.skills.len()
    }
}

/// Summary of the differences of two releases.
pub(super) struct ReleaseChanges {
    /// Number of the earlier release; `None` if there is none.
    pub(super) from: Option<u64>,
    pub(super) groups: Vec<SkillGroup>,
    /// Names of newly withdrawn skills, each with its reason.
    pub(super) withdrawn: Vec<(String, String)>,
    /// Number of withdrawn skills that the page leaves out.
    pub(super) more_withdrawn: usize,
    /// Lines of the policy that differ, and whether these are all; `None` if the policy is the
    /// same.
    pub(super) policy: Option<(Vec<DiffLine>, bool)>,
    /// Sentences about all other differences, such as a change of the keys.
    pub(super) notes: Vec<String>,
    /// Expiry of the later release, formatted for people.
    pub(super) expires: String,
}

impl ReleaseChanges {
    /// Whether the releases do not differ, apart from their expiry.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
            && self.withdrawn.is_empty()
            && self.policy.is_none()
            && self.notes.is_empty()
    }
}

/// Differences of two releases that a page shows.
pub(super) enum Comparison {
    /// The summary of everything that differs.
    Whole(Box<ReleaseChanges>),
    /// Only the files of one skill, because a page has no room for both.
    Skill(SkillFiles),
}

pub(super) struct SkillFiles {
    pub(super) name: String,
    pub(super) difference: Difference,
    /// Message if the files cannot be compared.
    pub(super) unavailable: Option<&'static str>,
}

/// Compares `after` with `before` for the page at the address `here`. With `?skill=`, compares only
/// the files of that skill.
pub(super) async fn compare_releases(
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

/// Compares the files of a skill that both releases have.
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
    let shelf = open_shelf(page);
    // Both are needed: without one of them, every file would look added or removed.
    let pair = match skill_of_bundle(&*shelf, old).await {
        Ok(old) => skill_of_bundle(&*shelf, new).await.map(|new| (old, new)),
        Err(error) => Err(error),
    };
    let (difference, unavailable) = match pair {
        Ok((old, new)) => {
            let mut room = HtmlBudget::new(DIFFERENCE_BYTES);
            let compared =
                difference::compare_files(&old.bundle.files, &new.bundle.files, &mut room);
            (compared, None)
        }
        Err(error) => (Difference::default(), Some(unavailable_text(error)?)),
    };
    Ok(SkillFiles {
        name: name.to_string(),
        difference,
        unavailable,
    })
}

/// Compares two releases, except for the files of skills.
async fn shown_changes(
    page: &ConsolePage,
    before: Option<&Catalog>,
    after: &Catalog,
    here: &str,
) -> Result<ReleaseChanges, StoreError> {
    let changes = CatalogChanges::between(before, after);
    let policy = match changes.policy {
        None => None,
        Some((old, new)) => {
            let old = policy_text(page, old.map(|entry| entry.sha256)).await?;
            let new = policy_text(page, new.map(|entry| entry.sha256)).await?;
            let lines = old.zip(new).map(|(old, new)| {
                difference::compare_texts(&old, &new, &mut HtmlBudget::new(POLICY_BYTES))
            });
            // If a text is no longer stored, the page can only say that the policies differ.
            Some(lines.unwrap_or((Vec::new(), false)))
        }
    };
    // If the keys cannot be read, the page shows fingerprints without names.
    let (chain, _) = readable_chain(page).await;
    let groups = group_skills(&changes, here);
    let withdrawn = list_withdrawn(&changes.withdrawn, &mut HtmlBudget::new(WITHDRAWN_BYTES));
    Ok(ReleaseChanges {
        from: changes.from,
        groups,
        more_withdrawn: changes.withdrawn.len() - withdrawn.len(),
        withdrawn,
        policy,
        notes: describe_rest(&changes, after, chain.as_deref()),
        expires: format_minute(after.expires_at),
    })
}

/// Returns the lists of skills that differ, as far as they fit. A changed skill links to the
/// comparison of its files below `here`.
fn group_skills(changes: &CatalogChanges, here: &str) -> Vec<SkillGroup> {
    let plain = |entry: &SkillEntry| ChangedSkill {
        name: entry.name.to_string(),
        version: entry.version.to_string(),
        href: None,
    };
    let compared = |(old, new): &(SkillEntry, SkillEntry)| ChangedSkill {
        name: new.name.to_string(),
        version: format!("{} → {}", old.version, new.version),
        href: Some(with_query(here, &[("skill", new.name.as_str())])),
    };
    let (added, changed, removed) = (&changes.added, &changes.changed, &changes.removed);
    let totals = [added.len(), changed.len(), removed.len()];
    // Each list gets the same room, so that many changed skills leave some for removed ones.
    let shares = totals.iter().filter(|total| **total > 0).count().max(1);
    let group = |title, total, skills: &mut dyn Iterator<Item = ChangedSkill>| {
        let mut room = HtmlBudget::new(LISTS_BYTES / shares);
        SkillGroup {
            title,
            total,
            skills: skills
                .take(SKILLS_SHOWN)
                .take_while(|skill| skill.fits_in(&mut room))
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

/// Returns the names of withdrawn skills with their reasons, as far as they fit into `room`.
fn list_withdrawn(entries: &[Withdrawn], room: &mut HtmlBudget) -> Vec<(String, String)> {
    let rows = entries.iter().take(SKILLS_SHOWN).map(|entry| {
        let reason = shorten_text(&entry.reason, TEXT_CHARS);
        (entry.name.to_string(), reason)
    });
    rows.take_while(|(name, reason)| room.take_text(&format!("{name}{reason}"), AROUND_SKILL))
        .collect()
}

/// Returns lines about all differences that have no section of their own on the page. `chain` is
/// the root chain of the vault, with the root versions of both releases.
fn describe_rest(
    changes: &CatalogChanges,
    after: &Catalog,
    chain: Option<&RootChain>,
) -> Vec<String> {
    // The other sections of the page show these differences.
    let rest = CatalogChanges {
        added: Vec::new(),
        changed: Vec::new(),
        removed: Vec::new(),
        withdrawn: Vec::new(),
        policy: None,
        expires_at: (Some(after.expires_at), after.expires_at),
        audience: match changes.from {
            Some(_) => changes.audience.clone(),
            None => Vec::new(),
        },
        ..changes.clone()
    };
    let mut lines = rest.describe_lines(chain);
    // The chain is cut at the root version of the later release, because later changes of keys are
    // not part of it.
    if let (Some((before, _)), Some(chain)) = (changes.root, chain) {
        let chain = chain.until_version(after.root_version);
        let state = chain.map(|chain| RootState::new(chain, BTreeSet::new()));
        let keys = state.and_then(|state| RootChanges::since_version(before.version, &state));
        lines.extend(keys.iter().flat_map(RootChanges::describe_lines));
    }
    let mut room = HtmlBudget::new(NOTES_BYTES);
    let texts = lines
        .iter()
        .map(|line| shorten_text(&line.text, LINE_CHARS));
    let mut notes: Vec<String> = texts
        .take_while(|text| room.take_text(text, AROUND_NOTE))
        .collect();
    // Lines that do not fit are counted, so that no difference is left out silently.
    let more = lines.len() - notes.len();
    if more > 0 {
        notes.push(format!("… and {more} more differences"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use vault_format::catalog::{ObjectEntry, Schema};
    use vault_format::hash::Digest;
    use vault_format::keys::SecretKey;
    use vault_format::root::VaultId;
    use vault_format::time::Timestamp;

    use super::*;

    fn catalog(release: u64) -> Catalog {
        let hash = Digest::of(b"one");
        Catalog {
            schema: Schema,
            vault_id: VaultId::derive(&hash),
            slug: "acme".parse().unwrap(),
            audience: vec!["https://vault.example/v/acme/".to_owned()],
            release,
            issued_at: Timestamp::from_unix(0),
            expires_at: Timestamp::from_unix(86_400).plus_days(release.cast_signed()),
            public_key: SecretKey::from_seed([7; 32]).public(),
            root_version: 1,
            root_sha256: hash,
            previous: None,
            skills: Vec::new(),
            index: Vec::new(),
            policy: None,
            profiles: Vec::new(),
            withdrawn: vec![Withdrawn {
                name: "tool".parse().unwrap(),
                bundle_hash: hash,
                reason: "it was wrong".to_owned(),
                since_release: 1,
            }],
        }
    }

    #[test]
    fn what_has_no_place_of_its_own_has_a_line() {
        let (before, mut after) = (catalog(1), catalog(2));
        let said = |after: &Catalog| {
            let changes = CatalogChanges::between(Some(&before), after);
            describe_rest(&changes, after, None).join("\n")
        };
        assert_eq!(said(&after), "", "when it expires is shown above");
        after.withdrawn.clear();
        after.audience.clear();
        after.index.push(ObjectEntry {
            bundle_hash: Digest::of(b"two"),
            size: 2,
        });
        after.root_version = 2;
        let text = said(&after);
        for part in [
            "no longer withdrawn: tool",
            "may no longer be served from",
            "search texts",
            "keys of the vault: version 1 → 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        after.audience = (0..1_000)
            .map(|at| format!("https://{at}.example/"))
            .collect();
        let text = said(&after);
        assert!(text.ends_with("more differences"), "{text}");
        assert!(text.len() < NOTES_BYTES + LINE_CHARS, "{}", text.len());
    }
}
