//! Drafts that tools hand in, up to their bounds.

use std::sync::Arc;

use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use vault_format::draft::Submitter;
use vault_format::name::Slug;
use vault_service::model::draft::{
    self, DraftRecord, Ending, MAX_OWN, MAX_SHARED, MAX_SHARED_OF_AUTHOR, Queue, State,
};
use vault_service::model::namespace::{self, Kind};
use vault_service::model::{audit, kept};
use vault_shelf::{Change, ShelfError, Submitted};
use vault_store::objects::{Class, Objects as _};
use vault_testing::contract::shelf::Hand as _;

use super::{DAY, Publisher, by, large, take, two_skills};
use crate::common::partitions::run_work;

#[tokio::test]
async fn a_draft_of_over_a_mebibyte_is_refused_and_leaves_nothing() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    for check in [true, false] {
        let refused = shelf
            .submit(
                &by("usr_1"),
                Change::Take {
                    files: large("gamma", 1_100_000),
                    replace: false,
                    check,
                    hidden: false,
                },
            )
            .await;
        assert!(
            matches!(refused, Err(ShelfError::TooLarge(_))),
            "{refused:?}"
        );
    }
    let namespace = publisher.namespace().await;
    assert_eq!(
        publisher
            .records(&draft::drafts_partition(&namespace.id))
            .await,
        0
    );
    let objects = publisher
        .host
        .list_objects(&namespace.id, Class::Drafts, None, 10)
        .await;
    assert_eq!(objects.unwrap(), []);
}

/// Hands in `each` drafts of every author at once; how many were kept and how many found no room.
async fn flood(publisher: &Publisher, authors: usize, each: usize) -> (usize, usize) {
    let barrier = Arc::new(Barrier::new(authors * each));
    // As many as may wait for a scan in one namespace; further ones are told to come again.
    let places = Arc::new(Semaphore::new(32));
    let mut writers = JoinSet::new();
    for author in 0..authors {
        for n in 0..each {
            let shelf = publisher.shelf().await;
            let (barrier, places) = (Arc::clone(&barrier), Arc::clone(&places));
            writers.spawn(async move {
                let change = take(&format!("skill-{author}-{n}"), "one");
                barrier.wait().await;
                let _place = places.acquire().await.unwrap();
                shelf.submit(&by(&format!("usr_{author}")), change).await
            });
        }
    }
    let (mut kept, mut full) = (0, 0);
    for outcome in writers.join_all().await {
        match outcome {
            Ok(Submitted::Drafted { .. }) => kept += 1,
            Err(ShelfError::DraftsFull(_)) => full += 1,
            other => panic!("no such outcome: {other:?}"),
        }
    }
    (kept, full)
}

/// What a counter of drafts says: of an author, or with `None` of the places that all share.
async fn queue(publisher: &Publisher, author: Option<&str>) -> Queue {
    let id = publisher.namespace().await.id;
    let key = author.map_or_else(
        || draft::draft_queue_key(&id),
        |author| draft::author_queue_key(&id, author),
    );
    let record = publisher.world.app.records.get_one(&key).await.unwrap();
    record.map_or_else(Default::default, |record| record.read().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_drafts_of_one_author_at_once_leave_twenty() {
    let publisher = Publisher::new(Kind::Hosted).await;
    assert_eq!(flood(&publisher, 1, 50).await, (20, 30));
    let id = publisher.namespace().await.id;
    assert_eq!(publisher.records(&draft::drafts_partition(&id)).await, 20);
    assert_eq!(publisher.records(&draft::authored_partition(&id)).await, 20);
    assert_eq!(
        publisher.records(&audit::audit_partition(Some(&id))).await,
        20
    );
    assert_eq!(queue(&publisher, None).await.pending, MAX_SHARED_OF_AUTHOR);
    let mine = queue(&publisher, Some("usr_0")).await;
    assert_eq!((mine.own, mine.pending), (MAX_OWN, MAX_SHARED_OF_AUTHOR));
    // Another author still has room, and a full queue says so before anything is stored.
    let shelf = publisher.shelf().await;
    let other = shelf.submit(&by("usr_9"), take("alpha", "one")).await;
    assert!(matches!(other, Ok(Submitted::Drafted { .. })), "{other:?}");
    let objects = || async {
        publisher
            .host
            .list_objects(&id, Class::Drafts, None, 1000)
            .await
            .unwrap()
            .len()
    };
    let before = objects().await;
    let full = shelf.submit(&by("usr_0"), take("alpha", "one")).await;
    assert!(matches!(full, Err(ShelfError::DraftsFull(_))), "{full:?}");
    // The same draft again takes no further place.
    let (mut same, mut others) = (0, 0);
    for n in 0..50 {
        let change = take(&format!("skill-0-{n}"), "one");
        match shelf.submit(&by("usr_0"), change).await {
            Ok(Submitted::Drafted { .. }) => same += 1,
            Err(ShelfError::DraftsFull(_)) => others += 1,
            other => panic!("no such outcome: {other:?}"),
        }
    }
    assert_eq!((same, others), (20, 30));
    assert_eq!(objects().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drafts_of_many_authors_at_once_leave_each_four_and_all_a_hundred() {
    let publisher = Publisher::new(Kind::Hosted).await;
    // Seven authors alone fill what all share.
    assert_eq!(flood(&publisher, 7, 20).await, (128, 12));
    assert_eq!(queue(&publisher, None).await.pending, MAX_SHARED);
    let mut shared = 0;
    for author in 0..7 {
        let queue = queue(&publisher, Some(&format!("usr_{author}"))).await;
        assert_eq!(queue.own, MAX_OWN);
        shared += queue.pending;
    }
    assert_eq!(shared, MAX_SHARED);
    assert_eq!(publisher.drafts().await.len(), 128);
    // Every other author still has four places, and no fifth.
    let shelf = publisher.shelf().await;
    for n in 0..5 {
        let change = take(&format!("late-{n}"), "one");
        let done = shelf.submit(&by("usr_late"), change).await;
        match done {
            Ok(Submitted::Drafted { waiting, .. }) => assert_eq!(waiting, n + 1),
            Err(ShelfError::DraftsFull(_)) => assert_eq!(n, 4),
            other => panic!("no such outcome: {other:?}"),
        }
    }
}

#[tokio::test]
async fn identical_drafts_of_one_author_are_one_draft_until_it_ends() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    let submit = async |author: &str, text: &str| {
        let done = shelf.submit(&by(author), take("gamma", text)).await;
        let Ok(Submitted::Drafted { draft, waiting, .. }) = done else {
            panic!("{done:?}");
        };
        (draft, waiting)
    };
    let (first, _) = submit("usr_1", "one").await;
    publisher.world.clock.advance(60);
    assert_eq!(submit("usr_1", "one").await, (first, 1));
    // Another text and another author are other requests.
    assert_eq!(submit("usr_1", "two").await.1, 2);
    assert_ne!(submit("usr_2", "one").await.0, first);
    assert_eq!(publisher.drafts().await.len(), 3);
    // Once the draft has ended, the same request is a new one.
    let namespace = publisher.namespace().await;
    let key = draft::draft_key(&namespace.id, &first);
    let seen = publisher
        .world
        .app
        .records
        .get_one(&key)
        .await
        .unwrap()
        .unwrap();
    let record: DraftRecord = seen.read().unwrap();
    let ended = record.into_ended(&draft::Ending {
        state: draft::State::Withdrawn,
        at: publisher.world.now(),
        release: None,
        reason: None,
    });
    let writes = ended
        .ending_writes(&namespace.id, seen.revision, false)
        .unwrap();
    let done = publisher
        .world
        .app
        .records
        .commit_writes(writes)
        .await
        .unwrap();
    assert!(done.is_done());
    let (again, waiting) = submit("usr_1", "one").await;
    assert_ne!(again, first);
    assert_eq!(waiting, 2);
}

#[tokio::test]
async fn the_bytes_of_a_draft_stay_while_it_waits_and_go_afterwards() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    let done = shelf.submit(&by("usr_1"), take("gamma", "one")).await;
    let Ok(Submitted::Drafted { draft: id, .. }) = done else {
        panic!("{done:?}");
    };
    let (world, namespace) = (&publisher.world, publisher.namespace().await);
    let key = draft::draft_key(&namespace.id, &id);
    let held = world.app.records.get_one(&key).await.unwrap().unwrap();
    let record: DraftRecord = held.read().unwrap();
    let object = record.object_name().key(namespace.id);
    let collect = || async {
        for _ in 0..4 {
            world.clock.advance(8 * DAY);
            run_work(&world.app).await;
        }
        world.memory.read_object(&object).await.unwrap().is_some()
    };
    assert!(collect().await, "it waits");
    let ended = record.into_ended(&Ending {
        state: State::Declined,
        at: world.now(),
        release: None,
        reason: Some("no".to_owned()),
    });
    let writes = ended
        .ending_writes(&namespace.id, held.revision, false)
        .unwrap();
    assert!(
        world
            .app
            .records
            .commit_writes(writes)
            .await
            .unwrap()
            .is_done()
    );
    let queue = queue(&publisher, Some("usr_1")).await;
    assert_eq!((queue.own, queue.pending), (0, 0), "its place is free");
    assert!(!collect().await, "it has ended, so its bytes go");
    // Its record ends after 90 days, and its entry in the author's list with it.
    assert_eq!(
        publisher
            .records(&draft::ended_partition(&namespace.id))
            .await,
        1
    );
    world.clock.advance(60 * DAY);
    for partition in [
        draft::drafts_partition(&namespace.id),
        draft::ended_partition(&namespace.id),
        draft::authored_partition(&namespace.id),
    ] {
        assert_eq!(publisher.records(&partition).await, 0, "{partition}");
    }
}

#[tokio::test]
async fn a_draft_is_in_the_audit_log_with_its_author() {
    let publisher = two_skills().await;
    let app = &publisher.world.app;
    let source = "192.0.2.7".parse().unwrap();
    let shelf =
        app.shelves
            .as_ref()
            .unwrap()
            .shelf(app, &publisher.namespace().await, Some(source));
    let author = Submitter {
        user_id: "usr_1".to_owned(),
        client_id: Some("cli_1".to_owned()),
    };
    shelf
        .submit(&author, Change::Remove("alpha".parse().unwrap()))
        .await
        .unwrap();
    let id = publisher.namespace().await.id;
    let entries = kept::all_records(app, &audit::audit_partition(Some(&id)))
        .await
        .unwrap();
    let entry: audit::Entry = entries.last().unwrap().read().unwrap();
    assert_eq!(
        (entry.actor.as_str(), entry.client.as_deref(), entry.source),
        ("usr_1", Some("cli_1"), Some(source))
    );
    assert_eq!(
        (entry.action.as_str(), entry.outcome.as_str()),
        ("draft.create", "done")
    );
    assert_eq!(entry.after.unwrap()["kind"], "remove");
    let slug: Slug = "acme".parse().unwrap();
    assert!(
        namespace::find_namespace(app, &slug)
            .await
            .unwrap()
            .is_some()
    );
}
