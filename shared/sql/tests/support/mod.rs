//! A record and a counter in one commit, and whether they agree.

use std::sync::Arc;

use serde_json::{Value, json};
use vault_sql::Sql;
use vault_store::clock::SystemClock;
use vault_store::records::{Document, RecordKey, When, Write};

/// The database with the machine's clock.
pub async fn open(url: &str) -> Sql {
    Sql::open_database(url, Arc::new(SystemClock))
        .await
        .expect("the database opens")
}

/// A record named in the store and counted beside it, in one commit: either both or neither is
/// there.
pub fn counted(name: &str, max: i64) -> Vec<Write> {
    let document = Document::from_value(&json!({ "name": name })).expect("a small object");
    vec![
        Write::put(RecordKey::new("items", name), document, When::Absent),
        Write::count(RecordKey::new("sums", "items"), "n", 1, max),
    ]
}

/// Commits [`counted`], which must succeed.
pub async fn add(sql: &Sql, name: &str) {
    let commit = sql.records().commit_writes(counted(name, 1_000_000)).await;
    assert!(commit.expect("it answers").is_done());
}

/// The names of all records that [`counted`] made; fails the test when the counter says another
/// number.
pub async fn names(sql: &Sql) -> Vec<String> {
    let records = sql.records();
    let (mut names, mut more) = (Vec::<String>::new(), true);
    while more {
        let page = records
            .list_page("items", "", names.last().map(String::as_str), 1000)
            .await
            .expect("it answers");
        more = page.len() == 1000;
        names.extend(page.into_iter().map(|record| record.key.key));
    }
    assert_eq!(sum(sql).await, names.len(), "half a commit");
    names
}

/// How many records [`counted`] made, by the counter beside them.
pub async fn sum(sql: &Sql) -> usize {
    let sum = sql
        .records()
        .get_one(&RecordKey::new("sums", "items"))
        .await
        .expect("it answers");
    let sum: Value = sum.map_or(json!({"n": 0}), |record| record.read().expect("it reads"));
    sum["n"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .expect("a counter")
}
