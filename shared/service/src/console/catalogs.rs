//! Caches of catalogs and of the keys of vaults. The signed file of a catalog contains both; each
//! is parsed once and cached under the hash of the file, so that a page about a large vault does
//! not parse it again.

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

/// Parsed catalogs and key lists, by namespace and SHA-256 of the catalog's file.
pub(super) struct Catalogs {
    /// Parsed catalogs: up to 32 MiB.
    lists: Recent<(NamespaceId, Digest), Arc<Catalog>>,
    /// Root chains, each with all versions of a vault's list of keys: up to 4 MiB.
    chains: Recent<(NamespaceId, Digest), Arc<RootChain>>,
}

impl Default for Catalogs {
    fn default() -> Self {
        Self {
            // Half of this room suffices for the releases that the history of a skill compares,
            // with 10,000 skills each.
            lists: Recent::new(32 << 20),
            chains: Recent::new(4 << 20),
        }
    }
}

impl Catalogs {
    /// Returns the catalog with this payload, from the file with the hash `sha256`; `None` if the
    /// file is no longer stored.
    pub(super) async fn get_catalog(
        &self,
        app: &App,
        namespace: &Namespace,
        sha256: Digest,
        payload_sha256: Digest,
    ) -> Result<Option<Arc<Catalog>>, StoreError> {
        // The key contains the namespace, so that no vault gets what another one has cached.
        let key = (namespace.id, sha256);
        if let Some(catalog) = self.lists.find(&key) {
            return Ok(Some(catalog));
        }
        let read = move |file: SignedCatalog| file.read_counted(&payload_sha256);
        let catalog = read_file(app, namespace, sha256, read).await?.map(Arc::new);
        if let Some(catalog) = &catalog {
            self.lists
                .insert_value(key, Arc::clone(catalog), estimate_size(catalog));
        }
        Ok(catalog)
    }

    /// Returns the current catalog; `None` before the first release.
    pub(super) async fn current_catalog(
        &self,
        app: &App,
        namespace: &Namespace,
    ) -> Result<Option<Arc<Catalog>>, StoreError> {
        let Some(current) = namespace.readable_current() else {
            return Ok(None);
        };
        let (file, payload) = (current.sha256, current.payload_sha256);
        let catalog = self.get_catalog(app, namespace, file, payload).await?;
        // Older catalogs may have been deleted, but the current one must be stored, so its absence
        // is an error.
        catalog.map(Some).ok_or_else(missing_catalog)
    }

    /// Returns the root chain in the file of the current catalog; `None` before the first release.
    pub(super) async fn key_chain(
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
        let chain = Arc::new(chain.ok_or_else(missing_catalog)?);
        let size = 2 * chain.byte_length();
        self.chains.insert_value(key, Arc::clone(&chain), size);
        Ok(Some(chain))
    }
}

/// Loads the file of a catalog and parses it with `read`; `None` if it is no longer stored.
async fn read_file<T: Send + 'static>(
    app: &App,
    namespace: &Namespace,
    sha256: Digest,
    read: impl FnOnce(SignedCatalog) -> Result<T, CatalogError> + Send + 'static,
) -> Result<Option<T>, StoreError> {
    let key = namespace.object_key(Class::Catalogs, sha256);
    let Some(object) = app.object(&key).await? else {
        return Ok(None);
    };
    // A catalog of 10,000 skills takes tens of milliseconds to parse, so it is parsed on a blocking
    // thread.
    let reading = tokio::task::spawn_blocking(move || read(SignedCatalog::parse(&object.bytes)?));
    let parsed = reading.await.map_err(|broken| task_failed(&broken))?;
    parsed
        .map(Some)
        .map_err(|error| StoreError::Corrupt(format!("the catalog {sha256}: {error}")))
}

/// Returns the error for a current catalog that is not stored.
pub(super) fn missing_catalog() -> StoreError {
    StoreError::unavailable("the current catalog is missing from the object store")
}

/// Returns the error for a task on another thread that ended unexpectedly.
pub(super) fn task_failed(broken: &JoinError) -> StoreError {
    StoreError::unavailable(format!("a task ended: {broken}"))
}

/// Estimates the memory that a catalog takes, in bytes.
fn estimate_size(catalog: &Catalog) -> usize {
    let skills = catalog.skills.len() * (size_of::<SkillEntry>() + size_of::<SkillName>());
    let names = catalog.skills.iter().map(|skill| skill.name.as_str().len());
    let withdrawn = catalog
        .withdrawn
        .iter()
        .map(|entry| entry.reason.len() + 256);
    let profiles = catalog.profiles.iter().map(|entry| entry.name.len() + 256);
    4096 + skills + names.sum::<usize>() + withdrawn.sum::<usize>() + profiles.sum::<usize>()
}
