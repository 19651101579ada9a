//! The ports of one process in one value. A port is an interface to something outside the process:
//! the stores, the clock and randomness. Functions of the model take [`Ports`].

use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::objects::Objects;
use vault_store::random::{Random, new_ulid};
use vault_store::records::{Commit, Record, RecordKey, Records, When, Write};

/// The ports of one process. Clones share the same stores.
#[derive(Clone)]
pub struct Ports {
    /// Store of small JSON documents, which are changed with conditions.
    pub records: Arc<dyn Records>,
    /// Store of immutable bytes, each under its hash.
    pub objects: Arc<dyn Objects>,
    /// Source of the time; tests set it.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness for ids and secrets; predictable in tests.
    pub random: Arc<dyn Random>,
}

/// A decoded record, with the revision that a conditional write needs.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// Revision that was read, as a condition for the next write.
    pub revision: u64,
    /// Time at which the record expires; `None` if it does not.
    pub expires_at: Option<Timestamp>,
    /// Content of the record, decoded from JSON.
    pub value: T,
}

impl<T: DeserializeOwned> Versioned<T> {
    /// Decodes a record that may be absent. Fails with `Corrupt` if its content has another form.
    pub fn read(record: Option<Record>) -> Result<Option<Self>, StoreError> {
        let Some(record) = record else {
            return Ok(None);
        };
        Ok(Some(Self {
            revision: record.revision,
            expires_at: record.expires_at,
            value: record.read()?,
        }))
    }
}

impl Ports {
    /// Reads the record with this key. Fails with `Corrupt` if its content has another form.
    pub async fn get<T: DeserializeOwned>(
        &self,
        key: &RecordKey,
    ) -> Result<Option<Versioned<T>>, StoreError> {
        Versioned::read(self.records.get_one(key).await?)
    }

    /// Reads `N` records as of the same moment, in the order of the keys.
    pub async fn get_all<const N: usize>(
        &self,
        keys: [RecordKey; N],
    ) -> Result<[Option<Record>; N], StoreError> {
        let fetched_records = self.records.get_many(&keys).await?;
        fetched_records.try_into().map_err(|_| {
            StoreError::Corrupt("a store answered fewer records than it was asked for".into())
        })
    }

    /// Returns ports over the same stores that read, but discard every commit and report it as
    /// done. A change with them only shows whether it could be made.
    #[must_use]
    pub fn discarding_writes(&self) -> Self {
        Self {
            records: Arc::new(Rehearsed(Arc::clone(&self.records))),
            ..self.clone()
        }
    }

    /// Returns the time of the clock, in whole seconds.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Creates a ULID: an id of 26 characters, in which ids sort by their time.
    pub fn fresh_id(&self) -> Arc<str> {
        new_ulid(&self.clock, &self.random).into()
    }

    /// Removes and returns a record that counts once. `None` if there is none, or another caller
    /// took it first.
    pub async fn take_once<T: DeserializeOwned>(
        &self,
        key: RecordKey,
    ) -> Result<Option<T>, StoreError> {
        let Some(stored) = self.get::<T>(&key).await? else {
            return Ok(None);
        };
        let taken = vec![Write::delete(key, When::At(stored.revision))];
        Ok(self.try_commit(taken).await?.then_some(stored.value))
    }

    /// Commits these writes together. False, with nothing written, if a condition failed or another
    /// writer was faster.
    pub async fn try_commit(&self, writes: Vec<Write>) -> Result<bool, StoreError> {
        match self.records.commit_writes(writes).await {
            Ok(commit) => Ok(commit.is_done()),
            // The store gave up on interfering writers and wrote nothing: to callers the same as a
            // failed condition.
            Err(StoreError::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Reads from the wrapped records, and reports every commit as done without writing it.
struct Rehearsed(Arc<dyn Records>);

#[async_trait]
impl Records for Rehearsed {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        self.0.get_many(keys).await
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.0.list_page(partition, prefix, after, limit).await
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        Ok(Commit::Done(vec![None; writes.len()]))
    }

    async fn sweep_expired(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.0.check_health().await
    }
}

#[cfg(test)]
impl Ports {
    /// Creates ports over stores in memory, whose time is that of `clock`.
    pub(crate) fn in_memory(clock: Arc<vault_testing::TestClock>) -> Self {
        let memory = Arc::new(vault_testing::memory::Memory::new(clock.clone()));
        Self {
            records: memory.clone(),
            objects: memory,
            clock,
            random: Arc::new(vault_testing::SeededRandom::new(1)),
        }
    }
}
