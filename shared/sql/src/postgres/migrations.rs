//! The PostgreSQL schema: one script for each version, forward only.

use super::connect::BEGIN;
use super::lease::{Connections, Failure, Lease};
use crate::SqlError;
use crate::error::pending;

/// The scripts in order. A released script is never edited.
const MIGRATIONS: [&str; 2] = [
    include_str!("../schema/postgres_1.sql"),
    include_str!("../schema/postgres_2.sql"),
];

/// Serialises the migrations of services that start at the same moment. The number is arbitrary.
const LOCK: &str =
    "set local lock_timeout = 60000; select pg_advisory_xact_lock(8603182236524379745)";

/// Migrates the schema in one transaction. Fails if it is newer than this program.
pub async fn run(connections: &Connections) -> Result<(), SqlError> {
    let lease = connections.lease(false).await.map_err(SqlError::open)?;
    migrate(&lease).await?;
    lease.give_back();
    Ok(())
}

async fn migrate(lease: &Lease) -> Result<(), SqlError> {
    let failed = |failure: Failure| SqlError::open(vault_store::StoreError::from(failure));
    // Take the lock before reading the version: two services would otherwise both run the same
    // script.
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
