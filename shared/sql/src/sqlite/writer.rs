//! The only thread that writes to the SQLite file. It commits requests in groups.
//!
//! A commit costs a flush of the disk, which takes some milliseconds. Requests that queue in the
//! meantime are committed together, with one flush for all. Each request runs under a savepoint of
//! its own, so a failed one does not affect the others. Answers are sent only after the flush: what
//! was acknowledged is durable.
//!
//! The queue serves namespaces in turn ([`vault_store::fair`]), and a group has at most 100 rows.
//! So a request waits for one group of some milliseconds for each other namespace that writes,
//! however many requests the others have queued.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, params};
use tokio::sync::oneshot;
use tokio::time::Instant;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::fair::{FairQueue, Lane, LaneBound, Waiting, Work};
use vault_store::objects::{ObjectKey, Stored};
use vault_store::records::{After, Commit, Record, RecordKey, Write};

use super::{rows, store_error};
use crate::error::worker_gone;

/// The amount of work at which a group accepts no further request. A single request may have more:
/// a commit has up to 3 MiB and an object 4 MiB.
const GROUP: Work = Work {
    rows: crate::CHUNK.rows,
    bytes: 4 * 1024 * 1024,
};

/// What may wait in one lane (requests of one namespace, or of another group of callers). The small
/// requests of a full lane take about a second.
const LANE: LaneBound = LaneBound {
    requests: 2048,
    bytes: 16 * 1024 * 1024,
    all_bytes: usize::MAX,
};

/// The handle of the writing thread. Dropping it waits until the thread has finished all requests
/// and closed its connection.
pub struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The last connection that closes moves the write-ahead log into the file. If the process
        // ended before that, a copy of the file without its log would not be a complete backup.
        self.queue.lock_state().is_closed = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The requests that wait for the writing thread.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    requests: FairQueue<Box<dyn Request>>,
    /// Whether the handle was dropped or the thread has ended.
    is_closed: bool,
}

impl Queue {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for requests and takes the next group. The result is empty once the handle was dropped
    /// and no request is left.
    fn wait_for_group(&self) -> Vec<Box<dyn Request>> {
        let mut state = self.lock_state();
        loop {
            let group = state.requests.take_group(GROUP);
            if !group.is_empty() || state.is_closed {
                return group;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Writer {
    /// Moves the connection to a new thread. Fails if the system cannot start one.
    pub fn start_thread(
        connection: Connection,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                requests: FairQueue::new(LANE),
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        let writing = WriterThread {
            connection,
            clock,
            patience,
            queue: Arc::clone(&queue),
            waiting: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || writing.run_loop())?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Runs `run` when `lane` has its turn, and returns its result once the changes are durable.
    /// `work` is the amount that it writes. `run` runs at most once, and not at all if the caller
    /// is cancelled before its turn. Fails with `Busy` if too many requests of the lane wait.
    pub async fn enqueue<T, W>(&self, lane: Lane, work: Work, run: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&mut Batch<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            since: Instant::now(),
            work,
            run: Some(run),
            outcome: None,
            reply,
        };
        {
            let mut state = self.queue.lock_state();
            if state.is_closed {
                return Err(worker_gone());
            }
            state.requests.push(lane, Box::new(job))?;
        }
        self.queue.changed.notify_one();
        answer.await.map_err(|_| worker_gone())?
    }

    pub fn is_alive(&self) -> bool {
        !self.queue.lock_state().is_closed
    }
}

/// A waiting request, whatever type its result has.
trait Request: Send {
    fn queued_at(&self) -> Instant;
    fn work(&self) -> Work;
    fn is_abandoned(&self) -> bool;
    /// Runs the request. After an error, nothing of it is written.
    fn run_work(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()>;
    /// Sends the result to the caller, or `group_error`: the error for which the whole group was
    /// rolled back.
    fn send_answer(self: Box<Self>, group_error: Option<StoreError>);
}

impl Waiting for Box<dyn Request> {
    fn work(&self) -> Work {
        Request::work(&**self)
    }

    fn is_abandoned(&self) -> bool {
        Request::is_abandoned(&**self)
    }
}

struct Job<T, W> {
    since: Instant,
    work: Work,
    run: Option<W>,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Request for Job<T, W>
where
    T: Send,
    W: FnOnce(&mut Batch<'_>) -> rusqlite::Result<T> + Send,
{
    fn queued_at(&self) -> Instant {
        self.since
    }

    fn work(&self) -> Work {
        self.work
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run_work(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()> {
        if let Some(run) = self.run.take() {
            self.outcome = Some(run(batch)?);
        }
        Ok(())
    }

    fn send_answer(self: Box<Self>, group_error: Option<StoreError>) {
        let answer = match group_error {
            Some(error) => Err(error),
            None => self.outcome.ok_or_else(worker_gone),
        };
        // The caller may be cancelled. Its work is done anyway.
        let _ = self.reply.send(answer);
    }
}

struct WriterThread {
    connection: Connection,
    clock: Arc<dyn Clock>,
    patience: Duration,
    queue: Arc<Queue>,
    waiting: Vec<Box<dyn Request>>,
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // After a panic too: requests that wait must fail, since nothing will serve them.
        let mut state = self.queue.lock_state();
        state.is_closed = true;
        state.requests.clear();
    }
}

impl WriterThread {
    fn run_loop(mut self) {
        while self.collect_group() {
            // Count the wait of the oldest request, so that no request waits for another process's
            // lock longer than the patience.
            let waited = self
                .waiting
                .iter()
                .map(|request| request.queued_at().elapsed())
                .max()
                .unwrap_or_default();
            let begun = self
                .connection
                .busy_timeout(self.patience.saturating_sub(waited))
                // Take the write lock at once. A transaction that begins as a reader could fail to
                // upgrade after work was done.
                .and_then(|()| self.execute_statement("begin immediate"));
            match begun {
                Ok(()) => self.run_group(),
                Err(error) => self.give_up(&error),
            }
        }
    }

    /// Waits for the requests of the next group. Returns `false` if the thread should end.
    fn collect_group(&mut self) -> bool {
        // After a failed attempt to take the lock, `waiting` still holds requests: their turn has
        // come.
        if self.waiting.is_empty() {
            self.waiting = self.queue.wait_for_group();
        }
        !self.waiting.is_empty()
    }

    /// Runs the group in the open transaction, ends the transaction, and answers.
    fn run_group(&mut self) {
        let group = std::mem::take(&mut self.waiting);
        let mut done = Vec::with_capacity(group.len());
        let mut failed = Vec::new();
        let mut batch = match Batch::new(&self.connection, self.clock.now()) {
            Ok(batch) => batch,
            Err(error) => return self.undo_group(group, &error),
        };
        let mut group = group.into_iter();
        while let Some(mut request) = group.next() {
            match batch.run_in_savepoint(|batch| request.run_work(batch)) {
                Ok(()) => done.push(request),
                // A full disk or a failed write can end the whole transaction, not only this
                // request's part of it. The next savepoint would then silently begin a new
                // transaction.
                Err(error) if self.connection.is_autocommit() => {
                    done.push(request);
                    done.extend(failed.into_iter().map(|(request, _)| request));
                    done.extend(group);
                    return self.undo_group(done, &error);
                }
                Err(error) => failed.push((request, error)),
            }
        }
        let ended = batch
            .save_revision()
            .and_then(|()| self.execute_statement("commit"));
        // A failed request was rolled back to its savepoint, so its answer does not depend on the
        // commit.
        for (request, error) in failed {
            request.send_answer(Some(store_error(error)));
        }
        match ended {
            Ok(()) => done
                .into_iter()
                .for_each(|request| request.send_answer(None)),
            Err(error) => self.undo_group(done, &error),
        }
    }

    /// Rolls the transaction back and tells all callers of the group that nothing was written.
    fn undo_group(&self, group: Vec<Box<dyn Request>>, error: &rusqlite::Error) {
        if !group.is_empty() {
            tracing::error!(%error, requests = group.len(), "a transaction of grouped writes failed");
        }
        if !self.connection.is_autocommit() {
            // If even this fails, the next `begin` fails and reports it to its callers.
            let _ = self.execute_statement("rollback");
        }
        for request in group {
            request.send_answer(Some(copy_group_error(error)));
        }
    }

    /// Handles a transaction that could not begin. If the database is locked, only the requests
    /// that have waited long enough fail; the others keep waiting.
    fn give_up(&mut self, error: &rusqlite::Error) {
        let locked = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        let patience = self.patience;
        let over = self
            .waiting
            .extract_if(.., |request| {
                !locked || request.queued_at().elapsed() >= patience
            })
            .collect();
        self.undo_group(over, error);
    }

    fn execute_statement(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(statement)?
            .execute(())
            .map(drop)
    }
}

/// Creates an error for one caller from the error that all callers of the group get.
fn copy_group_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        _ => StoreError::unavailable(error.to_string()),
    }
}

/// The open transaction of a group, as each request uses it. No other writer, in this process or
/// another, can run meanwhile, so what a request reads still holds when it writes.
pub struct Batch<'a> {
    connection: &'a Connection,
    now: Timestamp,
    /// The last revision that was given to a record. It is saved at the end of the group.
    revision: i64,
    revision_before: i64,
}

impl<'a> Batch<'a> {
    fn new(connection: &'a Connection, now: Timestamp) -> rusqlite::Result<Self> {
        let revision = connection
            .prepare_cached("select last from revision")?
            .query_row((), |row| row.get(0))?;
        Ok(Self {
            connection,
            now,
            revision,
            revision_before: revision,
        })
    }

    fn save_revision(&self) -> rusqlite::Result<()> {
        // A group that changed no record must not write the page of the revision.
        if self.revision != self.revision_before {
            self.execute_with("update revision set last = ?1", [self.revision])?;
        }
        Ok(())
    }

    fn run_in_savepoint(
        &mut self,
        run: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.execute_with("savepoint request", ())?;
        let ran = run(self);
        if ran.is_err() {
            if self.connection.is_autocommit() {
                return ran; // there is nothing left to go back to
            }
            self.execute_with("rollback to request", ())?;
        }
        // A rollback to a savepoint leaves it open, so release it in both cases.
        self.execute_with("release request", ())?;
        ran
    }

    /// Stores the objects that do not exist yet. Returns for each object whether it was stored now
    /// or existed.
    pub fn put_objects(&mut self, objects: &[(ObjectKey, Bytes)]) -> rusqlite::Result<Vec<Stored>> {
        let put = objects.iter().map(|(key, bytes)| {
            let new = self.execute_with(
                "insert into objects (namespace, class, digest, size, bytes) values (?1, ?2, ?3, ?4, ?5)
                 on conflict do nothing",
                params![
                    key.namespace.as_str(),
                    key.class.as_str(),
                    key.digest.as_bytes(),
                    rows::to_integer(bytes.len()),
                    &bytes[..]
                ],
            )?;
            Ok(if new == 0 { Stored::Present } else { Stored::New })
        });
        put.collect()
    }

    pub fn delete_objects(&mut self, keys: &[ObjectKey]) -> rusqlite::Result<()> {
        keys.iter().try_for_each(|key| {
            let key = params![
                key.namespace.as_str(),
                key.class.as_str(),
                key.digest.as_bytes()
            ];
            let statement =
                "delete from objects where namespace = ?1 and class = ?2 and digest = ?3";
            self.execute_with(statement, key).map(drop)
        })
    }

    /// Applies the writes if every condition holds.
    pub fn apply_writes(&mut self, writes: &[Write]) -> rusqlite::Result<Commit> {
        // Decide every write before the first change, so that a failed condition needs no rollback.
        let mut changes = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            let live_record = if write.is_blind() {
                None
            } else {
                self.read_live(write.key())?
            };
            match write.applied_to(live_record.as_ref()) {
                Some(after) => changes.push(after),
                None => {
                    return Ok(Commit::Failed {
                        index,
                        found: live_record,
                    });
                }
            }
        }
        let changed = writes
            .iter()
            .zip(changes)
            .map(|(write, after)| self.write_change(write, &after));
        Ok(Commit::Done(changed.collect::<rusqlite::Result<_>>()?))
    }

    /// Deletes up to `limit` expired records, and returns how many there were.
    pub fn sweep_expired(&mut self, limit: usize) -> rusqlite::Result<usize> {
        self.execute_with(
            "delete from records where (partition, key) in
             (select partition, key from records where expires_at is not null and expires_at <= ?1 limit ?2)",
            params![self.now.unix(), rows::to_integer(limit)],
        )
    }

    #[cfg(test)]
    pub fn count_objects(
        &self,
        namespace: &vault_format::name::NamespaceId,
    ) -> rusqlite::Result<i64> {
        self.connection.query_row(
            "select count(*) from objects where namespace = ?1",
            [namespace.as_str()],
            |row| row.get(0),
        )
    }

    fn read_live(&self, key: &RecordKey) -> rusqlite::Result<Option<Record>> {
        rows::read_record(self.connection, key, self.now)
    }

    fn write_change(&mut self, write: &Write, after: &After) -> rusqlite::Result<Option<u64>> {
        let key = write.key();
        match after {
            After::Same => Ok(None),
            After::Nothing => {
                let place = params![key.partition, key.key];
                self.execute_with(
                    "delete from records where partition = ?1 and key = ?2",
                    place,
                )?;
                Ok(None)
            }
            After::Holds {
                document,
                expires_at,
            } => {
                self.revision += 1;
                self.execute_with(
                    "insert or replace into records (partition, key, revision, expires_at, document)
                     values (?1, ?2, ?3, ?4, ?5)",
                    params![
                        key.partition,
                        key.key,
                        self.revision,
                        expires_at.map(Timestamp::unix),
                        document.as_str()
                    ],
                )?;
                Ok(matches!(write, Write::Put { .. }).then_some(self.revision.cast_unsigned()))
            }
        }
    }

    fn execute_with(
        &self,
        statement: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(statement)?.execute(values)
    }
}
