//! Leases of pooled connections (a lease is the exclusive use of one), and the classification of
//! their errors.
//!
//! A connection returns to the pool only after every statement on it succeeded. In every other
//! case, also if the caller is cancelled, it is closed and the server rolls back the open
//! transaction. So no caller inherits the transaction of another one.

use std::future::Future;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use vault_store::StoreError;

/// Maximum time of one attempt. A slower server is treated as not answering.
const LIMIT: Duration = Duration::from_secs(10);

/// Values for a statement's parameters.
pub type Values<'a> = [&'a (dyn ToSql + Sync)];

pub struct Connections(Pool);

impl Connections {
    pub fn new(pool: Pool) -> Self {
        Self(pool)
    }

    /// Leases a connection. `fresh` closes all idle ones first: after a restart of the server all
    /// of them are dead, and each would have to be tried.
    pub async fn lease_connection(&self, fresh: bool) -> Result<Lease, StoreError> {
        if fresh {
            self.0.retain(|_, _| false);
        }
        Ok(Lease(Some(
            self.0.get().await.map_err(StoreError::unavailable)?,
        )))
    }

    /// Runs one statement that may be repeated. It is repeated once if the connection turns out to
    /// be dead.
    pub async fn query_once(
        &self,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let (rows, lease) = self.query_leased(statement, values).await?;
        lease.give_back();
        Ok(rows)
    }

    /// Runs one statement like [`Connections::query_once`], and always closes the connection
    /// afterwards. Meant for values of more than a megabyte: an open connection holds on to memory
    /// of twice the size of the largest message that it ever sent.
    pub async fn query_and_close(
        &self,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let (rows, _closed) = self.query_leased(statement, values).await?;
        Ok(rows)
    }

    /// Runs one statement and returns the lease on which it succeeded.
    async fn query_leased(
        &self,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<(Vec<Row>, Lease), StoreError> {
        let mut fresh = false;
        loop {
            let lease = self.lease_connection(fresh).await?;
            match lease
                .run_bounded(lease.run_statement(statement, values))
                .await
            {
                Ok(rows) => return Ok((rows, lease)),
                // Retry only once: if a new connection is dead too, the server is down.
                Err(failure) if failure.is_dead() && !fresh => fresh = true,
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}

#[cfg(test)]
impl Connections {
    /// The number of open connections that nobody uses.
    pub fn idle_count(&self) -> usize {
        self.0.status().available
    }
}

/// A leased connection. Dropping the lease closes it; [`Lease::give_back`] keeps it.
pub struct Lease(Option<Object>);

impl Lease {
    /// Returns the connection to the pool. No transaction may be open on it.
    pub fn give_back(mut self) {
        self.0 = None; // dropping an `Object` returns it
    }

    /// Prepares a statement, once for each connection.
    pub async fn prepare_statement(&self, statement: &str) -> Result<Statement, Failure> {
        Ok(self.client_object().prepare_cached(statement).await?)
    }

    pub async fn query_prepared(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, Failure> {
        Ok(self.client_object().query(statement, values).await?)
    }

    async fn run_statement(
        &self,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let statement = self.prepare_statement(statement).await?;
        self.query_prepared(&statement, values).await
    }

    /// Runs statements that have no values and no results.
    pub async fn run_batch(&self, statements: &str) -> Result<(), Failure> {
        Ok(self.client_object().batch_execute(statements).await?)
    }

    /// Runs an attempt and ends it if the server takes too long.
    pub async fn run_bounded<T>(
        &self,
        attempt: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::time::timeout(LIMIT, attempt)
            .await
            .map_err(|_| Failure::Slow)?
    }

    fn client_object(&self) -> &Object {
        self.0
            .as_ref()
            .expect("the connection is there until the lease ends")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            // `Object::take` removes the connection from the pool, so dropping it closes it.
            // Dropping the `Object` itself would return it.
            drop(Object::take(connection));
        }
    }
}

/// The failure of one attempt, by whether its commit may have happened.
#[derive(Debug)]
pub enum Failure {
    /// The attempt failed before the commit was sent, so nothing was changed.
    Early(tokio_postgres::Error),
    /// The attempt failed after the commit was sent, so the commit may have happened.
    Late(tokio_postgres::Error),
    /// The server took too long. The commit may have happened.
    Slow,
}

impl Failure {
    /// Marks the failure as one that happened after the commit was sent.
    pub fn at_commit(self) -> Self {
        match self {
            Self::Early(error) => Self::Late(error),
            other => other,
        }
    }

    /// Returns whether the connection died before a commit was sent, so that the attempt can be
    /// repeated on another connection.
    pub fn is_dead(&self) -> bool {
        let Self::Early(error) = self else {
            return false;
        };
        match error.code() {
            Some(code) => {
                // These codes mean that the server ended the session. Class 08 are connection
                // exceptions.
                let ends = [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                ];
                code.code().starts_with("08") || ends.contains(code)
            }
            None => error.is_closed() || is_io(error),
        }
    }

    /// Returns whether another writer interfered. The transaction was rolled back and may be
    /// repeated.
    pub fn is_conflict(&self) -> bool {
        let (Self::Early(error) | Self::Late(error)) = self else {
            return false;
        };
        let conflicts = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        error.code().is_some_and(|code| conflicts.contains(code))
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Early(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        if failure.is_conflict() {
            return Self::Conflict;
        }
        let (Failure::Early(error) | Failure::Late(error)) = failure else {
            return Self::unavailable("PostgreSQL took too long");
        };
        let damaged = [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED];
        if error.code().is_some_and(|code| damaged.contains(code)) {
            return Self::Corrupt(error.to_string());
        }
        Self::unavailable(error)
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}
