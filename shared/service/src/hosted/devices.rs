//! `POST /v/<slug>/devices` and `GET /v/<slug>/devices/current`: how a machine becomes known, and learns what became of it.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, Document, When, Write};

use super::enrolled::Enrolled;
use super::signed::Signer;
use crate::app::App;
use crate::error::{Code, Refusal};
use crate::http::{json_answer, read_json};
use crate::model::device::{self, Device, DeviceStatus, clean_hostname};
use crate::model::namespace::{self, Namespace, Status};
use crate::retry::retry;

/// Most bytes of an enrolment.
const MAX_BODY_BYTES: usize = 4 * 1024;

#[derive(Deserialize)]
struct Enrolment {
    public_key: String,
    hostname: Option<String>,
}

#[derive(Serialize)]
struct EnrolledAnswer<'a> {
    device_id: &'a str,
    status: DeviceStatus,
    public_key: &'a PublicKey,
    hostname: &'a str,
    enrolled_at: Timestamp,
}

#[derive(Serialize)]
struct CurrentAnswer<'a> {
    device_id: &'a str,
    status: DeviceStatus,
    hostname: &'a str,
    enrolled_at: Timestamp,
    catalog: Option<CatalogReference>,
}

#[derive(Serialize)]
struct CatalogReference {
    sha256: Digest,
    size: u64,
    release: u64,
}

/// Enrols the key that signed as waiting, 201; a key that is known is answered as it is, 200.
pub(super) async fn enrol(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let asked: Enrolment = read_json(headers, body, MAX_BODY_BYTES).await?;
    if asked.public_key != signer.text() {
        return Err(Code::PublicKeyMismatch.into());
    }
    let hostname = asked
        .hostname
        .as_deref()
        .and_then(clean_hostname)
        .ok_or(Code::HostnameInvalid)?;
    // `public_key_invalid` has no place of its own here: a `PublicKey` that exists passed every check when the headers were parsed.

    let enrolment = || try_enrol(app, slug, signer, &hostname);
    let (status, device) = retry(&*app.random, enrolment).await?;
    Ok(json_answer(status, &enrolled(&device)))
}

/// One try; `None` when another request with the same key came between.
async fn try_enrol(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
    hostname: &str,
) -> Result<Option<(StatusCode, Device)>, Refusal> {
    let keys = [device::key(slug, signer.text()), namespace::key(slug)];
    let mut records = app.records.get_many(&keys).await?.into_iter();
    let (held, namespace) = (records.next().flatten(), records.next().flatten());
    let namespace: Namespace = namespace.ok_or(Code::VaultNotFound)?.read()?;
    match namespace.status {
        Status::Active => {}
        Status::Suspended => return Err(Code::VaultSuspended.into()),
        Status::Deleted => return Err(Code::VaultNotFound.into()),
    }
    let mut when = When::Absent;
    if let Some(record) = held {
        let device: Device = record.read()?;
        if device.namespace_id == namespace.id {
            return Ok(Some((StatusCode::OK, device)));
        }
        when = When::At(record.revision);
    }
    let device = Device::new(
        slug,
        namespace.id,
        *signer.key(),
        hostname.to_owned(),
        app.clock.now(),
    );
    let named = Document::of(&device.named())?;
    // Device, counter and index records together: fifty requests at once leave exactly as many as may wait.
    let writes = vec![
        device.write(slug, when)?,
        namespace::count_pending(slug, 1),
        Write::put(
            device::id_key(slug, &device.device_id),
            named.clone(),
            When::Any,
        ),
        Write::put(
            device::pending_key(slug, &device.device_id),
            named,
            When::Any,
        ),
    ];
    match app.records.commit(writes).await {
        Ok(Commit::Done(_)) => Ok(Some((StatusCode::CREATED, device))),
        Ok(Commit::Failed { index: 1, .. }) => Err(Code::PendingQueueFull.into()),
        Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn enrolled(device: &Device) -> EnrolledAnswer<'_> {
    EnrolledAnswer {
        device_id: &device.device_id,
        status: device.status,
        public_key: &device.public_key,
        hostname: &device.hostname,
        enrolled_at: device.enrolled_at,
    }
}

/// What a device is, for itself; a revoked one may ask too, so that it can learn just that.
pub(super) async fn current(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let visit = device::seen_key(slug, signer.text());
    let enrolled = Enrolled::look_up(app, slug, signer, Some(visit)).await?;
    enrolled.note_visit(app, slug, signer, None).await;
    let Enrolled {
        device, namespace, ..
    } = enrolled;
    let catalog = namespace
        .current
        .filter(|_| device.status != DeviceStatus::Revoked)
        .map(|current| CatalogReference {
            sha256: current.sha256,
            size: current.size,
            release: current.release,
        });
    Ok(json_answer(
        StatusCode::OK,
        &CurrentAnswer {
            device_id: &device.device_id,
            status: device.status,
            hostname: &device.hostname,
            enrolled_at: device.enrolled_at,
            catalog,
        },
    ))
}
