//! The port `Records`: small JSON documents by (partition, key), changed all-or-nothing.
//!
//! One [`Records::commit_writes`] applies up to 100 writes if every condition holds, else none. The
//! limits are those of one DynamoDB transaction, the tightest of all stores. They are checked here,
//! before any adapter, so that all stores reject the same calls. From its expiry on, by the port
//! [`crate::clock::Clock`], a record is treated as absent; the store deletes it later.
//!
//! **Revisions.** Each change of a record gives it a revision above every earlier one of its key,
//! also across deletion and expiry. A revision therefore never names two states (no ABA problem).
//! SQL and memory draw revisions from one sequence for the whole store. DynamoDB has no sequence: a
//! new record there starts at the current time in units of 2^-12 ms, and a deleted record leaves a
//! tombstone for a day, so that its numbers are not given out again. Callers compare revisions and
//! never count with them, since they have gaps.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vault_format::time::Timestamp;

use crate::StoreError;

mod limits;

pub use limits::{
    MAX_COMMIT_BYTES, MAX_COUNT, MAX_DOCUMENT_BYTES, MAX_FIELD_BYTES, MAX_KEY_BYTES, MAX_KEYS,
    MAX_PAGE, MAX_WRITES, check_commit, check_get_many, check_list, prefix_end,
};
use limits::{check_name, has_nul};

/// The key of a record. Each of its two parts has 1 to 512 bytes without control characters; any
/// other text is rejected when the key is used.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RecordKey {
    /// The group that [`Records::list_page`] reads.
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
    pub fn from_value(value: &impl Serialize) -> Result<Self, StoreError> {
        let text = serde_json::to_string(value)
            .map_err(|e| StoreError::invalid(format!("not a document: {e}")))?;
        Self::check(&text)?;
        Ok(Self(text.into()))
    }

    /// Creates a document from a store's text, which [`Document::from_value`] created. For
    /// adapters.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Parses the document as `T`. Fails with `Corrupt` if that is not possible.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.0)
            .map_err(|e| StoreError::Corrupt(format!("a record does not read: {e}")))
    }

    /// Returns the JSON text. Its white space and the order of members may differ from what was
    /// written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<(), StoreError> {
        if !text.starts_with('{') {
            return Err(StoreError::invalid("the document must be a JSON object"));
        }
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(StoreError::invalid(format!(
                "the document has {} bytes; the maximum is {MAX_DOCUMENT_BYTES}",
                text.len()
            )));
        }
        if has_nul(text) {
            return Err(StoreError::invalid(
                "the document has the character NUL; remove it",
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
    /// Partition and name under which the record is stored.
    pub key: RecordKey,
    /// The revision, which rises with each change of this key. [`When::At`] compares it.
    pub revision: u64,
    /// The second (since 1970) from which on the record is absent; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// The content at the time of the read.
    pub document: Document,
}

impl Record {
    /// Parses the content as `T`. Fails with `Corrupt` if that is not possible.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        self.document.read()
    }
}

/// The state that a key must have for a write; otherwise the whole commit fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// The key holds no record, or an expired one.
    Absent,
    /// The key holds a record at exactly this revision.
    At(u64),
    /// No condition: the write is made whatever the key holds.
    Any,
}

/// One change or check of a commit, about one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Sets the whole record: content and expiry.
    Put {
        /// Key of the record that is created or replaced.
        key: RecordKey,
        /// The content that replaces the whole earlier one.
        document: Document,
        /// The second from which on the record is absent; `None` keeps it forever.
        expires_at: Option<Timestamp>,
        /// The condition; if it does not hold, the whole commit fails.
        when: When,
    },
    /// Removes the record. With [`When::Any`], removing an absent record succeeds.
    Delete {
        /// Key of the record that is removed.
        key: RecordKey,
        /// The condition; if it does not hold, the whole commit fails.
        when: When,
    },
    /// Changes nothing, but makes the commit fail unless the condition holds. [`When::Any`] always
    /// holds.
    Check {
        /// Key that the condition is about; it need not have a record.
        key: RecordKey,
        /// The condition that decides about the other writes of the commit.
        when: When,
    },
    /// Adds `by` to the integer `field` of the document. The commit fails unless the result is
    /// within `min` to `max`. An absent record is created with this one field, an absent field
    /// starts at 0, and a field that is not an integer fails the condition. Other fields and the
    /// expiry of an existing record stay as they are.
    Count {
        /// Key of the record with the counter.
        key: RecordKey,
        /// The member of the document: 1 to 64 of `a-z`, `0-9`, `_`.
        field: String,
        /// The number that is added; may be negative.
        by: i64,
        /// The smallest allowed result.
        min: i64,
        /// The largest allowed result.
        max: i64,
        /// The expiry of the record if this write creates it; `None` for none.
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

/// The state of a key after a write, as [`Write::applied_to`] computes it.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// The state is unchanged.
    Same,
    /// There is no record.
    Nothing,
    /// There is this record, under a new revision.
    Holds {
        /// The content of the record after the write.
        document: Document,
        /// The second from which on the record is absent.
        expires_at: Option<Timestamp>,
    },
}

impl Write {
    /// Returns whether the write has the same effect whatever the key holds, so that an adapter
    /// need not read the key first.
    pub fn is_blind(&self) -> bool {
        match self {
            Self::Put { when, .. } | Self::Delete { when, .. } | Self::Check { when, .. } => {
                *when == When::Any
            }
            Self::Count { .. } => false,
        }
    }

    /// Returns the state of the key after this write, given the live record `held` that the key has
    /// now. Returns `None` if the condition does not hold. For adapters that decide while no other
    /// writer can change the key.
    pub fn applied_to(&self, held: Option<&Record>) -> Option<After> {
        match self {
            Self::Put {
                document,
                expires_at,
                when,
                ..
            } => when.is_met_by(held).then(|| After::Holds {
                document: document.clone(),
                expires_at: *expires_at,
            }),
            Self::Delete { when, .. } => when.is_met_by(held).then_some(After::Nothing),
            Self::Check { when, .. } => when.is_met_by(held).then_some(After::Same),
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
                    document: Document::from_stored(Value::Object(members).to_string()),
                    // Counting must not prolong the record: a rate limit's window ends at its
                    // original time.
                    expires_at: held.map_or(*expires_at, |record| record.expires_at),
                })
            }
        }
    }
}

impl When {
    fn is_met_by(self, held: Option<&Record>) -> bool {
        match self {
            Self::Absent => held.is_none(),
            Self::At(revision) => held.is_some_and(|record| record.revision == revision),
            Self::Any => true,
        }
    }
}

/// The result of [`Records::commit_writes`] when the store has answered.
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
        /// The record that the key of this write had at the commit; `None` if there was none.
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
    async fn get_one(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
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
    async fn list_page(
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
    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError>;

    /// Deletes up to `limit` expired records, which are invisible already, and returns their
    /// number. Returns 0 for a store that deletes them by itself.
    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError>;

    /// Checks that the store answers; fails if it does not.
    async fn check_health(&self) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests;
