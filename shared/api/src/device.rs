//! Machines, as they enrol (`/v/{slug}/devices`) and as owners see them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::root::KeyFingerprint;
use vault_format::time::Timestamp;
use vault_format::words;

words! {
    /// The state of a machine, which decides on its rights.
    #[derive(JsonSchema)]
    pub enum DeviceStatus {
        /// Waits for the owner: reads the catalog.
        Pending = "pending",
        /// Admitted: reads bundles too.
        Active = "active",
        /// Denied or revoked, for good: may learn just that.
        Revoked = "revoked",
    }
}

/// A machine that asks to enrol.
// No `Debug`: the code admits a machine and must not come into a log.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Enrolment {
    /// Ed25519 public key of the machine, 43 characters. The request is signed by its private key.
    // A text, so that the service answers a bad key with its own code instead of that of bad JSON.
    pub public_key: String,
    /// The machine's name, of printable characters. A machine without a name is shown by its
    /// fingerprint.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Enrolment code, `vec_…`, which admits the machine at once. Without one the machine waits for
    /// an owner, where the vault allows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A machine after it enrolled.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct EnrolledDevice {
    /// Id of the machine, `dev_…`.
    pub device_id: String,
    /// Whether the machine waits, is admitted, or was denied or revoked.
    pub status: DeviceStatus,
    /// Ed25519 public key under which the machine is enrolled.
    pub public_key: PublicKey,
    /// Name that the machine gave itself; empty if it gave none.
    pub hostname: String,
    /// Time of its first enrolment.
    pub enrolled_at: Timestamp,
}

/// A machine as it sees itself.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CurrentDevice {
    /// Id of the machine, `dev_…`.
    pub device_id: String,
    /// Whether the machine waits, is admitted, or was denied or revoked.
    pub status: DeviceStatus,
    /// Name that the machine gave itself; empty if it gave none.
    #[serde(default)]
    pub hostname: String,
    /// Time of its first enrolment.
    #[serde(default)]
    pub enrolled_at: Timestamp,
    /// The current catalog; null before the first release. Absent for a revoked machine.
    #[serde(
        default,
        deserialize_with = "read_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub catalog: Option<Option<CatalogReference>>,
    /// True for an active machine of a vault whose subscription has lapsed: it gets no bundles.
    /// Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lapsed: bool,
}

/// Reads a member that is present, so that null is not taken for an absent one.
fn read_present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The current catalog. It is not signed, so it only says whether to fetch the catalog.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct CatalogReference {
    /// SHA-256 of the catalog's bytes.
    pub sha256: Digest,
    /// Length of the catalog in bytes.
    #[serde(default)]
    pub size: u64,
    /// Number of the release that the catalog describes.
    pub release: u64,
}

/// A machine, as owners see it.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Device {
    /// Id of the machine, `dev_…`.
    pub device_id: String,
    /// Whether the machine waits, is admitted, or was denied or revoked.
    pub status: DeviceStatus,
    /// Ed25519 public key of the machine, which it sends with its requests.
    pub public_key: PublicKey,
    /// The fingerprint that `vault link` prints on the machine. The owner compares the two before
    /// admitting it.
    pub fingerprint: KeyFingerprint,
    /// Name that the machine gave itself, which proves nothing; empty if it gave none.
    pub hostname: String,
    /// Time of its first enrolment.
    #[serde(default)]
    pub enrolled_at: Timestamp,
    /// Time at which an owner, an app or a code last decided on the machine; null before that.
    pub decided_at: Option<Timestamp>,
    /// The id of the app that admitted it, or that made the code which admitted it. Absent if no
    /// app did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// True in the answer that forgets it.
    // Left out while false, since a list of machines would repeat it for each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}

/// Returns the name of a machine for display: its hostname, or the fingerprint of its key if it has
/// none.
pub fn device_name(hostname: &str, key: &PublicKey) -> String {
    if hostname.is_empty() {
        KeyFingerprint::device(key).to_string()
    } else {
        hostname.to_owned()
    }
}

impl Device {
    /// Returns the name for display. The fingerprint is computed here, because the service could
    /// state another one.
    pub fn display_name(&self) -> String {
        device_name(&self.hostname, &self.public_key)
    }
}

/// A machine in the list, with what is known of its last visit.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ListedDevice {
    /// The machine.
    #[serde(flatten)]
    pub device: Device,
    /// Day of its last request in UTC, such as `2026-11-21`; null if none is recorded.
    pub last_seen: Option<String>,
    /// Number of the newest release whose catalog it has fetched; null if it has fetched none.
    pub release: Option<u64>,
    /// While it waits, the network that it enrolled from: the /24 of an IPv4 address or the /48 of
    /// an IPv6 address, `unknown` if that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// Names the waiting machines to deny: those that match every member given; without a member, all of
/// them. No member may be null.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeniedMachines {
    /// A network, as the list of machines has it.
    #[schemars(with = "String", length(max = 64))]
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub network: Option<String>,
    /// Ids of machines. One that came after the list was made is not among them, so it is not
    /// denied unseen.
    #[schemars(with = "Vec<String>", length(max = 100))]
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub devices: Option<Vec<String>>,
}

/// Parses a member that is given. Null is an error: read as absent, it would deny all machines that
/// wait.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
