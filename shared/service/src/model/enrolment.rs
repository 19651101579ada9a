//! Enrolment codes: an owner hands them out, and machines that enrol with one are admitted at once.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `enrol-code/<namespace_id>` | `<sha256 of the code>` | [`EnrolmentCode`], until it ends |
//! | `enrol-used/<namespace_id>` | `<sha256 of the code>` | `{used}`, counted in the commit of each enrolment, as long as the code |
//!
//! A code's id is the beginning of its hash, so it needs no index.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::records::{RecordKey, Write};

pub use vault_api::EnrolmentMode as Enrolment;

/// A code as its owner made it. The code itself is not stored.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EnrolmentCode {
    /// Number of machines that may use it.
    pub uses: u32,
    /// Pattern for the names of machines, with `*` for any characters; `None` allows any name.
    pub name: Option<String>,
    /// The user who made it.
    pub created_by: String,
    /// Time at which it was made.
    pub created_at: Timestamp,
    /// Time from which it is no longer valid.
    pub expires_at: Timestamp,
}

/// Counter of the uses of a code.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct CodeUses {
    /// Number of uses.
    #[serde(default)]
    pub used: u32,
}

impl EnrolmentCode {
    /// Whether a machine of this name may use it.
    pub fn fits_hostname(&self, hostname: &str) -> bool {
        self.name
            .as_deref()
            .is_none_or(|pattern| matches_pattern(pattern, hostname))
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

/// Whether `text` is `pattern`, in which `*` stands for any characters.
///
/// A tenant chooses the pattern and a machine its name, so the time must not grow with the number
/// of stars beyond that of one search each.
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
    // The first place where a part stands leaves the most text for the parts behind it, so no other
    // place has to be tried.
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

/// Returns the partition that lists the codes of a namespace.
pub fn codes_partition(namespace: &NamespaceId) -> String {
    format!("enrol-code/{namespace}")
}

/// Returns the key of a code.
pub fn code_key(namespace: &NamespaceId, hash: &Digest) -> RecordKey {
    RecordKey::new(codes_partition(namespace), hash.to_string())
}

/// Returns the key of the count of a code's uses.
pub fn used_key(namespace: &NamespaceId, hash: &Digest) -> RecordKey {
    RecordKey::new(format!("enrol-used/{namespace}"), hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A pattern and a name of 64 characters each, the longest there are: with a search that tries
    /// every place for every star, one such enrolment keeps a processor busy for ever.
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
