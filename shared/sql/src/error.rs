//! Why a database could not be opened.

use vault_store::StoreError;

/// Why [`crate::Sql::open`] failed. None of the texts repeats the address: it may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The address cannot be read.
    #[error("the database address is not usable: {0}")]
    Address(&'static str),
    /// The address of a server cannot be read.
    #[error("the PostgreSQL address is not usable")]
    ServerAddress(#[source] tokio_postgres::Error),
    /// The certificates for the connection to PostgreSQL cannot be used.
    #[error("the certificates for PostgreSQL are not usable: {0}")]
    Certificates(String),
    /// A newer program has been here. An older one would not keep what the newer one relies on.
    #[error(
        "the database has schema {found}, this program knows up to {known}: use the newer version of vault"
    )]
    NewerSchema {
        /// The version in the database.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The database does not answer, or refuses what opening needs.
    #[error("the database cannot be opened")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SqlError {
    pub(crate) fn open(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Open(source.into())
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::open(error)
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::open(error)
    }
}

/// What a schema version in the database means for a program that knows `known` of them: which to
/// run next.
pub(crate) fn pending(found: i64, known: usize) -> Result<usize, SqlError> {
    let newer = || SqlError::NewerSchema {
        found,
        known: i64::try_from(known).unwrap_or(i64::MAX),
    };
    let found = usize::try_from(found).map_err(|_| newer())?;
    if found > known {
        Err(newer())
    } else {
        Ok(found)
    }
}

/// A task or thread of our own that did the work is gone: only when it panicked or the runtime is
/// being shut down.
pub(crate) fn worker_gone() -> StoreError {
    StoreError::unavailable("the store's worker has ended")
}
