//! The current release as the service stores it: the file of its catalog, which also contains the
//! root versions, and its *closure*, the list of all objects that the release needs, directly or
//! through other objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use vault_format::catalog::{Catalog, CatalogError, FormerSkills, LastCatalog, SignedCatalog};
use vault_format::name::NamespaceId;
use vault_format::root::{RootChain, RootError, RootState};
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};

use crate::app::App;
use crate::model::namespace::{Current, Namespace};
use crate::model::release::Closure;

/// Reads the bytes of the current catalog's file, exactly as they were published.
async fn current_bytes(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Bytes, StoreError> {
    let key = ObjectKey::new(namespace, Class::Catalogs, current.sha256);
    let object = app.object(&key).await?;
    Ok(object.ok_or_else(|| missing_object(&key))?.bytes)
}

/// Reads the current catalog. Its signatures are not checked again: they were when it became
/// current, and its bytes are stored under their hash.
pub(crate) async fn current_catalog(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Catalog, StoreError> {
    let bytes = current_bytes(app, namespace, current).await?;
    SignedCatalog::parse(&bytes)
        .and_then(|file| file.read_counted(&current.payload_sha256))
        .map_err(|error| damaged_catalog(&error))
}

/// Reads the state of the vault's keys: the pinned chain of root versions, which the file of the
/// current catalog contains. After a reset of the pin, the chain in that file is taken, so that the
/// last release can still be read.
pub(crate) fn read_state(
    namespace: &Namespace,
    file: &SignedCatalog,
) -> Result<RootState, CatalogError> {
    let Some(pin) = namespace.pin.vault_pin() else {
        return Ok(RootState::new(
            RootChain::verify(file.roots())?,
            BTreeSet::new(),
        ));
    };
    let state = RootState::load(&pin.root1_sha256, file.roots(), pin.revoked.clone())?;
    // The file must contain the newest pinned version: an older chain would restore keys that have
    // been revoked since.
    if state.chain().newest().payload_sha256() != &pin.root_sha256 {
        let (shown, known) = (state.chain().version(), pin.root_version);
        return Err(RootError::RolledBack { shown, known }.into());
    }
    Ok(state)
}

/// The current release, on which a new one builds.
#[derive(Default)]
pub(super) struct PublishBase {
    /// The pinned vault; `None` before the first release and after a reset of the pin.
    pub(super) known: Option<PinnedVault>,
    /// The last release, in a namespace whose pin was reset.
    unpinned: Option<Catalog>,
}

/// The pinned vault and its last accepted release.
pub(super) struct PinnedVault {
    pub(super) state: RootState,
    pub(super) last: LastCatalog,
}

impl PublishBase {
    pub(super) async fn read_base(app: &App, namespace: &Namespace) -> Result<Self, StoreError> {
        let Some(current) = namespace.readable_current() else {
            return Ok(Self::default());
        };
        let Some(pin) = namespace.pin.vault_pin() else {
            return Ok(Self {
                // After a reset of the pin, the old keys no longer count. Only the catalog is
                // needed, to compare the new one with.
                known: None,
                unpinned: Some(current_catalog(app, namespace.id, current).await?),
            });
        };
        let bytes = current_bytes(app, namespace.id, current).await?;
        let read = || {
            let state = read_state(namespace, &SignedCatalog::parse(&bytes)?)?;
            let last =
                LastCatalog::read_stored(&bytes, &current.payload_sha256, pin.signers.clone())?;
            Ok(PinnedVault { state, last })
        };
        Ok(Self {
            known: Some(read().map_err(|error| damaged_catalog(&error))?),
            unpinned: None,
        })
    }

    /// Returns the last accepted catalog of the pinned vault, if there is one.
    pub(super) fn last_catalog(&self) -> Option<&Catalog> {
        self.known.as_ref().map(|known| &known.last.catalog)
    }

    /// Reads the closure of the current release, even if the release belongs to another vault than
    /// the pinned one. After a reset of the pin, the closure has no former skills: the versions of
    /// the old vault do not bind the new one.
    pub(super) async fn read_closure(
        &self,
        app: &App,
        namespace: &Namespace,
    ) -> Result<Closure, StoreError> {
        let Some(current) = namespace.readable_current() else {
            return Ok(Closure::default());
        };
        let mut closure = current_closure(app, namespace.id, current).await?;
        if self.known.is_none() {
            closure.former = FormerSkills::default();
        }
        Ok(closure)
    }

    /// Returns the current catalog, even if it belongs to another vault.
    pub(super) fn replaced_catalog(&self) -> Option<&Catalog> {
        self.last_catalog().or(self.unpinned.as_ref())
    }
}

fn damaged_catalog(error: &CatalogError) -> StoreError {
    StoreError::Corrupt(format!("the current catalog: {}", error_chain(error)))
}

/// Reads the closure of the current release.
pub(crate) async fn current_closure(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Closure, StoreError> {
    let key = ObjectKey::new(namespace, Class::Closures, current.closure);
    let object = app
        .object(&key)
        .await?
        .ok_or_else(|| missing_object(&key))?;
    Closure::parse(&object.bytes)
}

fn missing_object(key: &ObjectKey) -> StoreError {
    StoreError::unavailable(format!("the object {key} is missing from the object store"))
}
