//! History of a skill: the releases in which it changed, as far as their catalogs are still stored.

use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::Cache;
use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};

/// Maximum number of releases that are compared, from the newest back.
const MAX_COMPARED: u64 = 8;

pub(super) struct SkillChange {
    pub(super) release: u64,
    pub(super) published_at: Timestamp,
    /// Version of the skill from this release on; `None` if the release removed the skill.
    pub(super) version: Option<u64>,
}

/// The changes of a skill, and the range of releases in which they were searched for.
pub(super) struct History {
    /// The changes, newest first, within the range that was compared.
    pub(super) changes: Vec<SkillChange>,
    /// Oldest release of the unbroken range up to the current one that was compared; `None` if
    /// nothing was.
    pub(super) since: Option<u64>,
}

impl History {
    /// Reads the newest releases, and compares the skill of this name in each with the one before.
    pub(super) async fn read_history(
        app: &App,
        cache: &Cache,
        namespace: &Namespace,
        name: &SkillName,
    ) -> Result<Self, StoreError> {
        let mut before: Option<Option<(u64, Digest)>> = None;
        let (mut changes, mut since) = (Vec::new(), None);
        for release in newest_releases(app, namespace).await? {
            let (file, payload) = (release.sha256, release.payload_sha256);
            let catalog = match cache
                .catalogs
                .get_catalog(app, namespace, file, payload)
                .await
            {
                // A damaged catalog is a gap in the history, but a store that fails is an error.
                Err(StoreError::Corrupt(_)) => None,
                read => read?,
            };
            let Some(catalog) = catalog else {
                // The catalog is no longer stored or cannot be parsed. A change between its
                // neighbours could belong to any of the three, so the comparison begins again after
                // it.
                (before, since) = (None, None);
                changes.clear();
                continue;
            };
            since.get_or_insert(release.release);
            let entry = catalog.skill(name);
            let present = entry.map(|skill| (skill.version, skill.bundle_hash));
            // For the first release that is read, the previous one is unknown, so it shows no
            // change.
            if before.is_some_and(|before| before != present) {
                changes.push(SkillChange {
                    release: release.release,
                    published_at: release.published_at,
                    version: present.map(|(version, _)| version),
                });
            }
            before = Some(present);
        }
        changes.reverse();
        Ok(Self { changes, since })
    }
}

/// Returns the newest releases, oldest first. If two releases have one number, the one under the
/// higher root version counts.
async fn newest_releases(app: &App, namespace: &Namespace) -> Result<Vec<Release>, StoreError> {
    let (Some(current), Some(pin)) = (namespace.readable_current(), namespace.pin.vault_pin())
    else {
        return Ok(Vec::new());
    };
    let (mut releases, mut root) = (Vec::<Release>::new(), pin.root_version);
    // The keys of records are in the order of release numbers, so the newest can be read without
    // the earlier ones.
    let first = current.release.saturating_sub(MAX_COMPARED);
    // Releases before a change of keys are stored under an earlier root version, and a root version
    // may have none. So the versions are read backwards until the first release in question.
    let is_first = |release: &Release| release.release <= first.max(1);
    while root > 0 && !releases.first().is_some_and(is_first) {
        let after = release::sort_key(root, first);
        let partition = release::releases_partition(&namespace.id);
        let most = usize::try_from(MAX_COMPARED).unwrap_or(usize::MAX);
        let page = app
            .records
            .list_page(&partition, "", Some(&after), most)
            .await?;
        let mut older = Vec::new();
        for record in page {
            let release: Release = record.read()?;
            // After the revocation of a stolen key, the numbers of the thief's releases are used
            // again, and the new releases replace them.
            let is_replaced = releases
                .first()
                .is_some_and(|next| next.release <= release.release);
            if release.root_version == root && !is_replaced {
                older.push(release);
            }
        }
        older.append(&mut releases);
        releases = older;
        root -= 1;
    }
    Ok(releases)
}
