//! SQLite and PostgreSQL behind the data ports of `vault-store`.
//!
//! One address opens either: `sqlite:path` or a plain path is a file on this machine,
//! `postgres://…` a server that several services may share. Both keep the same contract
//! (`vault_testing::contract`). Expiry is decided by the port `Clock`, never by the clock of the
//! database. Opening migrates the schema forward; a schema newer than this program is rejected.

mod bounds;
mod error;
mod postgres;
mod sqlite;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::fair::Work;
use vault_store::objects::Objects;
use vault_store::records::{Commit, RecordKey, Records, Write};

pub use error::SqlError;

/// The most that one request writes before requests of other namespaces get their turn: some
/// milliseconds of work. A single object may be larger.
const CHUNK: Work = Work {
    rows: 100,
    bytes: 1024 * 1024,
};

/// Splits items, in their order, into chunks of at most [`CHUNK`]. `size` returns the size of an
/// item in bytes; a larger item is a chunk of its own.
fn split_by_work<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut chunks: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let more = size(&item);
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK.rows && bytes + more <= CHUNK.bytes => {
                bytes += more;
                chunk.push(item);
            }
            _ => {
                bytes = more;
                chunks.push(vec![item]);
            }
        }
    }
    chunks
}

/// Looks for a count at its bound among the counts with which a commit begins. Returns the failure
/// of the commit if there is one; `None` if the commit has to be tried. Limits on callers are such
/// counts.
///
/// The records are only read for this, so callers over a limit do not queue for the writer, however
/// often they ask.
async fn find_count_at_bound(
    records: &dyn Records,
    writes: &[Write],
) -> Result<Option<Commit>, StoreError> {
    // Only the counts at the beginning: behind another write, that other one may be the first to
    // fail.
    let counts = writes.iter();
    let counts = counts.take_while(|write| matches!(write, Write::Count { .. }));
    let keys: Vec<RecordKey> = counts.map(|write| write.key().clone()).collect();
    if keys.is_empty() {
        return Ok(None);
    }
    let held = records.get_many(&keys).await?;
    let mut counts = writes.iter().zip(held).enumerate();
    Ok(counts.find_map(|(index, (write, found))| {
        let is_full = write.applied_to(found.as_ref()).is_none();
        is_full.then_some(Commit::Failed { index, found })
    }))
}

/// An open SQLite or PostgreSQL database, from which the service takes its two stores.
#[derive(Clone)]
pub struct Sql {
    objects: Arc<dyn Objects>,
    records: Arc<dyn Records>,
}

/// Options of an open database. The defaults are those of the service.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a request waits for the database (for the lock of another process, or a free
    /// connection) before it fails with `StoreError::Unavailable`.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
        }
    }
}

impl Sql {
    /// Opens the database at `url` and migrates its schema. `clock` decides which records are
    /// expired. Fails if the address is invalid, the database does not answer, or its schema is
    /// newer than this program.
    pub async fn open_database(url: &str, clock: Arc<dyn Clock>) -> Result<Self, SqlError> {
        Self::open_with(url, clock, Options::default()).await
    }

    /// Opens a database like [`Sql::open_database`], with other options.
    pub async fn open_with(
        url: &str,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, SqlError> {
        match Address::parse(url)? {
            Address::File(path) => {
                let store = Arc::new(sqlite::Sqlite::open_file(path, clock, options).await?);
                Ok(Self {
                    objects: store.clone(),
                    records: store,
                })
            }
            Address::Server => {
                let store = Arc::new(postgres::Postgres::connect(url, clock, options).await?);
                Ok(Self {
                    objects: store.clone(),
                    records: store,
                })
            }
        }
    }

    /// Returns the store of immutable bytes in this database.
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::clone(&self.objects)
    }

    /// Returns the store of JSON documents in this database.
    pub fn records(&self) -> Arc<dyn Records> {
        Arc::clone(&self.records)
    }

    /// Checks that the database answers.
    pub async fn check_health(&self) -> Result<(), StoreError> {
        self.records.check_health().await
    }

    /// Deletes up to `limit` expired records, which are invisible already, and returns their
    /// number.
    pub async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.records.sweep_expired(limit).await
    }
}

/// The kind of database that an address names.
#[derive(Debug, Eq, PartialEq)]
enum Address {
    File(PathBuf),
    Server,
}

impl Address {
    fn parse(url: &str) -> Result<Self, SqlError> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Server);
        }
        let path = match url.split_once(':') {
            // Other programs write `sqlite://path`, so both forms are accepted.
            Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            // `C:\vault.db` is a path, `mysql://host` is not.
            Some((_, rest)) if rest.starts_with("//") => {
                return Err(SqlError::Address(
                    "it must be the path of a file, or begin with postgres://",
                ));
            }
            _ => url,
        };
        match path {
            "" => Err(SqlError::Address("it names no file")),
            ":memory:" => Err(SqlError::Address(
                "a database in memory would be lost with the process",
            )),
            path => Ok(Self::File(path.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_small_and_keep_the_order() {
        let sizes = |items: Vec<usize>| {
            let chunks = split_by_work(items.clone(), |size| *size);
            assert_eq!(chunks.concat(), items);
            chunks.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes(vec![1; 250]), [100, 100, 50]);
        assert_eq!(sizes(vec![CHUNK.bytes / 2; 5]), [2, 2, 1]);
        assert_eq!(sizes(vec![1, CHUNK.bytes + 1, 1, 1]), [1, 1, 2]);
    }

    #[test]
    fn an_address_names_a_file_or_a_server() {
        let cases = [
            (
                "./data/vault.db",
                Some(Address::File("./data/vault.db".into())),
            ),
            ("/srv/v:1.db", Some(Address::File("/srv/v:1.db".into()))),
            ("C:\\vault.db", Some(Address::File("C:\\vault.db".into()))),
            ("sqlite:vault.db", Some(Address::File("vault.db".into()))),
            (
                "sqlite:/srv/vault.db",
                Some(Address::File("/srv/vault.db".into())),
            ),
            (
                "sqlite:///srv/vault.db",
                Some(Address::File("/srv/vault.db".into())),
            ),
            ("sqlite://vault.db", Some(Address::File("vault.db".into()))),
            ("postgres://u@h/db", Some(Address::Server)),
            ("postgresql://h", Some(Address::Server)),
            ("", None),
            ("sqlite:", None),
            ("sqlite::memory:", None),
            (":memory:", None),
            ("mysql://h/db", None),
            ("file:///srv/vault.db", None),
        ];
        for (url, expected) in cases {
            assert_eq!(Address::parse(url).ok(), expected, "{url}");
        }
    }
}
