//! In which releases a skill changed, as far as their catalogs are kept.

use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::Cache;
use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};

/// Most releases that are compared, the newest ones.
const MOST_COMPARED: u64 = 8;

/// A release in which a skill changed.
pub(super) struct Changed {
    pub(super) release: u64,
    pub(super) published_at: Timestamp,
    /// The version that the skill has from it on; `None` where the release removed it.
    pub(super) version: Option<u64>,
}

/// The releases in which a skill changed.
pub(super) struct History {
    /// The newest first.
    pub(super) changes: Vec<Changed>,
    /// The oldest release that was compared. All between it and the current one were, too.
    pub(super) since: Option<u64>,
}

impl History {
    /// Reads the newest releases and compares what each has under the name.
    pub(super) async fn read(
        app: &App,
        cache: &Cache,
        namespace: &Namespace,
        name: &SkillName,
    ) -> Result<Self, StoreError> {
        let mut before: Option<Option<(u64, Digest)>> = None;
        let (mut changes, mut since) = (Vec::new(), None);
        for release in newest(app, namespace).await? {
            let (file, payload) = (release.sha256, release.payload_sha256);
            let catalog = match cache.catalogs.list(app, namespace, file, payload).await {
                Err(StoreError::Corrupt(_)) => None,
                read => read?,
            };
            let Some(catalog) = catalog else {
                // Its catalog is not kept any more, or does not read, so nothing is known of what
                // it changed: the comparison begins anew behind it.
                (before, since) = (None, None);
                changes.clear();
                continue;
            };
            since.get_or_insert(release.release);
            let found = catalog.skill(name);
            let found = found.map(|skill| (skill.version, skill.bundle_hash));
            if before.is_some_and(|before| before != found) {
                changes.push(Changed {
                    release: release.release,
                    published_at: release.published_at,
                    version: found.map(|(version, _)| version),
                });
            }
            before = Some(found);
        }
        changes.reverse();
        Ok(Self { changes, since })
    }
}

/// The newest releases under the root version that is pinned, the oldest first.
async fn newest(app: &App, namespace: &Namespace) -> Result<Vec<Release>, StoreError> {
    let (Some(current), Some(pin)) = (namespace.readable_current(), namespace.pin.vault()) else {
        return Ok(Vec::new());
    };
    let (mut found, mut root) = (Vec::new(), pin.root_version);
    let first = current.release.saturating_sub(MOST_COMPARED);
    // A root version may have begun only lately: the releases before it stand under the one before.
    while found.is_empty() && root > 0 {
        let after = release::sort_key(root, first);
        let partition = release::partition(&namespace.id);
        let most = usize::try_from(MOST_COMPARED).unwrap_or(usize::MAX);
        let page = app.records.list(&partition, "", Some(&after), most).await?;
        for record in page {
            let release: Release = record.read()?;
            if release.root_version == root {
                found.push(release);
            }
        }
        root -= 1;
    }
    Ok(found)
}
