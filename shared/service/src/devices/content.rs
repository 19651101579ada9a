//! `GET /v/<slug>/catalog.json` and `GET /v/<slug>/bundles/<bundle_hash>.json`. Both answer with
//! the stored bytes and never serialise them again, because hashes and signatures cover exactly
//! these bytes.

use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::Response;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::recent::Recent;

use super::enrolled::DeviceAccess;
use super::signed::Signer;
use crate::app::App;
use crate::cache::Object;
use crate::error::{ErrorCode, Refusal};
use crate::model::device;
use crate::model::namespace::Current;
use crate::model::release::{WithdrawnMark, withdrawn_key};
use crate::publish::{current_catalog, current_closure};

/// Answers with the catalog of the current release, for a device that waits for admission or is
/// admitted.
pub(super) async fn read_catalog(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let visit = device::seen_key(slug, signer.key_text());
    let enrolled = DeviceAccess::look_up(app, slug, signer, Some(visit)).await?;
    enrolled.may_read_catalog()?;
    let Some(current) = &enrolled.namespace.current else {
        return Err(ErrorCode::CatalogNotPublished.into());
    };
    let key = enrolled
        .namespace
        .object_key(Class::Catalogs, current.sha256);
    match app.object(&key).await? {
        Some(object) => {
            let release = Some(current.release);
            enrolled.note_visit(app, slug, signer, release).await;
            Ok(exact_answer(object))
        }
        // The namespace record names this object, so its absence is a fault of the service and
        // never a 404.
        None => Err(StoreError::unavailable(
            "the current catalog is missing from the object store",
        )
        .into()),
    }
}

/// Answers with a bundle, for an admitted device, unless the current release withdraws it.
pub(super) async fn read_bundle(
    app: &App,
    sets: &BundleSetCache,
    slug: &Slug,
    hash: &Digest,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let mark = withdrawn_key(slug, hash);
    let enrolled = DeviceAccess::look_up(app, slug, signer, Some(mark)).await?;
    enrolled.may_read_bundles(app.clock.now())?;
    let namespace = &enrolled.namespace;
    // Hardly any bundle has the mark of a withdrawn one, and only then the catalog's list of
    // withdrawn bundles is read. The mark alone does not decide, because a later release may have
    // lifted the withdrawal.
    if let (Some(mark), Some(current)) = (&enrolled.extra, &namespace.current) {
        let mark: WithdrawnMark = mark.read()?;
        if mark.namespace_id == namespace.id
            && sets.is_withdrawn(app, namespace.id, current, hash).await?
        {
            return Err(ErrorCode::BundleNotFound.into());
        }
    }
    let key = namespace.object_key(Class::Bundles, *hash);
    if let Some(object) = app.object(&key).await? {
        return Ok(exact_answer(object));
    }
    // A bundle that the release names must exist, so its absence is a fault of the service. Any
    // other hash is not found.
    match &namespace.current {
        Some(current) if sets.is_named(app, namespace.id, current, hash).await? => Err(
            Refusal::new(ErrorCode::BundleUnavailable).cause(std::io::Error::other(format!(
                "the object {key} is missing from the object store"
            ))),
        ),
        _ => Err(ErrorCode::BundleNotFound.into()),
    }
}

/// Returns stored bytes unchanged, with their digest in the header `Repr-Digest` (RFC 9530).
fn exact_answer(object: Object) -> Response {
    let mut response = Response::new(Body::from(object.bytes));
    let headers = response.headers_mut();
    headers.reserve(6);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(HeaderName::from_static("repr-digest"), object.digest);
    response
}

/// Cache of sets of bundle hashes: the bundles that a release withdraws, and those that it names.
/// Each set is read from an immutable object and cached under the hash of that object, so no entry
/// gets stale.
pub(super) struct BundleSetCache(Recent<Digest, Arc<HashSet<Digest>>>);

/// Maximum size of all cached sets, in bytes: 16 MiB.
const SETS_BYTES: usize = 16 << 20;

impl BundleSetCache {
    pub(super) fn new() -> Self {
        Self(Recent::new(SETS_BYTES))
    }

    /// Whether the current release withdraws a bundle. Call it only for a bundle with the mark of a
    /// withdrawn one.
    async fn is_withdrawn(
        &self,
        app: &App,
        namespace: NamespaceId,
        current: &Current,
        hash: &Digest,
    ) -> Result<bool, StoreError> {
        if current.is_earlier() {
            // Catalogs of an earlier version of vault are no longer read. The mark alone decides,
            // on the safe side: the bundle is not served.
            return Ok(true);
        }
        if let Some(set) = self.0.find(&current.sha256) {
            return Ok(set.contains(hash));
        }
        let catalog = current_catalog(app, namespace, current).await?;
        let withdrawn = catalog.withdrawn.iter().map(|entry| entry.bundle_hash);
        Ok(self
            .store_set(current.sha256, withdrawn.collect())
            .contains(hash))
    }

    /// Whether the current release needs a bundle. The closure of a release, an object of its own,
    /// lists all bundles that its catalog names directly or through other objects.
    async fn is_named(
        &self,
        app: &App,
        namespace: NamespaceId,
        current: &Current,
        hash: &Digest,
    ) -> Result<bool, StoreError> {
        if current.is_earlier() {
            return Ok(false);
        }
        if let Some(set) = self.0.find(&current.closure) {
            return Ok(set.contains(hash));
        }
        let closure = current_closure(app, namespace, current).await?;
        Ok(self
            .store_set(current.closure, closure.bundle_hashes().collect())
            .contains(hash))
    }

    fn store_set(&self, object: Digest, set: HashSet<Digest>) -> Arc<HashSet<Digest>> {
        // The size is doubled because a hash set allocates more slots than it fills.
        let bytes = set.len() * 2 * size_of::<Digest>();
        let set = Arc::new(set);
        self.0.insert_value(object, Arc::clone(&set), bytes);
        set
    }
}
