//! PostgreSQL that goes away, hangs, or hides behind TLS.
//!
//! `tests/tls` holds an authority, a certificate of it for this machine, and another authority:
//! made for these tests, good for nothing else, valid until 2126.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vault_testing::assert_matches;

use support::{add, counted, names, open, sum};
use tokio::time::Instant;
use tokio_postgres::NoTls;
use vault_sql::{Sql, SqlError};
use vault_store::StoreError;
use vault_store::clock::SystemClock;
use vault_store::records::{RecordKey, Records};
use vault_testing::postgres;
use vault_testing::postgres::Cluster;
use vault_testing::servers::or_say_why;

/// Commits until told to stop; answers the names that were acknowledged.
async fn commit_all_along(
    records: Arc<dyn Records>,
    writer: u32,
    stop: Arc<AtomicBool>,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("{writer}-{n}");
        match records.commit_writes(counted(&name, 1_000_000)).await {
            Ok(commit) => {
                assert!(commit.is_done(), "{commit:?}");
                acknowledged.push(name);
            }
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("only unavailable in the gap, not {other:?}"),
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_only_unavailable_and_loses_nothing() {
    let Some(cluster) = or_say_why(Cluster::start()) else {
        return;
    };
    let database = cluster.database().unwrap();
    let sql = open(&database.url()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        writers.spawn(commit_all_along(sql.records(), writer, Arc::clone(&stop)));
    }
    for _ in 0..3 {
        let before = sum(&sql).await;
        while sum(&sql).await < before + 20 {
            tokio::task::yield_now().await;
        }
        cluster.crash().unwrap();
        let down = sql
            .records()
            .get_one(&RecordKey::new("sums", "items"))
            .await;
        assert!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
        cluster.restart().unwrap();
        sql.check_health()
            .await
            .expect("the first request after the restart is served");
    }
    stop.store(true, Ordering::SeqCst);
    let acknowledged: Vec<String> = writers.join_all().await.into_iter().flatten().collect();
    let there = names(&sql).await;
    assert_eq!(
        acknowledged
            .iter()
            .find(|name| there.binary_search(name).is_err()),
        None,
        "an acknowledged write"
    );
    assert!(acknowledged.len() >= 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_no_transaction_behind() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    let sql = open(&database.url()).await;
    for n in 0..200_u64 {
        let (records, name) = (sql.records(), format!("{n:03}"));
        // Cut off at every stage of the commit, from before it was sent until after it was done.
        let _ = tokio::time::timeout(
            Duration::from_micros(n * 20),
            records.commit_writes(counted(&name, 1000)),
        )
        .await;
    }
    // The server may still finish what was cut off: this one waits for all of it.
    let last = sql
        .records()
        .commit_writes(counted("last", 1000))
        .await
        .unwrap();
    assert!(last.is_done());
    let before = names(&sql).await.len();
    for n in 200..220 {
        add(&sql, &n.to_string()).await;
    }
    let after = names(&open(&database.url()).await).await.len();
    assert_eq!(
        after,
        before + 20,
        "what was cut off stayed out, what was acknowledged stayed in"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_holds_is_a_conflict_after_two_seconds() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    let sql = open(&database.url()).await;
    add(&sql, "a").await;
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    client
        .batch_execute("begin; select * from records for update")
        .await
        .unwrap();
    let since = Instant::now();
    let answer = sql.records().commit_writes(counted("b", 9)).await;
    assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?}");
    // At least: a busy machine only makes it longer.
    assert!(since.elapsed() >= Duration::from_millis(1500));
    client.batch_execute("rollback").await.unwrap();
    add(&sql, "b").await;
    assert_eq!(names(&sql).await, ["a", "b"]);
    connection.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_where_asked_for_and_only_with_a_good_certificate() {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let [certificate, key] =
        ["server.pem", "server.key"].map(|name| std::fs::read(format!("{files}/{name}")).unwrap());
    let Some(cluster) = or_say_why(Cluster::start_with_tls(&certificate, &key)) else {
        return;
    };
    let database = cluster.database().unwrap();
    let open = async |query: String| {
        Sql::open_database(
            &format!("{}?{query}", database.url()),
            Arc::new(SystemClock),
        )
        .await
    };
    let good = format!("sslmode=require&sslrootcert={files}/ca.pem");
    open(good.clone())
        .await
        .expect("a certificate of the named authority")
        .check_health()
        .await
        .unwrap();
    open(good.replace("require", "verify-full"))
        .await
        .expect("the same, in libpq's words");
    let refused = [
        "sslmode=disable".to_owned(),
        "sslmode=require".to_owned(),
        format!("sslmode=require&sslrootcert={files}/other.pem"),
    ];
    for query in refused {
        let error = open(query.clone()).await.err();
        assert_matches!(
            error,
            Some(SqlError::Open(_) | SqlError::Certificates(_)),
            "{query}"
        );
    }
    for file in ["none.pem", "server.key"] {
        let error = open(format!("sslmode=require&sslrootcert={files}/{file}"))
            .await
            .err();
        assert_matches!(error, Some(SqlError::Certificates(_)), "{file}");
    }
}
