//! `…/devices`: the owner's decisions about devices, the machines that asked to enrol in the vault.
//! Each decision changes the device, its index records, the counter of pending devices and the
//! audit log in one commit.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{DeniedMachines, ListedDevice};
use vault_format::name::Slug;
use vault_format::root::KeyFingerprint;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, Record, When, Write};

use super::call::{Answer, Call, Items, trim_page};
use super::principal::require_consent;
use crate::accounts::permits::PermitRequester;
use crate::app::{ActingUser, App};
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::device::{
    self, Device, DeviceIdEntry, DeviceStatus, FORGOTTEN_SECONDS, FoundDevice, LastSeen,
    find_device,
};
use crate::model::enrolment::LoadedAppCodes;
use crate::model::namespace::{self, Namespace};
use crate::model::permit::Act;
use crate::model::places;
use crate::notices::queue_warnings;
use crate::transaction::Transaction;

/// Maximum number of pending machines that one request lists or denies.
const MAX_DENIED: usize = 100;

fn to_api_device(device: Device) -> vault_api::Device {
    vault_api::Device {
        fingerprint: KeyFingerprint::device(&device.public_key),
        device_id: device.device_id,
        status: device.status,
        public_key: device.public_key,
        hostname: device.hostname,
        enrolled_at: device.enrolled_at,
        decided_at: device.decided_at,
        client_id: device.client.map(Into::into),
        forgotten: false,
    }
}

/// Lists all devices, or with `?status=pending` those that wait for a decision.
pub(super) async fn list_devices(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let page = call.page_params()?;
    let slug = &namespace.slug;
    let waiting = match call.query_param("status").as_deref() {
        None => false,
        Some("pending") => true,
        // Other states have no index of their own, so a filter for them would read all devices.
        Some(_) => return Err(ErrorCode::ParameterInvalid.into()),
    };
    let partition = if waiting {
        device::pending_partition(slug)
    } else {
        device::devices_partition(slug)
    };
    let records = &call.app.records;
    let page_records = records
        .list_page(&partition, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (mut found, next) = trim_page(page_records, page.limit);
    if waiting {
        found = read_indexed_devices(&call.app, slug, &found).await?;
    }
    let mut devices = Vec::new();
    for record in found {
        let device: Device = record.read()?;
        // Records are keyed by slug, but a device belongs to one allocation of it, which the
        // namespace id tells. The check keeps tenants apart even if a slug were given out twice.
        if device.namespace_id == namespace.id {
            devices.push(device);
        }
    }
    let items = add_last_visits(&call, &namespace, devices).await?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Adds to each device the day of its last visit and the release that it read then.
async fn add_last_visits(
    call: &Call,
    namespace: &Namespace,
    devices: Vec<Device>,
) -> Result<Vec<ListedDevice>, Refusal> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let key = |device: &Device| device::seen_key(&namespace.slug, &device.public_key.to_string());
    let keys: Vec<_> = devices.iter().map(key).collect();
    let visits = call.app.records.get_many(&keys).await?;
    let mut items = Vec::new();
    for (device, visit) in devices.into_iter().zip(visits) {
        let visit = visit.map(|visit| visit.read::<LastSeen>()).transpose()?;
        let visit = visit.filter(|visit| visit.namespace_id == namespace.id);
        items.push(ListedDevice {
            network: device.waiting_network().map(str::to_owned),
            device: to_api_device(device),
            release: visit.as_ref().and_then(|visit| visit.release),
            last_seen: visit.map(|visit| visit.day),
        });
    }
    Ok(items)
}

/// Loads up to [`MAX_DENIED`] devices of a namespace that wait for the owner's decision.
pub(crate) async fn load_waiting(
    app: &App,
    namespace: &Namespace,
) -> Result<Vec<Device>, StoreError> {
    let partition = device::pending_partition(&namespace.slug);
    let index = app
        .records
        .list_page(&partition, "", None, MAX_DENIED)
        .await?;
    let mut waiting = Vec::new();
    for record in read_indexed_devices(app, &namespace.slug, &index).await? {
        let device: Device = record.read()?;
        // The index may still name a device that an owner has decided on, and the slug may have
        // belonged to another namespace before; the device's record tells.
        if device.status == DeviceStatus::Pending && device.namespace_id == namespace.id {
            waiting.push(device);
        }
    }
    Ok(waiting)
}

/// Reads the device records that these records of an index refer to.
async fn read_indexed_devices(
    app: &App,
    slug: &Slug,
    index: &[Record],
) -> Result<Vec<Record>, StoreError> {
    let mut keys = Vec::new();
    for record in index {
        let named: DeviceIdEntry = record.read()?;
        keys.push(device::device_key(slug, &named.public_key.to_string()));
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let device_records = app.records.get_many(&keys).await?;
    Ok(device_records.into_iter().flatten().collect())
}

/// Admits a pending device, which may then read bundles. Fails if the subscription has lapsed.
pub(super) async fn admit_device(call: Call) -> Answer {
    handle_decision(call, Decision::Admit).await
}

pub(super) async fn deny_device(call: Call) -> Answer {
    handle_decision(call, Decision::Deny).await
}

pub(super) async fn revoke_device(call: Call) -> Answer {
    handle_decision(call, Decision::Revoke).await
}

pub(super) async fn forget_device(call: Call) -> Answer {
    handle_decision(call, Decision::Forget).await
}

async fn handle_decision(call: Call, decision: Decision) -> Answer {
    let id = call.param("id");
    let outcome = decide_device(call.to_acting()?, id, decision).await;
    let decided = call.confirm_outcome(&admission_act(id), outcome).await?;
    let answered_device = vault_api::Device {
        forgotten: decided.forgotten,
        ..to_api_device(decided.device)
    };
    Ok(json_answer(StatusCode::OK, &answered_device))
}

/// A decision about a device that an owner can make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    /// Admits a pending device, which may then read bundles.
    Admit,
    /// Denies a pending device. The same key can enrol again only after [`Decision::Forget`].
    Deny,
    /// Ends the access of an admitted device. It cannot be admitted again before
    /// [`Decision::Forget`].
    Revoke,
    /// Deletes the record of a denied or revoked device, so that its key may enrol again.
    Forget,
}

impl Decision {
    const fn audit_name(self) -> &'static str {
        match self {
            Self::Admit => "device.admit",
            Self::Deny => "device.deny",
            Self::Revoke => "device.revoke",
            Self::Forget => "device.forget",
        }
    }

    /// Returns the status that the device must have before the decision, and the status that it
    /// gets.
    const fn status_change(self) -> (DeviceStatus, DeviceStatus) {
        match self {
            Self::Admit => (DeviceStatus::Pending, DeviceStatus::Active),
            Self::Deny => (DeviceStatus::Pending, DeviceStatus::Revoked),
            Self::Revoke => (DeviceStatus::Active, DeviceStatus::Revoked),
            Self::Forget => (DeviceStatus::Revoked, DeviceStatus::Revoked),
        }
    }
}

/// Returns the act of admitting the device with this id. The act needs a permit (a confirmation by
/// the person) only if the app has admitted many machines before.
pub(crate) fn admission_act(id: &str) -> Act {
    let machine = id.to_owned();
    Act::AdmitMachine { machine }
}

pub(crate) struct DecidedDevice {
    pub(crate) device: Device,
    /// True if the record of the device is deleted, by this decision or by an earlier one.
    pub(crate) forgotten: bool,
}

/// Decides on the device of this id. A repeated decision changes nothing. Fails with `NotFound` if
/// there is no such device; with `DeviceState` if the device's state does not allow the decision;
/// with `QuotaFull` if the quota allows no more admitted machines; with `SubscriptionLapsed` for an
/// admission without a live subscription; and with `ConfirmationNeeded` if the app has admitted as
/// many machines as it may without a permit.
pub(crate) async fn decide_device(
    acting: ActingUser<'_>,
    id: &str,
    decision: Decision,
) -> Result<DecidedDevice, Refusal> {
    let now = acting.app.clock.now();
    // Only admission costs money. A lapsed owner must still be able to deny and revoke.
    if decision == Decision::Admit && !acting.namespace.subscription.is_live(now) {
        return Err(ErrorCode::SubscriptionLapsed.into());
    }
    let decide = async |tx| decide_in(&tx, acting, id, decision).await;
    acting.app.change(decide).await
}

async fn decide_in(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    id: &str,
    decision: Decision,
) -> Result<DecidedDevice, Refusal> {
    let found = find_device(acting.app, &acting.namespace.to_ref(), id).await?;
    let found = found.ok_or(ErrorCode::NotFound)?;
    let home = acting.namespace.to_ref();
    // A repeated decision writes nothing.
    match (decision, found.device.status) {
        (Decision::Admit, DeviceStatus::Pending) => {
            require_consent(tx, acting.consent).await?;
            let limit = acting.app.quota_of(acting.namespace).machines;
            let taken = places::take_machine_place(tx, &home, limit).await?;
            tx.write_all(queue_warnings(tx, acting.namespace, taken.warning).await?);
            tx.write_all(taken.writes);
            count_admission(tx, acting, id).await?;
        }
        (Decision::Revoke, DeviceStatus::Active) => {
            tx.write(places::revocation_write(tx, &home, 1).await?);
        }
        _ => {}
    }
    decide_found_device(tx, acting, found, decision)
}

/// Counts an admission by an app, or uses the permit for it if the app has reached its limit.
/// Otherwise an app could enrol and admit machines in a loop, without a person.
async fn count_admission(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    id: &str,
) -> Result<(), Refusal> {
    // In the console a person decides on each machine.
    let Some(client) = acting.client() else {
        return Ok(());
    };
    let admitted = LoadedAppCodes::load(tx, &acting.namespace.id, client).await?;
    if admitted.machines.need_confirmation(1) {
        let asker = PermitRequester {
            account: acting.account,
            client: Some(client),
            actor: acting.actor,
            namespace: Some(&acting.namespace.to_ref()),
            confirms: None,
        };
        asker.spend(tx, &admission_act(id)).await?;
        return Ok(());
    }
    tx.write_all(admitted.admission_writes(&acting.namespace.id, client, tx.now())?);
    Ok(())
}

/// Adds the writes of a decision about this device to the commit.
pub(super) fn decide_found_device(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    found: FoundDevice,
    decision: Decision,
) -> Result<DecidedDevice, Refusal> {
    let ActingUser {
        namespace, actor, ..
    } = acting;
    let slug = &namespace.slug;
    let FoundDevice { device, revision } = found;
    let Some(revision) = revision else {
        // A repeated `forget` gets the same answer as the first, whose answer may have been lost.
        return match decision {
            Decision::Forget => Ok(DecidedDevice {
                device,
                forgotten: true,
            }),
            _ => Err(ErrorCode::NotFound.into()),
        };
    };
    let (from, to) = decision.status_change();
    // An owner may click twice, or a client may repeat a request whose answer was lost. `Forget` is
    // excluded: the status of a revoked device already equals the new one, but the record must
    // still be removed.
    if device.status == to && decision != Decision::Forget {
        return Ok(DecidedDevice {
            device,
            forgotten: false,
        });
    }
    if device.status != from {
        return Err(ErrorCode::DeviceState.into());
    }
    let (before, now) = (device.status, tx.now());
    let decided = Device {
        status: to,
        decided_at: Some(now),
        decided_by: Some(actor.user.clone()),
        client: match decision {
            Decision::Admit => acting.client().cloned(),
            _ => device.client,
        },
        network: None,
        ..device
    };
    let change = Change::about(&decided.device_id)
        .with_before(json!({ "status": before }))
        .with_after((decision != Decision::Forget).then(|| json!({ "status": to })));
    acting.write_audit(tx, decision.audit_name(), change)?;
    if decision == Decision::Forget {
        tx.write_all(forget_writes(slug, &decided, revision, now)?);
    } else if decision == Decision::Deny {
        tx.write_all(decided.denial_writes(slug, revision, now)?);
    } else {
        tx.write(decided.to_write(slug, When::At(revision))?);
    }
    // A counter, not a condition: decisions about other devices must not conflict with this one.
    if before == DeviceStatus::Pending {
        tx.write(namespace::count_pending(slug, -1));
    }
    // A denial removes the pending entry among its own writes.
    if decision == Decision::Admit {
        let pending = device::pending_key(slug, &decided.device_id);
        tx.write(Write::delete(pending, When::Any));
    }
    Ok(DecidedDevice {
        device: decided,
        forgotten: decision == Decision::Forget,
    })
}

/// Returns the writes that remove a device. Its id is kept for a while, so that a repeated `forget`
/// gets the same answer.
fn forget_writes(
    slug: &Slug,
    device: &Device,
    revision: u64,
    now: Timestamp,
) -> Result<[Write; 3], StoreError> {
    let tombstone = DeviceIdEntry {
        public_key: device.public_key,
        forgotten: Some(device.clone()),
    };
    Ok([
        Write::delete(
            device::device_key(slug, &device.public_key.to_string()),
            When::At(revision),
        ),
        // Unconditional: a device that never visited has no such record.
        Write::delete(
            device::seen_key(slug, &device.public_key.to_string()),
            When::Any,
        ),
        Write::put_until(
            device::id_key(slug, &device.device_id),
            Document::from_value(&tombstone)?,
            When::Any,
            now.plus_seconds(FORGOTTEN_SECONDS),
        ),
    ])
}

/// Denies pending devices in one commit: all of them, or those that the body selects.
pub(super) async fn handle_deny_pending(call: Call) -> Answer {
    let acting = call.to_acting()?;
    let asked: DeniedMachines = call.json_body().await?;
    if asked
        .devices
        .as_ref()
        .is_some_and(|ids| ids.len() > MAX_DENIED)
    {
        return Err(ErrorCode::ParameterInvalid.into());
    }
    let denied = deny_pending(acting, &asked).await?;
    let items = denied.into_iter().map(to_api_device).collect();
    Ok(json_answer(StatusCode::OK, &Items { items, next: None }))
}

/// Denies the pending devices that `asked` selects, in one commit, and returns them. Devices that
/// were decided on or that asked to enrol meanwhile are left as they are.
pub(crate) async fn deny_pending(
    acting: ActingUser<'_>,
    asked: &DeniedMachines,
) -> Result<Vec<Device>, Refusal> {
    let deny = async |tx| deny_pending_in(&tx, acting, asked).await;
    acting.app.change(deny).await
}

/// Whether `asked` selects this device, by its network and by its id. An absent condition selects
/// every device.
fn is_named(asked: &DeniedMachines, device: &Device) -> bool {
    let of_network =
        (asked.network.as_deref()).is_none_or(|it| device.waiting_network() == Some(it));
    let is_listed = (asked.devices.as_ref()).is_none_or(|ids| ids.contains(&device.device_id));
    of_network && is_listed
}

async fn deny_pending_in(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    asked: &DeniedMachines,
) -> Result<Vec<Device>, Refusal> {
    let ActingUser {
        app,
        namespace,
        actor,
        ..
    } = acting;
    let slug = &namespace.slug;
    let waiting = app
        .records
        .list_page(&device::pending_partition(slug), "", None, MAX_DENIED)
        .await?;
    let now = tx.now();
    let mut denied = Vec::new();
    // The index may still name a device that another owner has decided on; the record tells.
    for record in read_indexed_devices(app, slug, &waiting).await? {
        let device: Device = record.read()?;
        let is_pending =
            device.status == DeviceStatus::Pending && device.namespace_id == namespace.id;
        if !is_pending || !is_named(asked, &device) {
            continue;
        }
        let device = Device {
            status: DeviceStatus::Revoked,
            decided_at: Some(now),
            decided_by: Some(actor.user.clone()),
            network: None,
            ..device
        };
        tx.write_all(device.denial_writes(slug, record.revision, now)?);
        denied.push(device);
    }
    if denied.is_empty() {
        return Ok(denied);
    }
    let count = i64::try_from(denied.len()).unwrap_or(namespace::MAX_PENDING);
    tx.write(namespace::count_pending(slug, -count));
    let ids: Vec<_> = denied
        .iter()
        .map(|device| device.device_id.clone())
        .collect();
    let after = match &asked.network {
        Some(network) => json!({ "denied": ids, "network": network }),
        None => json!({ "denied": ids }),
    };
    let change = Change::default().with_after(after);
    acting.write_audit(tx, "device.deny-pending", change)?;
    Ok(denied)
}
