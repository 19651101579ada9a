//! In-memory implementations of the ports for tests. They keep the contracts, but nothing is
//! durable.

pub mod hooked;
pub mod shelf;
pub mod touched;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;

use vault_store::StoreError;
use vault_store::clock::{Clock, SystemClock};
use vault_store::objects;
use vault_store::objects::{Class, ObjectKey, Objects, Stored};
use vault_store::records;
use vault_store::records::{After, Commit, Record, RecordKey, Records, Write};

/// Objects and records in the memory of this process.
pub struct Memory {
    clock: Arc<dyn Clock>,
    objects: Mutex<BTreeMap<ObjectKey, Bytes>>,
    records: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<(String, String), Record>,
    /// The last revision that was given to any record. Revisions never repeat.
    last: u64,
}

impl Memory {
    /// Creates an empty store whose records expire by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            objects: Mutex::default(),
            records: Mutex::default(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

#[async_trait]
impl Objects for Memory {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        Ok(lock(&self.objects).get(key).cloned())
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        key.check_bytes(&bytes)?;
        let was = lock(&self.objects).insert(*key, bytes);
        Ok(if was.is_some() {
            Stored::Present
        } else {
            Stored::New
        })
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        objects::check_missing(wanted)?;
        let held = lock(&self.objects);
        let has = |key, size| {
            held.get(key)
                .is_some_and(|bytes| bytes.len() as u64 == size)
        };
        Ok(wanted
            .iter()
            .filter(|(key, size)| !has(key, *size))
            .map(|(key, _)| *key)
            .collect())
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        objects::check_list(limit)?;
        let from = after
            .copied()
            .unwrap_or_else(|| Digest::from_bytes([0; 32]));
        let start = ObjectKey::new(*namespace, class, from);
        let start = if after.is_some() {
            Bound::Excluded(start)
        } else {
            Bound::Included(start)
        };
        let held = lock(&self.objects);
        let listed = held
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| key.namespace == *namespace && key.class == class)
            .take(limit)
            .map(|(key, bytes)| (key.digest, bytes.len() as u64))
            .collect();
        Ok(listed)
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        lock(&self.objects).remove(key);
        Ok(())
    }
}

#[async_trait]
impl Records for Memory {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        records::check_get_many(keys)?;
        touched::note_reads(keys.iter().map(|key| key.partition.as_str()));
        let now = self.clock.now();
        let state = lock(&self.records);
        Ok(keys
            .iter()
            .map(|key| state.live(key, now).cloned())
            .collect())
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::check_list(partition, prefix, after, limit)?;
        touched::note_reads([partition]);
        let now = self.clock.now();
        let state = lock(&self.records);
        let listed = state
            .by_key
            .range((partition.to_owned(), prefix.to_owned())..)
            .take_while(|((group, key), _)| group == partition && key.starts_with(prefix))
            .filter(|((_, key), record)| {
                after.is_none_or(|after| key.as_str() > after) && is_live(record, now)
            })
            .take(limit)
            .map(|(_, record)| record.clone())
            .collect();
        Ok(listed)
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        records::check_commit(&writes)?;
        touched::note_writes(&writes);
        let now = self.clock.now();
        let mut state = lock(&self.records);
        let mut changes = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            let held = state.live(write.key(), now);
            match write.applied_to(held) {
                Some(after) => changes.push(after),
                None => {
                    return Ok(Commit::Failed {
                        index,
                        found: held.cloned(),
                    });
                }
            }
        }
        let changed = writes.into_iter().zip(changes);
        Ok(Commit::Done(
            changed
                .map(|(write, after)| state.change(&write, after))
                .collect(),
        ))
    }

    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.clock.now();
        let mut state = lock(&self.records);
        let dead: Vec<_> = state
            .by_key
            .iter()
            .filter(|(_, r)| !is_live(r, now))
            .take(limit)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &dead {
            state.by_key.remove(key);
        }
        Ok(dead.len())
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl State {
    fn live(&self, key: &RecordKey, now: Timestamp) -> Option<&Record> {
        let record = self.by_key.get(&(key.partition.clone(), key.key.clone()))?;
        is_live(record, now).then_some(record)
    }

    /// Makes one change. Returns the new revision of a `Put`.
    fn change(&mut self, write: &Write, after: After) -> Option<u64> {
        let key = write.key();
        let place = (key.partition.clone(), key.key.clone());
        match after {
            After::Same => None,
            After::Nothing => {
                self.by_key.remove(&place);
                None
            }
            After::Holds {
                document,
                expires_at,
            } => {
                self.last += 1;
                let record = Record {
                    key: key.clone(),
                    revision: self.last,
                    expires_at,
                    document,
                };
                self.by_key.insert(place, record);
                matches!(write, Write::Put { .. }).then_some(self.last)
            }
        }
    }
}

fn is_live(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|end| end > now)
}

/// Locks even if the lock is poisoned, which means that a thread of the test panicked while it held
/// it. Each change is a single insertion, so the content is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestClock;
    use crate::contract::{ObjectsFixture, RecordsFixture};

    #[expect(clippy::unnecessary_wraps, reason = "other stores may be absent")]
    fn objects_in_memory() -> Option<ObjectsFixture> {
        Some(ObjectsFixture {
            objects: Arc::new(Memory::default()),
            keep: Box::new(()),
        })
    }

    #[expect(clippy::unnecessary_wraps, reason = "other stores may be absent")]
    fn records_in_memory() -> Option<RecordsFixture> {
        let clock = Arc::new(TestClock::default());
        let records = Arc::new(Memory::new(clock.clone()));
        Some(RecordsFixture {
            records,
            clock,
            keep: Box::new(()),
        })
    }

    mod objects {
        crate::objects_contract!(std::future::ready(super::objects_in_memory()));
    }

    mod records {
        crate::records_contract!(std::future::ready(super::records_in_memory()));
    }
}
