//! Garbage collection of a namespace that has more uploads than one run can read. With no time at all
//! a run makes one small step, so what happens between two steps shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use vault_format::hash::Digest;
use vault_service::maintenance::{self, Report};
use vault_service::model::kept::{self, Mark, ObjectName, RootReason};
use vault_service::model::namespace::{Kind, Namespace, namespace_key};
use vault_service::model::upkeep::{LastRun, RootWalk, Visit};
use vault_service::uploads::{self, Purpose};
use vault_store::StoreError;
use vault_store::objects::{Class, Objects};
use vault_store::records::{Document, When, Write};
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common::commit;
use crate::quota::bytes;
use crate::support::{World, get, world};

const DAY: i64 = 24 * 3600;
/// More than a run reads without time, 400.
const MANY: usize = 2_500;

impl World {
    /// Runs the work without time: a visit makes one small step.
    pub async fn step(&self) -> Report {
        let report = maintenance::run_within(&self.app, Duration::ZERO).await;
        report.unwrap()
    }

    /// Adds the records of `count` uploads of one object, which is not stored.
    pub async fn add_uploads(&self, namespace: &Namespace, count: usize) {
        for at in (0..count).step_by(100) {
            let writes = (at..count.min(at + 100)).flat_map(|_| self.upload_of(namespace, b"old"));
            let commit = self.app.records.commit_writes(writes.collect()).await;
            assert!(commit.unwrap().is_done());
        }
    }

    fn upload_of(&self, namespace: &Namespace, bytes: &[u8]) -> Vec<Write> {
        let object = [ObjectName::new(Class::Bundles, Digest::of(bytes))];
        kept::root_writes(
            &self.app,
            &namespace.id,
            RootReason::Upload,
            &object,
            7 * DAY,
        )
        .unwrap()
    }

    /// Returns which of these objects have a mark.
    async fn marked(&self, namespace: &Namespace, objects: &[&[u8]]) -> Vec<bool> {
        let marks = kept::all_marks(&self.uncounted(), &namespace.id)
            .await
            .unwrap();
        let is_marked = |bytes: &&[u8]| {
            let digest = Digest::of(bytes);
            marks.iter().any(|marked| marked.name.digest == digest)
        };
        objects.iter().map(is_marked).collect()
    }

    async fn upload(&self, namespace: &Namespace, bytes: &'static [u8]) {
        let key = namespace.object_key(Class::Bundles, Digest::of(bytes));
        uploads::put_objects(
            &self.app,
            namespace,
            Purpose::Upload,
            vec![(key, bytes.into())],
        )
        .await
        .unwrap();
    }

    /// Whether the health check shows that garbage collection is late.
    async fn is_shown_late(&self) -> bool {
        let health = self.send(get("/healthz")).await.json();
        health["background"]["late"].as_bool().unwrap()
    }

    async fn objects_of(&self, namespace: &Namespace) -> Vec<Digest> {
        let listed =
            Objects::list_objects(&*self.memory, &namespace.id, Class::Bundles, None, 1000).await;
        listed
            .unwrap()
            .into_iter()
            .map(|(digest, _)| digest)
            .collect()
    }

    /// Stores an object that nothing names.
    pub async fn put(&self, namespace: &Namespace, bytes: &[u8]) {
        self.put_object(namespace, Class::Bundles, bytes.to_vec())
            .await;
    }
}

#[tokio::test]
async fn a_namespace_with_any_number_of_uploads_is_collected_in_its_turn() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.add_uploads(&busy, MANY).await;
    // The last record of all names an object that is stored.
    world.upload(&busy, b"kept").await;
    world.put(&busy, b"garbage").await;
    let other = world.namespace("beta", Kind::Hosted).await;
    world.put(&other, b"garbage").await;

    assert_eq!(world.step().await.marked, 0, "out of time");
    assert_eq!(world.step().await.marked, 1, "then the other one");
    let mut marked = 0;
    for _ in 0..20 {
        let report = world.step().await;
        assert_eq!(report.skipped, 0);
        marked += report.marked;
    }
    assert_eq!(marked, 1);
    assert_eq!(
        world.marked(&busy, &[b"garbage", b"kept"]).await,
        [true, false]
    );
    // Later visits read the uploads in steps too, and delete.
    world.clock.advance(DAY);
    let mut deleted = 0;
    for _ in 0..20 {
        deleted += world.step().await.deleted;
    }
    assert_eq!(deleted, 2);
    assert_eq!(world.objects_of(&busy).await, [Digest::of(b"kept")]);
}

/// What somebody uploads while a visit waits between two runs.
#[tokio::test]
async fn uploads_between_two_steps_of_a_visit_keep_their_objects() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.put(&busy, b"unnamed").await;
    world.put(&busy, b"garbage").await;
    assert_eq!(world.step().await.marked, 2);
    world.add_uploads(&busy, MANY).await;
    world.clock.advance(DAY);
    assert_eq!(world.step().await.deleted, 0, "out of time");
    // Within a visit: one object that it has listed, with a mark whose grace period is over, and one
    // that it has not.
    world.upload(&busy, b"unnamed").await;
    world.upload(&busy, b"new").await;
    for _ in 0..20 {
        world.step().await;
    }
    let marked = world.marked(&busy, &[b"unnamed", b"new", b"garbage"]).await;
    assert_eq!(marked, [false; 3]);
    let mut kept = [Digest::of(b"new"), Digest::of(b"unnamed")];
    kept.sort_unstable();
    assert_eq!(world.objects_of(&busy).await, kept);
}

/// An upload writes its record before its bytes, so a visit may have passed the record before it can
/// list the object.
#[tokio::test]
async fn an_object_that_is_stored_after_a_visit_has_passed_its_record_gets_no_mark() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.put(&busy, b"garbage").await;
    commit(&world.app, world.upload_of(&busy, b"late")).await;
    world.clock.advance(1);
    world.add_uploads(&busy, MANY).await;
    assert_eq!(world.step().await.marked, 0, "out of time");
    world.put(&busy, b"late").await;
    for _ in 0..20 {
        world.step().await;
    }
    let marked = world.marked(&busy, &[b"garbage", b"late"]).await;
    assert_eq!(marked, [true, false]);
}

/// A process whose clock is slow writes the record of an upload in front of the position.
#[tokio::test]
async fn an_upload_whose_record_a_visit_has_passed_is_never_deleted() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.put(&busy, b"unnamed").await;
    world.step().await;
    let early = world.upload_of(&busy, b"unnamed");
    world.clock.advance(DAY);
    world.add_uploads(&busy, MANY).await;
    assert_eq!(world.step().await.deleted, 0, "out of time");
    world.upload(&busy, b"unnamed").await;
    let partition = kept::kept_partition(&busy.id);
    let uploads = kept::all_records(&world.uncounted(), &partition)
        .await
        .unwrap();
    let late = uploads.last().unwrap().key.clone();
    let early = early.into_iter().chain([Write::delete(late, When::Any)]);
    assert!(
        world
            .app
            .records
            .commit_writes(early.collect())
            .await
            .unwrap()
            .is_done()
    );
    for _ in 0..20 {
        world.step().await;
    }
    assert_eq!(world.objects_of(&busy).await, [Digest::of(b"unnamed")]);
    // The next visit removes the mark.
    world.clock.advance(DAY);
    for _ in 0..20 {
        world.step().await;
    }
    assert_eq!(world.objects_of(&busy).await, [Digest::of(b"unnamed")]);
    assert_eq!(world.marked(&busy, &[b"unnamed"]).await, [false]);
}

/// A mark is younger than the listing of a visit that takes more than a day: somebody uploaded the
/// object meanwhile, and another process has marked it again.
#[tokio::test]
async fn a_grace_period_that_ends_within_a_visit_deletes_nothing() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.put(&busy, b"unnamed").await;
    let early = world.upload_of(&busy, b"unnamed");
    world.clock.advance(1);
    world.add_uploads(&busy, MANY).await;
    assert_eq!(world.step().await.deleted, 0, "out of time");
    world.clock.advance(1);
    // The record of the upload stands in front of the position of the visit.
    world.upload(&busy, b"unnamed").await;
    let partition = kept::kept_partition(&busy.id);
    let uploads = kept::all_records(&world.uncounted(), &partition)
        .await
        .unwrap();
    let late = Write::delete(uploads.last().unwrap().key.clone(), When::Any);
    let name = ObjectName::new(Class::Bundles, Digest::of(b"unnamed"));
    let mark = Mark {
        marked_at: world.now().plus_seconds(1),
        deleting_since: None,
    };
    let mark = Document::from_value(&mark).unwrap();
    let mark = Write::put(kept::mark_key(&busy.id, name), mark, When::Any);
    let writes = early.into_iter().chain([late, mark]);
    commit(&world.app, writes.collect()).await;
    world.clock.advance(DAY + 1);
    for _ in 0..20 {
        assert_eq!(world.step().await.deleted, 0);
    }
    assert_eq!(world.objects_of(&busy).await, [Digest::of(b"unnamed")]);
}

/// A run without time deletes the first hundred objects of a page.
#[tokio::test]
async fn what_an_unfinished_page_has_deleted_counts_no_longer() {
    let world = world();
    // A former release names bundles, so not all that the current one does not name is unnamed.
    let busy = world.emptied().await;
    let uploaded: Vec<_> = (0..150).map(|n| bytes(n, 8)).collect();
    world.put_bundles(&busy, &uploaded).await.unwrap();
    world.clock.advance(8 * DAY);
    assert_eq!(world.work().await.marked, 150);
    assert_eq!(world.unnamed(&busy).await, (1200, 150));
    world.clock.advance(DAY + 1);
    assert_eq!(world.step().await.deleted, 100);
    for _ in 0..20 {
        world.step().await;
    }
    assert_eq!(world.unnamed(&busy).await, (0, 0));
}

#[tokio::test]
async fn a_visit_that_does_not_end_is_reported_every_three_days_and_hides_no_failure() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.add_uploads(&busy, MANY).await;
    world.put(&busy, b"garbage").await;
    // Two runs a day, which never come to the end.
    for run in 0..16 {
        if run > 0 {
            world.add_uploads(&busy, 500).await;
        }
        let report = world.step().await;
        let is_reported = [6, 12].contains(&run);
        let counts = (report.late, report.skipped, report.namespaces);
        assert_eq!(counts, (usize::from(is_reported), 0, 0), "run {run}");
        // The runs themselves succeed.
        let last = world.app.get::<LastRun>(&LastRun::key()).await.unwrap();
        let last = last.unwrap().value;
        assert_eq!(last.failing_since, None);
        assert_eq!(last.succeeded_at, Some(world.now()));
        assert_eq!(world.is_shown_late().await, run >= 6, "run {run}");
        world.clock.advance(DAY / 2);
    }
    let report = world.work().await;
    assert_eq!((report.late, report.namespaces), (0, 1), "it has ended");
    world.clock.advance(60);
    assert!(!world.is_shown_late().await);
}

/// Lets the first listing of objects wait for ever.
#[derive(Default)]
struct EndlessListing {
    has_begun: AtomicBool,
    begun: Notify,
}

#[async_trait]
impl Hook for EndlessListing {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::ListObjects) && !self.has_begun.swap(true, Ordering::SeqCst) {
            self.begun.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_visit_that_ends_its_process_goes_behind_the_others() {
    let mut world = world();
    world.namespace("acme", Kind::Hosted).await;
    let other = world.namespace("other", Kind::Hosted).await;
    let hook = Arc::new(EndlessListing::default());
    world.app.ports.objects = Hooked::new(&world.memory, hook.clone());
    // The process ends while it visits `acme`, as a function does after its time.
    tokio::select! {
        _ = maintenance::run_once(&world.app) => panic!("the listing does not end"),
        () = hook.begun.notified() => {}
    }
    // Until the lock of the step has expired.
    world.clock.advance(61);
    world.step().await;
    let visit = world.app.get::<Visit>(&Visit::key(&other.slug)).await;
    let visit = visit.unwrap().expect("the other namespace is visited next");
    assert_eq!(visit.value.visited_at, Some(world.now()));
}

#[tokio::test]
async fn nothing_of_a_walk_outlives_its_vault() {
    let world = world();
    let busy = world.namespace("acme", Kind::Hosted).await;
    world.add_uploads(&busy, MANY).await;
    world.put(&busy, b"garbage").await;
    world.step().await;
    let walk = async || {
        world
            .app
            .get::<RootWalk>(&RootWalk::key(&busy.id))
            .await
            .unwrap()
    };
    assert!(walk().await.is_some());
    let key = namespace_key(&busy.slug);
    let stored = world.app.get::<Namespace>(&key).await.unwrap().unwrap();
    let deletion = stored.value.deletion_writes(stored.revision, world.now());
    let commit = world.app.records.commit_writes(deletion.unwrap()).await;
    assert!(commit.unwrap().is_done());
    world.clock.advance(600);
    world.work().await;
    assert!(walk().await.is_none());
}
