//! PostgreSQL keeps the contract of both data ports.

use std::sync::Arc;

use vault_sql::Sql;
use vault_testing::TestClock;
use vault_testing::contract::{ObjectsFixture, RecordsFixture};
use vault_testing::postgres;
use vault_testing::postgres::Database;
use vault_testing::servers::or_say_why;

/// A database of its own and its clock, where this machine has PostgreSQL.
async fn open() -> Option<(Sql, Arc<TestClock>, Database)> {
    let database = or_say_why(postgres::database())?;
    let clock = Arc::new(TestClock::default());
    let sql = Sql::open_database(&database.url(), clock.clone())
        .await
        .expect("a new database opens");
    Some((sql, clock, database))
}

async fn objects_in_postgres() -> Option<ObjectsFixture> {
    let (sql, _, database) = open().await?;
    Some(ObjectsFixture {
        objects: sql.objects(),
        keep: Box::new(database),
    })
}

async fn records_in_postgres() -> Option<RecordsFixture> {
    let (sql, clock, database) = open().await?;
    Some(RecordsFixture {
        records: sql.records(),
        clock,
        keep: Box::new(database),
    })
}

mod objects {
    vault_testing::objects_contract!(super::objects_in_postgres());
}

mod records {
    vault_testing::records_contract!(super::records_in_postgres());
}
