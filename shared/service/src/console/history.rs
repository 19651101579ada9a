//! In which releases a skill changed, as far as their catalogs are kept, and which keys may sign.

use std::collections::BTreeMap;
use std::sync::Arc;

use vault_format::catalog::SignedCatalog;
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::root::RootState;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::Class;

use super::Memory;
use super::skills::broken;
use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};
use crate::oauth::stop::Stop;
use crate::publish::read_state;

/// Most releases that are compared, the newest ones.
const MOST_COMPARED: u64 = 8;

/// Version and bundle of each skill of a release.
pub(super) type Versions = BTreeMap<SkillName, (u64, Digest)>;

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
    /// The oldest release that was compared; what came before it is not told.
    pub(super) since: Option<u64>,
}

impl History {
    /// Reads the newest releases and compares what each has under the name.
    pub(super) async fn read(
        app: &App,
        memory: &Memory,
        namespace: &Namespace,
        name: &SkillName,
    ) -> Result<Self, Stop> {
        let mut before: Option<Option<(u64, Digest)>> = None;
        let (mut changes, mut since) = (Vec::new(), None);
        for release in newest(app, namespace).await? {
            let Some(versions) = versions(app, memory, namespace, &release).await? else {
                // Its catalog is not kept any more, so the next one has nothing to be compared with.
                before = None;
                continue;
            };
            since.get_or_insert(release.release);
            let found = versions.get(name).copied();
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

/// The skills of a release; `None` where its catalog is not kept any more, or does not read.
async fn versions(
    app: &App,
    memory: &Memory,
    namespace: &Namespace,
    release: &Release,
) -> Result<Option<Arc<Versions>>, Stop> {
    let key = (namespace.id, release.sha256);
    if let Some(versions) = memory.versions.find(&key) {
        return Ok(Some(versions));
    }
    let place = namespace.object(Class::Catalogs, release.sha256);
    let Some(object) = app.object(&place).await? else {
        return Ok(None);
    };
    let payload = release.payload_sha256;
    let reading = tokio::task::spawn_blocking(move || {
        let file = SignedCatalog::parse(&object.bytes);
        let catalog = file.and_then(|file| file.read_counted(&payload)).ok()?;
        let skills = catalog.skills.into_iter();
        let versions = skills.map(|skill| (skill.name, (skill.version, skill.bundle_hash)));
        Some(Arc::new(versions.collect::<Versions>()))
    });
    let versions = reading.await.map_err(broken)?;
    if let Some(versions) = &versions {
        // A name, a number and a hash, with the tree's own share.
        let size = versions.len() * 128;
        memory.versions.insert(key, Arc::clone(versions), size);
    }
    Ok(versions)
}

/// The vault's keys, as the file of the current catalog has them; `None` where there is none that reads.
pub(super) async fn keys(
    app: &App,
    memory: &Memory,
    namespace: &Namespace,
) -> Result<Option<Arc<RootState>>, Stop> {
    let Some(current) = namespace.readable_current() else {
        return Ok(None);
    };
    let key = (namespace.id, current.sha256);
    if let Some(state) = memory.roots.find(&key) {
        return Ok(Some(state));
    }
    let place = namespace.object(Class::Catalogs, current.sha256);
    let Some(object) = app.object(&place).await? else {
        return Ok(None);
    };
    let home = namespace.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let file = SignedCatalog::parse(&object.bytes).ok()?;
        read_state(&home, &file).ok().map(Arc::new)
    });
    let state = reading.await.map_err(broken)?;
    if let Some(state) = &state {
        let size = 2 * state.chain().byte_length();
        memory.roots.insert(key, Arc::clone(state), size);
    }
    Ok(state)
}
