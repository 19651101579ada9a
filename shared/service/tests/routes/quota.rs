//! The quota of stored bytes and objects: what counts, when, and that the count is what is there
//! again after errors, crashes and deletions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use vault_format::hash::Digest;
use vault_service::config::quota::Quota;
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::model::usage::{ALLOWANCE_BYTES, Amount, Usage};
use vault_service::model::user::Scopes;
use vault_service::uploads::{self, Purpose, UploadError};
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey, Stored};
use vault_store::records::RecordKey;
use vault_testing::memory::hooked::{Call, Hook, Hooked};
use vault_testing::memory::shelf::Signed;

use crate::admin::{ADA, Desk, desk, empty_desk, token};
use crate::common::put;
use crate::support::{Answer, World, vector, world};
use crate::team::Team;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const OCTETS: &str = "application/octet-stream";
const PACK: &str = "application/vnd.vault.pack";

impl World {
    /// Gives a namespace a quota of one byte, and lets it use up every allowance.
    pub async fn fill_storage(&self, namespace: &Namespace) {
        self.use_allowances(namespace, 4).await;
    }

    /// Gives a namespace a quota of one byte, and lets it use up so many allowances for files.
    pub async fn use_allowances(&self, namespace: &Namespace, number: u64) {
        let limit = |namespace: &mut Namespace| namespace.quota.bytes = Some(1);
        self.change(namespace.slug.as_str(), limit).await;
        let amount = |bytes: u64| json!({ "bytes": bytes, "objects": 7 });
        let tally = json!({ "stored": amount(number * ALLOWANCE_BYTES), "unnamed": amount(0) });
        let usage = json!({ "tally": tally, "beyond": { "files": amount(number * ALLOWANCE_BYTES), "again": amount(0) } });
        let key = RecordKey::new(format!("stored/{}", namespace.id), "usage");
        put(&self.app, key, &usage).await;
    }

    /// What the namespace is said to store.
    pub async fn usage(&self, namespace: &Namespace) -> Usage {
        Usage::find(&self.uncounted(), &namespace.id)
            .await
            .unwrap()
            .0
    }

    async fn stored(&self, namespace: &Namespace) -> (u64, u64) {
        let Amount { bytes, objects } = self.usage(namespace).await.tally.stored;
        (bytes, objects)
    }

    /// What of it no release names.
    pub async fn unnamed(&self, namespace: &Namespace) -> (u64, u64) {
        let Amount { bytes, objects } = self.usage(namespace).await.tally.unnamed;
        (bytes, objects)
    }

    /// What it really stores.
    async fn truth(&self, namespace: &Namespace) -> (u64, u64) {
        let mut truth = (0, 0);
        for class in Class::ALL {
            let listed = self.uncounted().objects;
            let listed = listed.list_objects(&namespace.id, class, None, 1000).await;
            for (_, size) in listed.unwrap() {
                truth = (truth.0 + size, truth.1 + 1);
            }
        }
        truth
    }

    /// A namespace with a quota of these bytes and objects.
    pub async fn limited(&self, bytes: u64, objects: u64) -> Namespace {
        self.namespace("acme", Kind::Hosted).await;
        self.change("acme", |namespace| {
            namespace.quota.bytes = Some(bytes);
            namespace.quota.objects = Some(objects);
        })
        .await;
        self.read_namespace("acme").await
    }

    pub async fn put_bundles(
        &self,
        namespace: &Namespace,
        objects: &[Bytes],
    ) -> Result<Vec<Stored>, UploadError> {
        let key = |bytes: &Bytes| ObjectKey::for_bytes(namespace.id, Class::Bundles, bytes);
        let objects = objects.iter().map(|bytes| (key(bytes), bytes.clone()));
        uploads::put_objects(&self.app, namespace, Purpose::Upload, objects.collect()).await
    }
}

/// Different bytes for each `n`.
pub fn bytes(n: usize, length: usize) -> Bytes {
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.resize(length, 0);
    bytes.into()
}

fn packed(objects: &[&Bytes]) -> Vec<u8> {
    let mut pack = Vec::new();
    for bytes in objects {
        pack.extend_from_slice(format!("{} {}\n", Digest::of(bytes), bytes.len()).as_bytes());
        pack.extend_from_slice(bytes);
    }
    pack
}

impl Desk {
    /// Gives the vault a quota of these bytes and objects.
    pub async fn limit(&self, bytes: u64, objects: u64) {
        let limit = |namespace: &mut Namespace| {
            namespace.quota.bytes = Some(bytes);
            namespace.quota.objects = Some(objects);
        };
        self.world.change("acme", limit).await;
    }

    pub async fn put_bytes(&self, class: &str, bytes: &[u8]) -> Answer {
        let hash = Digest::of(bytes);
        let path = format!("/admin/vaults/acme/objects/{class}/{hash}");
        let body = Some((OCTETS, bytes.to_vec()));
        self.send(&self.owner, "PUT", &path, body, &[]).await
    }

    pub async fn put_pack(&self, objects: &[&Bytes]) -> Answer {
        let path = "/admin/vaults/acme/objects/bundles";
        let body = Some((PACK, packed(objects)));
        self.send(&self.owner, "POST", path, body, &[]).await
    }
}

#[tokio::test]
async fn an_upload_beyond_the_quota_is_refused_with_the_numbers_and_stores_nothing() {
    let desk = empty_desk().await;
    desk.limit(100, 3).await;
    assert_eq!(desk.put_bytes("bundles", &bytes(1, 60)).await.status, 201);
    let refused = desk.put_bytes("bundles", &bytes(2, 41)).await;
    assert_eq!(refused.short(), "413 quota_exceeded");
    let numbers = json!({ "name": "bytes", "used": 60, "asked": 41, "limit": 100 });
    assert_eq!(refused.json()["quota"], numbers);
    let text = "This vault stores 60 bytes of at most 100 bytes, and this needs 41 bytes more.";
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with(text), "{detail}");
    assert_eq!(desk.world.truth(&desk.acme).await, (60, 1));
    assert_eq!(desk.world.stored(&desk.acme).await, (60, 1));
    // To the last byte, and what is there already costs nothing.
    assert_eq!(desk.put_bytes("bundles", &bytes(2, 40)).await.status, 201);
    assert_eq!(desk.put_bytes("bundles", &bytes(2, 40)).await.status, 200);
    assert_eq!(desk.put_bytes("policies", b"x").await.status, 413);
    desk.limit(0, 2).await;
    let refused = desk.put_bytes("policies", b"x").await;
    let numbers = json!({ "name": "objects", "used": 2, "asked": 1, "limit": 2 });
    assert_eq!(refused.json()["quota"], numbers);
    desk.limit(0, 0).await;
    assert_eq!(desk.put_bytes("policies", b"x").await.status, 201);
    let truth = desk.world.truth(&desk.acme).await;
    assert_eq!(desk.world.stored(&desk.acme).await, truth);
}

#[tokio::test]
async fn a_pack_beyond_the_quota_is_refused_as_a_whole() {
    let desk = empty_desk().await;
    desk.limit(100, 0).await;
    let [one, two, three] = [bytes(1, 50), bytes(2, 40), bytes(3, 11)];
    let refused = desk.put_pack(&[&one, &two, &three]).await;
    assert_eq!(refused.short(), "413 quota_exceeded");
    let numbers = json!({ "name": "bytes", "used": 0, "asked": 101, "limit": 100 });
    assert_eq!(refused.json()["quota"], numbers);
    assert_eq!(desk.world.truth(&desk.acme).await, (0, 0));
    assert_eq!(desk.world.stored(&desk.acme).await, (0, 0));
    // An object twice in a pack is one, and one that is stored adds nothing.
    let answer = desk.put_pack(&[&one, &two, &one]).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    assert_eq!(desk.world.stored(&desk.acme).await, (90, 2));
    let last = bytes(4, 10);
    let answer = desk.put_pack(&[&one, &last, &two]).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    assert_eq!(desk.world.stored(&desk.acme).await, (100, 3));
    assert_eq!(desk.world.truth(&desk.acme).await, (100, 3));
}

/// Two processes with one store: whoever is faster, only one of them gets what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_uploads_that_race_for_the_last_of_the_quota_do_not_both_pass() {
    for _ in 0..50 {
        let world = world();
        let namespace = world.limited(100, 0).await;
        let other = world.restarted();
        let (one_objects, other_objects) = ([bytes(1, 60)], [bytes(2, 60)]);
        let (one, two) = tokio::join!(
            world.put_bundles(&namespace, &one_objects),
            other.put_bundles(&namespace, &other_objects),
        );
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        assert_eq!(world.truth(&namespace).await, (60, 1));
        assert_eq!(world.stored(&namespace).await, (60, 1));
    }
}

/// Uploads again while the service is busy, as clients do.
async fn upload_patiently(world: &World, namespace: &Namespace, objects: &[Bytes]) {
    loop {
        match world.put_bundles(namespace, objects).await {
            Err(UploadError::Store(StoreError::Busy)) => tokio::task::yield_now().await,
            done => return drop(done.unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_two_requests_upload_at_once_counts_once() {
    for quota in [1000, 90].repeat(25) {
        let world = world();
        let namespace = world.limited(quota, 0).await;
        let other = world.restarted();
        let objects = [bytes(1, 60), bytes(2, 30)];
        tokio::join!(
            upload_patiently(&world, &namespace, &objects),
            upload_patiently(&other, &namespace, &objects),
        );
        assert_eq!(world.stored(&namespace).await, (90, 2));
        assert_eq!(world.unnamed(&namespace).await, (90, 2));
    }
}

#[tokio::test]
async fn an_upload_of_what_is_stored_warns_nobody() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("hooks.example", &["quota_near"]).await;
    desk.limit(1000, 0).await;
    for status in [201, 200, 200] {
        assert_eq!(
            desk.put_bytes("bundles", &bytes(1, 500)).await.status,
            status
        );
    }
    desk.world.work().await;
    assert!(endpoints.events().is_empty());
}

/// Lets the store fail for each put behind the first ones.
struct FailingPuts {
    good: AtomicUsize,
}

#[async_trait]
impl Hook for FailingPuts {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let is_put = matches!(call, Call::Put(_));
        let take = |good: usize| good.checked_sub(1);
        if is_put
            && self
                .good
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_err()
        {
            return Err(StoreError::unavailable("the disk is gone"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_upload_that_fails_leaves_counted_what_it_stored() {
    let mut world = world();
    let namespace = world.limited(1000, 0).await;
    let hook = Arc::new(FailingPuts {
        good: AtomicUsize::new(2),
    });
    let plain = Arc::clone(&world.app.ports.objects);
    world.app.ports.objects = Hooked::new(&world.memory, hook);
    let objects = [bytes(1, 60), bytes(2, 30), bytes(3, 10)];
    for _ in 0..3 {
        world.put_bundles(&namespace, &objects).await.unwrap_err();
        let truth = world.truth(&namespace).await;
        assert_eq!(truth, (90, 2));
        assert_eq!(world.stored(&namespace).await, truth);
    }
    world.app.ports.objects = plain;
    world.clock.advance(HOUR);
    world.work().await;
    assert_eq!(world.stored(&namespace).await, (90, 2));
}

#[tokio::test]
async fn a_crash_after_the_count_is_corrected_by_the_garbage_collection() {
    let mut world = world();
    let namespace = world.limited(100, 0).await;
    let plain = Arc::clone(&world.app.ports.objects);
    world.app.ports.objects = Hooked::new(&world.memory, Arc::new(Hanging));
    let uploaded = [bytes(1, 60)];
    let crashed = world.put_bundles(&namespace, &uploaded);
    let timeout = std::time::Duration::from_millis(1);
    assert!(tokio::time::timeout(timeout, crashed).await.is_err());
    world.app.ports.objects = plain;
    assert_eq!(world.stored(&namespace).await, (60, 1));
    world.clock.advance(6 * HOUR);
    world.work().await;
    assert_eq!(world.stored(&namespace).await, (0, 0));
    assert_eq!(world.unnamed(&namespace).await, (0, 0));
    // A count that was lost comes back too.
    world.put_bundles(&namespace, &uploaded).await.unwrap();
    let usage = RecordKey::new(format!("stored/{}", namespace.id), "usage");
    put(&world.app, usage, &json!({})).await;
    world.clock.advance(6 * HOUR);
    world.work().await;
    assert_eq!(world.stored(&namespace).await, (60, 1));
}

/// An object store that accepts nothing and never answers.
struct Hanging;

#[async_trait]
impl Hook for Hanging {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::Put(_)) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Lets puts wait until they are told to go on.
struct Waiting(tokio::sync::Semaphore);

#[async_trait]
impl Hook for Waiting {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::Put(_)) {
            let place = self.0.acquire().await;
            place.map(tokio::sync::SemaphorePermit::forget).ok();
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_upload_whose_caller_has_gone_ends_all_the_same() {
    let mut world = world();
    let namespace = world.limited(100, 0).await;
    let hook = Arc::new(Waiting(tokio::sync::Semaphore::new(0)));
    world.app.ports.objects = Hooked::new(&world.memory, hook.clone());
    let uploaded = [bytes(1, 60)];
    let abandoned = world.put_bundles(&namespace, &uploaded);
    let timeout = std::time::Duration::from_millis(1);
    assert!(tokio::time::timeout(timeout, abandoned).await.is_err());
    assert_eq!(
        world.usage(&namespace).await.settled().tally.stored.bytes,
        0
    );
    hook.0.add_permits(1);
    for _ in 0..10_000 {
        if world.usage(&namespace).await.settled().tally.stored.bytes == 60 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(
        world.usage(&namespace).await.settled().tally.stored.bytes,
        60
    );
    assert_eq!(world.truth(&namespace).await, (60, 1));
}

#[tokio::test]
async fn unused_uploads_of_a_day_are_collected_first_where_room_is_short() {
    for (quota, is_short) in [(100, true), (1000, false)] {
        let world = world();
        let namespace = world.limited(quota, 0).await;
        world
            .put_bundles(&namespace, &[bytes(1, 90)])
            .await
            .unwrap();
        world.clock.advance(DAY - 1);
        assert_eq!(world.work().await.marked, 0);
        world.clock.advance(6 * HOUR);
        assert_eq!(world.work().await.marked, usize::from(is_short));
        world.clock.advance(DAY);
        world.work().await;
        let left = if is_short { (0, 0) } else { (90, 1) };
        assert_eq!(world.truth(&namespace).await, left);
        assert_eq!(world.stored(&namespace).await, left);
    }
}

/// Uploads the vectors' objects as a publisher does.
async fn upload_vectors(world: &World, namespace: &Namespace) {
    world.put_vectors(namespace).await;
    let stored = world.uncounted().objects;
    for class in [Class::Bundles, Class::Policies] {
        let listed = stored.list_objects(&namespace.id, class, None, 1000).await;
        for (digest, _) in listed.unwrap() {
            let key = namespace.object_key(class, digest);
            let bytes = stored.read_object(&key).await.unwrap().unwrap();
            stored.delete_object(&key).await.unwrap();
            let objects = vec![(key, bytes)];
            uploads::put_objects(&world.app, namespace, Purpose::Upload, objects)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_release_lowers_the_count_of_uploads_that_none_names() {
    let desk = empty_desk().await;
    upload_vectors(&desk.world, &desk.acme).await;
    let held = desk.world.unnamed(&desk.acme).await;
    assert_eq!(held, desk.world.truth(&desk.acme).await);
    desk.world
        .publish("acme", vector("catalog-42.json"))
        .await
        .unwrap();
    let unnamed = desk.world.unnamed(&desk.acme).await;
    assert!(unnamed < held, "{unnamed:?} of {held:?}");
    let stored = desk.world.stored(&desk.acme).await;
    assert_eq!(stored, desk.world.truth(&desk.acme).await);
    desk.world.clock.advance(6 * HOUR);
    desk.world.work().await;
    assert_eq!(desk.world.unnamed(&desk.acme).await, unnamed);
}

/// An owner at the quota can publish a release that removes skills, or changes keys.
#[tokio::test]
async fn a_full_vault_still_takes_files_of_releases() {
    let desk = desk().await;
    let (used, _) = desk.world.stored(&desk.acme).await;
    assert!(used > 0, "the catalog and the list of its objects");
    desk.limit(used, 0).await;
    assert_eq!(
        desk.put_bytes("bundles", b"a skill").await.short(),
        "413 quota_exceeded"
    );
    let policy = "[profiles.all]\ngroups = [\"all\"]\n[groups.all]\nskills = [\"tag:all\"]\n";
    let policy = vault_policy::Policy::from_toml(policy).unwrap();
    let answer = desk.put_bytes("policies", &policy.to_object()).await;
    assert_eq!(answer.status, 201, "{:?}", answer.json());
    let profile = vault_policy::profile::Profile {
        name: "empty".to_owned(),
        agent: "codex".parse().unwrap(),
        skills: Vec::new(),
    };
    let answer = desk.put_bytes("bundles", &profile.to_object()).await;
    assert_eq!(answer.status, 201, "{:?}", answer.json());
    // The same values in other bytes are nothing that a release could name.
    let mut padded = profile.to_object();
    padded.push(b' ');
    assert_eq!(desk.put_bytes("bundles", &padded).await.status, 413);
    desk.world.clock.advance(HOUR);
    let next = desk
        .world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await;
    next.unwrap();
    assert!(desk.world.stored(&desk.acme).await.0 > used);
}

/// A vault whose release has one skill, with the count of its uploads before that release.
async fn released(uploads: usize) -> (Desk, Team, Signed) {
    let desk = empty_desk().await;
    desk.world.add_uploads(&desk.acme, uploads).await;
    let team = Team::new("acme", 1, 1);
    let skill = team.skill("alpha", "one");
    let answer = desk.put_bytes("bundles", &skill.encoded.bytes).await;
    assert_eq!(answer.status, 201);
    let size = skill.encoded.bytes.len() as u64;
    assert_eq!(desk.world.unnamed(&desk.acme).await, (size, 1));
    team.publish(&desk.world, std::slice::from_ref(&skill))
        .await;
    (desk, team, skill)
}

#[tokio::test]
async fn objects_that_a_release_names_again_do_not_lower_the_count_of_unnamed_ones() {
    let (desk, team, skill) = released(0).await;
    assert_eq!(desk.world.unnamed(&desk.acme).await, (0, 0));
    let waiting = bytes(1, 5000);
    assert_eq!(desk.put_bytes("bundles", &waiting).await.status, 201);
    for _ in 0..3 {
        team.publish(&desk.world, &[]).await;
        team.publish(&desk.world, std::slice::from_ref(&skill))
            .await;
        assert_eq!(desk.world.unnamed(&desk.acme).await, (5000, 1));
    }
    // What the garbage collection counts is the same.
    desk.world.clock.advance(6 * HOUR);
    desk.world.work().await;
    assert_eq!(desk.world.unnamed(&desk.acme).await, (5000, 1));
    let truth = desk.world.truth(&desk.acme).await;
    assert_eq!(desk.world.stored(&desk.acme).await, truth);
    // The upload is deleted after a week, and what the last release dropped after a month.
    team.publish(&desk.world, &[]).await;
    for _ in 0..40 {
        desk.world.clock.advance(DAY);
        desk.world.work().await;
    }
    assert_eq!(desk.world.unnamed(&desk.acme).await, (0, 0));
    let truth = desk.world.truth(&desk.acme).await;
    assert_eq!(desk.world.stored(&desk.acme).await, truth);
}

/// A publish reads 1,000 records of uploads and former releases at most.
#[tokio::test]
async fn among_more_uploads_than_a_publish_reads_the_count_stays_too_high_until_a_visit() {
    let (desk, _, skill) = released(1000).await;
    let size = skill.encoded.bytes.len() as u64;
    assert_eq!(desk.world.unnamed(&desk.acme).await, (size, 1));
    desk.world.work().await;
    assert_eq!(desk.world.unnamed(&desk.acme).await, (0, 0));
}

/// It held more than its quota and every allowance before it had a quota, or before that was lowered.
#[tokio::test]
async fn a_vault_far_beyond_its_quota_still_publishes_and_changes_keys() {
    let desk = desk().await;
    desk.limit(1, 1).await;
    let amount = |bytes: u64| json!({ "bytes": bytes, "objects": 300_000 });
    let tally = json!({ "stored": amount(5 << 30), "unnamed": amount(0) });
    let key = RecordKey::new(format!("stored/{}", desk.acme.id), "usage");
    put(&desk.world.app, key, &json!({ "tally": tally })).await;
    assert_eq!(desk.put_bytes("bundles", b"a skill").await.status, 413);
    desk.world.clock.advance(HOUR);
    let next = desk
        .world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await;
    next.unwrap();
    let usage = desk.world.usage(&desk.acme).await;
    assert!(usage.beyond.files.bytes > 0 && usage.beyond.files.objects > 0);
    assert!(usage.tally.stored.bytes > 5 << 30);
}

#[tokio::test]
async fn an_object_over_4_mib_leaves_the_count_exact() {
    let world = world();
    let acme = world.limited(10 << 20, 0).await;
    let objects = [bytes(1, 100), bytes(2, (4 << 20) + 1)];
    let refused = world.put_bundles(&acme, &objects).await;
    assert!(matches!(
        refused,
        Err(UploadError::Store(StoreError::Invalid(_)))
    ));
    let (usage, _) = Usage::find(&world.app, &acme.id).await.unwrap();
    assert_eq!(usage, Usage::default());
}

#[tokio::test]
async fn owners_are_warned_once_at_80_percent_and_again_after_a_fall() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("hooks.example", &["quota_near"]).await;
    desk.limit(1000, 0).await;
    let mut warnings = Vec::new();
    for (n, length) in [(1, 700), (2, 99), (3, 8), (4, 8), (5, 8)] {
        desk.put_bytes("bundles", &bytes(n, length)).await;
        desk.world.work().await;
        warnings.push(endpoints.events().len());
    }
    assert_eq!(warnings, [0, 0, 1, 0, 0]);
    // Everything goes after a day and its grace period, then the quota fills again.
    for _ in 0..3 {
        desk.world.clock.advance(DAY + 6 * HOUR);
        desk.world.work().await;
    }
    assert_eq!(desk.world.stored(&desk.acme).await, (0, 0));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    desk.put_bytes("bundles", &bytes(6, 900)).await;
    desk.world.work().await;
    let warning = json!({ "vault": "acme", "quota": "bytes", "used": 900, "limit": 1000 });
    assert_eq!(endpoints.events(), [("quota_near".to_owned(), warning)]);
}

#[tokio::test]
async fn the_vault_of_a_server_itself_has_no_quota() {
    let world = world();
    world.namespace("acme", Kind::SelfSigned).await;
    let limit = |namespace: &mut Namespace| namespace.quota.bytes = Some(10);
    world.change("acme", limit).await;
    let namespace = world.read_namespace("acme").await;
    assert_eq!(world.app.quota_of(&namespace), Quota::NONE);
    world
        .put_bundles(&namespace, &[bytes(1, 60)])
        .await
        .unwrap();
    assert_eq!(world.stored(&namespace).await, (60, 1));
}
