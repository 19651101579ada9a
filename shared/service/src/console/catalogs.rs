//! What releases list, and the vault's keys: each read once from the file of its catalog and kept
//! by the file's hash, so that a page about a large vault does not read it anew.

use std::sync::Arc;

use tokio::task::JoinError;
use vault_format::catalog::{Catalog, CatalogError, SignedCatalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, SkillName};
use vault_format::root::RootChain;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::recent::Recent;

use crate::app::App;
use crate::model::namespace::Namespace;

/// What was read lately. The hash is that of the catalog's file.
pub(super) struct Catalogs {
    lists: Recent<(NamespaceId, Digest), Arc<Catalog>>,
    chains: Recent<(NamespaceId, Digest), Arc<RootChain>>,
}

impl Default for Catalogs {
    fn default() -> Self {
        Self {
            // Half of it holds the releases that a skill's history compares, of 10,000 skills each.
            lists: Recent::new(32 << 20),
            chains: Recent::new(4 << 20),
        }
    }
}

impl Catalogs {
    /// The catalog with this payload, from the file with the hash `sha256`; `None` where the file
    /// is not kept any more.
    pub(super) async fn list(
        &self,
        app: &App,
        namespace: &Namespace,
        sha256: Digest,
        payload_sha256: Digest,
    ) -> Result<Option<Arc<Catalog>>, StoreError> {
        let key = (namespace.id, sha256);
        if let Some(catalog) = self.lists.find(&key) {
            return Ok(Some(catalog));
        }
        let read = move |file: SignedCatalog| file.read_counted(&payload_sha256);
        let catalog = read_file(app, namespace, sha256, read).await?.map(Arc::new);
        if let Some(catalog) = &catalog {
            self.lists.insert(key, Arc::clone(catalog), size(catalog));
        }
        Ok(catalog)
    }

    /// What the current release lists; `None` before the first.
    pub(super) async fn current(
        &self,
        app: &App,
        namespace: &Namespace,
    ) -> Result<Option<Arc<Catalog>>, StoreError> {
        let Some(current) = namespace.readable_current() else {
            return Ok(None);
        };
        let (file, payload) = (current.sha256, current.payload_sha256);
        let catalog = self.list(app, namespace, file, payload).await?;
        catalog.map(Some).ok_or_else(missing)
    }

    /// The versions of the vault's keys that the file of the current catalog has; `None` before the
    /// first release.
    pub(super) async fn chain(
        &self,
        app: &App,
        namespace: &Namespace,
    ) -> Result<Option<Arc<RootChain>>, StoreError> {
        let Some(current) = namespace.readable_current() else {
            return Ok(None);
        };
        let key = (namespace.id, current.sha256);
        if let Some(chain) = self.chains.find(&key) {
            return Ok(Some(chain));
        }
        let read = |file: SignedCatalog| Ok(RootChain::verify(file.roots())?);
        let chain = read_file(app, namespace, current.sha256, read).await?;
        let chain = Arc::new(chain.ok_or_else(missing)?);
        let size = 2 * chain.byte_length();
        self.chains.insert(key, Arc::clone(&chain), size);
        Ok(Some(chain))
    }
}

/// Reads something of the file of a catalog, on a thread for what takes long.
async fn read_file<T: Send + 'static>(
    app: &App,
    namespace: &Namespace,
    sha256: Digest,
    read: impl FnOnce(SignedCatalog) -> Result<T, CatalogError> + Send + 'static,
) -> Result<Option<T>, StoreError> {
    let key = namespace.object(Class::Catalogs, sha256);
    let Some(object) = app.object(&key).await? else {
        return Ok(None);
    };
    let reading = tokio::task::spawn_blocking(move || read(SignedCatalog::parse(&object.bytes)?));
    let found = reading.await.map_err(|broken| task_ended(&broken))?;
    found
        .map(Some)
        .map_err(|error| StoreError::Corrupt(format!("the catalog {sha256}: {error}")))
}

/// The current catalog is not there.
pub(super) fn missing() -> StoreError {
    StoreError::unavailable("the current catalog is missing from the object store")
}

/// A task on another thread ended unexpectedly.
pub(super) fn task_ended(broken: &JoinError) -> StoreError {
    StoreError::unavailable(format!("a task ended: {broken}"))
}

/// What a catalog takes in memory, roughly.
fn size(catalog: &Catalog) -> usize {
    let skills = catalog.skills.len() * (size_of::<SkillEntry>() + size_of::<SkillName>());
    let names = catalog.skills.iter().map(|skill| skill.name.as_str().len());
    let withdrawn = catalog
        .withdrawn
        .iter()
        .map(|entry| entry.reason.len() + 256);
    let profiles = catalog.profiles.iter().map(|entry| entry.name.len() + 256);
    4096 + skills + names.sum::<usize>() + withdrawn.sum::<usize>() + profiles.sum::<usize>()
}
