//! The current release as the service keeps it: its catalog, the root versions beside it, and what it names.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use vault_format::catalog::{Catalog, CatalogError, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::root::{RootChain, RootError, RootState};
use vault_store::objects::{Class, ObjectKey};

use super::withdrawn;
use crate::App;
use crate::error::{Code, Refusal};
use crate::model::namespace::{Current, Namespace};
use crate::model::release::Closure;

/// The exact bytes of the current catalog's file.
pub(super) async fn current_bytes(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Bytes, Refusal> {
    let key = ObjectKey::new(namespace, Class::Catalogs, current.sha256);
    let object = app.cache.get(&*app.objects, &key).await?;
    Ok(object.ok_or_else(|| missing(&key))?.bytes)
}

/// The current catalog, which counted when it became current; its bytes are named by their hash, so they are the same.
pub(super) async fn current_catalog(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Catalog, Refusal> {
    let bytes = current_bytes(app, namespace, current).await?;
    SignedCatalog::parse(&bytes)
        .and_then(|file| file.read_counted(&current.payload_sha256))
        .map_err(damaged)
}

/// What the service knows of the vault's keys: the pinned chain, which is in the current catalog's file. After a reset of the pin it is
/// the chain in that file, so that the last release is still read.
pub(crate) fn read_state(
    namespace: &Namespace,
    file: &SignedCatalog,
) -> Result<RootState, CatalogError> {
    let Some(pin) = namespace.pin.vault() else {
        return Ok(RootState::new(
            RootChain::verify(file.roots())?,
            BTreeSet::new(),
        ));
    };
    let state = RootState::load(&pin.root1_sha256, file.roots(), pin.revoked.clone())?;
    if state.chain().newest().payload_sha256() != &pin.root_sha256 {
        let (shown, known) = (state.chain().version(), pin.root_version);
        return Err(RootError::RolledBack { shown, known }.into());
    }
    Ok(state)
}

/// [`read_state`] of the current catalog's object.
pub(super) async fn current_state(
    app: &App,
    namespace: &Namespace,
    current: &Current,
) -> Result<RootState, Refusal> {
    let bytes = current_bytes(app, namespace.id, current).await?;
    SignedCatalog::parse(&bytes)
        .and_then(|file| read_state(namespace, &file))
        .map_err(damaged)
}

fn damaged(error: CatalogError) -> Refusal {
    Refusal::new(Code::Internal).cause(error)
}

/// Everything that the current release names.
pub(crate) async fn current_closure(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Closure, Refusal> {
    let key = ObjectKey::new(namespace, Class::Closures, current.closure);
    let object = app
        .cache
        .get(&*app.objects, &key)
        .await?
        .ok_or_else(|| missing(&key))?;
    Ok(Closure::parse(&object.bytes)?)
}

fn missing(key: &ObjectKey) -> Refusal {
    Refusal::new(Code::Unavailable).cause(std::io::Error::other(format!(
        "the object {key} is missing from the object store"
    )))
}

/// Sets of hashes that were read out of large objects: what a release withdraws, what it names. By the object's hash, so never stale.
#[derive(Debug, Default)]
pub(crate) struct Sets(Mutex<HashMap<Digest, Arc<HashSet<Digest>>>>);

/// Most sets that are kept.
const MAX_SETS: usize = 32;

impl Sets {
    fn find(&self, of: &Digest) -> Option<Arc<HashSet<Digest>>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(of)
            .cloned()
    }

    fn keep(&self, of: Digest, set: HashSet<Digest>) -> Arc<HashSet<Digest>> {
        let set = Arc::new(set);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MAX_SETS {
            held.clear();
        }
        held.insert(of, Arc::clone(&set));
        set
    }
}

/// Whether the current release withdraws a bundle that has a mark.
pub(crate) async fn withdraws(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
    hash: &Digest,
) -> Result<bool, Refusal> {
    if current.is_earlier() {
        // Its catalog is not read any more: the mark alone decides, against giving the bundle out.
        return Ok(true);
    }
    let set = if let Some(set) = app.sets.find(&current.sha256) {
        set
    } else {
        let catalog = current_catalog(app, namespace, current).await?;
        app.sets.keep(current.sha256, withdrawn(&catalog).collect())
    };
    Ok(set.contains(hash))
}

/// Whether the current release names a bundle, directly or through another object.
pub(crate) async fn names_bundle(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
    hash: &Digest,
) -> Result<bool, Refusal> {
    if current.is_earlier() {
        return Ok(false);
    }
    let set = if let Some(set) = app.sets.find(&current.closure) {
        set
    } else {
        let closure = current_closure(app, namespace, current).await?;
        app.sets.keep(current.closure, closure.bundles().collect())
    };
    Ok(set.contains(hash))
}
