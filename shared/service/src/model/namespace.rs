//! A namespace: one tenant's part of the service, named by its slug.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `ns/<slug>` | `ns` | [`Namespace`]; read on every request, so a release, a suspension or a deletion acts at once |
//! | `ns/<slug>` | `queue` | `{pending}`: how many devices wait; a record of its own, so that devices that enrol cannot make a publish conflict |
//! | `namespaces` | `<slug>` | [`NamespaceEntry`], for the operator's list |
//!
//! To allocate a namespace means to create it with a slug that was never used; its id stands for
//! this allocation. A namespace's record is never removed: after a deletion it stays, so that its
//! slug is not given out again.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use vault_api::EnrolmentMode as Enrolment;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{NamespaceId, Slug};
use vault_format::root::{RevokedKey, RootState, VaultFingerprint, VaultId};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};
use vault_store::random::ulid_parts;
use vault_store::records::{Document, RecordKey, When, Write};

use crate::config::quota::SetQuota;
use crate::ports::Ports;

pub use vault_api::{Kind, PinReset, Status};

/// Maximum number of devices of a namespace that wait for the owner.
pub const MAX_PENDING: i64 = 20;
/// Number of days for which owners see that the pin was reset.
pub const RESET_SHOWN_DAYS: i64 = 30;
/// Maximum number of revoked keys that a pin keeps from abandoned chains of root versions
/// (documents with the vault's keys). A root document revokes at most 256 keys, and each resolved
/// fork adds the keys of the chain that is abandoned, so the format sets no bound that fits into a
/// record (256 KiB). This bound is 16 full documents, 184 KiB.
pub const MAX_REVOKED_ELSEWHERE: usize = 4096;
/// Partition of the list of all namespaces.
pub const DIRECTORY: &str = "namespaces";

/// State of the payments for a namespace.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subscription {
    /// The service takes no payments; counts as active.
    None,
    /// The payments are up to date.
    Active,
    /// A payment failed. The vault serves until the grace period ends.
    PastDue {
        /// End of the grace period.
        until: Timestamp,
    },
    /// No longer paid: bundles are not served, but the catalog is.
    Lapsed,
}

impl Subscription {
    /// Whether bundles are served and releases accepted at `now`.
    pub fn is_live(self, now: Timestamp) -> bool {
        match self {
            Self::None | Self::Active => true,
            // Compared at each read, so that no process has to change the record when the grace
            // period ends.
            Self::PastDue { until } => now < until,
            Self::Lapsed => false,
        }
    }

    /// Returns the state at `now` as answers show it: `past_due` becomes `lapsed` when the grace
    /// period ends.
    pub fn state_at(self, now: Timestamp) -> vault_api::Subscription {
        match self {
            Self::None => vault_api::Subscription::None,
            Self::Active => vault_api::Subscription::Active,
            Self::PastDue { until } if now < until => vault_api::Subscription::PastDue,
            Self::PastDue { .. } | Self::Lapsed => vault_api::Subscription::Lapsed,
        }
    }

    /// Returns the end of the grace period while the period lasts.
    pub fn grace_ends_at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::PastDue { until } if now < until => Some(until),
            _ => None,
        }
    }
}

/// The current release, which devices read.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Current {
    /// Number of the release, as its catalog states it.
    pub release: u64,
    /// SHA-256 of the catalog's exact bytes, under which they are stored.
    pub sha256: Digest,
    /// Size of the catalog, in bytes.
    pub size: u64,
    /// SHA-256 of the signed payload, which the next release's `previous` must name.
    pub payload_sha256: Digest,
    /// Fingerprint of the vault, for people to compare, computed from the root versions in the
    /// catalog file. `None` if an earlier version of vault published the release: see
    /// [`Current::is_earlier`].
    pub fingerprint: Option<VaultFingerprint>,
    /// SHA-256 of the release's closure, the object that lists all objects that the release names.
    pub closure: Digest,
    /// Number of skills in the release.
    pub skills: u64,
    /// Time at which the release became current, by the service's clock.
    pub published_at: Timestamp,
}

impl Current {
    /// Whether an earlier version of vault published the release. Its bytes are served unchanged,
    /// but the service reads neither its catalog nor the list of its objects.
    pub const fn is_earlier(&self) -> bool {
        self.fingerprint.is_none()
    }
}

/// The pin: the vault and its newest root version, with which the root versions of the next catalog
/// are compared. A root version is a signed document with the vault's keys; the documents
/// themselves are in the current catalog file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// Id of the pinned vault.
    pub vault_id: VaultId,
    /// SHA-256 of the payload of root version 1.
    pub root1_sha256: Digest,
    /// Number of the newest root version.
    pub root_version: u64,
    /// SHA-256 of the payload of the newest root version.
    pub root_sha256: Digest,
    /// Keys that were revoked in abandoned root versions, and must not be accepted again.
    pub revoked: BTreeSet<RevokedKey>,
    /// Keys whose signatures on the current catalog were counted.
    pub signers: Vec<PublicKey>,
}

impl Pin {
    /// Creates the pin for this state of the root versions; `signers` are the keys that signed the
    /// current catalog.
    pub fn new(state: &RootState, signers: Vec<PublicKey>) -> Self {
        let chain = state.chain();
        Self {
            vault_id: chain.vault_id(),
            root1_sha256: *chain.root1_sha256(),
            root_version: chain.version(),
            root_sha256: *chain.newest().payload_sha256(),
            revoked: state.revoked_elsewhere().clone(),
            signers,
        }
    }
}

/// The vault that a namespace accepts releases of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Pinned {
    /// No vault is pinned: before the first release, and after a reset. The next release decides.
    #[default]
    Nothing,
    /// Releases of the vault in this pin.
    Vault(Pin),
    /// A pin from an earlier version of vault. No release is accepted until an owner resets it.
    Earlier(EarlierPin),
}

/// A pin from before there were root versions, exactly as it was read. It is preserved, so that a
/// namespace whose owner has not returned yet can be suspended, paid for and administered like any
/// other.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct EarlierPin(Value);

impl EarlierPin {
    /// Name of a member that every pin of the earlier version has, and no other pin.
    const MARK: &str = "rotation_sequence";

    /// Returns the id of the vault in the pin, for the audit log.
    pub fn vault_id(&self) -> &Value {
        &self.0["vault_id"]
    }
}

impl Pinned {
    /// Returns the pin of a vault; `None` if nothing is pinned, or a pin of an earlier version.
    pub const fn vault_pin(&self) -> Option<&Pin> {
        match self {
            Self::Vault(pin) => Some(pin),
            Self::Nothing | Self::Earlier(_) => None,
        }
    }
}

impl Serialize for Pinned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_none(),
            Self::Vault(pin) => pin.serialize(serializer),
            Self::Earlier(pin) => pin.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Pinned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pin = Value::deserialize(deserializer)?;
        if pin.is_null() {
            return Ok(Self::Nothing);
        }
        // Recognized by the member and not by trial: a damaged pin must be an error and not be
        // taken for an earlier one.
        if pin.get(EarlierPin::MARK).is_none() {
            return Pin::deserialize(pin)
                .map(Self::Vault)
                .map_err(D::Error::custom);
        }
        // In the earlier version, a namespace without a release had such a pin too, in which
        // nothing is pinned.
        Ok(if pin["public_key"].is_null() {
            Self::Nothing
        } else {
            Self::Earlier(EarlierPin(pin))
        })
    }
}

/// A reference to a namespace in records about people: the slug finds the namespace, and the id
/// proves that it is still the same one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NamespaceRef {
    /// Slug, by which the namespace's record is found.
    pub slug: Slug,
    /// Id that the record must have; otherwise it is another namespace.
    pub id: NamespaceId,
}

/// The record of a namespace. It stays after a deletion, so that the slug is not used again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Namespace {
    /// Id of this allocation of the slug. Objects and devices are bound to it, never to the slug.
    pub id: NamespaceId,
    /// Name in addresses.
    pub slug: Slug,
    /// Whether owners sign the releases of the namespace themselves, or this server does.
    pub kind: Kind,
    /// Status of the namespace; only an active one serves its members and devices.
    pub status: Status,
    /// State of the payments; decides whether bundles are served.
    pub subscription: Subscription,
    /// E-mail address of the account that the namespace was created for.
    pub owner: String,
    /// The vault whose releases are accepted.
    pub pin: Pinned,
    /// The last reset of the pin, if there ever was one.
    pub pin_reset: Option<PinReset>,
    /// The current release, if there ever was one.
    pub current: Option<Current>,
    /// Name of the plan with which the vault was sold; `None` if it was not sold.
    #[serde(default)]
    pub plan: Option<String>,
    /// Limits that an operator has set; they replace those of the plan.
    #[serde(default)]
    pub quota: SetQuota,
    /// Raised to end all earlier tokens for the namespace in one write.
    #[serde(default)]
    pub epoch: u32,
    /// Whether machines need a code to enrol.
    #[serde(default)]
    pub enrolment: Enrolment,
    /// Time at which the slug was allocated.
    pub created_at: Timestamp,
}

/// The part of a [`Namespace`] record that the request of a device needs. The pin is left out:
/// parsing one key costs more than the rest of the request, including the check of the signature.
#[derive(Clone, Debug, Deserialize)]
pub struct ServedNamespace {
    /// Id of this allocation of the slug, under which its objects are stored.
    pub id: NamespaceId,
    /// Whether owners sign the releases of the namespace themselves, or this server does.
    pub kind: Kind,
    /// Status of the namespace; only an active one serves its devices.
    pub status: Status,
    /// State of the payments; decides whether bundles are served.
    pub subscription: Subscription,
    /// The current release, if there ever was one.
    pub current: Option<Current>,
}

impl ServedNamespace {
    /// Returns the key under which an object of the namespace is in the object store.
    pub fn object_key(&self, class: Class, digest: Digest) -> ObjectKey {
        ObjectKey::new(self.id, class, digest)
    }
}

/// Entry of the list of all namespaces.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NamespaceEntry {
    /// Slug of the namespace, which is also the key of the entry.
    pub slug: Slug,
    /// Id of the allocation, which names most partitions of the namespace.
    pub namespace_id: NamespaceId,
}

/// Counter of the devices that wait for the owner.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Queue {
    /// Number of waiting devices, at most [`MAX_PENDING`]; without a record it is 0.
    #[serde(default)]
    pub pending: i64,
}

impl Namespace {
    /// Creates a namespace with a new id, without a pin and a release.
    pub fn new(slug: Slug, kind: Kind, owner: String, ports: &Ports) -> Self {
        let (millis, bits) = ulid_parts(&ports.clock, &ports.random);
        Self {
            id: NamespaceId::from_parts(millis, bits),
            slug,
            kind,
            status: Status::Active,
            subscription: Subscription::None,
            owner,
            pin: Pinned::Nothing,
            pin_reset: None,
            current: None,
            plan: None,
            quota: SetQuota::default(),
            epoch: 0,
            enrolment: Enrolment::Open,
            created_at: ports.now(),
        }
    }

    /// Returns the reference by which other records name the namespace.
    pub fn to_ref(&self) -> NamespaceRef {
        NamespaceRef {
            slug: self.slug.clone(),
            id: self.id,
        }
    }

    /// Returns the writes that create the namespace. The first one fails if the slug is or was in
    /// use.
    pub fn allocation_writes(&self) -> Result<Vec<Write>, StoreError> {
        let listed = NamespaceEntry {
            slug: self.slug.clone(),
            namespace_id: self.id,
        };
        Ok(vec![
            // A deleted namespace still occupies its key, so no slug is given out twice.
            Write::put(
                namespace_key(&self.slug),
                Document::from_value(self)?,
                When::Absent,
            ),
            Write::put(
                RecordKey::new(DIRECTORY, self.slug.as_str()),
                Document::from_value(&listed)?,
                When::Absent,
            ),
        ])
    }

    /// Returns the current release; `None` if there is none, or one of an earlier version of vault,
    /// which cannot be read.
    pub fn readable_current(&self) -> Option<&Current> {
        self.current
            .as_ref()
            .filter(|current| !current.is_earlier())
    }

    /// Returns the last reset of the pin while owners are to see it.
    pub fn shown_reset(&self, now: Timestamp) -> Option<&PinReset> {
        let reset = self.pin_reset.as_ref()?;
        (now < reset.at.plus_days(RESET_SHOWN_DAYS)).then_some(reset)
    }

    /// Returns the write that replaces the record as it was read at `revision`.
    pub fn update_write(&self, revision: u64) -> Result<Write, StoreError> {
        Ok(Write::put(
            namespace_key(&self.slug),
            Document::from_value(self)?,
            When::At(revision),
        ))
    }

    /// Returns the key under which an object of the namespace is in the object store.
    pub fn object_key(&self, class: Class, digest: Digest) -> ObjectKey {
        ObjectKey::new(self.id, class, digest)
    }
}

/// Returns the key of the [`Namespace`] with this slug.
pub fn namespace_key(slug: &Slug) -> RecordKey {
    RecordKey::new(namespace_partition(slug), "ns")
}

/// Returns the key of the [`Queue`] of a namespace.
pub fn device_queue_key(slug: &Slug) -> RecordKey {
    RecordKey::new(namespace_partition(slug), "queue")
}

/// Returns the write that changes the counter of waiting devices by `by`. It fails if the count
/// would be negative or above [`MAX_PENDING`].
pub fn count_pending(slug: &Slug, by: i64) -> Write {
    Write::count(device_queue_key(slug), "pending", by, MAX_PENDING)
}

/// Reads a namespace with its revision. `None` if it never existed or is deleted.
pub async fn find_namespace(
    ports: &Ports,
    slug: &Slug,
) -> Result<Option<(Namespace, u64)>, StoreError> {
    let Some(record) = ports.records.get_one(&namespace_key(slug)).await? else {
        return Ok(None);
    };
    let namespace: Namespace = record.read()?;
    Ok((namespace.status != Status::Deleted).then_some((namespace, record.revision)))
}

fn namespace_partition(slug: &Slug) -> String {
    format!("ns/{slug}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vault_that_is_past_due_serves_until_the_grace_period_ends() {
        let at = Timestamp::from_unix;
        let past_due = Subscription::PastDue { until: at(100) };
        for (subscription, now, live, word, end) in [
            (Subscription::None, 0, true, "none", None),
            (Subscription::Active, 0, true, "active", None),
            (past_due, 99, true, "past_due", Some(at(100))),
            (past_due, 100, false, "lapsed", None),
            (Subscription::Lapsed, 0, false, "lapsed", None),
        ] {
            let now = at(now);
            assert_eq!(subscription.is_live(now), live, "{subscription:?} {now}");
            assert_eq!(
                subscription.state_at(now).as_str(),
                word,
                "{subscription:?} {now}"
            );
            assert_eq!(
                subscription.grace_ends_at(now),
                end,
                "{subscription:?} {now}"
            );
        }
    }

    #[test]
    fn a_subscription_reads_as_earlier_versions_wrote_it() {
        for (text, subscription) in [
            ("\"none\"", Subscription::None),
            ("\"active\"", Subscription::Active),
            ("\"lapsed\"", Subscription::Lapsed),
        ] {
            assert_eq!(
                serde_json::from_str::<Subscription>(text).unwrap(),
                subscription
            );
            assert_eq!(serde_json::to_string(&subscription).unwrap(), text);
        }
    }
}
