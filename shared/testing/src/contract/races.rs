//! Clauses (rules, one test each) for [`Records`] under many concurrent callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{RecordsFixture, absent, any, commit_until_decided, key, number};
use vault_store::records::{Commit, RecordKey, Records, When, Write};

/// Starts all commits at the same time and returns their results, in order.
async fn at_once(store: &RecordsFixture, commits: Vec<Vec<Write>>) -> Vec<Commit> {
    let start = Arc::new(Barrier::new(commits.len()));
    let mut racers = JoinSet::new();
    for (index, writes) in commits.into_iter().enumerate() {
        let (records, start) = (Arc::clone(&store.records), Arc::clone(&start));
        racers.spawn(async move {
            start.wait().await;
            (index, commit_until_decided(&*records, &writes).await)
        });
    }
    let mut ended = racers.join_all().await;
    ended.sort_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, commit)| commit).collect()
}

fn the_winner(ended: &[Commit]) -> usize {
    let winners: Vec<usize> = (0..ended.len())
        .filter(|&index| ended[index].is_done())
        .collect();
    assert_eq!(winners.len(), 1, "{ended:?}");
    winners[0]
}

/// Of twenty concurrent put-if-absent of one key, one succeeds, and its document is stored.
pub async fn twenty_writers_of_one_key_have_one_winner(store: &RecordsFixture) {
    let commits = (0..20).map(|n| vec![absent("k", n)]).collect();
    let winner = the_winner(&at_once(store, commits).await);
    let read: Value = store
        .get(&key("k"))
        .await
        .expect("one wrote")
        .read()
        .expect("reads");
    assert_eq!(read, json!({ "n": winner }));
}

/// Of twenty writers with the same revision as their condition, one succeeds; the others find its
/// revision.
pub async fn twenty_writers_at_one_revision_have_one_winner(store: &RecordsFixture) {
    let revision = store.put(absent("k", 99)).await;
    let commits = (0..20)
        .map(|n| vec![Write::put(key("k"), number(n), When::At(revision))])
        .collect();
    let ended = at_once(store, commits).await;
    let winner = the_winner(&ended);
    let now = store.get(&key("k")).await.expect("it stays");
    assert_eq!(now.read::<Value>().expect("reads"), json!({ "n": winner }));
    for commit in ended {
        if let Commit::Failed { index, found } = commit {
            assert_eq!((index, found.as_ref()), (0, Some(&now)));
        }
    }
}

/// Of sixty concurrent enrolments for twenty places, exactly twenty succeed: each commits a device
/// and a counter together.
pub async fn sixty_enrolments_leave_twenty_pending(store: &RecordsFixture) {
    let enrol = |n: u64| {
        vec![
            Write::put(
                RecordKey::new("dev/acme", format!("key {n:02}")),
                number(n),
                When::Absent,
            ),
            Write::count(RecordKey::new("ns/acme", "queue"), "pending", 1, 20),
        ]
    };
    let ended = at_once(store, (0..60).map(enrol).collect()).await;
    assert_eq!(ended.iter().filter(|commit| commit.is_done()).count(), 20);
    for commit in &ended {
        assert!(
            commit.is_done()
                || matches!(
                    commit,
                    Commit::Failed {
                        index: 1,
                        found: Some(_)
                    }
                ),
            "{commit:?}"
        );
    }
    assert_eq!(store.keys("dev/acme", "", None, 1000).await.len(), 20);
    let queue = store
        .get(&RecordKey::new("ns/acme", "queue"))
        .await
        .expect("counted");
    assert_eq!(
        queue.read::<Value>().expect("reads"),
        json!({"pending": 20})
    );
}

/// Concurrent counts lose no step, also in records that do not exist yet.
pub async fn counters_lose_nothing(store: &RecordsFixture) {
    let commits = (0..60)
        .map(|n| {
            vec![
                Write::count(key("all"), "n", 1, 1000),
                Write::count(key(&format!("of {}", n % 3)), "n", 2, 1000),
            ]
        })
        .collect();
    let ended = at_once(store, commits).await;
    assert!(ended.iter().all(Commit::is_done), "{ended:?}");
    for (name, sum) in [("all", 60), ("of 0", 40), ("of 1", 40), ("of 2", 40)] {
        let counter = store.get(&key(name)).await.expect("counted");
        assert_eq!(
            counter.read::<Value>().expect("reads"),
            json!({ "n": sum }),
            "{name}"
        );
    }
}

/// A reader never sees two records apart that always change together. If one commit replaces a
/// record by another, a reader sees exactly one of the two.
pub async fn readers_never_see_half_a_commit(store: &RecordsFixture) {
    store
        .done([any("left", 0), any("right", 0), any("even", 0)])
        .await;
    let (done, readings) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let (records, done, readings) = (
            Arc::clone(&store.records),
            Arc::clone(&done),
            Arc::clone(&readings),
        );
        readers.spawn(async move {
            let keys = ["left", "right", "even", "odd", "left"].map(key);
            while !done.load(Ordering::SeqCst) {
                let read = records.get_many(&keys).await.expect("the store answers");
                let content = read
                    .iter()
                    .map(|found| found.as_ref().map(|r| r.document.as_str()));
                let content: Vec<Option<&str>> = content.collect();
                assert!(
                    content[0] == content[1] && content[0] == content[4],
                    "{content:?}"
                );
                assert!(content[2].is_some() != content[3].is_some(), "{content:?}");
                readings.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
    }
    // Go on until the readers have read often enough, but not for ever.
    let mut flips = 0;
    while flips < 10_000 && (flips < 100 || readings.load(Ordering::SeqCst) < 200) {
        flips += 1;
        let (now, before) = if flips % 2 == 0 {
            ("even", "odd")
        } else {
            ("odd", "even")
        };
        let gone = Write::delete(key(before), When::Any);
        store
            .done([
                any("left", flips),
                any(now, flips),
                gone,
                any("right", flips),
            ])
            .await;
    }
    done.store(true, Ordering::SeqCst);
    readers.join_all().await;
}

/// Commits that name the same keys in opposite order all end: none waits for another for ever.
pub async fn crossing_commits_both_end(store: &RecordsFixture) {
    let names: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let commits = (0..30)
        .map(|n| {
            let writes = names
                .iter()
                .map(|name| Write::count(key(name), "n", 1, 1000));
            if n % 2 == 0 {
                writes.collect()
            } else {
                writes.rev().collect()
            }
        })
        .collect();
    let ended = at_once(store, commits).await;
    assert!(ended.iter().all(Commit::is_done), "{ended:?}");
    for name in names {
        let counter = store.get(&key(&name)).await.expect("counted");
        assert_eq!(
            counter.read::<Value>().expect("reads"),
            json!({"n": 30}),
            "{name}"
        );
    }
}

/// The bound of what all callers of [`change_claimed`] claim together.
const CLAIMABLE: u64 = 100;

/// Changes how much is claimed, as an upload claims a part of a quota: reads the record and writes
/// it under that revision, together with a record of its own. Returns false if the bound would be
/// exceeded.
async fn change_claimed(records: &dyn Records, name: &str, change: impl Fn(u64) -> u64) -> bool {
    loop {
        let read = records.get_one(&key("claimed")).await;
        let (claimed, when) = match read.expect("the store answers") {
            Some(record) => {
                let value: Value = record.read().expect("reads");
                let claimed = value["n"].as_u64().expect("a number");
                (claimed, When::At(record.revision))
            }
            None => (0, When::Absent),
        };
        let after = change(claimed);
        if after > CLAIMABLE {
            return false;
        }
        let writes = [
            Write::put(key("claimed"), number(after), when),
            absent(name, after),
        ];
        if commit_until_decided(records, &writes).await.is_done() {
            return true;
        }
    }
}

/// Of twenty concurrent claims of 30, three fit into the bound. What some callers give back at the
/// same time becomes free for others, and no step is lost.
pub async fn claims_stay_within_their_bound(store: &RecordsFixture) {
    let claim = async |round: &'static str, by: i64| {
        let start = Arc::new(Barrier::new(20));
        let mut racers = JoinSet::new();
        for n in 0..20 {
            let (records, start) = (Arc::clone(&store.records), Arc::clone(&start));
            racers.spawn(async move {
                start.wait().await;
                let change = |claimed: u64| claimed.saturating_add_signed(by);
                change_claimed(&*records, &format!("{round} {n:02}"), change).await
            });
        }
        let passed = racers.join_all().await;
        passed.into_iter().filter(|passed| *passed).count()
    };
    let claimed = async || {
        let record = store.get(&key("claimed")).await.expect("claimed");
        record.read::<Value>().expect("reads")
    };
    assert_eq!(claim("claim", 30).await, 3);
    assert_eq!(claimed().await, json!({ "n": 90 }));
    assert_eq!(store.keys("p", "claim ", None, 1000).await.len(), 3);
    assert_eq!(claim("settle", -2).await, 20);
    assert_eq!(claimed().await, json!({ "n": 50 }));
    assert_eq!(claim("again", 25).await, 2);
    assert_eq!(claimed().await, json!({ "n": 100 }));
}
