//! Counts and warnings of the quota while other processes change the same records, and what a store
//! that fails leaves of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use vault_format::keys::SecretKey;
use vault_service::config::quota::is_near;
use vault_service::maintenance;
use vault_service::model::device::{Device, DeviceStatus};
use vault_service::model::draft::drafts_partition;
use vault_service::model::namespace::Namespace;
use vault_service::model::user::{Scopes, users_partition};
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::admin::{ADA, Desk, Planned, desk, empty_desk, token};
use crate::common::{commit, put};
use crate::notices::Endpoints;
use crate::quota::bytes;
use crate::quota_warnings::warning;
use crate::support::{key, world};
use crate::team::propose_skill;

const HOUR: i64 = 3600;

fn machines() -> RecordKey {
    RecordKey::new("ns/acme", "machines")
}

/// Another process admits so many machines, and warns if that reaches 80 % of this limit.
fn others(by: i64, crossed: Option<u64>) -> Planned {
    let mut writes = vec![Write::count(machines(), "admitted", by, 100)];
    if let Some(limit) = crossed {
        let judged = Document::from_value(&json!({ "limit": limit })).unwrap();
        writes.push(Write::put(machines_limit(), judged, When::Any));
    }
    Planned::Sooner(writes)
}

fn machines_limit() -> RecordKey {
    RecordKey::new("ns/acme", "machines-limit")
}

impl Desk {
    /// The writes by which another process invites a person.
    async fn another_invitation(&self) -> Vec<Write> {
        let users = users_partition(&self.acme.id);
        let records = self.world.uncounted().records;
        let listed = records.list_page(&users, "", None, 10).await.unwrap();
        assert_eq!(listed.len(), 1);
        let invited = RecordKey::new(users, "usr_another");
        let guard = Document::from_value(&json!({})).unwrap();
        vec![
            Write::put(invited, listed[0].document.clone(), When::Any),
            Write::put(RecordKey::new("ns/acme", "people"), guard, When::Any),
        ]
    }
}

/// A desk with so many machines of a limit, by which they were judged or not yet.
pub async fn counted(admitted: u64, limit: u64, is_judged: bool) -> (Desk, Arc<Endpoints>) {
    let (mut desk, endpoints) = Desk::watched().await;
    for n in 1..=u8::try_from(admitted).unwrap() {
        desk.world.device("acme", n, DeviceStatus::Active).await;
    }
    let count = json!({ "admitted": admitted, "counted_at": desk.world.now() });
    put(&desk.world.app, machines(), &count).await;
    let change = |namespace: &mut Namespace| namespace.quota.machines = Some(limit);
    if is_judged {
        desk.world.change("acme", change).await;
    }
    // The next visit of the garbage collection is due in six hours.
    desk.world.work().await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    if !is_judged {
        desk.world.change("acme", change).await;
    }
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    (desk, endpoints)
}

#[tokio::test]
async fn machines_that_are_admitted_at_once_cause_one_warning() {
    for is_judged in [true, false] {
        // Admitted, the limit, what another process adds meanwhile, the warning of this one.
        for (admitted, limit, by, wanted) in [
            (3, 5, 1_i64, vec![]),
            (3, 5, -1, vec![]),
            (3, 5, 0, warning("machines", 4, 5)),
            (2, 5, 1, warning("machines", 4, 5)),
            (1, 5, 1, vec![]),
            (6, 10, 1, warning("machines", 8, 10)),
            (6, 10, 2, vec![]),
        ] {
            let (desk, endpoints) = counted(admitted, limit, is_judged).await;
            let is_crossed = by > 0 && is_near(admitted + by.unsigned_abs(), limit);
            let sooner = others(by, is_crossed.then_some(limit));
            desk.commits.plan(machines(), [sooner]);
            desk.admit(100).await;
            let text = format!("{admitted} {by} of {limit}, {is_judged}");
            assert_eq!(desk.warnings(&endpoints).await, wanted, "{text}");
        }
    }
    // Back over the limit of warnings, where a revocation came first.
    let (desk, endpoints) = counted(3, 5, true).await;
    desk.admit(100).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
    desk.commits.plan(machines(), [others(-1, None)]);
    desk.admit(101).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
}

#[tokio::test]
async fn the_last_place_that_another_process_takes_is_gone() {
    let (desk, endpoints) = counted(3, 5, true).await;
    desk.admit(100).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
    desk.commits.plan(machines(), [others(1, None)]);
    let path = desk.enrolled(101).await;
    let full = desk.post(&format!("{path}/admit"), &Value::Null).await;
    assert_eq!(full.short(), "409 quota_full");

    let limit = |namespace: &mut Namespace| namespace.quota.people = Some(2);
    desk.world.change("acme", limit).await;
    let guard = RecordKey::new("ns/acme", "people");
    let invitation = Planned::Sooner(desk.another_invitation().await);
    desk.commits.plan(guard, [invitation]);
    let body = json!({ "email": "one@example.org", "role": "role:member", "scopes": ["read"] });
    let full = desk.post("/admin/users", &body).await;
    assert_eq!(full.short(), "409 quota_full");
}

#[tokio::test]
async fn the_last_place_for_a_draft_that_another_process_takes_is_gone() {
    let desk = desk().await;
    let limit = |namespace: &mut Namespace| namespace.quota.drafts = Some(2);
    desk.world.change("acme", limit).await;
    let propose = async |name| propose_skill(&desk.world, &desk.owner, "acme", name).await;
    assert_eq!(propose("one").await.status, 201);
    let partition = drafts_partition(&desk.acme.id);
    let records = desk.world.uncounted().records;
    let listed = records.list_page(&partition, "", None, 10).await.unwrap();
    let [one] = listed.as_slice() else {
        panic!("{listed:?}");
    };
    let another = RecordKey::new(partition, "drf_another");
    let guard = RecordKey::new(format!("draft-count/{}", desk.acme.id), "places");
    let empty = Document::from_value(&json!({})).unwrap();
    let sooner = Planned::Sooner(vec![
        Write::put(another, one.document.clone(), When::Absent),
        Write::put(guard.clone(), empty, When::Any),
    ]);
    desk.commits.plan(guard, [sooner]);
    let full = propose("two").await;
    assert_eq!(full.short(), "409 draft_queue_full", "{:?}", full.json());
    let listed = records
        .list_page(&drafts_partition(&desk.acme.id), "", None, 10)
        .await;
    assert_eq!(listed.unwrap().len(), 2);
}

/// Another process counts its upload between the reading and the commit of this one.
#[tokio::test]
async fn the_last_bytes_that_another_process_takes_are_gone() {
    let desk = empty_desk().await;
    desk.limit(100, 0).await;
    let usage = RecordKey::new(format!("stored/{}", desk.acme.id), "usage");
    let taken = json!({ "bytes": 60, "objects": 1 });
    let taken = json!({ "tally": { "stored": taken, "unnamed": taken } });
    let taken = Document::from_value(&taken).unwrap();
    let sooner = Planned::Sooner(vec![Write::put(usage.clone(), taken, When::Any)]);
    desk.commits.plan(usage, [sooner]);
    let refused = desk.put_bytes("bundles", &bytes(1, 60)).await;
    assert_eq!(refused.short(), "413 quota_exceeded");
    assert_eq!(desk.world.usage(&desk.acme).await.tally.stored.bytes, 60);
}

/// A process that knows the limit of before admits or invites one more at the same moment.
#[tokio::test]
async fn a_limit_is_judged_by_the_places_that_are_taken_then() {
    let (desk, endpoints) = counted(3, 9, true).await;
    let operator = desk.operator().await;
    desk.commits.plan(machines_limit(), [others(1, None)]);
    desk.set_quota(&operator, &json!({ "machines": 5 })).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));

    desk.set_quota(&operator, &json!({ "people": 9 })).await;
    let invitation = desk.another_invitation().await;
    let judged = RecordKey::new("ns/acme", "people-limit");
    desk.commits.plan(judged, [Planned::Sooner(invitation)]);
    desk.set_quota(&operator, &json!({ "people": 2 })).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("people", 2, 2));
}

#[tokio::test]
async fn a_quota_is_set_though_owners_cannot_be_warned_yet() {
    let (mut desk, endpoints) = Desk::watched().await;
    let operator = desk.operator().await;
    let judged = RecordKey::new("ns/acme", "people-limit");
    desk.commits.plan(judged, [Planned::Failure]);
    desk.set_quota(&operator, &json!({ "people": 1 })).await;
    desk.world.clock.advance(6 * HOUR);
    desk.world.work().await;
    assert_eq!(desk.warnings(&endpoints).await, warning("people", 1, 1));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let shown = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(shown["quota"]["people"], 1);
}

/// A process of an earlier version admits without counting.
#[tokio::test]
async fn a_number_of_machines_that_is_too_low_is_corrected_by_the_garbage_collection() {
    let (mut desk, endpoints) = counted(4, 5, false).await;
    put(&desk.world.app, machines(), &json!({ "admitted": 1 })).await;
    desk.world.clock.advance(6 * HOUR);
    // Others decide while the machines are counted.
    desk.commits
        .plan(machines(), [others(1, None), others(-1, None)]);
    desk.world.work().await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let shown = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(shown["usage"]["machines"], 4);
    desk.world.clock.advance(6 * HOUR);
    assert_eq!(desk.warnings(&endpoints).await, []);
}

/// Whoever has a code can enrol key after key.
#[tokio::test]
async fn a_refused_machine_makes_the_service_read_all_machines_once_an_hour() {
    for is_counted in [true, false] {
        let (desk, _) = counted(2, 2, false).await;
        if is_counted {
            // By an earlier version, which does not say when.
            put(&desk.world.app, machines(), &json!({ "admitted": 2 })).await;
        } else {
            commit(&desk.world.app, vec![Write::delete(machines(), When::Any)]).await;
        }
        let made = desk
            .post("/admin/vaults/acme/enrolment-codes", &json!({ "uses": 9 }))
            .await
            .json();
        let refused = async |n: u8| {
            let before = desk.commits.reads();
            let body =
                json!({ "public_key": key(n).public(), "hostname": "x", "code": made["code"] });
            let body = body.to_string();
            let answer = desk.world.post_devices(&key(n), "acme", &body).await;
            assert_eq!(answer.short(), "409 quota_full");
            desk.commits.reads() - before
        };
        let first = refused(100).await;
        let second = refused(101).await;
        assert!(second < first, "{second} {first}");
        assert_eq!(refused(102).await, second);
        desk.world.clock.advance(HOUR);
        assert!(refused(103).await > second);
    }
}

/// A vault of an earlier version has no number of machines. Its holders of used-up codes try again.
#[tokio::test]
async fn a_used_up_code_makes_the_service_read_all_machines_once() {
    let (desk, _) = counted(2, 9, false).await;
    let made = desk
        .post("/admin/vaults/acme/enrolment-codes", &json!({ "uses": 1 }))
        .await
        .json();
    let enrol = async |n: u8| {
        let before = desk.commits.reads();
        let body = json!({ "public_key": key(n).public(), "hostname": "x", "code": made["code"] });
        let answer = desk
            .world
            .post_devices(&key(n), "acme", &body.to_string())
            .await;
        (answer.short(), desk.commits.reads() - before)
    };
    assert_eq!(enrol(100).await.0, "201");
    commit(&desk.world.app, vec![Write::delete(machines(), When::Any)]).await;
    let [first, second, third] = [enrol(101).await, enrol(102).await, enrol(103).await];
    assert_eq!(second.0, "403 enrolment_code_invalid");
    assert_eq!(first.0, second.0);
    assert!(second.1 < first.1, "{second:?} {first:?}");
    assert_eq!(third, second);
    let stored = desk.world.app.get::<Value>(&machines()).await.unwrap();
    assert_eq!(stored.unwrap().value["admitted"], 3);
}

/// Another process judges the limit again and again while a machine is admitted.
#[tokio::test]
async fn an_admission_that_is_tried_again_reads_all_machines_once() {
    let mut costs = Vec::new();
    for conflicts in [0, 3] {
        for is_stored in [true, false] {
            let (desk, _) = counted(2, 9, true).await;
            if !is_stored {
                commit(&desk.world.app, vec![Write::delete(machines(), When::Any)]).await;
            }
            let judged = Document::from_value(&json!({ "limit": 9 })).unwrap();
            let judged = Write::put(machines_limit(), judged, When::Any);
            let sooner = (0..conflicts).map(|_| Planned::Sooner(vec![judged.clone()]));
            desk.commits.plan(machines_limit(), sooner);
            let path = desk.enrolled(100).await;
            let before = desk.commits.reads();
            let admitted = desk.post(&format!("{path}/admit"), &Value::Null).await;
            assert_eq!(admitted.status, 200);
            costs.push(desk.commits.reads() - before);
        }
    }
    // Without a conflict, with one count of all machines; the same with conflicts.
    assert!(costs[1] > costs[0] && costs[2] > costs[0], "{costs:?}");
    assert_eq!(costs[3] - costs[2], costs[1] - costs[0], "{costs:?}");
}

/// One page has 1,000 machines.
#[tokio::test]
async fn a_visit_counts_machines_only_within_the_time_of_the_namespace() {
    let (desk, _) = counted(0, 5000, true).await;
    let seed = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let mut seed = [3; 32];
        (seed[0], seed[1]) = (high, low);
        SecretKey::from_seed(seed).public()
    };
    let slug = &desk.acme.slug;
    let machine = |n: u16| {
        let now = desk.world.now();
        let device = Device::new(slug, desk.acme.id, seed(n), format!("machine {n}"), now);
        let device = Device {
            status: DeviceStatus::Active,
            ..device
        };
        device.to_write(slug, When::Absent).unwrap()
    };
    for some in (0..1001).collect::<Vec<_>>().chunks(100) {
        commit(&desk.world.app, some.iter().map(|n| machine(*n)).collect()).await;
    }
    for is_absent in [true, false] {
        let wrong = if is_absent {
            Write::delete(machines(), When::Any)
        } else {
            let number = Document::from_value(&json!({ "admitted": 1 })).unwrap();
            Write::put(machines(), number, When::Any)
        };
        commit(&desk.world.app, vec![wrong]).await;
        let admitted = async || {
            let found = desk.world.app.get::<Value>(&machines()).await.unwrap();
            found.map_or(0, |found| found.value["admitted"].as_u64().unwrap())
        };
        let before = admitted().await;
        desk.world.clock.advance(6 * HOUR);
        let run = maintenance::run_within(&desk.world.app, Duration::ZERO);
        run.await.unwrap();
        assert_eq!(admitted().await, before);
        desk.world.work().await;
        desk.world.clock.advance(6 * HOUR);
        desk.world.work().await;
        assert_eq!(admitted().await, 1001);
    }
}

/// The store fails once.
#[tokio::test]
async fn the_count_of_a_listing_is_stored_in_a_further_attempt() {
    let desk = desk().await;
    let usage = RecordKey::new(format!("stored/{}", desk.acme.id), "usage");
    // The beginning of the listing, then its end.
    let planned = [Planned::Nothing, Planned::Failure];
    desk.commits.plan(usage, planned);
    desk.world.work().await;
    let counted = desk.world.usage(&desk.acme).await;
    assert!(counted.is_counted);
}

/// Lets the first question to the store wait.
struct SlowQuestion {
    is_asked: AtomicBool,
    answers: Semaphore,
}

#[async_trait]
impl Hook for SlowQuestion {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::Missing) && !self.is_asked.swap(true, Ordering::SeqCst) {
            self.answers.acquire().await.unwrap().forget();
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_upload_that_asks_the_store_keeps_no_other_waiting() {
    let mut world = world();
    let namespace = world.limited(100, 0).await;
    let hook = Arc::new(SlowQuestion {
        is_asked: AtomicBool::new(false),
        answers: Semaphore::new(0),
    });
    world.app.ports.objects = Hooked::new(&world.memory, hook.clone());
    let (slow_objects, quick_objects) = ([bytes(1, 50)], [bytes(2, 45)]);
    world.put_bundles(&namespace, &[bytes(3, 5)]).await.unwrap();
    // In doubt, so that it asks even far from the quota.
    let stored = json!({ "bytes": 5, "objects": 1 });
    let usage = json!({ "tally": { "stored": stored, "unnamed": stored }, "is_doubtful": true });
    let usage_key = RecordKey::new(format!("stored/{}", namespace.id), "usage");
    put(&world.app, usage_key, &usage).await;
    let slow = world.put_bundles(&namespace, &slow_objects);
    let quick = async {
        while !hook.is_asked.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        world.put_bundles(&namespace, &quick_objects).await.unwrap();
        hook.answers.add_permits(1);
    };
    let (slow, ()) = tokio::join!(slow, quick);
    slow.unwrap();
    assert_eq!(world.usage(&namespace).await.tally.stored.bytes, 100);
}
