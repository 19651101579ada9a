//! A memory store with a hook, through which a test sees each call and can let it fail or wait.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey, Objects, Stored};
use vault_store::records::{Commit, Record, RecordKey, Records, Write};

use super::Memory;

/// A call of one of the ports, with its arguments as far as hooks need them.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is a method of `Records` or `Objects`")]
pub enum Call<'c> {
    GetMany(&'c [RecordKey]),
    List,
    Commit(&'c [Write]),
    Sweep,
    Ping,
    Get(&'c ObjectKey),
    Put(&'c ObjectKey),
    Missing,
    ListObjects,
    Delete(&'c ObjectKey),
}

/// The code of a test that runs around each call.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Runs before the call reaches the memory. An error becomes the result of the call.
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError>;

    /// Runs after the memory has answered. `done` is false for a commit whose conditions did not
    /// hold.
    async fn after(&self, call: Call<'_>, done: bool) {
        let _ = (call, done);
    }
}

/// A memory store with a hook.
pub struct Hooked<H> {
    memory: Arc<Memory>,
    hook: Arc<H>,
}

impl<H: Hook> Hooked<H> {
    /// Puts a hook in front of this memory.
    pub fn new(memory: &Arc<Memory>, hook: Arc<H>) -> Arc<Self> {
        let memory = Arc::clone(memory);
        Arc::new(Self { memory, hook })
    }

    async fn around<T>(
        &self,
        call: Call<'_>,
        answer: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.hook.before(call).await?;
        let answer = answer.await?;
        self.hook.after(call, true).await;
        Ok(answer)
    }
}

#[async_trait]
impl<H: Hook> Records for Hooked<H> {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        let answer = self.memory.get_many(keys);
        self.around(Call::GetMany(keys), answer).await
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let answer = Records::list_page(&*self.memory, partition, prefix, after, limit);
        self.around(Call::List, answer).await
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        let call = Call::Commit(&writes);
        self.hook.before(call).await?;
        let done = self.memory.commit_writes(writes.clone()).await?;
        self.hook.after(call, done.is_done()).await;
        Ok(done)
    }

    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        let answer = self.memory.sweep_expired(limit);
        self.around(Call::Sweep, answer).await
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        let answer = self.memory.check_health();
        self.around(Call::Ping, answer).await
    }
}

#[async_trait]
impl<H: Hook> Objects for Hooked<H> {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        let answer = Objects::read_object(&*self.memory, key);
        self.around(Call::Get(key), answer).await
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        let answer = self.memory.put_object(key, bytes);
        self.around(Call::Put(key), answer).await
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        let answer = self.memory.find_missing(wanted);
        self.around(Call::Missing, answer).await
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        let answer = Objects::list_objects(&*self.memory, namespace, class, after, limit);
        self.around(Call::ListObjects, answer).await
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let answer = self.memory.delete_object(key);
        self.around(Call::Delete(key), answer).await
    }
}
