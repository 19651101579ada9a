//! Background work over memory: what is collected and when, and that nothing which a release names
//! ever is, whoever is faster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use vault_format::catalog::{Catalog, ReleaseRef as StoredRelease};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_service::maintenance::Report;
use vault_service::model::kept::{self, Mark, ObjectName};
use vault_service::model::namespace::{Kind, Namespace, Pinned};
use vault_service::model::release::Closure;
use vault_service::model::upkeep::LastRun;
use vault_service::uploads::{self, Purpose};
use vault_service::{App, maintenance};
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey, Objects, Stored};
use vault_store::random::{Random, random_bytes};
use vault_store::records::{Document, RecordKey, When, Write};
use vault_testing::SeededRandom;
use vault_testing::memory::Memory;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::admin::empty_desk;
use crate::common::partitions::run_work;
use crate::support::{World, resigned, world};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const CLASSES: [Class; 4] = [
    Class::Bundles,
    Class::Policies,
    Class::Catalogs,
    Class::Closures,
];

impl World {
    pub async fn work(&self) -> Report {
        run_work(&self.app).await
    }

    async fn held(&self, namespace: &Namespace) -> BTreeSet<ObjectName> {
        let mut held = BTreeSet::new();
        for class in CLASSES {
            let mut after = None;
            loop {
                let page = self
                    .memory
                    .as_ref()
                    .digests_of(&namespace.id, class, after)
                    .await;
                after = page.last().copied();
                held.extend(page.iter().map(|digest| ObjectName::new(class, *digest)));
                if page.len() < 1000 {
                    break;
                }
            }
        }
        held
    }

    /// Everything that the current release of `acme` names, with the two objects of its own.
    async fn named(&self) -> BTreeSet<ObjectName> {
        let namespace = self.read_namespace("acme").await;
        let current = namespace.current.clone().unwrap();
        let list = namespace.object_key(Class::Closures, current.closure);
        let list = Objects::read_object(&*self.memory, &list)
            .await
            .unwrap()
            .unwrap();
        let mut named: BTreeSet<_> = Closure::parse(&list).unwrap().object_names().collect();
        named.insert(ObjectName::new(Class::Catalogs, current.sha256));
        named.insert(ObjectName::new(Class::Closures, current.closure));
        named
    }

    async fn marks(&self, namespace: &Namespace) -> BTreeSet<ObjectName> {
        let marks = kept::all_marks(&self.uncounted(), &namespace.id)
            .await
            .unwrap();
        marks.iter().map(|marked| marked.name).collect()
    }

    /// The catalog that follows the current release, with the content of release 42 or with other
    /// content.
    pub async fn next(&self, change: impl FnOnce(&mut Catalog)) -> Vec<u8> {
        let current = self.read_namespace("acme").await.current.unwrap();
        let now = self.now();
        resigned("catalog-42.json", |catalog| {
            catalog.release = current.release + 1;
            catalog.previous = Some(StoredRelease {
                release: current.release,
                payload_sha256: current.payload_sha256,
            });
            catalog.issued_at = now;
            catalog.expires_at = now.plus_days(90);
            change(catalog);
        })
    }

    /// `acme` with release 42, then an empty release 43, and no object besides.
    pub async fn emptied(&self) -> Namespace {
        let namespace = self.acme().await;
        let named = self.named().await;
        for name in self.held(&namespace).await.difference(&named) {
            Objects::delete_object(&*self.memory, &name.key(namespace.id))
                .await
                .unwrap();
        }
        let next = self.next(empty).await;
        self.publish("acme", next).await.unwrap();
        namespace
    }
}

/// Makes a catalog name nothing.
pub fn empty(catalog: &mut Catalog) {
    catalog.skills.clear();
    catalog.profiles.clear();
    catalog.index.clear();
    catalog.policy = None;
}

#[async_trait]
trait ListDigests {
    async fn digests_of(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<Digest>,
    ) -> Vec<Digest>;
}

#[async_trait]
impl ListDigests for Memory {
    async fn digests_of(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<Digest>,
    ) -> Vec<Digest> {
        let page = Objects::list_objects(self, namespace, class, after.as_ref(), 1000).await;
        page.unwrap()
            .into_iter()
            .map(|(digest, _)| digest)
            .collect()
    }
}

#[tokio::test]
async fn a_former_release_is_kept_30_days_then_marked_then_a_day_later_deleted() {
    let world = world();
    let namespace = world.emptied().await;
    let (all, new) = (world.held(&namespace).await, world.named().await);
    let old: BTreeSet<_> = all.difference(&new).copied().collect();
    assert!(
        old.len() > 5,
        "bundles, policy, index, profiles, catalog, list"
    );

    for (after, marked, there) in [
        (0, 0, all.len()),
        (7 * DAY, 0, all.len()),
        (23 * DAY - 1, 0, all.len()),
        (1 + 6 * HOUR, old.len(), all.len()),
        (18 * HOUR - 1, old.len(), all.len()),
        (6 * HOUR + 1, 0, new.len()),
        (DAY, 0, new.len()),
    ] {
        world.clock.advance(after);
        world.work().await;
        assert_eq!(world.marks(&namespace).await.len(), marked, "{after}");
        assert_eq!(world.held(&namespace).await.len(), there, "{after}");
    }
    assert_eq!(world.held(&namespace).await, new);
    assert_eq!(world.named().await, new, "the current release is whole");
}

#[tokio::test]
async fn an_upload_is_kept_7_days_and_a_new_one_takes_the_mark_away() {
    let world = world();
    let namespace = world.emptied().await;
    let orphan = Bytes::from_static(b"named by nothing");
    let key = ObjectKey::for_bytes(namespace.id, Class::Bundles, &orphan);
    let put = async || {
        uploads::put_objects(
            &world.app,
            &namespace,
            Purpose::Upload,
            vec![(key, orphan.clone())],
        )
        .await
        .unwrap()
    };
    let is_missing = async || {
        let asked = [(key, orphan.len() as u64)];
        let missing = uploads::list_missing(&world.app, namespace.id, &asked);
        !missing.await.unwrap().is_empty()
    };
    assert!(is_missing().await);
    assert_eq!(put().await, [Stored::New]);
    assert!(!is_missing().await);
    world.clock.advance(7 * DAY - 1);
    world.work().await;
    assert!(!is_missing().await);
    world.clock.advance(6 * HOUR);
    assert_eq!(world.work().await.marked, 1);
    assert!(is_missing().await, "a marked object counts as missing");
    assert_eq!(put().await, [Stored::Present]);
    assert!(!is_missing().await && world.marks(&namespace).await.is_empty());
    world.clock.advance(2 * DAY);
    assert_eq!(world.work().await.deleted, 0);
    world.clock.advance(6 * DAY);
    assert_eq!(world.work().await.marked, 1);
    world.clock.advance(DAY);
    assert_eq!(world.work().await.deleted, 1);
    assert!(is_missing().await && world.marks(&namespace).await.is_empty());
}

#[tokio::test]
async fn a_release_may_not_name_what_is_marked() {
    let world = world();
    let namespace = world.emptied().await;
    let before = world.held(&namespace).await;
    world.clock.advance(31 * DAY);
    let marked = world.work().await.marked;
    assert!(marked > 5);
    let again = world.next(|_| {}).await;
    let refusal = world.publish("acme", again.clone()).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "objects_missing");
    upload_missing(&world.app, &world.memory, &namespace, &before).await;
    world.publish("acme", again).await.unwrap();
    world.clock.advance(2 * DAY);
    world.work().await;
    let (held, named) = (world.held(&namespace).await, world.named().await);
    assert!(named.is_subset(&held));
}

/// Puts those of the objects that the service says it lacks.
async fn upload_missing(
    app: &App,
    source: &Memory,
    namespace: &Namespace,
    all: &BTreeSet<ObjectName>,
) {
    let mut wanted = Vec::new();
    for name in all {
        if !matches!(name.class, Class::Bundles | Class::Policies) {
            continue;
        }
        let key = name.key(namespace.id);
        if let Some(bytes) = Objects::read_object(source, &key).await.unwrap() {
            wanted.push((key, bytes));
        }
    }
    let asked: Vec<_> = wanted
        .iter()
        .map(|(key, bytes)| (*key, bytes.len() as u64))
        .collect();
    let Ok(missing) = uploads::list_missing(app, namespace.id, &asked).await else {
        return;
    };
    wanted.retain(|(key, _)| missing.contains(key));
    // Refused while a deletion runs: the next round of the push tries again.
    let _ = uploads::put_objects(app, namespace, Purpose::Upload, wanted).await;
}

/// A push that brings back what is just being deleted, in many interleavings: once it is published,
/// everything it names is there and stays.
#[tokio::test]
async fn a_push_and_a_collection_at_once_lose_nothing() {
    let (mut collected, mut met) = (0, 0);
    for seed in 0..150 {
        let mut world = world();
        let namespace = world.emptied().await;
        let before = world.held(&namespace).await;
        // What the owner has at home.
        let home = Memory::default();
        for name in &before {
            let key = name.key(namespace.id);
            let bytes = Objects::read_object(&*world.memory, &key)
                .await
                .unwrap()
                .unwrap();
            home.put_object(&key, bytes).await.unwrap();
        }
        world.clock.advance(31 * DAY);
        world.work().await;
        world.clock.advance(DAY);
        let stepwise = Arc::new(Stepwise(SeededRandom::new(seed)));
        let hooked = Hooked::new(&world.memory, stepwise);
        (world.app.ports.records, world.app.ports.objects) = (hooked.clone(), hooked);
        let catalog = world.next(|_| {}).await;
        let pushing = async {
            for _ in 0..20 {
                upload_missing(&world.app, &home, &namespace, &before).await;
                match world.publish("acme", catalog.clone()).await {
                    Ok(_) => return true,
                    Err(refusal) => {
                        let code = refusal.code().row().code;
                        assert!(
                            ["objects_missing", "unavailable"].contains(&code),
                            "{refusal:?}"
                        );
                    }
                }
            }
            false
        };
        let (report, pushed) = tokio::join!(maintenance::run_once(&world.app), pushing);
        let deleted = report.unwrap().deleted;
        collected += deleted;
        met += usize::from(deleted > 0 && deleted < 8);
        assert!(pushed, "seed {seed}");
        for _ in 0..3 {
            let (held, named) = (world.held(&namespace).await, world.named().await);
            assert!(
                named.is_subset(&held),
                "seed {seed}: {:?}",
                named.difference(&held)
            );
            world.clock.advance(2 * DAY);
            run_work(&world.app).await;
        }
    }
    assert!(
        collected > 0 && met > 0,
        "the two must meet: {collected} {met}"
    );
}

/// Lets others go first, now and then, before and after each call.
struct Stepwise(SeededRandom);

impl Stepwise {
    async fn pause(&self) {
        let [byte] = random_bytes::<1>(&self.0 as &dyn Random);
        for _ in 0..byte % 4 {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Hook for Stepwise {
    async fn before(&self, _: Call<'_>) -> Result<(), StoreError> {
        self.pause().await;
        Ok(())
    }

    async fn after(&self, _: Call<'_>, _: bool) {
        self.pause().await;
    }
}

#[tokio::test]
async fn while_an_object_is_being_deleted_its_upload_is_503_and_never_for_ever() {
    let desk = empty_desk().await;
    let (world, namespace) = (&desk.world, &desk.acme);
    let bytes = b"{}".to_vec();
    let name = ObjectName::new(Class::Bundles, Digest::of(&bytes));
    let mark = Mark {
        marked_at: world.now(),
        deleting_since: Some(world.now()),
    };
    let write = Write::put(
        kept::mark_key(&namespace.id, name),
        Document::from_value(&mark).unwrap(),
        When::Absent,
    );
    assert!(
        world
            .app
            .records
            .commit_writes(vec![write])
            .await
            .unwrap()
            .is_done()
    );
    let path = format!("/admin/vaults/acme/objects/{name}");
    let put = async || {
        let body = Some(("application/octet-stream", bytes.clone()));
        desk.send(&desk.owner, "PUT", &path, body, &[]).await
    };
    let asked = json!({"class": "bundles", "objects": [{"sha256": name.digest, "size": 2}]});
    let answer = put().await;
    assert_eq!(answer.short(), "503 unavailable");
    assert!(!answer.header("retry-after").is_empty());
    world.clock.advance(kept::DELETING_SECONDS);
    assert_eq!(put().await.short(), "201");
    let missing = desk
        .post("/admin/vaults/acme/objects/missing", &asked)
        .await;
    assert_eq!(missing.json(), json!({"missing": []}));
}

#[tokio::test]
async fn nothing_is_collected_where_the_current_release_cannot_be_read() {
    let world = world();
    let namespace = world.acme().await;
    let current = world.current("acme").await;
    let list = namespace.object_key(Class::Closures, current.closure);
    Objects::delete_object(&*world.memory, &list).await.unwrap();
    let fresh = world.restarted();
    fresh.clock.advance(60 * DAY);
    let report = fresh.work().await;
    assert_eq!((report.skipped, report.marked), (1, 0));
    assert!(fresh.marks(&namespace).await.is_empty());
}

#[tokio::test]
async fn a_second_run_changes_nothing_and_a_round_goes_over_pages_and_namespaces() {
    let world = world();
    let mut all = Vec::new();
    for slug in ["acme", "beta", "gamma"] {
        let namespace = world.namespace(slug, Kind::Hosted).await;
        for n in 0..2100u32 {
            let bytes = n.to_be_bytes().to_vec();
            world.put_object(&namespace, Class::Bundles, bytes).await;
        }
        all.push(namespace);
    }
    let report = world.work().await;
    assert_eq!((report.marked, report.namespaces), (3 * 2100, 3));
    assert_eq!(world.work().await, Report::default());
    let (one, other) = tokio::join!(
        maintenance::run_once(&world.app),
        maintenance::run_once(&world.app)
    );
    assert_eq!((one.unwrap(), other.unwrap()), Default::default());
    world.clock.advance(DAY);
    let (one, other) = tokio::join!(
        maintenance::run_once(&world.app),
        maintenance::run_once(&world.app)
    );
    assert_eq!(one.unwrap().deleted + other.unwrap().deleted, 3 * 2100);
    for namespace in &all {
        assert!(world.held(namespace).await.is_empty());
        assert!(world.marks(namespace).await.is_empty());
    }
}

/// Counts the lists of records that are read.
#[derive(Default)]
struct Lists(AtomicUsize);

#[async_trait]
impl Hook for Lists {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        self.0
            .fetch_add(usize::from(matches!(call, Call::List)), Ordering::SeqCst);
        Ok(())
    }
}

/// A further page of objects costs the list of its marks, and no list of what names the objects.
#[tokio::test]
async fn what_names_objects_is_read_once_for_several_pages_of_them() {
    let mut lists = Vec::new();
    for count in [500, 2500u32] {
        let mut world = world();
        let namespace = world.namespace("acme", Kind::Hosted).await;
        for n in 0..count {
            let bytes = n.to_be_bytes().to_vec();
            world.put_object(&namespace, Class::Bundles, bytes).await;
        }
        let hook = Arc::new(Lists::default());
        world.app.ports.records = Hooked::new(&world.memory, hook.clone());
        let report = maintenance::run_once(&world.app).await.unwrap();
        assert_eq!(report.marked, count as usize);
        lists.push(hook.0.load(Ordering::SeqCst));
    }
    assert_eq!(lists[1] - lists[0], 2, "two pages more: {lists:?}");
}

/// With no time at all a run makes one small step, so the order of the steps shows.
#[tokio::test]
async fn a_namespace_of_many_objects_does_not_keep_others_waiting() {
    let world = world();
    let large = world.namespace("acme", Kind::Hosted).await;
    for n in 0..2500u32 {
        let bytes = n.to_be_bytes().to_vec();
        world.put_object(&large, Class::Bundles, bytes).await;
    }
    let small = world.namespace("beta", Kind::Hosted).await;
    world
        .put_object(&small, Class::Bundles, b"x".to_vec())
        .await;
    let step = async || {
        let report = maintenance::run_within(&world.app, Duration::ZERO).await;
        report.unwrap()
    };
    assert_eq!(step().await.marked, 1000, "a page of the large one");
    assert_eq!(step().await.marked, 1, "then the other one");
    // It goes on where it stopped.
    let (mut marked, mut visited) = (0, 0);
    for _ in 0..20 {
        let report = step().await;
        (marked, visited) = (marked + report.marked, visited + report.namespaces);
    }
    assert_eq!((marked, visited), (1500, 2));
    world.clock.advance(DAY);
    let deleted = step().await.deleted + step().await.deleted;
    assert_eq!(
        deleted,
        100 + 1,
        "some of the large one, then the other one"
    );
    assert!(world.held(&small).await.is_empty());
    world.work().await;
    assert!(world.held(&large).await.is_empty() && world.marks(&large).await.is_empty());
}

#[tokio::test]
async fn a_run_that_fails_is_recorded_until_one_succeeds() {
    let world = world();
    let namespace = world.acme().await;
    let last = async || {
        let found = world.app.get::<LastRun>(&LastRun::key()).await.unwrap();
        found.map(|found| found.value).unwrap_or_default()
    };
    assert_eq!(last().await, LastRun::default());
    world.work().await;
    let start = world.now();
    assert_eq!(last().await.succeeded_at, Some(start));
    let current = world.current("acme").await;
    let list = namespace.object_key(Class::Closures, current.closure);
    let bytes = Objects::read_object(&*world.memory, &list).await.unwrap();
    Objects::delete_object(&*world.memory, &list).await.unwrap();
    let fresh = world.restarted();
    for _ in 0..2 {
        fresh.clock.advance(DAY);
        assert_eq!(fresh.work().await.skipped, 1);
    }
    let failing = last().await;
    assert_eq!(failing.succeeded_at, Some(start));
    assert_eq!(failing.failing_since, Some(start.plus_seconds(DAY)));
    Objects::put_object(&*world.memory, &list, bytes.unwrap())
        .await
        .unwrap();
    fresh.clock.advance(DAY);
    fresh.work().await;
    let good = LastRun {
        succeeded_at: Some(fresh.now()),
        failing_since: None,
        late: false,
    };
    assert_eq!(last().await, good);
}

#[tokio::test]
async fn expired_records_are_removed() {
    let world = world();
    let end = world.now().plus_seconds(60);
    for n in 0..1200 {
        let key = RecordKey::new("tok/x", format!("{n}"));
        let write = Write::put_until(
            key,
            Document::from_value(&json!({})).unwrap(),
            When::Absent,
            end,
        );
        assert!(
            world
                .app
                .records
                .commit_writes(vec![write])
                .await
                .unwrap()
                .is_done()
        );
    }
    assert_eq!(world.work().await.expired, 0);
    world.clock.advance(60);
    assert_eq!(world.work().await.expired, 1200);
    assert_eq!(world.work().await.expired, 0);
}

/// What a pin reset or a compromise takes out of the line of releases is kept as long as any other
/// former release.
#[tokio::test]
async fn a_release_number_that_is_used_again_does_not_shorten_what_is_kept() {
    let world = world();
    let namespace = world.acme().await;
    let former = world.named().await;
    world
        .change("acme", |namespace| namespace.pin = Pinned::Nothing)
        .await;
    // The same number once more, with other content.
    let other = resigned("catalog-42.json", empty);
    world.publish("acme", other).await.unwrap();
    world.clock.advance(29 * DAY);
    world.work().await;
    assert!(world.marks(&namespace).await.is_disjoint(&former));
    world.clock.advance(DAY);
    world.work().await;
    assert!(former.is_subset(&world.marks(&namespace).await));
}
