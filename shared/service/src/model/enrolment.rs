//! Enrolment codes: an owner hands them out, and machines that enrol with one are admitted at once.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `enrol-code/<namespace_id>` | `<sha256 of the code>` | [`EnrolmentCode`], until it ends |
//! | `enrol-used/<namespace_id>` | `<sha256 of the code>` | `{used}`, counted in the commit of each enrolment, as long as the code |
//! | `enrol-app/<namespace_id>` | `<client_id>` | [`AppCodes`]: the codes that an app made without a confirmation, until the last of them ends, at least an hour |
//! | `enrol-hour/<namespace_id>` | `<client_id>/<hour>` | `{used}`: the machines that those codes, or the app itself without a confirmation, admitted in an hour, 26 hours |
//!
//! A code's id is the beginning of its hash, so it needs no index.
//!
//! A code that an app created is valid only while the consent to that app lasts. This is checked
//! when a machine uses the code, so that no way of ending an app can leave its codes valid.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_KEYS, Record, RecordKey, When, Write};

use super::Versioned;
use super::client::ClientId;
use super::family::Family;

use crate::ports::Ports;

pub use vault_api::EnrolmentMode as Enrolment;

/// Maximum number of machines that one app and its codes admit to a vault within a day without a
/// confirmation; also the maximum of a code that the console makes without one.
pub const UNCONFIRMED_MACHINES: u32 = 20;
/// Number of hours in which admitted machines are counted: a day and the current hour.
const COUNTED_HOURS: i64 = 25;

/// The record of an enrolment code. The code itself is not stored, only its hash.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EnrolmentCode {
    /// Maximum number of machines that the code admits.
    pub uses: u32,
    /// Pattern for the names of machines, with `*` for any characters; `None` allows any name.
    pub name: Option<String>,
    /// Id of the user who created the code.
    pub created_by: String,
    /// Time at which the code was created, by the service's clock.
    pub created_at: Timestamp,
    /// First second at which the code admits no more machines.
    pub expires_at: Timestamp,
    /// The app that created the code. Absent for a code from the console, and in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// The consent on which the code depends: the code admits machines only while the consent
    /// lasts. `None` for a code that depends on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Family>,
    /// Whether the person confirmed the creation of exactly this code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirmed: bool,
}

/// Counter of the uses of a code, or of the machines that count for an app in an hour.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct CodeUses {
    /// Number of machines counted so far; without a record it is 0.
    #[serde(default)]
    pub used: u32,
}

impl EnrolmentCode {
    /// Whether this host name matches the pattern of the code; without a pattern, every name does.
    pub fn fits_hostname(&self, hostname: &str) -> bool {
        self.name
            .as_deref()
            .is_none_or(|pattern| matches_pattern(pattern, hostname))
    }

    /// Returns the write that counts a machine for the app, if an app created the code without a
    /// confirmation; `None` for any other code.
    pub fn hour_write(&self, namespace: &NamespaceId, now: Timestamp) -> Option<Write> {
        let client = self.client.as_ref().filter(|_| !self.confirmed)?;
        Some(hour_write(namespace, client, now))
    }

    /// Returns the write that counts one use; it fails if the code is used up.
    pub fn counting_write(&self, namespace: &NamespaceId, hash: &Digest) -> Write {
        Write::Count {
            key: used_key(namespace, hash),
            field: "used".to_owned(),
            // The store itself keeps the bound, so machines that race cannot use a code too often.
            by: 1,
            min: 0,
            max: i64::from(self.uses),
            expires_at: Some(self.expires_at),
        }
    }
}

/// A code that an app created without a confirmation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AppCode {
    /// SHA-256 of the code.
    pub hash: Digest,
    /// Maximum number of machines that the code admits.
    pub uses: u32,
    /// Time from which the code is no longer valid.
    pub expires_at: Timestamp,
}

/// The codes that an app created in a vault without a confirmation. Each new code, and each machine
/// that the app itself admits, is written under the condition that this record is unchanged: two
/// requests at once cannot both use the last of the limit.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AppCodes {
    /// The codes, oldest first: at most [`UNCONFIRMED_MACHINES`], since each is for a machine.
    pub codes: Vec<AppCode>,
}

/// Numbers of machines that count against [`UNCONFIRMED_MACHINES`] for an app.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AppMachines {
    /// Machines that the app's codes may still admit.
    pub open: u32,
    /// Machines that the app or its codes have admitted within the last 24 hours.
    pub admitted: u32,
}

impl AppMachines {
    /// Whether a code for this many more machines, or the admission of this many, needs a
    /// confirmation.
    ///
    /// Admitted machines count as well as those that may still be admitted; otherwise an app could
    /// create one code after another. A use only turns an open machine into an admitted one. So an
    /// app and its codes admit at most [`UNCONFIRMED_MACHINES`] machines within any 24 hours.
    pub const fn need_confirmation(self, machines: u32) -> bool {
        let taken = self.open.saturating_add(self.admitted);
        taken.saturating_add(machines) > UNCONFIRMED_MACHINES
    }
}

/// The codes of an app as they were read, without those that have ended or are used up.
pub struct LoadedAppCodes {
    /// Numbers of machines that count against the limit of the app.
    pub machines: AppMachines,
    codes: Vec<AppCode>,
    key: RecordKey,
    when: When,
}

impl LoadedAppCodes {
    /// Reads the codes that an app made in a vault without a confirmation.
    pub async fn load(
        ports: &Ports,
        namespace: &NamespaceId,
        client: &ClientId,
    ) -> Result<Self, StoreError> {
        let (key, now) = (app_codes_key(namespace, client), ports.now());
        let held = ports.get::<AppCodes>(&key).await?;
        let when = held
            .as_ref()
            .map_or(When::Absent, |held| When::At(held.revision));
        let listed = held.map_or_else(Vec::new, |held| held.value.codes);
        let hours = (0..COUNTED_HOURS).map(|back| hour_key(namespace, client, hour_of(now) - back));
        let codes = listed.iter().map(|code| code_key(namespace, &code.hash));
        let counts = listed.iter().map(|code| used_key(namespace, &code.hash));
        let keys: Vec<_> = codes.chain(counts).chain(hours).collect();
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(MAX_KEYS) {
            found.extend(ports.records.get_many(some).await?);
        }
        // In the order of the keys: the codes, then their counts, then the hours.
        let mut counts = found.split_off(listed.len());
        let hours = counts.split_off(listed.len());
        let used = |record: Option<Record>| -> Result<u32, StoreError> {
            let uses = Versioned::<CodeUses>::read(record)?;
            Ok(uses.map_or(0, |uses| uses.value.used))
        };
        let mut machines = AppMachines::default();
        for hour in hours {
            machines.admitted = machines.admitted.saturating_add(used(hour)?);
        }
        let mut living = Vec::new();
        for ((code, record), count) in listed.into_iter().zip(found).zip(counts) {
            // Without its record the code has ended and admits no machine.
            if record.is_some() && now < code.expires_at {
                let open = code.uses.saturating_sub(used(count)?);
                machines.open = machines.open.saturating_add(open);
                // A code that is used up stays so, and would only fill the list until it expires.
                // Without such codes the list has at most as many codes as machines count.
                if open > 0 {
                    living.push(code);
                }
            }
        }
        Ok(Self {
            machines,
            codes: living,
            key,
            when,
        })
    }

    /// Returns the write that adds a code. It fails if another code was added or a machine was
    /// admitted meanwhile.
    pub fn adding_write(mut self, code: AppCode, now: Timestamp) -> Result<Write, StoreError> {
        self.codes.push(code);
        self.into_write(now)
    }

    /// Returns the writes that count a machine which the app itself admits. They fail if a code was
    /// added or another machine was counted meanwhile.
    pub fn admission_writes(
        self,
        namespace: &NamespaceId,
        client: &ClientId,
        now: Timestamp,
    ) -> Result<[Write; 2], StoreError> {
        Ok([self.into_write(now)?, hour_write(namespace, client, now)])
    }

    /// Returns the write of the record. It stays for at least an hour even without codes, because
    /// concurrent requests are ordered by its revision.
    fn into_write(self, now: Timestamp) -> Result<Write, StoreError> {
        let last = self.codes.iter().map(|code| code.expires_at).max();
        let soon = now.plus_seconds(3600);
        let until = last.map_or(soon, |last| last.max(soon));
        let document = Document::from_value(&AppCodes { codes: self.codes })?;
        Ok(Write::put_until(self.key, document, self.when, until))
    }
}

/// Returns the write that counts a machine of an app in the hour of `now`.
fn hour_write(namespace: &NamespaceId, client: &ClientId, now: Timestamp) -> Write {
    let hour = hour_of(now);
    Write::Count {
        key: hour_key(namespace, client, hour),
        field: "used".to_owned(),
        by: 1,
        min: 0,
        max: i64::from(u32::MAX),
        expires_at: Some(Timestamp::from_unix((hour + COUNTED_HOURS + 1) * 3600)),
    }
}

/// Returns the number of the hour of a time, counted since 1970.
const fn hour_of(at: Timestamp) -> i64 {
    at.unix().div_euclid(3600)
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters.
///
/// A tenant chooses the pattern and a machine its name, so the time must be bounded: one search for
/// each star, without backtracking.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next_back() else {
        return first == text;
    };
    let between = text.strip_prefix(first);
    let Some(mut rest) = between.and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    // The first occurrence of a part leaves the most text for the parts after it, so no other
    // occurrence has to be tried.
    parts.all(|part| {
        let found = rest.split_once(part);
        rest = found.map_or(rest, |(_, behind)| behind);
        found.is_some()
    })
}

/// Returns the id by which owners name a code; it does not reveal the code.
pub fn id_of(hash: &Digest) -> String {
    format!("{ID_PREFIX}{}", &hash.to_string()[..ID_DIGITS])
}

/// Returns the beginning of the hash in an id of a code, or `None` if the text is no such id.
pub fn hash_prefix(id: &str) -> Option<&str> {
    id.strip_prefix(ID_PREFIX).filter(|digits| {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        // The prefix goes into a listing of records, so it must be nothing but hex.
        digits.len() == ID_DIGITS && digits.bytes().all(hex)
    })
}

const ID_PREFIX: &str = "enc_";
const ID_DIGITS: usize = 26;

/// Returns the partition with a namespace's [`EnrolmentCode`]s, whose keys are the codes' SHA-256.
pub fn codes_partition(namespace: &NamespaceId) -> String {
    format!("enrol-code/{namespace}")
}

/// Returns the key of the [`EnrolmentCode`] with this SHA-256.
pub fn code_key(namespace: &NamespaceId, hash: &Digest) -> RecordKey {
    RecordKey::new(codes_partition(namespace), hash.to_string())
}

/// Returns the key of the [`CodeUses`] of the code with this SHA-256.
pub fn used_key(namespace: &NamespaceId, hash: &Digest) -> RecordKey {
    RecordKey::new(format!("enrol-used/{namespace}"), hash.to_string())
}

/// Returns the key of the codes that an app made without a confirmation.
fn app_codes_key(namespace: &NamespaceId, client: &ClientId) -> RecordKey {
    RecordKey::new(format!("enrol-app/{namespace}"), client.as_str())
}

/// Returns the key of the count of machines of an app in an hour.
fn hour_key(namespace: &NamespaceId, client: &ClientId, hour: i64) -> RecordKey {
    RecordKey::new(
        format!("enrol-hour/{namespace}"),
        format!("{client}/{hour}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A used-up or ended code admits no machine, and the machines that it admitted are counted by
    /// the hour.
    #[tokio::test]
    async fn codes_that_are_used_up_take_no_place_in_the_list_of_an_app() {
        let now = Timestamp::from_unix(1_795_219_200);
        let ports = Ports::in_memory(std::sync::Arc::new(vault_testing::TestClock::new(now)));
        let namespace = NamespaceId::from_parts(1, 1);
        let client: ClientId = "cli_00000000000000000000000000".parse().unwrap();
        let expires_at = now.plus_seconds(3600);
        let code = |n: u8| AppCode {
            hash: Digest::of(&[n]),
            uses: 1,
            expires_at,
        };
        let put = async |key: RecordKey, document: serde_json::Value| {
            let document = Document::from_value(&document).unwrap();
            let write = Write::put(key, document, When::Any);
            let written = ports.records.commit_writes(vec![write]).await.unwrap();
            assert!(written.is_done());
        };
        let codes: Vec<_> = (0..60).map(code).collect();
        for code in &codes {
            put(code_key(&namespace, &code.hash), serde_json::json!({})).await;
            put(
                used_key(&namespace, &code.hash),
                serde_json::json!({ "used": 1 }),
            )
            .await;
        }
        let listed = serde_json::json!(AppCodes { codes });
        put(app_codes_key(&namespace, &client), listed).await;
        let loaded = LoadedAppCodes::load(&ports, &namespace, &client)
            .await
            .unwrap();
        assert_eq!(loaded.machines, AppMachines::default());
        assert!(loaded.codes.is_empty());
    }

    #[test]
    fn codes_of_an_app_admit_twenty_machines_a_day_without_a_confirmation() {
        for (open, admitted, uses, wanted) in [
            (0, 0, 20, false),
            (0, 0, 21, true),
            (19, 0, 1, false),
            (20, 0, 1, true),
            // A used-up code counts as the machines that it has admitted.
            (0, 20, 1, true),
            (10, 9, 1, false),
            (10, 10, 1, true),
            (u32::MAX, u32::MAX, u32::MAX, true),
        ] {
            let machines = AppMachines { open, admitted };
            let needed = machines.need_confirmation(uses);
            assert_eq!(needed, wanted, "{open} {admitted} {uses}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, fits) in [
            ("ci", "ci", true),
            ("ci", "ci-1", false),
            ("ci-*", "ci-1", true),
            ("ci-*", "ci-", true),
            ("ci-*", "a-ci-1", false),
            ("*-laptop", "ada-laptop", true),
            ("*-laptop", "ada-laptop-2", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*", "", true),
            ("*", "Büro 日本", true),
            ("日*", "日本", true),
            ("*本", "日本", true),
            ("", "", true),
            ("", "a", false),
            ("**a**", "ba", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("*a*", "b", false),
            ("ci-*", "ci-*", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), fits, "{pattern} {text}");
        }
    }

    /// A pattern and a name of 64 characters each, the maximum: with backtracking, one such
    /// enrolment would keep a processor busy for ever.
    #[test]
    fn many_stars_cost_no_more_than_pattern_times_name() {
        let name = "a".repeat(64);
        for stars in [3, 5, 31] {
            let pattern = format!("{}*b", "*a".repeat(stars));
            let (done, finished) = std::sync::mpsc::channel();
            let text = name.clone();
            std::thread::spawn(move || done.send(matches_pattern(&pattern, &text)));
            let found = finished.recv_timeout(std::time::Duration::from_secs(10));
            assert_eq!(found, Ok(false), "{stars} stars");
        }
    }

    #[test]
    fn an_id_is_the_beginning_of_the_hash() {
        let hash = Digest::of(b"a code");
        let id = id_of(&hash);
        assert!(hash.to_string().starts_with(hash_prefix(&id).unwrap()));
        for bad in [
            "",
            "enc_",
            "dev_aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "enc_../../../../../../../..x",
        ] {
            assert_eq!(hash_prefix(bad), None, "{bad}");
        }
    }
}
