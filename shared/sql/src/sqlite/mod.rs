//! SQLite: one file, one writer, many readers.
//!
//! Writes of this process queue for one thread, which commits them in groups and serves namespaces
//! in turn ([`writer`]). Reads use connections of their own and never wait for a write, because the
//! file uses a write-ahead log. Another process may use the same file: a request waits for that
//! process's lock up to [`Options::patience`].

mod readers;
mod rows;
#[cfg(test)]
mod turns_tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::fair::{Lane, Work};
use vault_store::objects::{self, Class, ObjectKey, Objects, Stored};
use vault_store::records::{self, Commit, Record, RecordKey, Records, Write};

use self::readers::Readers;
use self::writer::Writer;
use crate::bounds::KeyRange;
use crate::error::{next_migration, worker_gone};
use crate::{CHUNK, Options, SqlError, find_count_at_bound, split_by_work};

/// The schema: one script for each version, forward only. A released script is never edited.
const MIGRATIONS: [&str; 1] = [include_str!("../schema/sqlite_1.sql")];

/// Total size of objects from which they are hashed outside the async worker, in bytes: hashing 256
/// KiB takes about 0.1 ms.
const LARGE: usize = 256 * 1024;

/// Number of prepared statements kept per connection. It exceeds the number of different statements
/// in this module.
const STATEMENTS: usize = 64;

/// Both data ports on one SQLite file. When this value is dropped, the write-ahead log is merged
/// into the file, unless another process has the file open.
pub struct Sqlite {
    clock: Arc<dyn Clock>,
    // Fields are dropped in this order, so that the writing connection closes last.
    readers: Arc<Readers>,
    writer: Writer,
}

impl Sqlite {
    /// Opens or creates the file and its folder, and migrates the file. A new file is readable only
    /// by its owner.
    pub async fn open_file(
        path: PathBuf,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, SqlError> {
        // Opening reads and may migrate the file, so keep it off the async worker.
        let opened = tokio::task::spawn_blocking(move || {
            // The writer comes first: it creates and migrates the file that the readers open.
            let writer = open_writer(&path, options.patience)?;
            let readers = Readers::open_readers(&path, options.patience)?;
            let writer = Writer::start_thread(writer, Arc::clone(&clock), options.patience)
                .map_err(SqlError::from_source)?;
            Ok(Self {
                clock,
                readers: Arc::new(readers),
                writer,
            })
        });
        opened.await.map_err(SqlError::from_source)?
    }
}

#[async_trait]
impl Objects for Sqlite {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        let key = *key;
        self.readers
            .read_waiting(move |connection| rows::read_object(connection, &key))
            .await
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        let stored = self.put_many(vec![(*key, bytes)]).await?;
        stored.first().copied().ok_or_else(worker_gone)
    }

    async fn put_many(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<Vec<Stored>, StoreError> {
        let objects = check_objects(objects).await?;
        let mut stored = Vec::with_capacity(objects.len());
        for chunk in split_by_work(objects, |(_, bytes)| bytes.len()) {
            let Some((key, _)) = chunk.first() else {
                continue;
            };
            let (lane, work) = (Lane::Namespace(key.namespace), object_work(&chunk));
            // One after another: a caller never has more than one chunk in the queue.
            stored.extend(
                self.writer
                    .enqueue(lane, work, move |batch| batch.put_objects(&chunk))
                    .await?,
            );
        }
        Ok(stored)
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        objects::check_missing(wanted)?;
        let wanted = wanted.to_vec();
        self.readers
            .read_waiting(move |connection| rows::find_missing(connection, &wanted))
            .await
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        objects::check_list(limit)?;
        let (namespace, after) = (*namespace, after.copied());
        self.readers
            .read_waiting(move |connection| {
                rows::list_objects(connection, &namespace, class, after.as_ref(), limit)
            })
            .await
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.delete_many(&[*key]).await
    }

    async fn delete_many(&self, keys: &[ObjectKey]) -> Result<(), StoreError> {
        for keys in keys.chunks(CHUNK.rows) {
            let (keys, work) = (keys.to_vec(), row_work(keys.len()));
            // Only background work deletes objects.
            self.writer
                .enqueue(Lane::Upkeep, work, move |batch| batch.delete_objects(&keys))
                .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Records for Sqlite {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        records::check_get_many(keys)?;
        let now = self.clock.now();
        // Try on this thread first: a point read takes microseconds, and handing it to another
        // thread takes several times as long.
        match self
            .readers
            .read_now(|connection| rows::read_records(connection, keys, now))
        {
            Some(read) => read,
            None => {
                let keys = keys.to_vec();
                self.readers
                    .read_waiting(move |connection| rows::read_records(connection, &keys, now))
                    .await
            }
        }
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::check_list(partition, prefix, after, limit)?;
        let now = self.clock.now();
        let (partition, bounds) = (partition.to_owned(), KeyRange::for_prefix(prefix, after));
        self.readers
            .read_waiting(move |connection| {
                rows::list_records(connection, &partition, &bounds, limit, now)
            })
            .await
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        records::check_commit(&writes)?;
        if let Some(failed) = find_count_at_bound(self, &writes).await? {
            return Ok(failed);
        }
        let work = Work {
            rows: writes.len(),
            bytes: writes.iter().map(document_bytes).sum(),
        };
        self.writer
            .enqueue(Lane::for_writes(&writes), work, move |batch| {
                batch.apply_writes(&writes)
            })
            .await
    }

    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        let mut swept = 0;
        while swept < limit {
            let rows = (limit - swept).min(CHUNK.rows);
            let removed = self
                .writer
                .enqueue(Lane::Upkeep, row_work(rows), move |batch| {
                    batch.sweep_expired(rows)
                })
                .await?;
            swept += removed;
            if removed < rows {
                break;
            }
        }
        Ok(swept)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        // A file that can be read is not enough: the writing thread must be alive too.
        if !self.writer.is_alive() {
            return Err(worker_gone());
        }
        self.readers.read_waiting(rows::check_readable).await
    }
}

/// Checks the sizes and hashes of objects, outside the async worker if they are large.
async fn check_objects(
    objects: Vec<(ObjectKey, Bytes)>,
) -> Result<Vec<(ObjectKey, Bytes)>, StoreError> {
    let size: usize = objects.iter().map(|(_, bytes)| bytes.len()).sum();
    if size < LARGE {
        objects::check_put_many(&objects)?;
        return Ok(objects);
    }
    let check = move || objects::check_put_many(&objects).map(|()| objects);
    tokio::task::spawn_blocking(check)
        .await
        .map_err(|_| worker_gone())?
}

fn row_work(rows: usize) -> Work {
    Work { rows, bytes: 0 }
}

fn object_work(objects: &[(ObjectKey, Bytes)]) -> Work {
    Work {
        rows: objects.len(),
        bytes: objects.iter().map(|(_, bytes)| bytes.len()).sum(),
    }
}

fn document_bytes(write: &Write) -> usize {
    match write {
        Write::Put { document, .. } => document.as_str().len(),
        _ => 0,
    }
}

/// Opens the writing connection: creates the folder and the file, sets the file's options, and
/// migrates it.
fn open_writer(path: &Path, patience: Duration) -> Result<Connection, SqlError> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(SqlError::from_source)?;
    }
    make_private(path).map_err(SqlError::from_source)?;
    let until = Instant::now() + patience;
    loop {
        let opened = open_connection(path, patience)
            .map_err(SqlError::from)
            .and_then(|connection| {
                prepare_database(&connection)?;
                Ok(connection)
            });
        match opened {
            // Two processes may switch the file to the write-ahead log at the same moment. SQLite
            // then reports "busy" at once, whatever the timeout, because waiting could never end.
            // So retry here.
            Err(SqlError::Open(error)) if is_busy(&*error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

/// Creates the file before SQLite does, because SQLite would make it readable by everyone, and it
/// contains password hashes. SQLite gives the files beside it, such as the log, the same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn open_connection(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    // Without `SQLITE_OPEN_URI`, a path that begins with `file:` is a plain path. SQLite needs no
    // mutex of its own, because no two threads use one connection at the same time.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(patience)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Another program may have edited the file, so functions and virtual tables that its schema
    // names are not trusted.
    connection.execute_batch("pragma trusted_schema = off; pragma temp_store = memory;")?;
    Ok(connection)
}

fn prepare_database(connection: &Connection) -> Result<(), SqlError> {
    // `synchronous = full` flushes the log at each commit, so that acknowledged writes survive a
    // power failure. The size limit truncates the log after a burst of large objects; otherwise the
    // log would keep its size. The page size is for the table of records: each row keeps about a
    // quarter of a page in its tree and the rest in overflow pages, which every look-up that passes
    // the row reads too. With pages of 8 KiB, a typical record needs no overflow page.
    connection.execute_batch(
        "pragma page_size = 8192; pragma journal_mode = wal; pragma synchronous = full; pragma journal_size_limit = 16777216;",
    )?;
    migrate_schema(connection)
}

fn migrate_schema(connection: &Connection) -> Result<(), SqlError> {
    // Take the write lock before the version is read, so that two processes cannot both run the
    // same script.
    connection.execute_batch("begin immediate")?;
    let migrated = run_migrations(connection);
    let end = if migrated.is_ok() {
        "commit"
    } else {
        "rollback"
    };
    connection.execute_batch(end)?;
    migrated
}

fn run_migrations(connection: &Connection) -> Result<(), SqlError> {
    connection.execute_batch(
        "create table if not exists vault_schema (
            only_row integer primary key check (only_row = 1), version integer not null
        ) strict",
    )?;
    let version = "select version from vault_schema where only_row = 1";
    let schema_version = connection
        .query_row(version, (), |row| row.get(0))
        .optional()?
        .unwrap_or(0);
    let next = next_migration(schema_version, MIGRATIONS.len())?;
    for script in &MIGRATIONS[next..] {
        connection.execute_batch(script)?;
    }
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    connection.execute(
        "insert or replace into vault_schema values (1, ?1)",
        [known],
    )?;
    Ok(())
}

fn is_busy(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code)
        == Some(ErrorCode::DatabaseBusy)
}

fn store_error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        // Locked, full, read-only or an I/O error: none is the caller's fault, and each may be
        // temporary.
        _ => StoreError::unavailable(error),
    }
}
