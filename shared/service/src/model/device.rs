//! A device: a machine that enrolled an Ed25519 key in a namespace. The key's text is its identity.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `dev/<slug>` | `<public key, 43 characters>` | [`Device`] |
//! | `devid/<slug>` | `<device_id>` | [`DeviceIdEntry`], from the id that owners use to the key; stays 30 days after `forget` |
//! | `pend/<slug>` | `<device_id>` | [`Pending`], only while the device waits |
//! | `seen/<slug>` | `<public key, 43 characters>` | [`LastSeen`], ends 400 days after its last change |
//!
//! An enrolment or a decision changes the device and the counter of waiting devices in one commit,
//! so the counter is always the number of `pend` records.
//!
//! A slug, the name of a namespace, can be allocated only once at present. Records still name the
//! allocation (`namespace_id`), so that a device of one tenant never counts for another.

use serde::{Deserialize, Serialize};
use vault_format::keys::PublicKey;
use vault_format::name::{NamespaceId, Slug};
use vault_format::request::device_id;
use vault_format::root::KeyFingerprint;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::client::ClientId;
use super::limits::Source;
use super::namespace::NamespaceRef;
use crate::ports::Ports;

pub use vault_api::DeviceStatus;

/// Time for which a forgotten device's id is remembered, in seconds: 30 days. Until then a repeated
/// `forget` gets the same answer as the first.
pub const FORGOTTEN_SECONDS: i64 = 30 * 24 * 3600;

/// Time for which a denied device is remembered if it was never admitted, in seconds: 30 days.
/// Afterwards its key is unknown and may enrol again.
pub const DENIED_SECONDS: i64 = 30 * 24 * 3600;

/// Time for which a device's last visit is remembered, in seconds: 400 days.
const SEEN_SECONDS: i64 = 400 * 24 * 3600;

/// Network of a waiting device whose address was not recorded.
pub const UNKNOWN_NETWORK: &str = "unknown";

/// The record of a device. That of a revoked one stays until an owner forgets the device, so that
/// its key cannot enrol again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Device {
    /// Id of the device, `dev_…`: computed from slug and key, so that concurrent requests of one
    /// key agree on it.
    pub device_id: String,
    /// Id of the namespace that the device enrolled in.
    pub namespace_id: NamespaceId,
    /// Public key of the device, which it sends in `X-Vault-Device`.
    pub public_key: PublicKey,
    /// Name that the machine gave itself at its first enrolment; empty if it gave none.
    pub hostname: String,
    /// Whether the device waits, is admitted, or was denied or revoked.
    pub status: DeviceStatus,
    /// Time at which the device enrolled, by the service's clock. A repeated request does not
    /// change it.
    pub enrolled_at: Timestamp,
    /// Time of the last decision on the device; `None` before the first.
    pub decided_at: Option<Timestamp>,
    /// Id of the user who made that decision, or of the enrolment code that admitted the device.
    /// Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The app that admitted the device or created the code that admitted it. Absent if an owner
    /// did it in the console, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Network that the device enrolled from, as shown to owners; only while the device waits.
    /// Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// The part of a [`Device`] record that the check of a signed request needs. The key is left out:
/// the request contains it, and parsing it again would cost more than the rest of the request,
/// including the check of the signature.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceStanding {
    /// Id of the device, `dev_…`.
    pub device_id: String,
    /// Id of the namespace that the device enrolled in.
    pub namespace_id: NamespaceId,
    /// Name that the machine gave itself at its first enrolment; empty if it gave none.
    pub hostname: String,
    /// Whether the device waits, is admitted, or was denied or revoked.
    pub status: DeviceStatus,
    /// Time at which the device enrolled, by the service's clock. A repeated request does not
    /// change it.
    pub enrolled_at: Timestamp,
}

/// Last visit of a device and the release that it has. Written at most once a day and for each new
/// release, so that most reads cost no write. No decision depends on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastSeen {
    /// Id of the namespace that the device reads.
    pub namespace_id: NamespaceId,
    /// The day in UTC, as `2026-11-21`.
    pub day: String,
    /// Number of the newest release whose catalog it has fetched.
    pub release: Option<u64>,
}

impl LastSeen {
    /// Returns the record after a visit, or `None` if `held` already has the same content.
    pub fn after_visit(
        held: Option<Self>,
        namespace_id: NamespaceId,
        release: Option<u64>,
        now: Timestamp,
    ) -> Option<Self> {
        // The slug may have belonged to another namespace, whose releases mean nothing here.
        let held = held.filter(|held| held.namespace_id == namespace_id);
        let next = Self {
            namespace_id,
            day: now.to_string().chars().take(10).collect(),
            // Requests can arrive out of order; an older release must not replace a newer one.
            release: release.max(held.as_ref().and_then(|held| held.release)),
        };
        (held.as_ref() != Some(&next)).then_some(next)
    }

    /// Returns the write that stores the record of the device whose public key has the text `key`.
    pub fn to_write(&self, slug: &Slug, key: &str, now: Timestamp) -> Result<Write, StoreError> {
        Ok(Write::put_until(
            seen_key(slug, key),
            Document::from_value(self)?,
            // Two visits at once may overwrite each other, because no decision rests on this
            // record.
            When::Any,
            now.plus_seconds(SEEN_SECONDS),
        ))
    }
}

/// Index record of a waiting device. Only earlier versions of vault read the source and the time:
/// when the queue was full, they dropped a device.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pending {
    /// Public key of the device, which leads to its record.
    pub public_key: PublicKey,
    /// Source of the enrolment; unknown in records of earlier versions.
    #[serde(default = "Pending::earlier_source")]
    pub source: Source,
    /// Time of the enrolment; 1970 in records of earlier versions.
    #[serde(default = "Pending::earlier_time")]
    pub enrolled_at: Timestamp,
}

impl Pending {
    fn earlier_source() -> Source {
        Source::of(None)
    }

    const fn earlier_time() -> Timestamp {
        Timestamp::from_unix(0)
    }
}

/// Index entry from a device's id to its key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeviceIdEntry {
    /// Public key of the device, which leads to its record.
    pub public_key: PublicKey,
    /// The device as it was when an owner removed it (`forget`); `None` while it is known.
    pub forgotten: Option<Device>,
}

impl Device {
    /// Returns the name that people see: the machine's own, or the fingerprint of its key if it has
    /// none.
    pub fn name(&self) -> String {
        vault_api::device_name(&self.hostname, &self.public_key)
    }

    /// Returns the name with the fingerprint of the key, which the machine cannot choose.
    pub fn name_and_fingerprint(&self) -> String {
        let fingerprint = KeyFingerprint::device(&self.public_key);
        if self.hostname.is_empty() {
            fingerprint.to_string()
        } else {
            format!("{} ({fingerprint})", self.hostname)
        }
    }

    /// Creates a device that waits for a decision of an owner.
    pub fn new(
        slug: &Slug,
        namespace_id: NamespaceId,
        public_key: PublicKey,
        hostname: String,
        now: Timestamp,
    ) -> Self {
        Self {
            device_id: device_id(slug, &public_key),
            namespace_id,
            public_key,
            hostname,
            status: DeviceStatus::Pending,
            enrolled_at: now,
            decided_at: None,
            decided_by: None,
            client: None,
            network: None,
        }
    }

    /// Returns the network that owners see while the device waits: [`UNKNOWN_NETWORK`] if it
    /// enrolled at an earlier version of vault, `None` if it does not wait.
    pub fn waiting_network(&self) -> Option<&str> {
        let network = self.network.as_deref().unwrap_or(UNKNOWN_NETWORK);
        (self.status == DeviceStatus::Pending).then_some(network)
    }

    /// Returns the entry that leads from the id to the key.
    pub fn index_entry(&self) -> DeviceIdEntry {
        DeviceIdEntry {
            public_key: self.public_key,
            forgotten: None,
        }
    }

    /// Returns the writes that deny the device, which waits and was read at `revision`. Its records
    /// are deleted after 30 days, so that unknown devices leave no rows for ever.
    pub fn denial_writes(
        &self,
        slug: &Slug,
        revision: u64,
        now: Timestamp,
    ) -> Result<[Write; 3], StoreError> {
        let until = now.plus_seconds(DENIED_SECONDS);
        let key = device_key(slug, &self.public_key.to_string());
        let (document, named) = (
            Document::from_value(self)?,
            Document::from_value(&self.index_entry())?,
        );
        Ok([
            Write::put_until(key, document, When::At(revision), until),
            // Both records expire together, so that no id remains that leads to no device.
            Write::put_until(id_key(slug, &self.device_id), named, When::Any, until),
            Write::delete(pending_key(slug, &self.device_id), When::Any),
        ])
    }

    /// Returns the write that stores the device's record under a condition.
    pub fn to_write(&self, slug: &Slug, when: When) -> Result<Write, StoreError> {
        Ok(Write::put(
            device_key(slug, &self.public_key.to_string()),
            Document::from_value(self)?,
            when,
        ))
    }
}

/// Result of [`find_device`].
pub struct FoundDevice {
    /// Record of the device, or its last state if an owner has removed it.
    pub device: Device,
    /// Revision of the record; `None` if the device was forgotten.
    pub revision: Option<u64>,
}

/// Finds the device of this id in a namespace, even if an owner has removed it.
pub async fn find_device(
    ports: &Ports,
    home: &NamespaceRef,
    id: &str,
) -> Result<Option<FoundDevice>, StoreError> {
    if !is_device_id(id) {
        return Ok(None);
    }
    let records = &ports.records;
    let Some(index) = records.get_one(&id_key(&home.slug, id)).await? else {
        return Ok(None);
    };
    let named: DeviceIdEntry = index.read()?;
    let key = device_key(&home.slug, &named.public_key.to_string());
    let found_device = match records.get_one(&key).await? {
        Some(record) => Some(FoundDevice {
            device: record.read()?,
            revision: Some(record.revision),
        }),
        None => named.forgotten.map(|device| FoundDevice {
            device,
            revision: None,
        }),
    };
    Ok(found_device.filter(|found| found.device.namespace_id == home.id))
}

/// Returns the key of the record of the device whose public key has this text.
pub fn device_key(slug: &Slug, public_key: &str) -> RecordKey {
    RecordKey::new(devices_partition(slug), public_key)
}

/// Returns the key of the last visit of the device whose public key has this text.
pub fn seen_key(slug: &Slug, public_key: &str) -> RecordKey {
    RecordKey::new(seen_partition(slug), public_key)
}

/// Returns the partition with the [`LastSeen`] records of a namespace's devices.
pub fn seen_partition(slug: &Slug) -> String {
    format!("seen/{slug}")
}

/// Returns the partition with a namespace's devices, whose keys are the public keys' texts.
pub fn devices_partition(slug: &Slug) -> String {
    format!("dev/{slug}")
}

/// Whether `text` has the form of a device's id: `dev_` and 26 digits of base 32.
pub fn is_device_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte);
    text.strip_prefix("dev_")
        .is_some_and(|rest| rest.len() == 26 && rest.bytes().all(is_digit))
}

/// Returns the key of the [`DeviceIdEntry`] of a device's id.
pub fn id_key(slug: &Slug, device_id: &str) -> RecordKey {
    RecordKey::new(format!("devid/{slug}"), device_id)
}

/// Returns the key of the [`Pending`] entry of a waiting device.
pub fn pending_key(slug: &Slug, device_id: &str) -> RecordKey {
    RecordKey::new(pending_partition(slug), device_id)
}

/// Returns the partition that lists the waiting devices of a namespace.
pub fn pending_partition(slug: &Slug) -> String {
    format!("pend/{slug}")
}

/// Checks and trims a machine's name from an enrolment: 1 to 64 characters, none of them control,
/// bidi or zero-width. `None` for any other. Owners see the name and terminals print it, so it must
/// not be able to move the cursor or to reverse a line.
pub fn clean_hostname(text: &str) -> Option<String> {
    let forbidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    // Checked before trimming, which would silently remove control characters at the ends.
    if text.chars().any(forbidden) {
        return None;
    }
    let trimmed = text.trim();
    (1..=64)
        .contains(&trimmed.chars().count())
        .then(|| trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_written_once_a_day_and_for_each_new_release() {
        let ids = ["01M81JMZ000000000000000001", "01M81JMZ000000000000000002"];
        let [here, elsewhere] = ids.map(|id| id.parse::<NamespaceId>().unwrap());
        let morning: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let held = LastSeen::after_visit(None, here, Some(4), morning).unwrap();
        assert_eq!((held.day.as_str(), held.release), ("2026-11-21", Some(4)));
        let after = |namespace, release, seconds| {
            let now = morning.plus_seconds(seconds);
            let next = LastSeen::after_visit(Some(held.clone()), namespace, release, now);
            next.map(|next| (next.day, next.release))
        };
        let day = 24 * 3600;
        let today = || "2026-11-21".to_owned();
        for (namespace, release, seconds, written) in [
            (here, Some(4), day - 1, None),
            (here, None, day - 1, None),
            (here, Some(3), 0, None),
            (here, Some(5), 0, Some((today(), Some(5)))),
            (here, None, day, Some(("2026-11-22".to_owned(), Some(4)))),
            (elsewhere, None, 0, Some((today(), None))),
        ] {
            assert_eq!(
                after(namespace, release, seconds),
                written,
                "{release:?} {seconds}"
            );
        }
    }

    #[test]
    fn hostnames_hold_nothing_that_moves_a_cursor() {
        for (text, kept) in [
            ("laptop", Some("laptop")),
            ("  ada's laptop ", Some("ada's laptop")),
            ("Büro 日本", Some("Büro 日本")),
            ("", None),
            ("   ", None),
            ("a\nb", None),
            ("laptop\n", None),
            ("a\u{1b}[2J", None),
            ("a\u{9b}2J", None),
            ("a\u{7f}", None),
            ("a\0", None),
            ("a\u{202e}b", None),
            ("a\u{2066}b", None),
            ("a\u{200b}b", None),
            ("a\u{feff}", None),
            ("a\u{2028}b", None),
        ] {
            assert_eq!(clean_hostname(text).as_deref(), kept, "{text:?}");
        }
        assert!(clean_hostname(&"ä".repeat(64)).is_some());
        assert!(clean_hostname(&"ä".repeat(65)).is_none());
        assert!(clean_hostname(&format!(" {} ", "a".repeat(64))).is_some());
    }
}
