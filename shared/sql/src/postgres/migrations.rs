//! The schema in PostgreSQL: one script a version, forward only.

use super::connect::BEGIN;
use super::lease::{Connections, Failure, Lease};
use crate::SqlError;
use crate::error::pending;

/// A script that was released is never edited.
const MIGRATIONS: [&str; 2] = [
    include_str!("../schema/postgres_1.sql"),
    include_str!("../schema/postgres_2.sql"),
];

/// Services that start at the same moment migrate one after the other.
const LOCK: &str =
    "set local lock_timeout = 60000; select pg_advisory_xact_lock(8603182236524379745)";

/// Brings the schema up to date, in one transaction. Fails when it is newer than this program.
pub async fn run(connections: &Connections) -> Result<(), SqlError> {
    let lease = connections.lease(false).await.map_err(SqlError::open)?;
    migrate(&lease).await?;
    lease.give_back();
    Ok(())
}

async fn migrate(lease: &Lease) -> Result<(), SqlError> {
    let failed = |failure: Failure| SqlError::open(vault_store::StoreError::from(failure));
    lease.batch(BEGIN).await.map_err(failed)?;
    lease.batch(LOCK).await.map_err(failed)?;
    let table = "create table if not exists vault_schema (
        only_row integer primary key check (only_row = 1), version bigint not null
    )";
    lease.batch(table).await.map_err(failed)?;
    let version = lease
        .prepare("select version from vault_schema where only_row = 1")
        .await
        .map_err(failed)?;
    let rows = lease.query(&version, &[]).await.map_err(failed)?;
    let found = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    let next = pending(found, MIGRATIONS.len())?;
    for script in &MIGRATIONS[next..] {
        lease.batch(script).await.map_err(failed)?;
    }
    let known = MIGRATIONS.len();
    let keep = format!(
        "insert into vault_schema values (1, {known}) on conflict (only_row) do update set version = {known}"
    );
    lease.batch(&keep).await.map_err(failed)?;
    lease.batch("commit").await.map_err(failed)
}
