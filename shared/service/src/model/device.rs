//! A device: a machine that enrolled an Ed25519 key in a namespace. The key's text is its identity.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `dev/<slug>` | `<public key, 43 characters>` | [`Device`] |
//! | `devid/<slug>` | `<device_id>` | [`DeviceIdEntry`], from the id that owners use to the key; stays 30 days after `forget` |
//! | `pend/<slug>` | `<device_id>` | [`Pending`], only while the device waits |
//! | `seen/<slug>` | `<public key, 43 characters>` | [`LastSeen`], ends 400 days after its last change |
//!
//! Enrolment, decision and the counter of waiting devices change in one commit, so the counter is
//! always the number of `pend` records.

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

/// Time for which a device is remembered that was denied before it was ever admitted, in seconds:
/// 30 days. Then its key is unknown again.
pub const DENIED_SECONDS: i64 = 30 * 24 * 3600;

/// Time for which a device's last visit is remembered, in seconds: 400 days.
const SEEN_SECONDS: i64 = 400 * 24 * 3600;

/// Network of a waiting device whose address was not recorded.
pub const UNKNOWN_NETWORK: &str = "unknown";

/// A device as enrolled.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Device {
    /// `dev_…`, from slug and key, so that racing requests of one key agree on it.
    pub device_id: String,
    /// The allocation that it enrolled in; another one of the same slug does not know it.
    pub namespace_id: NamespaceId,
    /// The key, as in `X-Vault-Device`.
    pub public_key: PublicKey,
    /// Name that the machine gave itself, empty if it gave none; the first value stays.
    pub hostname: String,
    /// Status of the device.
    pub status: DeviceStatus,
    /// Time of its enrolment.
    pub enrolled_at: Timestamp,
    /// Time at which an owner last decided about it.
    pub decided_at: Option<Timestamp>,
    /// Source of that decision: a user's id, or the id of the enrolment code that admitted it.
    /// Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The app that admitted it, or that made the code which admitted it. Absent for the console,
    /// and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Network that it enrolled from, as owners see it; only while it waits. Absent in records of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// Parts of a [`Device`] that the check of a signed request needs: its record without the key,
/// which the request brings and under which the record was found. Parsing the key again would cost
/// more than the rest of the request, its signature included.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceStanding {
    /// As in [`Device`].
    pub device_id: String,
    /// The allocation that it enrolled in.
    pub namespace_id: NamespaceId,
    /// Name that the machine gave itself.
    pub hostname: String,
    /// Status of the device.
    pub status: DeviceStatus,
    /// Time of its enrolment.
    pub enrolled_at: Timestamp,
}

/// Last visit of a device, and the release that it has. Written once a day and for each new
/// release, so that reads cost no writes. No decision rests on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastSeen {
    /// The allocation in which it reads.
    pub namespace_id: NamespaceId,
    /// The day in UTC, as `2026-11-21`.
    pub day: String,
    /// The newest release whose catalog it fetched.
    pub release: Option<u64>,
}

impl LastSeen {
    /// Returns the record after a visit, or `None` if `held` says the same already.
    pub fn after_visit(
        held: Option<Self>,
        namespace_id: NamespaceId,
        release: Option<u64>,
        now: Timestamp,
    ) -> Option<Self> {
        // The slug may have belonged to another allocation, whose releases mean nothing here.
        let held = held.filter(|held| held.namespace_id == namespace_id);
        let next = Self {
            namespace_id,
            day: now.to_string().chars().take(10).collect(),
            // Requests can arrive out of order; an older release must not replace a newer one.
            release: release.max(held.as_ref().and_then(|held| held.release)),
        };
        (held.as_ref() != Some(&next)).then_some(next)
    }

    /// Returns the write that remembers it.
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

/// A waiting device. Its source and time are for earlier versions of vault, in which a device gave
/// way when the queue was full.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pending {
    /// The key, as in `X-Vault-Device`.
    pub public_key: PublicKey,
    /// Source of its enrolment; unknown in records of earlier versions.
    #[serde(default = "Pending::earlier_source")]
    pub source: Source,
    /// Time of its enrolment; long ago in records of earlier versions.
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
    /// The key, as in `X-Vault-Device`.
    pub public_key: PublicKey,
    /// The device as it was when it was forgotten; absent while it is known.
    pub forgotten: Option<Device>,
}

impl Device {
    /// Returns the name that people are shown: the machine's own, or the fingerprint of a machine
    /// without one.
    pub fn name(&self) -> String {
        vault_api::device_name(&self.hostname, &self.public_key)
    }

    /// Returns the name with the fingerprint, which the machine cannot choose.
    pub fn name_and_fingerprint(&self) -> String {
        let fingerprint = KeyFingerprint::device(&self.public_key);
        if self.hostname.is_empty() {
            fingerprint.to_string()
        } else {
            format!("{} ({fingerprint})", self.hostname)
        }
    }

    /// Returns a device that waits for the owner.
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

    /// Returns the network by which owners see the device while it waits. It is unknown for a
    /// device that enrolled at an earlier version of vault.
    pub fn waiting_network(&self) -> Option<&str> {
        let network = self.network.as_deref().unwrap_or(UNKNOWN_NETWORK);
        (self.status == DeviceStatus::Pending).then_some(network)
    }

    /// Returns the index entry of its id.
    pub fn index_entry(&self) -> DeviceIdEntry {
        DeviceIdEntry {
            public_key: self.public_key,
            forgotten: None,
        }
    }

    /// Returns the writes that deny the device, which waits and was read at `revision`. Its records
    /// end after 30 days, so that unknown devices leave no rows for ever.
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
            // Both records end together, so that no id is left that leads to no device.
            Write::put_until(id_key(slug, &self.device_id), named, When::Any, until),
            Write::delete(pending_key(slug, &self.device_id), When::Any),
        ])
    }

    /// Returns the write that sets its record under a condition.
    pub fn to_write(&self, slug: &Slug, when: When) -> Result<Write, StoreError> {
        Ok(Write::put(
            device_key(slug, &self.public_key.to_string()),
            Document::from_value(self)?,
            when,
        ))
    }
}

/// A device found by its id.
pub struct FoundDevice {
    /// The device.
    pub device: Device,
    /// Revision of the record; `None` if the device was forgotten.
    pub revision: Option<u64>,
}

/// Finds the device of this id in a namespace, also if it was forgotten.
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

/// Returns the key of the device with this key text.
pub fn device_key(slug: &Slug, public_key: &str) -> RecordKey {
    RecordKey::new(devices_partition(slug), public_key)
}

/// Returns the key of the last visit of the device with this key text.
pub fn seen_key(slug: &Slug, public_key: &str) -> RecordKey {
    RecordKey::new(seen_partition(slug), public_key)
}

/// Returns the partition that lists the last visits of the devices of a namespace.
pub fn seen_partition(slug: &Slug) -> String {
    format!("seen/{slug}")
}

/// Returns the partition that lists the devices of a namespace.
pub fn devices_partition(slug: &Slug) -> String {
    format!("dev/{slug}")
}

/// Whether `text` has the form of a device's id: `dev_` and 26 digits of base 32.
pub fn is_device_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte);
    text.strip_prefix("dev_")
        .is_some_and(|rest| rest.len() == 26 && rest.bytes().all(is_digit))
}

/// Returns the key of the index entry of a device's id.
pub fn id_key(slug: &Slug, device_id: &str) -> RecordKey {
    RecordKey::new(format!("devid/{slug}"), device_id)
}

/// Returns the key of the index entry of a waiting device.
pub fn pending_key(slug: &Slug, device_id: &str) -> RecordKey {
    RecordKey::new(pending_partition(slug), device_id)
}

/// Returns the partition that lists the waiting devices of a namespace.
pub fn pending_partition(slug: &Slug) -> String {
    format!("pend/{slug}")
}

/// Cleans a machine's name from an enrolment: 1 to 64 characters after trimming, none of them
/// control, bidi or zero-width. Returns `None` for any other. Owners see it and terminals print it,
/// so it must not be able to move a cursor or reverse a line.
pub fn clean_hostname(text: &str) -> Option<String> {
    let forbidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    // Before trimming, which would remove control characters at the edges unnoticed.
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
