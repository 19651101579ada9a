//! `POST /v/<slug>/devices` and `GET /v/<slug>/devices/current`: a machine asks for access, and
//! reads the decision about it.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use vault_api::{CatalogReference, CurrentDevice, EnrolledDevice, Enrolment};
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::records::{Document, When, Write};

use super::enrolled::Enrolled;
use super::queue;
use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, read_json};
use crate::model::Versioned;
use crate::model::audit::{Actor, Change};
use crate::model::device::{self, Device, DeviceStatus, clean_hostname};
use crate::model::enrolment::{self, Enrolment as EnrolmentMode, EnrolmentCode};
use crate::model::limits::Source;
use crate::model::namespace::{self, Namespace, Status};
use crate::model::secret::{Secret, SecretKind};
use crate::notices;
use crate::transaction::Transaction;

/// Maximum size of an enrolment's body, in bytes.
const MAX_BODY_BYTES: usize = 4 * 1024;

/// Result of an enrolment.
pub(super) struct EnrolmentAnswer {
    pub(super) answer: Response,
    /// Whether an enrolment code admitted the machine.
    pub(super) by_code: bool,
}

/// Enrols the key that signed the request: as waiting, or with a code as admitted; 201. A key that
/// is enrolled already gets its present state; 200.
pub(super) async fn enrol(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
    source: Option<IpAddr>,
    headers: &HeaderMap,
    body: Body,
) -> Result<EnrolmentAnswer, Refusal> {
    let asked: Enrolment = read_json(headers, body, MAX_BODY_BYTES).await?;
    // The signature does not cover the body, so the key in it counts only if it is the one that
    // signed.
    if asked.public_key != signer.text() {
        return Err(ErrorCode::PublicKeyMismatch.into());
    }
    let hostname = match asked.hostname.as_deref() {
        Some(name) => clean_hostname(name).ok_or(ErrorCode::HostnameInvalid)?,
        None => String::new(),
    };
    let newcomer = Newcomer {
        slug,
        signer,
        hostname: &hostname,
        code: asked.code.as_deref(),
        source,
    };
    let done = app.change(async |tx| newcomer.enrol(&tx).await).await?;
    Ok(EnrolmentAnswer {
        answer: json_answer(done.status, &enrolled(done.device)),
        by_code: done.by_code,
    })
}

/// A machine that asks to be let in.
struct Newcomer<'a> {
    slug: &'a Slug,
    signer: &'a Signer<'a>,
    hostname: &'a str,
    code: Option<&'a str>,
    source: Option<IpAddr>,
}

/// Result of one attempt to enrol.
struct Done {
    status: StatusCode,
    device: Device,
    by_code: bool,
}

impl Newcomer<'_> {
    async fn enrol(&self, tx: &Transaction<'_>) -> Result<Done, Refusal> {
        let slug = self.slug;
        let keys = [device::key(slug, self.signer.text()), namespace::key(slug)];
        let [held, namespace] = tx.get_all(keys).await?;
        let namespace: Namespace = namespace.ok_or(ErrorCode::VaultNotFound)?.read()?;
        let held = Versioned::<Device>::read(held)?;
        // Taken before the filter: a record of another allocation of this slug is overwritten under
        // its revision.
        let revision = held.as_ref().map(|held| held.revision);
        let held = held.filter(|held| held.value.namespace_id == namespace.id);
        match namespace.status {
            Status::Active => {}
            // Only a device of this vault is told that it is suspended.
            Status::Suspended if held.is_some() => return Err(ErrorCode::VaultSuspended.into()),
            Status::Suspended | Status::Deleted => return Err(ErrorCode::VaultNotFound.into()),
        }
        let when = revision.map_or(When::Absent, When::At);
        let known = |device| Done {
            status: StatusCode::OK,
            device,
            by_code: false,
        };
        match (held, self.code) {
            // A code admits a device that waits. One that was revoked stays revoked, with any code.
            (Some(held), Some(text)) if held.value.status == DeviceStatus::Pending => {
                self.admit(tx, &namespace, Some(held.value), when, text)
                    .await
            }
            (Some(held), _) => Ok(known(held.value)),
            (None, Some(text)) => self.admit(tx, &namespace, None, when, text).await,
            (None, None) if namespace.enrolment == EnrolmentMode::Codes => {
                Err(ErrorCode::EnrolmentNeedsCode.into())
            }
            (None, None) => self.wait(tx, &namespace, when).await,
        }
    }

    fn device(&self, now: Timestamp, namespace: &Namespace) -> Device {
        Device::new(
            self.slug,
            namespace.id,
            *self.signer.key(),
            self.hostname.to_owned(),
            now,
        )
    }

    /// Records the machine as waiting for the owner's decision.
    async fn wait(
        &self,
        tx: &Transaction<'_>,
        namespace: &Namespace,
        when: When,
    ) -> Result<Done, Refusal> {
        let slug = self.slug;
        let device = self.device(tx.now(), namespace);
        let source = Source::of(self.source);
        // Device, counter and index records go into one commit, so that of fifty requests at once
        // exactly as many succeed as may wait.
        let mut writes = vec![
            device.write(slug, when)?,
            Write::put(
                device::id_key(slug, &device.device_id),
                Document::of(&device.named())?,
                When::Any,
            ),
            queue::waiting(slug, &device, &source)?,
        ];
        writes.extend(notices::queue_machine(tx, namespace).await?);
        // First, because `commit_within(1)` reports a full queue by the position of this write.
        tx.write(namespace::count_pending(slug, 1));
        tx.write_all(writes.clone());
        if tx.commit_within(1).await?.is_some() {
            // The queue is full and nothing was written. The same writes go into a commit in which
            // a waiting device gives way.
            tx.write_all(writes);
            queue::displace(tx, slug, &device, &source).await?;
        }
        Ok(Done {
            status: StatusCode::CREATED,
            device,
            by_code: false,
        })
    }

    /// Admits the machine at once: the owner decided when the code was made.
    async fn admit(
        &self,
        tx: &Transaction<'_>,
        namespace: &Namespace,
        waiting: Option<Device>,
        when: When,
        text: &str,
    ) -> Result<Done, Refusal> {
        let (slug, now) = (self.slug, tx.now());
        let hash = Secret::parse(SecretKind::Enrolment, text).map(|code| code.hash());
        let hash = hash.ok_or(ErrorCode::EnrolmentCodeInvalid)?;
        let key = enrolment::code_key(&namespace.id, &hash);
        let code = tx.get::<EnrolmentCode>(&key).await?;
        // A code that is unknown, has ended, or is for other names gets the same answer, so that
        // codes cannot be probed.
        let code = code
            .filter(|code| code.value.fits(self.hostname))
            .ok_or(ErrorCode::EnrolmentCodeInvalid)?;
        if !namespace.subscription.is_live(now) {
            return Err(ErrorCode::SubscriptionLapsed.into());
        }
        let was_waiting = waiting.is_some();
        let device = Device {
            status: DeviceStatus::Active,
            decided_at: Some(now),
            decided_by: Some(enrolment::id_of(&hash)),
            ..waiting.unwrap_or_else(|| self.device(now, namespace))
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
        let change = Change::about(&device.device_id)
            .before(was_waiting.then(|| json!({ "status": DeviceStatus::Pending })))
            .after(after);
        // The count of uses stands first: where the code is used up, `commit_within(1)` below
        // reports the position of that write. The check after it makes sure that the owner has not
        // ended the code meanwhile.
        tx.write_all([
            code.value.counted(&namespace.id, &hash),
            Write::check(key, When::At(code.revision)),
            device.write(slug, when)?,
            Write::put(
                device::id_key(slug, &device.device_id),
                Document::of(&device.named())?,
                When::Any,
            ),
        ]);
        tx.audit(Some(&namespace.id), &actor, "device.enrol", change)?;
        // It leaves the queue in the same commit, so that the counter stays equal to the number of
        // waiting devices.
        if was_waiting {
            tx.write(namespace::count_pending(slug, -1));
            let pending = device::pending_key(slug, &device.device_id);
            tx.write(Write::delete(pending, When::Any));
        }
        if tx.commit_within(1).await?.is_some() {
            return Err(ErrorCode::EnrolmentCodeInvalid.into());
        }
        Ok(Done {
            status: if was_waiting {
                StatusCode::OK
            } else {
                StatusCode::CREATED
            },
            device,
            by_code: true,
        })
    }
}

fn enrolled(device: Device) -> EnrolledDevice {
    EnrolledDevice {
        device_id: device.device_id,
        status: device.status,
        public_key: device.public_key,
        hostname: device.hostname,
        enrolled_at: device.enrolled_at,
    }
}

/// Answers with the state of the calling device. A revoked one is answered too, so that it learns
/// that it was revoked.
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
    // A revoked device must not follow the releases of the vault any more.
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
        &CurrentDevice {
            device_id: device.device_id,
            status: device.status,
            hostname: device.hostname,
            enrolled_at: device.enrolled_at,
            catalog,
        },
    ))
}
