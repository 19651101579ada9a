//! Vaults, as their people see them: `/admin/vaults` and `/admin/vaults/{slug}`.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::root::{VaultFingerprint, VaultId};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::{Email, EnrolmentMode, Role};

words! {
    /// The signer of a vault's releases.
    #[derive(JsonSchema)]
    pub enum Kind {
        /// The server has the library and its key; nothing is pushed.
        SelfSigned = "self_signed",
        /// The owner has the key; releases are pushed.
        Hosted = "hosted",
    }
}

words! {
    /// The state of a vault, which decides whether it is served.
    #[derive(JsonSchema)]
    pub enum Status {
        /// In use: the service answers requests about it.
        Active = "active",
        /// Stopped by an operator; each request is answered with this reason.
        Suspended = "suspended",
        /// Deleted for good; answered like a vault that never existed.
        Deleted = "deleted",
    }
}

words! {
    /// Whether a vault is paid for, which decides whether bundles are served.
    #[derive(Default, JsonSchema)]
    pub enum Subscription {
        /// The service takes no payments; counts as active.
        #[default]
        None = "none",
        /// Paid.
        Active = "active",
        /// A payment failed; the vault serves until the grace period ends.
        PastDue = "past_due",
        /// No longer paid: bundles are not served, the catalog is.
        Lapsed = "lapsed",
    }
}

words! {
    /// A step of setting up a hosted vault, in the order of the interface.
    #[derive(JsonSchema)]
    pub enum ProvisioningStepName {
        /// The chosen starter skills are queued.
        StarterSkills = "starter_skills",
        /// Paid access is confirmed.
        PaidAccess = "paid_access",
        /// The namespace is allocated.
        Namespace = "namespace",
        /// The starter skills are saved as drafts.
        CloudImport = "cloud_import",
        /// The owner has published a release from the command line.
        FirstSync = "first_sync",
    }
}

words! {
    /// Whether a step is done.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum StepState {
        /// The step has still to be done.
        Pending = "pending",
        /// The step is done or was not needed.
        Done = "done",
    }
}

/// A vault in the list of an account.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct VaultSummary {
    /// Name of the vault in addresses.
    pub slug: Slug,
    /// The caller's user in it, `usr_…`; absent in an answer of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The e-mail address of that user; absent in an answer of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Email>,
    /// Role of the caller in it.
    pub role: Role,
    /// Whether the owner or the server signs its releases.
    pub kind: Kind,
    /// Number of the current release; null before the first one.
    pub release: Option<u64>,
    /// State of the payments for it.
    #[serde(default)]
    pub subscription: Subscription,
    /// Id of the pinned vault, the only one whose releases are accepted; null if none is pinned.
    pub vault_id: Option<VaultId>,
    /// Fingerprint of the vault as it is now; null before the first release.
    pub fingerprint: Option<VaultFingerprint>,
    /// Number of the newest root version (list of its keys); null before the first release.
    pub root_version: Option<u64>,
}

/// A vault, as its owners, its publishers and operators see it.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Vault {
    /// Name of the vault in addresses.
    pub slug: Slug,
    /// Id of the namespace, `ns_…`, which is created when the name is allocated.
    pub namespace_id: NamespaceId,
    /// Whether the owner or the server signs its releases.
    pub kind: Kind,
    /// Whether the vault is in use, suspended or deleted.
    pub status: Status,
    /// State of the payments for it.
    pub subscription: Subscription,
    /// Time at which the vault lapses if an overdue payment does not arrive; null if none is
    /// overdue.
    pub grace_ends_at: Option<Timestamp>,
    /// Whether machines need a code to enrol.
    #[serde(default)]
    pub enrolment: EnrolmentMode,
    /// The e-mail address of the account that it was made for.
    pub owner: String,
    /// Time at which the name was allocated.
    pub created_at: Timestamp,
    /// The pin: the vault whose releases are accepted; null before the first release and after a
    /// reset.
    // Never absent: a service that says nothing about its pin has not forgotten it.
    #[serde(deserialize_with = "Option::deserialize")]
    pub pin: Option<Pinned>,
    /// The last reset of the pin; null if there was none in the last 30 days.
    pub pin_reset: Option<PinReset>,
    /// The current release; null before the first one.
    pub release: Option<CurrentRelease>,
    /// Time at which the current release was published.
    pub last_push: Option<Timestamp>,
    /// How much the vault may hold.
    pub quota: Quota,
    /// How much the vault holds.
    #[serde(default)]
    pub usage: Usage,
    /// The numbers of its skills, releases and waiting machines.
    pub counts: Counts,
    /// Numbers of drafts that wait for a decision, by kind.
    #[serde(default)]
    pub drafts: DraftCounts,
    /// The steps of setting up the vault, in order.
    #[serde(default)]
    pub provisioning: Vec<ProvisioningStep>,
    /// The first step that is not done.
    pub next_step: Option<ProvisioningStepName>,
}

impl Vault {
    /// Returns the pin (the vault to which the name is bound) unless it is of an earlier version's
    /// form.
    pub const fn current_pin(&self) -> Option<&Pin> {
        match &self.pin {
            Some(Pinned::Vault(pin)) => Some(pin),
            Some(Pinned::Earlier(_)) | None => None,
        }
    }
}

/// The part of a [`Vault`] that a publisher needs. A member in a form of a later service does not
/// prevent publishing: it is read as absent.
#[derive(Clone, Debug, Deserialize)]
pub struct VaultHead {
    /// Whether the owner or the server signs its releases; `None` for a word of a later service.
    #[serde(default, deserialize_with = "read_if_known")]
    pub kind: Option<Kind>,
    #[serde(default, deserialize_with = "read_if_known")]
    release: Option<CatalogHash>,
    // Read raw: a pin that the service does not state is not the same as null, which means "no
    // pin".
    #[serde(default = "unstated_pin")]
    pin: Value,
    /// The last reset of the pin, for 30 days.
    #[serde(default)]
    pub pin_reset: Option<ReportedPinReset>,
}

/// A reset of the pin (the vault to which the name is bound), as a publisher reads it. A reset in
/// an unknown form of a later service still counts as a reset.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ReportedPinReset {
    /// A reset whose time and author could be read.
    Known(PinReset),
    /// A reset in a form that this version does not know.
    Unknown(IgnoredAny),
}

#[derive(Clone, Debug, Deserialize)]
struct CatalogHash {
    sha256: Digest,
}

impl VaultHead {
    /// Returns the SHA-256 of the bytes of the current catalog; `None` before the first release.
    pub fn catalog_sha256(&self) -> Option<Digest> {
        self.release.as_ref().map(|release| release.sha256)
    }

    /// Tells whether the service states that nothing is pinned: before the first release, and after
    /// an owner reset the pin.
    pub fn is_unpinned(&self) -> bool {
        self.pin.is_null()
    }

    /// The id of the vault that is pinned; `None` without a pin, and for a pin of an unknown form.
    pub fn vault_id(&self) -> Option<VaultId> {
        // `None` for a pin of a form that is unknown here, but `is_unpinned` is false then: nothing
        // is published over it.
        Pin::deserialize(&self.pin).ok().map(|pin| pin.vault_id)
    }
}

fn read_if_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    // Parse to JSON first: after a failed attempt at `T`, the deserializer would stand inside the
    // value.
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).ok())
}

// The value for an absent pin is neither null nor a pin. Null would mean that nothing is pinned,
// and a publisher would then replace another vault.
const fn unstated_pin() -> Value {
    Value::Bool(false)
}

/// The vault to which a name is pinned.
// No tag: the member `earlier`, which a pin of today does not have, tells the two apart.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Pinned {
    /// The pin of a vault that this version of vault can read.
    Vault(Pin),
    /// The kind of vault that earlier versions had. Nothing can be published until an owner resets
    /// the pin.
    Earlier(EarlierPin),
}

/// The vault whose releases are accepted, with its newest root version (document with its keys).
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Pin {
    /// Id of the vault, which stays when its keys change.
    pub vault_id: VaultId,
    /// Fingerprint of the vault at this root version, for people to compare.
    pub fingerprint: Option<VaultFingerprint>,
    /// Number of its newest root version.
    pub root_version: u64,
    /// SHA-256 of the payload of that root version.
    pub root_sha256: Digest,
}

/// A pin that an earlier version of vault made.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct EarlierPin {
    /// Always true. Only a pin of this form has this member.
    pub earlier: bool,
}

/// The last time that the pin of a vault was reset.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "LastPinReset")]
pub struct PinReset {
    /// Time of the reset.
    pub at: Timestamp,
    /// Id of the user who reset the pin, `usr_…`.
    pub by: String,
    /// Id of the vault that was pinned before; null if none was pinned, or if it was
    /// a vault of an earlier version of the program, which had no id.
    pub vault_id: Option<VaultId>,
}

/// The current release, which machines read.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct CurrentRelease {
    /// Number of the release, as its catalog states it.
    pub release: u64,
    /// SHA-256 of the catalog's bytes.
    pub sha256: Digest,
    /// SHA-256 of the payload that the keys signed.
    pub payload_sha256: Digest,
    /// Length of the catalog in bytes.
    pub size: u64,
    /// Time at which it became current, by the service's clock.
    pub published_at: Timestamp,
}

/// How much a vault may hold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Quota {
    /// The most bytes that it may store; null: no limit.
    pub bytes: Option<u64>,
    /// The most objects that it may store; null: no limit.
    pub objects: Option<u64>,
    /// The most machines that its owners may admit; null: no limit.
    pub machines: Option<u64>,
    /// The most members and waiting invitations; null: no limit.
    pub people: Option<u64>,
    /// The most drafts about skills that wait; null: no limit.
    pub drafts: Option<u64>,
}

/// How an operator changes the quota of a namespace. A limit that is absent keeps its value.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaChange {
    /// The most bytes that it may store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<QuotaLimit>,
    /// The most objects that it may store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<QuotaLimit>,
    /// The most machines that its owners may admit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<QuotaLimit>,
    /// The most members and waiting invitations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub people: Option<QuotaLimit>,
    /// The most drafts about skills that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafts: Option<QuotaLimit>,
}

/// A limit of a quota, as an operator sets it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
pub enum QuotaLimit {
    /// This many; 0: no limit.
    Most(u64),
    /// What the plan of the namespace says, or else the default.
    Plan(PlanWord),
}

words! {
    /// The word with which a limit goes back to that of the plan.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum PlanWord {
        /// The limit of the plan.
        Plan = "plan",
    }
}

/// How much a vault holds. Numbers of stored bytes and objects are corrected every 6 hours.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Usage {
    /// Bytes that it stores: of its release, of former releases, of uploads and drafts.
    pub bytes: u64,
    /// Objects that it stores.
    pub objects: u64,
    /// Bytes of uploads that no release has named yet.
    pub unnamed_bytes: u64,
    /// Uploads that no release has named yet.
    pub unnamed_objects: u64,
    /// Machines that are admitted; null until the first admission since an upgrade.
    pub machines: Option<u64>,
    /// Members and waiting invitations; null where they have no limit.
    pub people: Option<u64>,
    /// Drafts about skills that wait; null where they have no limit.
    pub drafts: Option<u64>,
}

/// The numbers of a vault's skills, releases and waiting machines.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Counts {
    /// Skills of the current release.
    pub skills: u64,
    /// Releases that are kept, at most 1,000.
    pub releases: u64,
    /// Machines that wait for an owner, at most 20.
    pub devices_pending: i64,
}

/// The numbers of waiting drafts, among the first 1,000 open ones.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct DraftCounts {
    /// Drafts about skills.
    pub pending: u64,
    /// Releases that wait for signatures.
    pub proposals: u64,
    /// Requests to become a publisher.
    pub key_requests: u64,
}

/// A step of setting up a vault.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ProvisioningStep {
    /// Which of the five steps this is.
    pub step: ProvisioningStepName,
    /// Whether the step is done.
    pub state: StepState,
    /// False for a step that this vault does not need, since an operator made it; such a step
    /// counts as done.
    #[serde(default = "is_needed")]
    pub needed: bool,
}

/// An answer of an earlier version names only steps that a vault needs.
const fn is_needed() -> bool {
    true
}

/// A request about a vault that a person has confirmed by typing its name.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmedVault {
    /// The name of the vault, which the person has typed as a confirmation.
    #[schemars(length(max = 63))]
    pub slug: String,
}

/// A request to remove the pin of a vault.
// Unknown members are accepted: an earlier version of the command line also sends a password.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "PinReset")]
pub struct ConfirmedPinReset {
    /// The name of the vault, which the person has typed as a confirmation.
    #[schemars(length(max = 63))]
    pub slug: String,
}

/// The answer to a reset of the pin of a vault.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PinResetDone {
    /// Name of the vault in addresses.
    pub slug: Slug,
    /// Always null.
    // A unit is `null` in JSON.
    pub pin: (),
}

/// The answer to the deletion of a vault.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DeletedVault {
    /// Name that the vault had, which is not given out again.
    pub slug: Slug,
    /// Always `deleted`.
    pub status: Status,
}

/// The result of a sign-out of a vault or of the service.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SignedOut {
    /// The number of the current generation of tokens; those of earlier ones are invalid.
    pub epoch: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(json: &str) -> VaultHead {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn only_a_pin_of_null_is_forgotten() {
        assert!(head(r#"{"pin":null}"#).is_unpinned());
        for held in [r#"{"pin":{"later":1}}"#, r#"{"kind":"hosted"}"#] {
            assert!(!head(held).is_unpinned(), "{held}");
            assert_eq!(head(held).vault_id(), None, "{held}");
        }
    }

    #[test]
    fn a_reset_in_an_unknown_form_is_a_reset() {
        let known = r#"{"pin_reset":{"at":"2026-12-01T00:00:00Z","by":"usr_a","vault_id":null}}"#;
        let reset = head(known).pin_reset;
        assert!(matches!(reset, Some(ReportedPinReset::Known(reset)) if reset.by == "usr_a"));
        for later in [
            r#"{"pin_reset":{"when":7}}"#,
            r#"{"pin_reset":"yesterday"}"#,
        ] {
            let reset = head(later).pin_reset;
            assert!(
                matches!(reset, Some(ReportedPinReset::Unknown(_))),
                "{later}"
            );
        }
        for none in ["{}", r#"{"pin_reset":null}"#] {
            assert!(head(none).pin_reset.is_none(), "{none}");
        }
    }

    #[test]
    fn a_word_of_a_later_service_stops_no_publisher() {
        let later = head(r#"{"kind":"federated","status":"frozen","release":{"release":7}}"#);
        assert_eq!((later.kind, later.catalog_sha256()), (None, None));
        let now = head(r#"{"kind":"self_signed","release":null,"pin":null}"#);
        assert_eq!(now.kind, Some(Kind::SelfSigned));
        let digest = Digest::of(b"catalog");
        let published = head(&format!(r#"{{"release":{{"sha256":"{digest}"}}}}"#));
        assert_eq!(published.catalog_sha256(), Some(digest));
    }
}
