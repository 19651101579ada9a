//! A namespace: one tenant's part of the service, named by its slug.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `ns/<slug>` | `ns` | [`Namespace`]; read on every request, so a release, a suspension or a deletion acts at once |
//! | `ns/<slug>` | `queue` | `{pending}`: how many devices wait; a record of its own, so that devices that enrol cannot make a publish conflict |
//! | `namespaces` | `<slug>` | [`Listed`], for the operator's list |
//!
//! A namespace is never removed: a deleted one stays as its own tombstone, so that its slug is not
//! given out again.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{NamespaceId, Slug};
use vault_format::root::{RevokedKey, RootState, VaultFingerprint, VaultId};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};
use vault_store::random::ulid_parts;
use vault_store::records::{Document, RecordKey, When, Write};

use super::enrolment::Enrolment;

use crate::ports::Ports;

pub use vault_api::{Kind, PinReset, Status};

/// Most devices that wait for the owner at once.
pub const MAX_PENDING: i64 = 20;
/// For how long owners are shown that the pin was reset, in days.
pub const RESET_SHOWN_DAYS: i64 = 30;
/// Most keys that a pin keeps because a chain that was given up had revoked them. One root document
/// revokes at most 256 keys and each settled fork adds those of the chain that ends, so the format
/// itself has no bound that a record could hold (256 KiB): this is 16 full documents, 184 KiB.
pub const MAX_REVOKED_ELSEWHERE: usize = 4096;
/// The partition of the operator's list.
pub const DIRECTORY: &str = "namespaces";

/// What was paid for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subscription {
    /// The service takes no payments; counts as active.
    None,
    /// Paid.
    Active,
    /// A payment failed. The vault serves until the grace period ends.
    PastDue {
        /// The end of the grace period.
        until: Timestamp,
    },
    /// No longer paid: bundles stop, the catalog does not.
    Lapsed,
}

impl Subscription {
    /// Whether bundles are served and releases accepted at `now`.
    pub fn is_live(self, now: Timestamp) -> bool {
        match self {
            Self::None | Self::Active => true,
            Self::PastDue { until } => now < until,
            Self::Lapsed => false,
        }
    }

    /// Its state at `now` in answers: `past_due` becomes `lapsed` when the grace period ends.
    pub fn at(self, now: Timestamp) -> vault_api::Subscription {
        match self {
            Self::None => vault_api::Subscription::None,
            Self::Active => vault_api::Subscription::Active,
            Self::PastDue { until } if now < until => vault_api::Subscription::PastDue,
            Self::PastDue { .. } | Self::Lapsed => vault_api::Subscription::Lapsed,
        }
    }

    /// The end of the grace period, while it runs.
    pub fn grace_ends_at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::PastDue { until } if now < until => Some(until),
            _ => None,
        }
    }
}

/// The release that devices read now.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Current {
    /// Its number.
    pub release: u64,
    /// Of the catalog's exact bytes: the object's name.
    pub sha256: Digest,
    /// Of the catalog's exact bytes.
    pub size: u64,
    /// Of the signed payload: what the next release's `previous` must name.
    pub payload_sha256: Digest,
    /// The vault's fingerprint by the root versions in the catalog's file, for people to compare.
    /// `None` where an earlier version of vault published the release: see [`Current::is_earlier`].
    pub fingerprint: Option<VaultFingerprint>,
    /// The object that lists everything the release names.
    pub closure: Digest,
    /// How many skills it has.
    pub skills: u64,
    /// When it became current, by the service's clock.
    pub published_at: Timestamp,
}

impl Current {
    /// Whether an earlier version of vault published it. Its bytes are served as they are, and
    /// nothing here reads them: neither its catalog nor the list of what it names.
    pub const fn is_earlier(&self) -> bool {
        self.fingerprint.is_none()
    }
}

/// What the next catalog's root versions are compared with. The versions themselves are in the
/// object of the current catalog.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// The vault.
    pub vault_id: VaultId,
    /// SHA-256 of the payload of root version 1.
    pub root1_sha256: Digest,
    /// The newest root version.
    pub root_version: u64,
    /// SHA-256 of its payload.
    pub root_sha256: Digest,
    /// Keys that were revoked in versions that were given up.
    pub revoked: BTreeSet<RevokedKey>,
    /// The keys whose signatures of the current catalog counted.
    pub signers: Vec<PublicKey>,
}

impl Pin {
    /// The pin of this state, under which these keys signed the current catalog.
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

/// What the record of a namespace says about the vault that it belongs to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Pinned {
    /// Nothing: before the first release, and after a reset.
    #[default]
    Nothing,
    /// A vault with root versions.
    Vault(Pin),
    /// What an earlier version of vault pinned. No release counts under it until an owner resets
    /// it.
    Earlier(EarlierPin),
}

/// A pin from before there were root versions, exactly as it was read. It is kept, so that a
/// namespace whose owner has not come back yet can be suspended, paid for and administered like any
/// other.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct EarlierPin(Value);

impl EarlierPin {
    /// The member by which such a pin is recognised: every earlier pin has it, and no other.
    const MARK: &str = "rotation_sequence";

    /// The id of the earlier vault, for the audit log.
    pub fn vault_id(&self) -> &Value {
        &self.0["vault_id"]
    }
}

impl Pinned {
    /// The pin of a vault with root versions.
    pub const fn vault(&self) -> Option<&Pin> {
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
        if pin.get(EarlierPin::MARK).is_none() {
            return Pin::deserialize(pin)
                .map(Self::Vault)
                .map_err(D::Error::custom);
        }
        // An earlier namespace without a release has such a pin too. Nothing is pinned there.
        Ok(if pin["public_key"].is_null() {
            Self::Nothing
        } else {
            Self::Earlier(EarlierPin(pin))
        })
    }
}

/// A namespace, as records about people name it: the slug for looking up, the id so that nothing
/// outlives an allocation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NamespaceRef {
    /// The slug.
    pub slug: Slug,
    /// The id of this allocation of the slug.
    pub id: NamespaceId,
}

/// A namespace.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Namespace {
    /// Fresh for every allocation; objects and devices are bound to it, never to the slug.
    pub id: NamespaceId,
    /// The name in addresses.
    pub slug: Slug,
    /// Who signs.
    pub kind: Kind,
    /// Whether it serves.
    pub status: Status,
    /// What was paid for.
    pub subscription: Subscription,
    /// The e-mail of the account that it was made for.
    pub owner: String,
    /// What the next catalog's root versions are compared with.
    pub pin: Pinned,
    /// The last reset of the pin, if there ever was one.
    pub pin_reset: Option<PinReset>,
    /// The current release, if there ever was one.
    pub current: Option<Current>,
    /// Most bytes that one release may name; absent: no bound.
    pub quota_bytes: Option<u64>,
    /// Raised to end every token for the namespace from before, in one write.
    #[serde(default)]
    pub epoch: u32,
    /// Whether machines need a code to enrol.
    #[serde(default)]
    pub enrolment: Enrolment,
    /// When it was allocated.
    pub created_at: Timestamp,
}

/// What the request of a device needs of a [`Namespace`]: its record without the pin, since parsing
/// one key costs more than all else of the request, its signature included.
#[derive(Clone, Debug, Deserialize)]
pub struct Served {
    /// The allocation.
    pub id: NamespaceId,
    /// Whether it serves.
    pub status: Status,
    /// What was paid for.
    pub subscription: Subscription,
    /// The current release, if there ever was one.
    pub current: Option<Current>,
}

impl Served {
    /// The place of one of its objects.
    pub fn object(&self, class: Class, digest: Digest) -> ObjectKey {
        ObjectKey::new(self.id, class, digest)
    }
}

/// A namespace in the operator's list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Listed {
    /// The name.
    pub slug: Slug,
    /// The id of the allocation.
    pub namespace_id: NamespaceId,
}

/// The counter of waiting devices.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Queue {
    /// How many wait.
    #[serde(default)]
    pub pending: i64,
}

impl Namespace {
    /// A new namespace with a fresh id, nothing pinned and nothing published.
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
            quota_bytes: None,
            epoch: 0,
            enrolment: Enrolment::Open,
            created_at: ports.now(),
        }
    }

    /// The writes that allocate it; the first one fails when the slug is or was in use.
    pub fn allocation(&self) -> Result<Vec<Write>, StoreError> {
        let listed = Listed {
            slug: self.slug.clone(),
            namespace_id: self.id,
        };
        Ok(vec![
            Write::put(key(&self.slug), Document::of(self)?, When::Absent),
            Write::put(
                RecordKey::new(DIRECTORY, self.slug.as_str()),
                Document::of(&listed)?,
                When::Absent,
            ),
        ])
    }

    /// The current release, if this version of vault can read it.
    pub fn readable_current(&self) -> Option<&Current> {
        self.current
            .as_ref()
            .filter(|current| !current.is_earlier())
    }

    /// The last reset of the pin, while it is recent enough that every owner is shown it.
    pub fn shown_reset(&self, now: Timestamp) -> Option<&PinReset> {
        let reset = self.pin_reset.as_ref()?;
        (now < reset.at.plus_days(RESET_SHOWN_DAYS)).then_some(reset)
    }

    /// The write that replaces the record as it was read at `revision`.
    pub fn update(&self, revision: u64) -> Result<Write, StoreError> {
        Ok(Write::put(
            key(&self.slug),
            Document::of(self)?,
            When::At(revision),
        ))
    }

    /// The place of one of its objects.
    pub fn object(&self, class: Class, digest: Digest) -> ObjectKey {
        ObjectKey::new(self.id, class, digest)
    }
}

/// Where the namespace of a slug stands.
pub fn key(slug: &Slug) -> RecordKey {
    RecordKey::new(partition(slug), "ns")
}

/// Where the counter of a namespace's waiting devices stands.
pub fn queue_key(slug: &Slug) -> RecordKey {
    RecordKey::new(partition(slug), "queue")
}

/// The change of the counter by `by`; fails where it would leave 0 to [`MAX_PENDING`].
pub fn count_pending(slug: &Slug, by: i64) -> Write {
    Write::count(queue_key(slug), "pending", by, MAX_PENDING)
}

/// Reads a namespace with its revision; a deleted one is `None`, as one that never was.
pub async fn find(ports: &Ports, slug: &Slug) -> Result<Option<(Namespace, u64)>, StoreError> {
    let Some(record) = ports.records.get(&key(slug)).await? else {
        return Ok(None);
    };
    let namespace: Namespace = record.read()?;
    Ok((namespace.status != Status::Deleted).then_some((namespace, record.revision)))
}

fn partition(slug: &Slug) -> String {
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
                subscription.at(now).as_str(),
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
