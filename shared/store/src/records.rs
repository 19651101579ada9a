//! The port `Records`: small JSON documents by (partition, key), changed all-or-nothing.
//!
//! One [`Records::commit`] applies up to 100 writes if every condition holds, else none. The limits
//! are those of the narrowest store (one DynamoDB transaction). They are checked here, before any
//! adapter, so that all stores reject the same calls. An expired record is absent at once, by the
//! port [`crate::clock::Clock`]; the store deletes it later.
//!
//! **Revisions.** Each change of a record gives it a revision above every earlier one of its key,
//! also across deletion and expiry. A revision therefore never names two states (no ABA problem).
//! SQL and memory draw revisions from one sequence for the whole store. A store without one may let
//! a new record start at the time in 2^-12 ms, and leave a tombstone for the period in which that
//! start could repeat. Revisions are compared, never counted: they have gaps.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vault_format::time::Timestamp;

use crate::StoreError;

/// Maximum number of writes in one commit.
pub const MAX_WRITES: usize = 100;
/// Maximum number of keys in one [`Records::get_many`].
pub const MAX_KEYS: usize = 100;
/// Maximum number of records that one [`Records::list`] returns.
pub const MAX_PAGE: usize = 1000;
/// Maximum length of a partition or key, in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 512;
/// Maximum size of a document, in bytes of JSON: 256 KiB.
pub const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Maximum total size of the documents in one commit, in bytes: 3 MiB. A DynamoDB transaction may
/// have 4 MB in total.
pub const MAX_COMMIT_BYTES: usize = 3 * 1024 * 1024;
/// Maximum length of a counter's name, in bytes.
pub const MAX_FIELD_BYTES: usize = 64;
/// Maximum absolute value of a counter, its step and its bounds: the largest integer that every
/// JSON reader keeps exactly.
pub const MAX_COUNT: i64 = (1 << 53) - 1;

/// The key of a record. Both parts have 1 to 512 bytes without control characters; any other text
/// is rejected when the key is used.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RecordKey {
    /// The group that [`Records::list`] reads.
    pub partition: String,
    /// The name in the group. Lists are sorted by its UTF-8 bytes.
    pub key: String,
}

impl RecordKey {
    /// Creates the key of the record `key` in `partition`.
    pub fn new(partition: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            partition: partition.into(),
            key: key.into(),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        check_name(&self.partition)?;
        check_name(&self.key)
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} | {}", self.partition, self.key)
    }
}

/// The content of a record: the text of one JSON object of at most 256 KiB.
///
/// A store keeps the object, not its bytes: the order of members and white space may change.
#[derive(Clone, Debug)]
pub struct Document(Arc<str>);

impl Document {
    /// Serialises `value` as a document. Fails with `Invalid` if the result is not a JSON object,
    /// exceeds 256 KiB, or contains the character NUL, which PostgreSQL cannot store.
    pub fn of(value: &impl Serialize) -> Result<Self, StoreError> {
        let text = serde_json::to_string(value)
            .map_err(|e| StoreError::invalid(format!("not a document: {e}")))?;
        Self::check(&text)?;
        Ok(Self(text.into()))
    }

    /// Creates a document from a store's text, which [`Document::of`] created. For adapters.
    pub fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Parses the document as `T`. Fails with `Corrupt` if that is not possible.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.0)
            .map_err(|e| StoreError::Corrupt(format!("a record does not read: {e}")))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<(), StoreError> {
        if !text.starts_with('{') {
            return Err(StoreError::invalid("a document is a JSON object"));
        }
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(StoreError::invalid("a document may have 256 KiB"));
        }
        if has_nul(text) {
            return Err(StoreError::invalid(
                "a document may not hold the character NUL",
            ));
        }
        Ok(())
    }
}

impl PartialEq for Document {
    /// Compares the documents as JSON, independent of the order of members.
    fn eq(&self, other: &Self) -> bool {
        let value = |document: &Self| serde_json::from_str::<Value>(&document.0).ok();
        // Equal texts need no parsing. Texts that are not JSON equal only themselves.
        self.0 == other.0 || value(self).is_some_and(|mine| value(other) == Some(mine))
    }
}

/// A record as read from a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The record's key.
    pub key: RecordKey,
    /// The revision, which rises with each change of this key. [`When::At`] compares it.
    pub revision: u64,
    /// The second from which on the record is absent.
    pub expires_at: Option<Timestamp>,
    /// The content.
    pub document: Document,
}

impl Record {
    /// Parses the content as `T`. Fails with `Corrupt` if that is not possible.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        self.document.read()
    }
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// The key holds no record, or an expired one.
    Absent,
    /// The key holds a record at exactly this revision.
    At(u64),
    /// No condition.
    Any,
}

/// One part of a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Sets the whole record: content and expiry.
    Put {
        /// The key.
        key: RecordKey,
        /// The new content.
        document: Document,
        /// The second from which on the record is absent; `None` keeps it forever.
        expires_at: Option<Timestamp>,
        /// The condition.
        when: When,
    },
    /// Removes the record. With [`When::Any`], removing an absent record succeeds.
    Delete {
        /// The key.
        key: RecordKey,
        /// The condition.
        when: When,
    },
    /// Changes nothing, but makes the commit fail unless the condition holds. [`When::Any`] always
    /// holds.
    Check {
        /// The key.
        key: RecordKey,
        /// The condition.
        when: When,
    },
    /// Adds `by` to the integer `field` of the document. The commit fails unless the result is
    /// within `min` to `max`. An absent record is created with this one field, an absent field
    /// starts at 0, and a field that is not an integer fails the condition. Other fields and the
    /// expiry of an existing record stay as they are.
    Count {
        /// The key.
        key: RecordKey,
        /// The member of the document: 1 to 64 of `a-z`, `0-9`, `_`.
        field: String,
        /// The step; may be negative.
        by: i64,
        /// The smallest allowed result.
        min: i64,
        /// The largest allowed result.
        max: i64,
        /// The expiry of a record that this write creates.
        expires_at: Option<Timestamp>,
    },
}

impl Write {
    /// Creates a write that sets a record without expiry.
    pub fn put(key: RecordKey, document: Document, when: When) -> Self {
        Self::Put {
            key,
            document,
            expires_at: None,
            when,
        }
    }

    /// Creates a write that sets a record that is absent from the second `expires_at` on.
    pub fn put_until(
        key: RecordKey,
        document: Document,
        when: When,
        expires_at: Timestamp,
    ) -> Self {
        Self::Put {
            key,
            document,
            expires_at: Some(expires_at),
            when,
        }
    }

    /// Creates a write that removes a record.
    pub fn delete(key: RecordKey, when: When) -> Self {
        Self::Delete { key, when }
    }

    /// Creates a write that only checks a condition.
    pub fn check(key: RecordKey, when: When) -> Self {
        Self::Check { key, when }
    }

    /// Creates a write that adds to a counter within `0` and `max`, in a record without expiry.
    pub fn count(key: RecordKey, field: impl Into<String>, by: i64, max: i64) -> Self {
        Self::Count {
            key,
            field: field.into(),
            by,
            min: 0,
            max,
            expires_at: None,
        }
    }

    /// Returns the key of the write.
    pub fn key(&self) -> &RecordKey {
        match self {
            Self::Put { key, .. }
            | Self::Delete { key, .. }
            | Self::Check { key, .. }
            | Self::Count { key, .. } => key,
        }
    }
}

/// The state of a key after a write.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// The state is unchanged.
    Same,
    /// There is no record.
    Nothing,
    /// There is this record, under a new revision.
    Holds {
        /// The content.
        document: Document,
        /// The second from which on the record is absent.
        expires_at: Option<Timestamp>,
    },
}

impl Write {
    /// Returns whether the result is the same whatever the key holds, so that an adapter need not
    /// read it.
    pub fn is_blind(&self) -> bool {
        match self {
            Self::Put { when, .. } | Self::Delete { when, .. } | Self::Check { when, .. } => {
                *when == When::Any
            }
            Self::Count { .. } => false,
        }
    }

    /// Returns the state of the key after this write, if it held the live record `held` before;
    /// `None` if the condition does not hold. For adapters that decide while no other writer can
    /// change the key.
    pub fn applied_to(&self, held: Option<&Record>) -> Option<After> {
        match self {
            Self::Put {
                document,
                expires_at,
                when,
                ..
            } => when.holds(held).then(|| After::Holds {
                document: document.clone(),
                expires_at: *expires_at,
            }),
            Self::Delete { when, .. } => when.holds(held).then_some(After::Nothing),
            Self::Check { when, .. } => when.holds(held).then_some(After::Same),
            Self::Count {
                field,
                by,
                min,
                max,
                expires_at,
                ..
            } => {
                let mut members: Map<String, Value> = match held {
                    Some(record) => record.read().ok()?,
                    None => Map::new(),
                };
                // A counter that the record does not have yet starts at 0. A member that is not an
                // integer fails the condition instead of being overwritten.
                let before = members.get(field).map_or(Some(0), Value::as_i64)?;
                let value = before
                    .checked_add(*by)
                    .filter(|value| (*min..=*max).contains(value))?;
                members.insert(field.clone(), value.into());
                Some(After::Holds {
                    document: Document::stored(Value::Object(members).to_string()),
                    // A count must not prolong the record: a rate limit's window ends at its
                    // original time.
                    expires_at: held.map_or(*expires_at, |record| record.expires_at),
                })
            }
        }
    }
}

impl When {
    fn holds(self, held: Option<&Record>) -> bool {
        match self {
            Self::Absent => held.is_none(),
            Self::At(revision) => held.is_some_and(|record| record.revision == revision),
            Self::Any => true,
        }
    }
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a commit whose condition failed changed nothing"]
pub enum Commit {
    /// Everything was written and is durable. Holds the new revision of each `Put`, in the order of
    /// the writes, and `None` for other writes (a DynamoDB transaction does not return the value of
    /// a counter).
    Done(Vec<Option<u64>>),
    /// Nothing was written.
    Failed {
        /// The first write, in order, whose condition did not hold.
        index: usize,
        /// The record under that key at that moment; `None` if there is none.
        found: Option<Record>,
    },
}

impl Commit {
    /// Returns whether everything was written.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// A store of small JSON documents by (partition, key). The contract suite of `vault-testing`
/// checks every promise made here.
#[async_trait] // async fn is not yet callable through `dyn`
pub trait Records: Send + Sync {
    /// Returns the records under these keys in the given order, with `None` for absent ones. A key
    /// may occur twice. All are read at one moment, so the result never contains half of a commit.
    /// It includes every commit that was acknowledged before. Fails with `Invalid` for more than
    /// 100 keys or an invalid key.
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError>;

    /// Returns the record under this key, or `None`. Fails with `Invalid` for an invalid key.
    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(self
            .get_many(std::slice::from_ref(key))
            .await?
            .pop()
            .flatten())
    }

    /// Returns the records of a partition whose keys begin with `prefix` (which may be empty) and
    /// are behind `after`, sorted by the bytes of the key. A page shorter than `limit` is the last
    /// one. It includes every commit that was acknowledged before. Fails with `Invalid` for an
    /// invalid text, or unless `limit` is 1 to 1,000.
    async fn list(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Applies every write if every condition holds, else none. A failed condition is an outcome,
    /// not an error. Fails with `Invalid` for more than 100 writes, a key that occurs twice, over 3
    /// MiB of documents, or an invalid key or field; with `Conflict` if other writers interfered
    /// for too long. After `Unavailable`, the writes may or may not have happened: read before
    /// repeating a write that must not happen twice.
    async fn commit(&self, writes: Vec<Write>) -> Result<Commit, StoreError>;

    /// Deletes up to `limit` expired records, which are invisible already, and returns their
    /// number. Returns 0 for a store that deletes them by itself.
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError>;

    /// Checks that the store answers.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Checks a commit against the rules of the port. Every adapter calls it first. Fails with
/// `Invalid`.
pub fn check_commit(writes: &[Write]) -> Result<(), StoreError> {
    if writes.len() > MAX_WRITES {
        return Err(StoreError::invalid("a commit may have 100 writes"));
    }
    let mut seen = HashSet::with_capacity(writes.len());
    let mut bytes = 0;
    for write in writes {
        write.key().check()?;
        // A DynamoDB transaction may contain each item only once.
        if !seen.insert(write.key()) {
            return Err(StoreError::invalid("a commit may name a key once"));
        }
        match write {
            Write::Put { document, .. } => {
                Document::check(document.as_str())?;
                bytes += document.as_str().len();
            }
            Write::Count {
                field,
                by,
                min,
                max,
                ..
            } => check_count(field, *by, *min, *max)?,
            Write::Delete { .. } | Write::Check { .. } => {}
        }
    }
    if bytes > MAX_COMMIT_BYTES {
        return Err(StoreError::invalid("a commit may have 3 MiB of documents"));
    }
    Ok(())
}

/// Checks the keys of [`Records::get_many`]. Every adapter calls it first. Fails with `Invalid`.
pub fn check_get_many(keys: &[RecordKey]) -> Result<(), StoreError> {
    if keys.len() > MAX_KEYS {
        return Err(StoreError::invalid("one reading may name 100 keys"));
    }
    keys.iter().try_for_each(RecordKey::check)
}

/// Checks the arguments of [`Records::list`]. Every adapter calls it first. Fails with `Invalid`.
pub fn check_list(
    partition: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(), StoreError> {
    check_name(partition)?;
    for text in [prefix, after.unwrap_or_default()] {
        if !text.is_empty() {
            check_name(text)?;
        }
    }
    if limit == 0 || limit > MAX_PAGE {
        return Err(StoreError::invalid("a page holds 1 to 1,000 records"));
    }
    Ok(())
}

/// Returns the first text behind all texts that begin with `prefix`, in the order of UTF-8 bytes;
/// `None` if there is none. For adapters whose store only knows ranges.
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        // The range of `char` skips the surrogates, as UTF-8 does.
        if let Some(next) = (last..=char::MAX).nth(1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

fn check_name(text: &str) -> Result<(), StoreError> {
    if text.is_empty() || text.len() > MAX_KEY_BYTES {
        return Err(StoreError::invalid("a partition or key has 1 to 512 bytes"));
    }
    // Control characters would let one key look like another in logs, and PostgreSQL rejects NUL.
    if text.chars().any(char::is_control) {
        return Err(StoreError::invalid(
            "a partition or key has no control characters",
        ));
    }
    Ok(())
}

fn check_count(field: &str, by: i64, min: i64, max: i64) -> Result<(), StoreError> {
    let plain = field
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if field.is_empty() || field.len() > MAX_FIELD_BYTES || !plain {
        return Err(StoreError::invalid(
            "a counter's name has 1 to 64 of a-z, 0-9, _",
        ));
    }
    let bounds = -MAX_COUNT..=MAX_COUNT;
    if min > max || [by, min, max].iter().any(|number| !bounds.contains(number)) {
        return Err(StoreError::invalid(
            "a counter's step and bounds are within 2^53, min not above max",
        ));
    }
    Ok(())
}

/// Returns whether the JSON text contains an escaped NUL. An unescaped one is not valid JSON.
fn has_nul(text: &str) -> bool {
    // Nearly every document returns here. Only a text with these six characters needs the exact
    // check.
    if !text.contains("\\u0000") {
        return false;
    }
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        if rest[at..].starts_with(b"\\u0000") {
            return true;
        }
        // Skip a backslash and the character that it escapes: `\\u0000` is a backslash followed by
        // five plain characters.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_a_small_object_without_nul() {
        let padding = |bytes: usize| json!({ "a": "x".repeat(bytes - r#"{"a":""}"#.len()) });
        let cases = [
            (json!({}), true),
            (json!({"a": [1, "ä", null]}), true),
            (json!([]), false),
            (json!("text"), false),
            (json!(null), false),
            (json!({"a": "b\0c"}), false),
            (json!({"\0": 1}), false),
            (json!({"a": "\\u0000"}), true),
            (json!({"a": "\\\0"}), false),
            (json!({"a": "\\\\u0000\n"}), true),
            (padding(MAX_DOCUMENT_BYTES), true),
            (padding(MAX_DOCUMENT_BYTES + 1), false),
        ];
        for (value, good) in cases {
            let short: String = value.to_string().chars().take(60).collect();
            assert_eq!(Document::of(&value).is_ok(), good, "{short}");
        }
    }

    #[test]
    fn documents_are_equal_as_json() {
        let stored = |text: &str| Document::stored(text.to_owned());
        assert_eq!(stored(r#"{"a":1,"b":2}"#), stored(r#"{"b": 2, "a": 1}"#));
        assert_ne!(stored(r#"{"a":1}"#), stored(r#"{"a":2}"#));
        assert_ne!(
            stored("{"),
            stored("}"),
            "damaged text equals nothing but itself"
        );
    }

    #[test]
    fn a_document_that_does_not_read_is_damage() {
        let document = Document::stored(r#"{"a":1}"#.to_owned());
        assert!(matches!(
            document.read::<Vec<u8>>(),
            Err(StoreError::Corrupt(_))
        ));
        assert_eq!(document.read::<Value>().unwrap(), json!({"a": 1}));
    }

    #[test]
    fn odd_keys_are_refused() {
        let long = "x".repeat(MAX_KEY_BYTES);
        let cases = [
            ("a", true),
            ("ä 日本/|%", true),
            (long.as_str(), true),
            (&format!("{long}x"), false),
            ("", false),
            ("a\0", false),
            ("a\nb", false),
            ("\u{7f}", false),
            ("\u{85}", false),
        ];
        for (text, good) in cases {
            for key in [RecordKey::new(text, "k"), RecordKey::new("p", text)] {
                assert_eq!(
                    check_get_many(std::slice::from_ref(&key)).is_ok(),
                    good,
                    "{key:?}"
                );
                assert_eq!(
                    check_commit(&[Write::check(key, When::Any)]).is_ok(),
                    good,
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn odd_counters_are_refused() {
        let long = "f".repeat(MAX_FIELD_BYTES);
        let cases = [
            ("pending", 1, 0, 20, true),
            (long.as_str(), -1, -5, -5, true),
            ("a_1", 0, -MAX_COUNT, MAX_COUNT, true),
            ("", 1, 0, 20, false),
            (&format!("{long}f"), 1, 0, 20, false),
            ("Pending", 1, 0, 20, false),
            ("a.b", 1, 0, 20, false),
            ("a\"b", 1, 0, 20, false),
            ("n", 1, 1, 0, false),
            ("n", MAX_COUNT + 1, 0, 20, false),
            ("n", 1, 0, i64::MAX, false),
            ("n", 1, i64::MIN, 0, false),
        ];
        for (field, by, min, max, good) in cases {
            let write = Write::Count {
                key: RecordKey::new("p", "k"),
                field: field.to_owned(),
                by,
                min,
                max,
                expires_at: None,
            };
            assert_eq!(
                check_commit(&[write]).is_ok(),
                good,
                "{field} {by} {min} {max}"
            );
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_all_it_begins() {
        let cases = [
            ("", None),
            ("a", Some("b")),
            ("az", Some("a{")),
            ("a\u{7f}", Some("a\u{80}")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_is_in_the_range_of_a_prefix_exactly_when_it_begins_with_it(prefix in "\\PC{1,3}", text in "\\PC{0,5}") {
            for text in [text.clone(), format!("{prefix}{text}")] {
                let inside = text >= prefix && prefix_end(&prefix).is_none_or(|end| text < end);
                proptest::prop_assert_eq!(inside, text.starts_with(&prefix));
            }
        }
    }
}
