//! `GET /v/<slug>/catalog.json` and `GET /v/<slug>/bundles/<bundle_hash>.json`: stored bytes, never re-serialised.

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::Response;
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_store::objects::Class;

use super::Enrolled;
use super::cache::Object;
use super::signed::Signer;
use crate::App;
use crate::error::{Code, Refusal};
use crate::model::device;
use crate::model::release::{WithdrawnMark, withdrawn_key};
use crate::publish;

/// The current catalog for a waiting or admitted device.
pub(super) async fn catalog(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let visit = device::seen_key(slug, signer.text());
    let enrolled = Enrolled::look_up(app, slug, signer, Some(visit)).await?;
    enrolled.may_read_catalog()?;
    let Some(current) = &enrolled.namespace.current else {
        return Err(Code::CatalogNotPublished.into());
    };
    let key = enrolled.namespace.object(Class::Catalogs, current.sha256);
    match app.cache.get(&*app.objects, &key).await? {
        Some(object) => {
            let release = Some(current.release);
            enrolled.note_visit(app, slug, signer, release).await;
            Ok(exact(object))
        }
        None => Err(Refusal::new(Code::Unavailable).cause(std::io::Error::other(
            "the current catalog is missing from the object store",
        ))),
    }
}

/// A bundle for an admitted device, unless the current release withdrew it.
pub(super) async fn bundle(
    app: &App,
    slug: &Slug,
    hash: &Digest,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let mark = withdrawn_key(slug, hash);
    let enrolled = Enrolled::look_up(app, slug, signer, Some(mark)).await?;
    enrolled.may_read_bundles()?;
    let namespace = &enrolled.namespace;
    if let (Some(mark), Some(current)) = (&enrolled.extra, &namespace.current) {
        let mark: WithdrawnMark = mark.read()?;
        if mark.namespace_id == namespace.id
            && publish::withdraws(app, namespace.id, current, hash).await?
        {
            return Err(Code::BundleNotFound.into());
        }
    }
    let key = namespace.object(Class::Bundles, *hash);
    if let Some(object) = app.cache.get(&*app.objects, &key).await? {
        return Ok(exact(object));
    }
    match &namespace.current {
        Some(current) if publish::names_bundle(app, namespace.id, current, hash).await? => Err(
            Refusal::new(Code::BundleUnavailable).cause(std::io::Error::other(format!(
                "the object {key} is missing from the object store"
            ))),
        ),
        _ => Err(Code::BundleNotFound.into()),
    }
}

fn exact(object: Object) -> Response {
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
