//! SQLite keeps the contract of both data ports.

use std::sync::Arc;

use tempfile::TempDir;
use vault_sql::Sql;
use vault_testing::TestClock;
use vault_testing::contract::{ObjectsFixture, RecordsFixture};

/// A database in a folder of its own, its clock, and the folder.
async fn open() -> (Sql, Arc<TestClock>, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(TestClock::default());
    let url = format!("sqlite:{}", folder.path().join("data/vault.db").display());
    let sql = Sql::open_database(&url, clock.clone())
        .await
        .expect("a new database opens");
    (sql, clock, folder)
}

async fn objects_in_sqlite() -> Option<ObjectsFixture> {
    let (sql, _, folder) = open().await;
    Some(ObjectsFixture {
        objects: sql.objects(),
        keep: Box::new(folder),
    })
}

async fn records_in_sqlite() -> Option<RecordsFixture> {
    let (sql, clock, folder) = open().await;
    Some(RecordsFixture {
        records: sql.records(),
        clock,
        keep: Box::new(folder),
    })
}

mod objects {
    vault_testing::objects_contract!(super::objects_in_sqlite());
}

mod records {
    vault_testing::records_contract!(super::records_in_sqlite());
}
