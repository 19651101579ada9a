//! Tests the turns of namespaces at the writer without any measure of time: one request holds the
//! writer until all others have queued.

use std::pin::Pin;
use std::sync::mpsc;

use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use vault_format::time::Timestamp;
use vault_store::records::{Document, When};
use vault_testing::TestClock;

use super::*;

async fn open() -> (Arc<Sqlite>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vault.db");
    let clock = Arc::new(TestClock::default());
    let store = Sqlite::open_file(path, clock, Options::default()).await;
    (Arc::new(store.unwrap()), folder)
}

fn namespace(n: u128) -> NamespaceId {
    NamespaceId::from_parts(1_795_219_200_000, n)
}

/// Makes a pack (an upload of many objects) that shares no object with another.
fn pack(place: NamespaceId, number: usize, count: usize) -> Vec<(ObjectKey, Bytes)> {
    let objects = (0..count).map(|n| {
        let bytes = Bytes::from(format!("{number} {n}"));
        (ObjectKey::for_bytes(place, Class::Bundles, &bytes), bytes)
    });
    objects.collect()
}

/// Lets the writer serve a request of `place`, which ends when the returned sender is dropped.
async fn hold_writer(store: &Arc<Sqlite>, place: NamespaceId) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    let (begin, begun) = oneshot::channel();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let hold = move |_: &mut writer::Batch<'_>| {
            let _ = begin.send(());
            let _ = held.recv();
            Ok(())
        };
        let lane = Lane::Namespace(place);
        store.writer.enqueue(lane, row_work(1), hold).await.unwrap();
    });
    begun.await.unwrap();
    release
}

/// Polls once; returns whether the future waits.
async fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

/// Counts the objects of namespace `of` at the moment at which a write of `place` has its turn.
async fn count_at_turn(store: &Sqlite, place: NamespaceId, of: NamespaceId) -> i64 {
    let count = move |batch: &mut writer::Batch<'_>| batch.count_objects(&of);
    let lane = Lane::Namespace(place);
    store
        .writer
        .enqueue(lane, row_work(2), count)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_write_waits_for_at_most_one_commit_of_another_namespace() {
    let (store, _folder) = open().await;
    let (busy, quiet) = (namespace(1), namespace(2));
    let release = hold_writer(&store, busy).await;
    let mut packs = tokio::task::JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        packs.spawn(async move { store.put_many(pack(busy, number, 1000)).await });
    }
    // With one thread, each pack runs until its first chunk waits for the writer.
    for _ in 0..5000 {
        yield_now().await;
    }
    let mut counted = Box::pin(count_at_turn(&store, quiet, busy));
    assert!(is_waiting(&mut counted).await);
    drop(release);
    let before = counted.await;
    assert!(before <= 100, "{before} rows were written before");
    while let Some(stored) = packs.join_next().await {
        let stored = stored.unwrap().unwrap();
        assert!(stored.iter().all(|stored| *stored == Stored::New));
    }
    assert_eq!(count_at_turn(&store, quiet, busy).await, 20_000);
}

#[tokio::test]
async fn a_pack_whose_caller_leaves_is_stored_in_part_and_can_be_repeated() {
    let (store, _folder) = open().await;
    let place = namespace(1);
    let release = hold_writer(&store, namespace(2)).await;
    let pack = pack(place, 1, 1000);
    let mut putting = Box::pin(store.put_many(pack.clone()));
    assert!(is_waiting(&mut putting).await);
    drop(putting);
    drop(release);
    // The chunk that waited is not written, since its caller is gone.
    assert_eq!(count_at_turn(&store, place, place).await, 0);
    store.put_many(pack[..150].to_vec()).await.unwrap();
    let stored = store.put_many(pack.clone()).await.unwrap();
    let new = stored.iter().filter(|stored| **stored == Stored::New);
    assert_eq!((stored.len(), new.count()), (1000, 850));
}

#[tokio::test]
async fn a_full_lane_rejects_its_own_namespace_alone() {
    let (store, _folder) = open().await;
    let place = namespace(1);
    let release = hold_writer(&store, place).await;
    let record = |place: NamespaceId, name: usize| {
        let document = Document::from_value(&serde_json::json!({ "n": name })).unwrap();
        let key = RecordKey::new(format!("test/{place}"), name.to_string());
        vec![Write::put(key, document, When::Any)]
    };
    let mut writes = tokio::task::JoinSet::new();
    for name in 0..2050 {
        let store = Arc::clone(&store);
        writes.spawn(async move { store.commit_writes(record(place, name)).await });
    }
    for _ in 0..5000 {
        yield_now().await;
    }
    let other = Arc::clone(&store);
    let other = tokio::spawn(async move { other.commit_writes(record(namespace(2), 1)).await });
    yield_now().await;
    drop(release);
    assert!(other.await.unwrap().unwrap().is_done());
    let mut rejected = 0;
    while let Some(answer) = writes.join_next().await {
        match answer.unwrap() {
            Ok(commit) => assert!(commit.is_done()),
            Err(StoreError::Busy) => rejected += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(rejected, 2);
}

/// No request of a tenant or of an unknown caller fills the lane of background work.
#[tokio::test]
async fn background_work_has_its_turn_whatever_waits_for_others() {
    let (store, _folder) = open().await;
    let place = namespace(1);
    let object = pack(place, 1, 1).remove(0);
    store.put_many(vec![object.clone()]).await.unwrap();
    let write = |partition: &str, name: usize| {
        let document = Document::from_value(&serde_json::json!({ "n": name })).unwrap();
        let key = RecordKey::new(partition, name.to_string());
        vec![Write::put(key, document, When::Any)]
    };
    let release = hold_writer(&store, namespace(2)).await;
    let mut writes = tokio::task::JoinSet::new();
    for partition in [format!("test/{place}"), "acct/test".to_owned()] {
        for name in 0..2048 {
            let (store, write) = (Arc::clone(&store), write(&partition, name));
            writes.spawn(async move { store.commit_writes(write).await });
        }
    }
    for _ in 0..10_000 {
        yield_now().await;
    }
    // Each lane is full.
    for partition in [format!("test/{place}"), "acct/test".to_owned()] {
        let refused = store.commit_writes(write(&partition, 9_999)).await;
        assert!(matches!(refused, Err(StoreError::Busy)), "{partition}");
    }
    let mark = format!("doomed/{place}");
    let mut work = Box::pin(async {
        tokio::join!(
            store.delete_many(std::slice::from_ref(&object.0)),
            store.sweep_expired(10),
            store.commit_writes(write(&mark, 1)),
        )
    });
    assert!(is_waiting(&mut work).await);
    drop(release);
    let (deleted, swept, marked) = work.await;
    deleted.unwrap();
    assert_eq!(swept.unwrap(), 0);
    assert!(marked.unwrap().is_done());
    while let Some(written) = writes.join_next().await {
        assert!(written.unwrap().unwrap().is_done());
    }
    assert_eq!(count_at_turn(&store, place, place).await, 0);
}

/// A deletion of many objects is several commits, and so is a sweep of many expired records.
#[tokio::test]
async fn a_write_waits_for_at_most_one_commit_of_background_work() {
    let (busy, quiet) = (namespace(1), namespace(2));
    for is_sweep in [false, true] {
        let (store, _folder) = open().await;
        let pack = pack(busy, 1, 250);
        let keys: Vec<_> = pack.iter().map(|(key, _)| *key).collect();
        store.put_many(pack).await.unwrap();
        for partition in ["test/a", "test/b", "test/c"] {
            let expired = (0..100).map(|name| {
                let key = RecordKey::new(partition, name.to_string());
                let document = Document::from_value(&serde_json::json!({})).unwrap();
                Write::put_until(key, document, When::Any, Timestamp::from_unix(1))
            });
            let committed = store.commit_writes(expired.collect()).await.unwrap();
            assert!(committed.is_done());
        }
        let release = hold_writer(&store, busy).await;
        let mut work = Box::pin(async {
            if is_sweep {
                store.sweep_expired(1000).await.map(drop)
            } else {
                store.delete_many(&keys).await
            }
        });
        assert!(is_waiting(&mut work).await);
        let rest = move |batch: &mut writer::Batch<'_>| {
            Ok((batch.count_objects(&busy)?, batch.sweep_expired(1000)?))
        };
        let lane = Lane::Namespace(quiet);
        let mut rest = Box::pin(store.writer.enqueue(lane, row_work(2), rest));
        assert!(is_waiting(&mut rest).await);
        drop(release);
        let (worked, rest) = tokio::join!(work, rest);
        worked.unwrap();
        let expected = if is_sweep { (250, 200) } else { (150, 300) };
        assert_eq!(rest.unwrap(), expected, "at most 100 rows before");
    }
}

/// A commit over a limit is rejected after a read and never queues for the writer.
#[tokio::test]
async fn a_count_that_is_full_is_refused_while_the_writer_is_held() {
    let (store, _folder) = open().await;
    let count = |name: &str| Write::count(RecordKey::new("limit/test", name), "n", 1, 2);
    for _ in 0..2 {
        let counted = store.commit_writes(vec![count("full")]).await.unwrap();
        assert!(counted.is_done());
    }
    let release = hold_writer(&store, namespace(1)).await;
    let writes = vec![count("free"), count("full")];
    // If the commit asked the writer, it would wait forever.
    let refused = timeout(Duration::from_mins(1), store.commit_writes(writes));
    let refused = refused.await.expect("the writer is not asked").unwrap();
    assert!(matches!(
        refused,
        Commit::Failed {
            index: 1,
            found: Some(_)
        }
    ));
    let other = Write::delete(RecordKey::new("test", "a"), When::Any);
    let writes = vec![count("full"), other.clone()];
    let refused = store.commit_writes(writes).await.unwrap();
    assert!(matches!(refused, Commit::Failed { index: 0, .. }));
    // Behind another write, the count waits for the writer: the other write may be the first to
    // fail.
    let writes = vec![other, count("full")];
    let mut waiting = Box::pin(store.commit_writes(writes));
    assert!(is_waiting(&mut waiting).await);
    drop(release);
    assert!(matches!(
        waiting.await.unwrap(),
        Commit::Failed { index: 1, .. }
    ));
    let counted = store.commit_writes(vec![count("free")]).await.unwrap();
    assert!(counted.is_done(), "the refused commit counted nothing");
}
