//! The connections that only read.
//!
//! Each request of a device reads two or three records, so these reads are the most frequent ones
//! of the service. Such a point read takes a few microseconds: look-ups in a tree whose pages are
//! in memory. Handing it to another thread and back would take several times as long, so it runs on
//! the async worker that needs it. That is sound because the read is short: it has at most 100
//! keys, and it never waits for a lock of the database, because writers do not block readers of a
//! write-ahead log. In rare cases the database is locked for readers too (recovery after a crash,
//! another process with an exclusive lock). Then the read gives up at once and is repeated on a
//! thread that may wait. Lists and reads of objects always run on such a thread.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::available_parallelism;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use vault_store::StoreError;

use super::{open_connection, store_error};
use crate::error::worker_gone;

/// Number of connections for reads that may wait. More would only wait for the same disk.
const PATIENT: usize = 2;

pub struct Readers {
    /// For point reads on the async workers, which must not block: one connection for each
    /// processor, at most eight.
    quick: Vec<Mutex<Connection>>,
    /// For reads on threads that may wait for a lock.
    patient: Vec<Mutex<Connection>>,
    next_connection: AtomicUsize,
}

impl Readers {
    pub fn open_readers(path: &Path, patience: Duration) -> rusqlite::Result<Self> {
        let workers = available_parallelism().map_or(2, usize::from).clamp(1, 8);
        let open = |patience: Duration| {
            let connection = open_connection(path, patience)?;
            // A cache of 1 MiB per connection is enough: the operating system caches the file's
            // pages for all connections.
            connection.execute_batch("pragma query_only = on; pragma cache_size = -1024;")?;
            Ok(Mutex::new(connection))
        };
        // No patience: a read on the async worker must never block on a lock.
        let quick: rusqlite::Result<_> = (0..workers).map(|_| open(Duration::ZERO)).collect();
        let patient: rusqlite::Result<_> = (0..PATIENT).map(|_| open(patience)).collect();
        Ok(Self {
            quick: quick?,
            patient: patient?,
            next_connection: AtomicUsize::new(0),
        })
    }

    /// Reads on the calling thread. Returns `None` if the database is locked at this moment; then
    /// nothing was read.
    pub fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<Result<T, StoreError>> {
        match read(&self.lock_connection(&self.quick)) {
            Err(error) if is_locked(&error) => None,
            answer => Some(answer.map_err(store_error)),
        }
    }

    /// Reads on a thread that may wait.
    pub async fn read_waiting<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(self);
        let reading =
            tokio::task::spawn_blocking(move || read(&readers.lock_connection(&readers.patient)));
        reading
            .await
            .map_err(|_| worker_gone())?
            .map_err(store_error)
    }

    /// Returns a free connection, or the next one in turn. A reader that panicked left its
    /// connection intact, because it only read.
    fn lock_connection<'a>(
        &self,
        connections: &'a [Mutex<Connection>],
    ) -> MutexGuard<'a, Connection> {
        for connection in connections {
            match connection.try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        // All connections are in use. Taking turns spreads the waiting callers over them.
        let turn = self.next_connection.fetch_add(1, Ordering::Relaxed) % connections.len();
        connections[turn]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}
