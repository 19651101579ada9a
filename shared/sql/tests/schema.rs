//! What opening does: the schema, the file, the address.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

use std::sync::Arc;

use serde_json::json;
use tokio_postgres::NoTls;
use vault_sql::{Sql, SqlError};
use vault_store::clock::SystemClock;
use vault_store::records::{Document, RecordKey, When, Write};
use vault_testing::postgres;
use vault_testing::servers::or_say_why;

async fn open(url: &str) -> Result<Sql, SqlError> {
    Sql::open_database(url, Arc::new(SystemClock)).await
}

async fn put(sql: &Sql, name: &str) {
    let document = Document::from_value(&json!({ "name": name })).unwrap();
    let write = Write::put(RecordKey::new("p", name), document, When::Absent);
    assert!(
        sql.records()
            .commit_writes(vec![write])
            .await
            .unwrap()
            .is_done()
    );
}

async fn count(sql: &Sql) -> usize {
    sql.records()
        .list_page("p", "", None, 1000)
        .await
        .unwrap()
        .len()
}

/// Eight openings of a new database at once, then one of an old one: all see one database.
async fn opens_again_and_at_once(url: &str) {
    let mut opening = tokio::task::JoinSet::new();
    for n in 0..8 {
        let url = url.to_owned();
        opening.spawn(async move { put(&open(&url).await.unwrap(), &n.to_string()).await });
    }
    opening.join_all().await;
    assert_eq!(count(&open(url).await.unwrap()).await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_opens_again_and_at_once() {
    let folder = tempfile::tempdir().unwrap();
    opens_again_and_at_once(&folder.path().join("a/b/vault.db").display().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_opens_again_and_at_once() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    opens_again_and_at_once(&database.url()).await;
}

fn assert_newer(opened: Result<Sql, SqlError>, known: u32) {
    let error = opened.err().expect("a newer schema is refused");
    let text = format!(
        "the database has schema 99, this program knows up to {known}: use the newer version of vault"
    );
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vault.db");
    let url = format!("sqlite:{}", path.display());
    put(&open(&url).await.unwrap(), "kept").await;
    let set = |version: i64| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute("update vault_schema set version = ?1", [version])
            .unwrap();
    };
    set(99);
    assert_newer(open(&url).await, 1);
    set(1);
    assert_eq!(
        count(&open(&url).await.unwrap()).await,
        1,
        "refusing changed nothing"
    );
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_postgres() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    put(&open(&database.url()).await.unwrap(), "kept").await;
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    client
        .batch_execute("update vault_schema set version = 99")
        .await
        .unwrap();
    assert_newer(open(&database.url()).await, 2);
    client
        .batch_execute("update vault_schema set version = 2")
        .await
        .unwrap();
    assert_eq!(
        count(&open(&database.url()).await.unwrap()).await,
        1,
        "refusing changed nothing"
    );
    connection.abort();
}

#[tokio::test]
async fn the_file_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let sql = open(&folder.path().join("vault.db").display().to_string())
        .await
        .unwrap();
    put(&sql, "a").await;
    for name in ["vault.db", "vault.db-wal", "vault.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_closed_file_is_whole_without_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vault.db").display().to_string();
    let sql = open(&path).await.unwrap();
    put(&sql, "a").await;
    drop(sql);
    let files = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = files.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["vault.db"]);
}

#[tokio::test]
async fn what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vault.db");
    std::fs::write(
        &path,
        "a text that is no database at all, and long enough to have a header".repeat(20),
    )
    .unwrap();
    let opened = open(&path.display().to_string()).await;
    assert!(matches!(opened.err(), Some(SqlError::Open(_))));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("a text that is no database"),
        "it was left alone"
    );
    for url in [
        "postgres://user:secret@127.0.0.1:1/d",
        "postgres://user:secret@[::1/d",
    ] {
        let error = open(url).await.err().expect("nobody listens there");
        let chain = format!("{error} {error:?}");
        assert!(!chain.contains("secret"), "{chain}");
    }
}

#[tokio::test]
async fn an_operator_can_ask_postgres_in_sql() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    let sql = open(&database.url()).await.unwrap();
    let record = |partition: &str, key: &str, value| {
        let key = RecordKey::new(partition, key);
        Write::put(key, Document::from_value(&value).unwrap(), When::Absent)
    };
    let writes = vec![
        record("ns/acme", "ns", json!({"status": "active"})),
        record("ns/acme", "queue", json!({"pending": 1})),
        record(
            "dev/acme",
            "key",
            json!({"status": "pending", "text": "\"\\ \u{1}"}),
        ),
        record("devid/acme", "dev_x", json!({"key": "key"})),
        record("rel/01J", "0000000000000042", json!({"by": "ada"})),
        record(
            "acct/acc_1",
            "account",
            json!({
                "email": "ada@example.org", "operator": true, "password": "$argon2id$x",
                "proofs": [{"kind": "password", "hash": "$argon2id$x"}], "second_factor": {"secret": "GEZD"},
            }),
        ),
        record("acct/acc_1", "ns/acme", json!({})),
        record("user/01J", "usr_1", json!({"role": "role:owner"})),
        record("client/cli_1", "client", json!({"name": "c"})),
        record("grant/01J", "cli_1/g", json!({"scopes": []})),
        record("audit/01J", "a1", json!({"action": "publish"})),
    ];
    assert!(sql.records().commit_writes(writes).await.unwrap().is_done());
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let questions = [
        ("select count(*)::text from documents", "11"),
        (
            "select string_agg(distinct kind, ' ' order by kind) from documents",
            "acct audit client dev devid grant ns rel user",
        ),
        (
            "select slug || ' ' || (document->>'status') from namespaces",
            "acme active",
        ),
        (
            "select slug || ' ' || public_key || ' ' || (document->>'status') from devices",
            "acme key pending",
        ),
        (
            "select namespace_id || ' ' || release from releases",
            "01J 42",
        ),
        (
            "select account_id || ' ' || email || ' ' || document::text from accounts",
            "acc_1 ada@example.org {\"email\": \"ada@example.org\", \"operator\": true}",
        ),
        (
            "select namespace_id || ' ' || user_id from users",
            "01J usr_1",
        ),
        (
            "select client_id || ' ' || (document->>'name') from clients",
            "cli_1 c",
        ),
        (
            "select namespace_id || ' ' || key from grants",
            "01J cli_1/g",
        ),
        ("select namespace_id || ' ' || id from audit", "01J a1"),
    ];
    for (question, expected) in questions {
        let rows = client.query(question, &[]).await.unwrap();
        let answers: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(answers, [expected], "{question}");
    }
    connection.abort();
}
