//! Errors of opening a database.

use vault_store::StoreError;

/// The error of [`crate::Sql::open_database`]. No text repeats the address, which may contain a
/// password.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The address names neither a file nor a PostgreSQL server, or has an unusable option; the
    /// value says what is wrong with it.
    #[error("the database address is not usable: {0}")]
    Address(&'static str),
    /// The address begins with `postgres://`, but the PostgreSQL client cannot parse it.
    #[error("the PostgreSQL address is not usable")]
    ServerAddress(#[source] tokio_postgres::Error),
    /// The certificates for the connection to PostgreSQL cannot be used.
    #[error("the certificates for PostgreSQL are not usable: {0}")]
    Certificates(String),
    /// A newer program has migrated the database. An older program does not know the rules of the
    /// newer schema and could break them.
    #[error(
        "the database has schema {found}, this program knows up to {known}: use the newer version of vault"
    )]
    NewerSchema {
        /// The version in the database.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The database does not answer, or rejects a step of opening it.
    #[error("the database cannot be opened")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SqlError {
    pub(crate) fn from_source(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Open(source.into())
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::from_source(error)
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::from_source(error)
    }
}

/// Returns the index of the first migration to run, for a database with schema version `found` and
/// a program with `known` migrations. Fails if the database is newer.
pub(crate) fn next_migration(found: i64, known: usize) -> Result<usize, SqlError> {
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

/// Creates the error for a task or thread of this crate that has ended early: it panicked, or the
/// runtime is shutting down.
pub(crate) fn worker_gone() -> StoreError {
    StoreError::unavailable("the store's worker has ended")
}
