//! `POST /v/<slug>/devices` and `GET /v/<slug>/devices/current`: a machine asks for admission to a
//! vault, and reads the decision about it.
//!
//! An *enrolment code* is a secret text by which an owner admits machines in advance. Without one,
//! a machine waits until an owner decides.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use vault_api::{CatalogReference, CurrentDevice, EnrolledDevice, Enrolment};
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::records::{Document, When, Write};

use super::VerifiedRequest;
use super::enrolled::DeviceAccess;
use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::Versioned;
use crate::model::audit::{Actor, Change};
use crate::model::device::{self, Device, DeviceStatus, Pending, clean_hostname};
use crate::model::enrolment::{self, Enrolment as EnrolmentMode, EnrolmentCode};
use crate::model::limits::{Networks, Source};
use crate::model::namespace::{self, Namespace, Status};
use crate::model::places::{self, PlaceError};
use crate::model::secret::{Secret, SecretKind};
use crate::model::standing;
use crate::notices;
use crate::transaction::Transaction;

/// Maximum size of an enrolment's body, in bytes.
const MAX_BODY_BYTES: usize = 4 * 1024;

pub(super) struct EnrolmentAnswer {
    pub(super) answer: Response,
    /// Whether an enrolment code admitted the machine.
    pub(super) by_code: bool,
}

/// Enrols the key that signed the request: as waiting or, with a code, as admitted (201). For a key
/// that is enrolled already, answers with its present state and ignores the code (200).
pub(super) async fn enrol_device(
    app: &App,
    verified: &VerifiedRequest<'_>,
    headers: &HeaderMap,
    body: Body,
) -> Result<EnrolmentAnswer, Refusal> {
    let &VerifiedRequest { signer, source, .. } = verified;
    let lane = Networks::of(source).lane();
    let request: Enrolment = app
        .bodies
        .read_json(lane, headers, body, MAX_BODY_BYTES)
        .await?;
    // The signature does not cover the body, so the key in the body must be the one that signed.
    if request.public_key != signer.key_text() {
        return Err(ErrorCode::PublicKeyMismatch.into());
    }
    let hostname = match request.hostname.as_deref() {
        Some(name) => clean_hostname(name).ok_or(ErrorCode::HostnameInvalid)?,
        None => String::new(),
    };
    let newcomer = EnrolmentRequest {
        app,
        slug: verified.path.slug(),
        signer,
        hostname: &hostname,
        code: request.code.as_deref(),
        source,
    };
    let outcome = app.change(async |tx| newcomer.enrol_in(&tx).await).await?;
    Ok(EnrolmentAnswer {
        answer: json_answer(outcome.status, &to_enrolled_device(outcome.device)),
        by_code: outcome.by_code,
    })
}

struct EnrolmentRequest<'a> {
    app: &'a App,
    slug: &'a Slug,
    signer: &'a Signer<'a>,
    hostname: &'a str,
    code: Option<&'a str>,
    source: Option<IpAddr>,
}

struct EnrolmentOutcome {
    status: StatusCode,
    device: Device,
    by_code: bool,
}

impl EnrolmentRequest<'_> {
    async fn enrol_in(&self, tx: &Transaction<'_>) -> Result<EnrolmentOutcome, Refusal> {
        let slug = self.slug;
        let keys = [
            device::device_key(slug, self.signer.key_text()),
            namespace::namespace_key(slug),
        ];
        let [held, namespace] = tx.get_all(keys).await?;
        let namespace: Namespace = namespace.ok_or(ErrorCode::VaultNotFound)?.read()?;
        let stored = Versioned::<Device>::read(held)?;
        // Read before the filter: a record of an earlier namespace with this slug is overwritten,
        // under its revision.
        let revision = stored.as_ref().map(|held| held.revision);
        let present = stored.filter(|held| held.value.namespace_id == namespace.id);
        match namespace.status {
            Status::Active => {}
            // Only a device of this vault learns that it is suspended.
            Status::Suspended if present.is_some() => return Err(ErrorCode::VaultSuspended.into()),
            Status::Suspended | Status::Deleted => return Err(ErrorCode::VaultNotFound.into()),
        }
        let when = revision.map_or(When::Absent, When::At);
        match (present, self.code) {
            // A code admits only keys that are not enrolled yet: a waiting one keeps waiting, and a
            // revoked one stays revoked.
            (Some(held), _) => Ok(EnrolmentOutcome {
                status: StatusCode::OK,
                device: held.value,
                by_code: false,
            }),
            (None, Some(text)) => self.enrol_with_code(tx, &namespace, when, text).await,
            (None, None) if namespace.enrolment == EnrolmentMode::Codes => {
                Err(ErrorCode::EnrolmentNeedsCode.into())
            }
            (None, None) => self.enrol_waiting(tx, &namespace, when).await,
        }
    }

    fn new_device(&self, now: Timestamp, namespace: &Namespace) -> Device {
        Device::new(
            self.slug,
            namespace.id,
            *self.signer.key(),
            self.hostname.to_owned(),
            now,
        )
    }

    /// Stores the machine as waiting for the owner's decision.
    async fn enrol_waiting(
        &self,
        tx: &Transaction<'_>,
        namespace: &Namespace,
        when: When,
    ) -> Result<EnrolmentOutcome, Refusal> {
        let slug = self.slug;
        let source = Source::of(self.source);
        let device = Device {
            network: Some(source.network()),
            ..self.new_device(tx.now(), namespace)
        };
        let waiting = Pending {
            public_key: device.public_key,
            source,
            enrolled_at: device.enrolled_at,
        };
        // Device, counter and index records are written in one commit, so that of fifty
        // simultaneous requests exactly as many succeed as may wait.
        let mut writes = vec![
            device.to_write(slug, when)?,
            Write::put(
                device::id_key(slug, &device.device_id),
                Document::from_value(&device.index_entry())?,
                When::Any,
            ),
            Write::put(
                device::pending_key(slug, &device.device_id),
                Document::from_value(&waiting)?,
                When::Any,
            ),
        ];
        writes.extend(notices::queue_machine(tx, namespace).await?);
        // This write comes first, because `commit_with_limits(1)` reports a full queue by the
        // position of the write.
        tx.write(namespace::count_pending(slug, 1));
        tx.write_all(writes);
        if tx.commit_with_limits(1).await?.is_some() {
            // No waiting machine is displaced: each keeps its place until the owner decides.
            return Err(ErrorCode::PendingQueueFull.into());
        }
        Ok(EnrolmentOutcome {
            status: StatusCode::CREATED,
            device,
            by_code: false,
        })
    }

    /// Admits the machine at once: by creating the code, the owner decided in advance.
    async fn enrol_with_code(
        &self,
        tx: &Transaction<'_>,
        namespace: &Namespace,
        when: When,
        text: &str,
    ) -> Result<EnrolmentOutcome, Refusal> {
        let (slug, now) = (self.slug, tx.now());
        let hash = Secret::parse(SecretKind::Enrolment, text).map(|code| code.hash());
        let hash = hash.ok_or(ErrorCode::EnrolmentCodeInvalid)?;
        let key = enrolment::code_key(&namespace.id, &hash);
        let code = tx.get::<EnrolmentCode>(&key).await?;
        // A code that is unknown, has ended, or is for other host names gets the same answer, so
        // that codes cannot be probed.
        let code = code
            .filter(|code| code.value.fits_hostname(self.hostname))
            .ok_or(ErrorCode::EnrolmentCodeInvalid)?;
        if !namespace.subscription.is_live(now) {
            return Err(ErrorCode::SubscriptionLapsed.into());
        }
        // A code that an app created ends with the app's access, however that ended.
        let consent_checks = check_consent(tx, &code.value).await?;
        let limit = self.app.quota_of(namespace).machines;
        // Checked before the code is used, so that a refused machine leaves nothing behind. The
        // answer does not tell the holder of a code how many machines there are.
        let place = match places::take_machine_place(tx, &namespace.to_ref(), limit).await {
            Ok(place) => place,
            Err(PlaceError::Full(_)) => {
                return Err(refuse_full(tx, &namespace.id, &hash, &code).await?);
            }
            Err(PlaceError::Store(error)) => return Err(error.into()),
        };
        let device = Device {
            status: DeviceStatus::Active,
            decided_at: Some(now),
            decided_by: Some(enrolment::id_of(&hash)),
            client: code.value.client.clone(),
            ..self.new_device(now, namespace)
        };
        let actor = Actor {
            user: code.value.created_by.clone(),
            client: None,
            source: self.source,
        };
        let code_id = enrolment::id_of(&hash);
        let after = json!({
            "status": device.status, "code": code_id, "hostname": device.hostname,
        });
        let change = Change::about(&device.device_id).with_after(after);
        // The count of uses comes first: if the code is used up, `commit_with_limits(1)` below
        // reports the position of this write. The check after it fails the commit if the owner has
        // ended the code meanwhile.
        tx.write_all([
            code.value.counting_write(&namespace.id, &hash),
            Write::check(key, When::At(code.revision)),
            device.to_write(slug, when)?,
            Write::put(
                device::id_key(slug, &device.device_id),
                Document::from_value(&device.index_entry())?,
                When::Any,
            ),
        ]);
        tx.write_all(place.writes);
        tx.write_all(notices::queue_warnings(tx, namespace, place.warning).await?);
        tx.write_all(consent_checks);
        tx.write_all(code.value.hour_write(&namespace.id, now));
        tx.audit(Some(&namespace.id), &actor, "device.enrol", change)?;
        if tx.commit_with_limits(1).await?.is_some() {
            return Err(ErrorCode::EnrolmentCodeInvalid.into());
        }
        Ok(EnrolmentOutcome {
            status: StatusCode::CREATED,
            device,
            by_code: true,
        })
    }
}

/// Returns the refusal of a machine that finds no place. A code that is used up is as invalid in a
/// full vault as in any other.
async fn refuse_full(
    tx: &Transaction<'_>,
    namespace: &NamespaceId,
    hash: &Digest,
    code: &Versioned<EnrolmentCode>,
) -> Result<Refusal, Refusal> {
    // The store itself keeps the uses, so only a commit shows whether one is left. The second write
    // fails, because the code is there.
    let key = enrolment::code_key(namespace, hash);
    tx.write_all([
        code.value.counting_write(namespace, hash),
        Write::check(key, When::Absent),
    ]);
    Ok(match tx.commit_with_limits(2).await? {
        Some(1) => ErrorCode::QuotaFull.into(),
        // The code was used up, or was ended after it was read.
        _ => ErrorCode::EnrolmentCodeInvalid.into(),
    })
}

/// Checks that the consent on which a code depends has not ended. Returns the writes that fail the
/// commit if it ends meanwhile.
async fn check_consent(tx: &Transaction<'_>, code: &EnrolmentCode) -> Result<Vec<Write>, Refusal> {
    let Some(consent) = &code.consent else {
        return Ok(Vec::new());
    };
    let standing = standing::load_standing(tx, consent).await?;
    if standing.administers(consent, tx.now()) {
        Ok(standing.consent_checks(consent))
    } else {
        Err(ErrorCode::EnrolmentCodeInvalid.into())
    }
}

fn to_enrolled_device(device: Device) -> EnrolledDevice {
    EnrolledDevice {
        device_id: device.device_id,
        status: device.status,
        public_key: device.public_key,
        hostname: device.hostname,
        enrolled_at: device.enrolled_at,
    }
}

/// Answers with the state of the calling device. A revoked device also gets it, so that it learns
/// of the revocation.
pub(super) async fn show_device(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
) -> Result<Response, Refusal> {
    let visit = device::seen_key(slug, signer.key_text());
    let enrolled = DeviceAccess::look_up(app, slug, signer, Some(visit)).await?;
    enrolled.note_visit(app, slug, signer, None).await;
    let DeviceAccess {
        device, namespace, ..
    } = enrolled;
    // Only an admitted device learns whether the vault is paid for.
    let is_lapsed =
        device.status == DeviceStatus::Active && !namespace.subscription.is_live(app.clock.now());
    // A revoked device must not learn of new releases.
    let catalog = (device.status != DeviceStatus::Revoked).then(|| {
        namespace.current.map(|current| CatalogReference {
            sha256: current.sha256,
            size: current.size,
            release: current.release,
        })
    });
    Ok(json_answer(
        StatusCode::OK,
        &CurrentDevice {
            device_id: device.device_id,
            status: device.status,
            hostname: device.hostname,
            enrolled_at: device.enrolled_at,
            catalog,
            lapsed: is_lapsed,
        },
    ))
}
