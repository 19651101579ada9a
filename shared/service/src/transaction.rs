//! A unit of work: the reads and writes of one change. The writes are committed together or not at
//! all, and the whole change is tried again if another writer was faster.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vault_store::StoreError;
use vault_store::records::{Commit, Write};

use crate::ports::Ports;
use crate::retry::retry;

/// One attempt at a change ([`Ports::change`]): it reads through its ports, and collects the writes
/// for the commit. Clones belong to the same attempt.
#[derive(Clone)]
pub struct Transaction<'a> {
    ports: &'a Ports,
    // Shared ownership: for a future that borrows its transaction, the compiler cannot prove `Send`
    // for every lifetime of the borrow.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    writes: Vec<Write>,
    /// Whether another writer was faster, so that the attempt has to be repeated.
    is_lost: bool,
}

/// Lets a transaction be passed where a function takes [`Ports`] to read.
impl Deref for Transaction<'_> {
    type Target = Ports;

    fn deref(&self) -> &Ports {
        self.ports
    }
}

impl<'a> Transaction<'a> {
    fn new(ports: &'a Ports) -> Self {
        Self {
            ports,
            state: Arc::default(),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a write, to be made together with the others by the commit.
    pub fn write(&self, write: Write) {
        self.lock_state().writes.push(write);
    }

    /// Adds writes to the commit, in their order. [`Transaction::write`] adds a single one.
    pub fn write_all(&self, writes: impl IntoIterator<Item = Write>) {
        self.lock_state().writes.extend(writes);
    }

    /// Marks the attempt as lost to another writer and returns the error to end it with; the change
    /// is then tried again.
    pub fn conflict(&self) -> StoreError {
        self.lock_state().is_lost = true;
        StoreError::Conflict
    }

    /// Commits the collected writes now. The first `bounds` writes must be limits, or names that
    /// may be taken: if the condition of one of them fails, the index of that write is returned,
    /// nothing is written, and the transaction is empty again. Any other failed condition is a
    /// [`Transaction::conflict`].
    pub async fn commit_with_limits(&self, bounds: usize) -> Result<Option<usize>, StoreError> {
        // Emptied before the commit: after a failed limit the caller may fill the transaction
        // again.
        let writes = std::mem::take(&mut self.lock_state().writes);
        match self.ports.records.commit_writes(writes).await {
            Ok(Commit::Done(_)) => Ok(None),
            Ok(Commit::Failed { index, .. }) if index < bounds => Ok(Some(index)),
            Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => Err(self.conflict()),
            Err(error) => Err(error),
        }
    }

    /// Commits the remaining writes after `work` has ended with `done`; `None` if the change has to
    /// be tried again.
    async fn commit_rest<T, E: From<StoreError>>(self, done: Result<T, E>) -> Result<Option<T>, E> {
        let has_writes = !self.lock_state().writes.is_empty();
        let done = match done {
            Ok(result) if has_writes => {
                let committed = self.commit_with_limits(0).await;
                committed.map(|_| result).map_err(E::from)
            }
            done => done,
        };
        match done {
            // The flag decides, not the error: a caller may have wrapped the conflict in an error
            // type of its own.
            Err(_) if self.lock_state().is_lost => Ok(None),
            done => done.map(Some),
        }
    }
}

impl Ports {
    /// Changes records in one commit: `work` reads, decides, and leaves its writes in the
    /// transaction. If another writer was faster, all of it is repeated, a bounded number of times;
    /// then the change fails with `Conflict`. An error of `work` ends the change and writes
    /// nothing. An `Ok` commits all writes in the transaction, also if its value means a refusal,
    /// so `work` must decide before its first write. A transaction without writes makes no commit.
    pub async fn change<'a, T, E, F>(
        &'a self,
        mut work: impl FnMut(Transaction<'a>) -> F,
    ) -> Result<T, E>
    where
        E: From<StoreError>,
        F: Future<Output = Result<T, E>>,
    {
        retry(&self.random, || {
            let tx = Transaction::new(self);
            // On the heap: on the stack, the size of this future would be part of every future
            // around it.
            let done = Box::pin(work(tx.clone()));
            async move { tx.commit_rest(done.await).await }
        })
        .await
    }

    /// Makes one attempt at a change without retries: `None` if another writer was faster, and then
    /// nothing was written.
    pub async fn attempt<'a, T, E, F>(
        &'a self,
        work: impl FnOnce(Transaction<'a>) -> F,
    ) -> Result<Option<T>, E>
    where
        E: From<StoreError>,
        F: Future<Output = Result<T, E>>,
    {
        let tx = Transaction::new(self);
        let done = Box::pin(work(tx.clone())).await;
        tx.commit_rest(done).await
    }
}

#[cfg(test)]
mod tests {
    use vault_store::records::{Document, RecordKey, When};
    use vault_testing::TestClock;

    use super::*;

    fn key(name: &str) -> RecordKey {
        RecordKey::new("test", name)
    }

    fn put(name: &str, value: u32, when: When) -> Write {
        let document = Document::from_value(&serde_json::json!({ "value": value })).unwrap();
        Write::put(key(name), document, when)
    }

    /// Returns the number in a record.
    async fn held(ports: &Ports, name: &str) -> Option<u64> {
        let found = ports.get::<serde_json::Value>(&key(name)).await.unwrap();
        found.and_then(|found| found.value["value"].as_u64())
    }

    #[tokio::test]
    async fn an_attempt_that_was_overtaken_leaves_nothing_and_reads_anew() {
        let ports = Ports::in_memory(Arc::new(TestClock::default()));
        let mut attempts = 0;
        let done = ports.change(|tx| {
            attempts += 1;
            let attempt = attempts;
            async move {
                let found = tx.get::<serde_json::Value>(&key("a")).await?;
                if attempt == 1 {
                    // Another writer commits between the reading and the commit.
                    assert!(tx.try_commit(vec![put("a", 7, When::Absent)]).await?);
                    tx.write(put("lost", 1, When::Any));
                }
                let when = found
                    .as_ref()
                    .map_or(When::Absent, |it| When::At(it.revision));
                let before = found.and_then(|found| found.value["value"].as_u64());
                tx.write(put("a", 8, when));
                Ok::<_, StoreError>(before)
            }
        });
        assert_eq!(done.await.unwrap(), Some(7));
        assert_eq!(attempts, 2);
        assert_eq!(held(&ports, "a").await, Some(8));
        assert_eq!(held(&ports, "lost").await, None);
    }

    #[tokio::test]
    async fn an_error_ends_the_change_and_writes_nothing() {
        let ports = Ports::in_memory(Arc::new(TestClock::default()));
        let mut attempts = 0;
        let refused: Result<(), _> = ports
            .change(|tx| {
                attempts += 1;
                tx.write(put("a", 1, When::Any));
                async { Err(StoreError::invalid("no")) }
            })
            .await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))));
        assert_eq!((attempts, held(&ports, "a").await), (1, None));
    }

    #[tokio::test]
    async fn a_reading_that_shows_another_writer_is_made_again() {
        let ports = Ports::in_memory(Arc::new(TestClock::default()));
        let mut attempts = 0;
        let done = ports.change(|tx| {
            attempts += 1;
            let settled = attempts == 3;
            async move {
                if settled {
                    return Ok(());
                }
                Err::<_, StoreError>(tx.conflict())
            }
        });
        assert!(done.await.is_ok());
        assert_eq!(attempts, 3);
    }

    #[tokio::test]
    async fn a_bound_that_is_reached_is_an_outcome_and_no_conflict() {
        let ports = Ports::in_memory(Arc::new(TestClock::default()));
        for expected in [None, Some(0)] {
            let done = ports.change(async |tx| {
                tx.write(Write::count(key("n"), "n", 1, 1));
                tx.write(put("a", 1, When::Any));
                tx.commit_with_limits(1).await
            });
            assert_eq!(done.await.unwrap(), expected);
        }
    }
}
