//! The memory double of both data ports: what the contract asks, nothing durable. For tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value};
use vault_skill::hash::Digest;
use vault_skill::name::NamespaceId;
use vault_skill::time::Timestamp;

use crate::StoreError;
use crate::clock::{Clock, SystemClock};
use crate::objects::{self, Class, ObjectKey, Objects, Stored};
use crate::records::{self, Commit, Document, Record, RecordKey, Records, When, Write};

/// Objects and records in this process's memory; gone with it.
pub struct Memory {
    clock: Arc<dyn Clock>,
    objects: Mutex<BTreeMap<ObjectKey, Bytes>>,
    records: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<(String, String), Record>,
    /// The last revision given out, whatever the key: revisions never repeat.
    last: u64,
}

impl Memory {
    /// An empty store whose records expire by `clock`.
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
    async fn get(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        Ok(lock(&self.objects).get(key).cloned())
    }

    async fn put(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        key.check(&bytes)?;
        let was = lock(&self.objects).insert(*key, bytes);
        Ok(if was.is_some() {
            Stored::Present
        } else {
            Stored::New
        })
    }

    async fn missing(&self, wanted: &[(ObjectKey, u64)]) -> Result<Vec<ObjectKey>, StoreError> {
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

    async fn list(
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

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        lock(&self.objects).remove(key);
        Ok(())
    }
}

#[async_trait]
impl Records for Memory {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        records::check_get_many(keys)?;
        let now = self.clock.now();
        let state = lock(&self.records);
        Ok(keys
            .iter()
            .map(|key| state.live(key, now).cloned())
            .collect())
    }

    async fn list(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::check_list(partition, prefix, after, limit)?;
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

    async fn commit(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        records::check_commit(&writes)?;
        let now = self.clock.now();
        let mut state = lock(&self.records);
        if let Some(index) = writes.iter().position(|write| !state.allows(write, now)) {
            let found = state.live(writes[index].key(), now).cloned();
            return Ok(Commit::Failed { index, found });
        }
        Ok(Commit::Done(
            writes
                .into_iter()
                .map(|write| state.apply(write, now))
                .collect(),
        ))
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
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

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl State {
    fn live(&self, key: &RecordKey, now: Timestamp) -> Option<&Record> {
        let record = self.by_key.get(&(key.partition.clone(), key.key.clone()))?;
        is_live(record, now).then_some(record)
    }

    fn allows(&self, write: &Write, now: Timestamp) -> bool {
        let held = self.live(write.key(), now);
        match write {
            Write::Put { when, .. } | Write::Delete { when, .. } | Write::Check { when, .. } => {
                match when {
                    When::Absent => held.is_none(),
                    When::At(revision) => held.is_some_and(|record| record.revision == *revision),
                    When::Any => true,
                }
            }
            Write::Count {
                field,
                by,
                min,
                max,
                ..
            } => counter(held, field)
                .is_some_and(|value| (*min..=*max).contains(&value.saturating_add(*by))),
        }
    }

    /// Applies a write that is allowed; answers the new revision of a `Put`.
    fn apply(&mut self, write: Write, now: Timestamp) -> Option<u64> {
        match write {
            Write::Put {
                key,
                document,
                expires_at,
                ..
            } => Some(self.set(key, document, expires_at)),
            Write::Delete { key, .. } => {
                self.by_key.remove(&(key.partition, key.key));
                None
            }
            Write::Check { .. } => None,
            Write::Count {
                key,
                field,
                by,
                expires_at,
                ..
            } => {
                let held = self.live(&key, now);
                let expires_at = held.map_or(expires_at, |record| record.expires_at);
                let value = counter(held, &field).unwrap_or(0).saturating_add(by);
                let mut members: Map<String, Value> = held
                    .and_then(|record| record.read().ok())
                    .unwrap_or_default();
                members.insert(field, value.into());
                self.set(
                    key,
                    Document::stored(Value::Object(members).to_string()),
                    expires_at,
                );
                None
            }
        }
    }

    fn set(&mut self, key: RecordKey, document: Document, expires_at: Option<Timestamp>) -> u64 {
        self.last += 1;
        let place = (key.partition.clone(), key.key.clone());
        self.by_key.insert(
            place,
            Record {
                key,
                revision: self.last,
                expires_at,
                document,
            },
        );
        self.last
    }
}

/// The counter's value: 0 where record or field is absent, `None` where the field is no integer.
fn counter(held: Option<&Record>, field: &str) -> Option<i64> {
    let Some(record) = held else { return Some(0) };
    match record.read::<Map<String, Value>>().ok()?.get(field) {
        None => Some(0),
        Some(value) => value.as_i64(),
    }
}

fn is_live(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|end| end > now)
}

/// A poisoned lock means that a test's thread panicked while it held it; every change here is made by one insertion, so
/// the content is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::contract::{ObjectsFixture, RecordsFixture};

    fn objects_in_memory() -> Option<ObjectsFixture> {
        Some(ObjectsFixture {
            objects: Arc::new(Memory::default()),
            keep: Box::new(()),
        })
    }

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
