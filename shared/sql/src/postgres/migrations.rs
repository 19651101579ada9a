//! The PostgreSQL schema: one script for each version, forward only.

use super::connect::BEGIN;
use super::lease::{Connections, Failure, Lease};
use crate::SqlError;
use crate::error::next_migration;

/// The scripts in order. A released script is never edited.
const MIGRATIONS: [&str; 2] = [
    include_str!("../schema/postgres_1.sql"),
    include_str!("../schema/postgres_2.sql"),
];

/// Takes a lock that makes services which start at the same moment migrate one after the other. Its
/// number is arbitrary.
const LOCK: &str =
    "set local lock_timeout = 60000; select pg_advisory_xact_lock(8603182236524379745)";

/// Migrates the schema in one transaction. Fails if it is newer than this program.
pub async fn run_migrations(connections: &Connections) -> Result<(), SqlError> {
    let lease = connections
        .lease_connection(false)
        .await
        .map_err(SqlError::from_source)?;
    migrate_locked(&lease).await?;
    lease.give_back();
    Ok(())
}

async fn migrate_locked(lease: &Lease) -> Result<(), SqlError> {
    let failed = |failure: Failure| SqlError::from_source(vault_store::StoreError::from(failure));
    // Take the lock before reading the version: two services would otherwise both run the same
    // script.
    lease.run_batch(BEGIN).await.map_err(failed)?;
    lease.run_batch(LOCK).await.map_err(failed)?;
    let table = "create table if not exists vault_schema (
        only_row integer primary key check (only_row = 1), version bigint not null
    )";
    lease.run_batch(table).await.map_err(failed)?;
    let select_version = lease
        .prepare_statement("select version from vault_schema where only_row = 1")
        .await
        .map_err(failed)?;
    let rows = lease
        .query_prepared(&select_version, &[])
        .await
        .map_err(failed)?;
    let schema_version = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    let next = next_migration(schema_version, MIGRATIONS.len())?;
    for script in &MIGRATIONS[next..] {
        lease.run_batch(script).await.map_err(failed)?;
    }
    let known = MIGRATIONS.len();
    let save_version = format!(
        "insert into vault_schema values (1, {known}) on conflict (only_row) do update set version = {known}"
    );
    lease.run_batch(&save_version).await.map_err(failed)?;
    lease.run_batch("commit").await.map_err(failed)
}
