//! Several processes on one database: races, foreign locks, sudden death.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod process;
mod support;

use std::time::Duration;
use vault_testing::assert_matches;

use process::{Process, say, task, wait};
use support::{add, counted, names, open};
use tempfile::TempDir;
use tokio::time::Instant;
use vault_sql::{Options, Sql};
use vault_store::StoreError;
use vault_store::clock::SystemClock;
use vault_store::records::{Commit, RecordKey};
use vault_testing::postgres;
use vault_testing::servers::or_say_why;

/// What this program does when one of its tests has started it; otherwise nothing.
#[test]
fn child() {
    let Some((name, rest)) = task() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        match name.as_str() {
            "enrol" => enrol(&rest).await,
            "write" => write_until_killed(&rest).await,
            "hold" => hold(&rest),
            "fill" => fill(&rest).await,
            other => panic!("no task {other}"),
        }
    });
}

fn folder() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("vault.db").display());
    (folder, url)
}

/// Twenty-five enrolments at once, when the parent says so; the first word of `rest` names this
/// process.
async fn enrol(rest: &str) {
    let (name, url) = rest.split_once(' ').unwrap();
    let sql = open(url).await;
    say("ready");
    wait();
    let won = enrol_at_once(&sql, (0..25).map(|n| format!("{name}{n:02}")).collect(), 20).await;
    say(&won.len().to_string());
}

/// Commits [`counted`] for each name at once; answers the names that the store acknowledged.
async fn enrol_at_once(sql: &Sql, names: Vec<String>, max: i64) -> Vec<String> {
    let mut racers = tokio::task::JoinSet::new();
    for name in names {
        let records = sql.records();
        racers.spawn(async move {
            match records
                .commit_writes(counted(&name, max))
                .await
                .expect("it answers")
            {
                Commit::Done(_) => Some(name),
                Commit::Failed { index, .. } => {
                    assert_eq!(index, 1, "the place was taken, not the name");
                    None
                }
            }
        });
    }
    racers.join_all().await.into_iter().flatten().collect()
}

async fn fifty_enrolments_in_two_processes(url: &str) {
    let sql = open(url).await;
    let mut processes = ["a", "b"].map(|name| Process::start(&format!("enrol {name} {url}"), ""));
    for process in &mut processes {
        assert_eq!(process.hear().as_deref(), Some("ready"));
    }
    processes.iter_mut().for_each(Process::go);
    let won = processes
        .iter_mut()
        .map(|process| process.hear().unwrap().parse::<usize>().unwrap());
    assert_eq!(won.sum::<usize>(), 20);
    assert!(processes.into_iter().all(Process::ended_well));
    assert_eq!(names(&sql).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_fill_twenty_places_in_sqlite() {
    for _ in 0..3 {
        let (_folder, url) = folder();
        fifty_enrolments_in_two_processes(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_fill_twenty_places_in_postgres() {
    for _ in 0..3 {
        let Some(database) = or_say_why(postgres::database()) else {
            return;
        };
        fifty_enrolments_in_two_processes(&database.url()).await;
    }
}

/// Commits from eight tasks for ever and says each name that was acknowledged.
async fn write_until_killed(rest: &str) {
    let (round, url) = rest.split_once(' ').unwrap();
    let sql = open(url).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (records, round) = (sql.records(), round.to_owned());
        writers.spawn(async move {
            for n in 0.. {
                let name = format!("{round}-{writer}-{n}");
                let commit = records
                    .commit_writes(counted(&name, 1_000_000))
                    .await
                    .unwrap();
                assert!(commit.is_done());
                say(&name);
            }
        });
    }
    writers.join_all().await;
}

async fn what_was_acknowledged_survives_a_kill(url: &str) {
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let mut process = Process::start(&format!("write {round} {url}"), "");
        for _ in 0..50 + 40 * round {
            acknowledged.push(process.hear().expect("it goes on until killed"));
        }
        process.kill();
        acknowledged.extend(std::iter::from_fn(|| process.hear()));
        let sql = open(url).await;
        // The database may still finish what it had received: this one waits for it.
        let last = counted(&format!("last-{round}"), 9999);
        assert!(sql.records().commit_writes(last).await.unwrap().is_done());
        let there = names(&sql).await;
        let lost = acknowledged
            .iter()
            .find(|name| there.binary_search(name).is_err());
        assert_eq!(lost, None, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill_with_sqlite() {
    let (_folder, url) = folder();
    what_was_acknowledged_survives_a_kill(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill_with_postgres() {
    let Some(database) = or_say_why(postgres::database()) else {
        return;
    };
    what_was_acknowledged_survives_a_kill(&database.url()).await;
}

/// Holds the write lock of an SQLite file until the parent says so.
fn hold(path: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch("begin immediate").unwrap();
    say("held");
    wait();
    connection.execute_batch("rollback").unwrap();
    say("free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_is_waited_for() {
    let (folder, url) = folder();
    let sql = open(&url).await;
    for (n, held_for) in [100, 1000].into_iter().enumerate() {
        let mut holder = Process::start(
            &format!("hold {}", folder.path().join("vault.db").display()),
            "",
        );
        assert_eq!(holder.hear().as_deref(), Some("held"));
        let records = sql.records();
        let waiting =
            tokio::spawn(async move { records.commit_writes(counted(&n.to_string(), 9)).await });
        // The lock is held by another process in real time: this is what the test is about.
        tokio::time::sleep(Duration::from_millis(held_for)).await;
        assert!(
            !waiting.is_finished(),
            "nobody can write while the lock is held"
        );
        assert_eq!(names(&sql).await.len(), n, "readers do not wait");
        holder.go();
        assert!(waiting.await.unwrap().unwrap().is_done());
        assert!(holder.ended_well());
    }
    assert_eq!(names(&sql).await, ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_held_too_long_ends_in_unavailable() {
    let (folder, url) = folder();
    let clock = std::sync::Arc::new(SystemClock);
    let patience = Duration::from_millis(600);
    let sql = Sql::open_with(&url, clock, Options { patience })
        .await
        .unwrap();
    let mut holder = Process::start(
        &format!("hold {}", folder.path().join("vault.db").display()),
        "",
    );
    assert_eq!(holder.hear().as_deref(), Some("held"));
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..20 {
        let records = sql.records();
        racers.spawn(async move {
            // They come one after the other while the first is waiting already; each has its own
            // patience.
            tokio::time::sleep(Duration::from_millis(20 * n)).await;
            let since = Instant::now();
            (
                records.commit_writes(counted(&n.to_string(), 99)).await,
                since.elapsed(),
            )
        });
    }
    for (answer, waited) in racers.join_all().await {
        assert_matches!(answer, Err(StoreError::Unavailable(_)));
        // At least: a busy machine only makes it longer.
        assert!(
            waited >= patience.checked_sub(Duration::from_millis(10)).unwrap(),
            "given up after {waited:?}"
        );
    }
    holder.go();
    assert_eq!(holder.hear().as_deref(), Some("free"));
    assert_eq!(
        names(&sql).await,
        Vec::<String>::new(),
        "unavailable left nothing behind"
    );
    add(&sql, "after").await;
    assert!(holder.ended_well());
}

/// Commits documents of 32 KiB until the file may grow no more; says what was acknowledged, then
/// how it failed.
async fn fill(url: &str) {
    let sql = open(url).await;
    let records = sql.records();
    for n in 0..1000 {
        let name = format!("{n:04}");
        let mut writes = counted(&name, 1000);
        let big = serde_json::json!({ "padding": "x".repeat(32 * 1024) });
        let document = vault_store::records::Document::from_value(&big).unwrap();
        let key = RecordKey::new("padding", &name);
        writes.push(vault_store::records::Write::put(
            key,
            document,
            vault_store::records::When::Any,
        ));
        match records.commit_writes(writes).await {
            Ok(Commit::Done(_)) => say(&name),
            Err(StoreError::Unavailable(_)) => {
                let there = names(&sql).await.len();
                say(&format!("full after {there}"));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_unavailable_and_loses_nothing() {
    let (_folder, url) = folder();
    // No file may grow beyond 2 MiB; without the trap the kernel would end the process instead of
    // refusing.
    let mut process = Process::start(&format!("fill {url}"), "trap '' XFSZ; ulimit -f 4096");
    let mut words: Vec<String> = std::iter::from_fn(|| process.hear()).collect();
    assert!(process.ended_well());
    let last = words.pop().unwrap();
    assert!(words.len() > 10, "{words:?}");
    assert_eq!(
        last,
        format!("full after {}", words.len()),
        "readers go on, and see what was acknowledged"
    );
    let sql = open(&url).await;
    assert_eq!(names(&sql).await, words);
    add(&sql, "after").await;
}
