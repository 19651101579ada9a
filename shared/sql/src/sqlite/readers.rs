//! The connections that read.
//!
//! A device's request is one reading of two or three records, on the hottest path of the service.
//! Such a reading takes a few microseconds: two look-ups in a tree whose pages lie in memory. A hop
//! to another thread and back costs several times that, and two context switches, so a point
//! reading runs where it is asked for, on the async worker. That is sound because it is bounded: it
//! holds its connection for those microseconds only, it reads at most 100 keys, and it never waits
//! for a lock of the database, since writers do not block readers of a write-ahead log, and the
//! rare case in which they do (recovery after a crash, another process that holds the file alone)
//! is given up at once and repeated on a thread that may wait. What reads much (lists, objects) or
//! may wait is always on such a thread.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::available_parallelism;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use vault_store::StoreError;

use super::{connect, store_error};
use crate::error::worker_gone;

/// Connections for readings that may wait; more would only wait for the same disk.
const PATIENT: usize = 2;

pub struct Readers {
    /// For readings on the async worker: as many as workers can run at a time.
    quick: Vec<Mutex<Connection>>,
    /// For readings on threads of their own.
    patient: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
}

impl Readers {
    pub fn open(path: &Path, patience: Duration) -> rusqlite::Result<Self> {
        let workers = available_parallelism().map_or(2, usize::from).clamp(1, 8);
        let open = |patience: Duration| {
            let connection = connect(path, patience)?;
            // A cache of 1 MiB each: the system keeps the file's pages anyway, once for all
            // connections.
            connection.execute_batch("pragma query_only = on; pragma cache_size = -1024;")?;
            Ok(Mutex::new(connection))
        };
        let quick: rusqlite::Result<_> = (0..workers).map(|_| open(Duration::ZERO)).collect();
        let patient: rusqlite::Result<_> = (0..PATIENT).map(|_| open(patience)).collect();
        Ok(Self {
            quick: quick?,
            patient: patient?,
            turn: AtomicUsize::new(0),
        })
    }

    /// Reads where it is called; `None` when the database is locked just now, and nothing was read.
    pub fn at_once<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<Result<T, StoreError>> {
        match read(&self.free(&self.quick)) {
            Err(error) if is_locked(&error) => None,
            answer => Some(answer.map_err(store_error)),
        }
    }

    /// Reads on a thread that may wait.
    pub async fn patiently<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || read(&readers.free(&readers.patient)));
        reading
            .await
            .map_err(|_| worker_gone())?
            .map_err(store_error)
    }

    /// A connection nobody uses, or the next in turn. A reader that panicked left its connection
    /// whole: it only read.
    fn free<'a>(&self, connections: &'a [Mutex<Connection>]) -> MutexGuard<'a, Connection> {
        for connection in connections {
            match connection.try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % connections.len();
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
