//! The queue of waiting machines when it is full, and what becomes of those that were denied.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use serde_json::json;
use vault_format::keys::SecretKey;
use vault_service::http::Peer;
use vault_service::model::device;
use vault_service::model::namespace::{self, Kind, Queue};
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_store::records::{Records, Write};
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::admin::desk;
use crate::support::{World, bearer, key, world};

fn enrolment(world: &World, key: &SecretKey, source: &str) -> axum::http::Request<Body> {
    let mut request = world.signed(key, "POST", "/v/acme/devices");
    let media = "application/json".parse().unwrap();
    request.headers_mut().insert(CONTENT_TYPE, media);
    let peer = Peer(std::net::SocketAddr::new(source.parse().unwrap(), 1));
    request.extensions_mut().insert(peer);
    let body = json!({ "public_key": key.public(), "hostname": "machine" });
    *request.body_mut() = body.to_string().into();
    request
}

async fn enrol(world: &World, key: &SecretKey, source: &str) -> String {
    world.send(enrolment(world, key, source)).await.short()
}

/// What the counter says, and how many entries and devices there are.
async fn waiting(world: &World) -> (i64, usize, usize) {
    let slug = "acme".parse().unwrap();
    let records: &dyn Records = &*world.memory;
    let queue = records.get_one(&namespace::queue_key(&slug)).await.unwrap();
    let queue: Queue = queue.unwrap().read().unwrap();
    let listed =
        async |partition: &str| records.list_page(partition, "", None, 1000).await.unwrap();
    let entries = listed(&device::pending_partition(&slug)).await;
    let devices = listed(&device::devices_partition(&slug)).await;
    (queue.pending, entries.len(), devices.len())
}

#[tokio::test]
async fn a_stranger_who_fills_the_queue_gives_way_to_a_laptop() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let thief = "2001:db8:1:2::";
    for n in 1..=20 {
        let source = format!("{thief}{n:x}");
        assert_eq!(enrol(&world, &key(n), &source).await, "201");
    }
    // The network of the thief has its share; a laptop takes the place of the first of it.
    let more = enrol(&world, &key(21), &format!("{thief}ff")).await;
    assert_eq!(more, "409 pending_queue_full");
    assert_eq!(enrol(&world, &key(22), "192.0.2.1").await, "201");
    assert_eq!(waiting(&world).await, (20, 20, 20));
    let current = world.ask(&key(22), "GET", "/v/acme/devices/current").await;
    assert_eq!(current.json()["status"], "pending");
    // The key that gave way is unknown again, and so it may enrol afresh, from elsewhere.
    let mut gone = Vec::new();
    for n in 1..=20 {
        let current = world.ask(&key(n), "GET", "/v/acme/devices/current").await;
        if current.short() == "401 device_unknown" {
            gone.push(n);
        }
    }
    assert_eq!(gone.len(), 1);
    assert_eq!(enrol(&world, &key(gone[0]), "192.0.2.2").await, "201");
    assert_eq!(waiting(&world).await, (20, 20, 20));
}

#[tokio::test]
async fn many_newcomers_at_once_each_get_their_share_and_no_more() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    for n in 1..=20 {
        assert_eq!(enrol(&world, &key(n), "198.51.100.1").await, "201");
    }
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..24_u8 {
        let source = format!("192.0.2.{}", n % 4);
        let request = enrolment(&world, &key(100 + n), &source);
        let router = world.router.clone();
        tasks.spawn(async move {
            let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
            answer.status().as_u16()
        });
    }
    let statuses = tasks.join_all().await;
    // Three of each of four sources; who met too many others is asked to come again.
    let entered = statuses.iter().filter(|status| **status == 201).count();
    assert!(entered <= 12, "{statuses:?}");
    assert!(
        statuses
            .iter()
            .all(|status| [201, 409, 503].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(waiting(&world).await, (20, 20, 20));
    for n in 0..24 {
        let source = format!("192.0.2.{}", n % 4);
        let again = enrol(&world, &key(100 + n), &source).await;
        assert!(
            ["200", "201", "409 pending_queue_full"].contains(&again.as_str()),
            "{again}"
        );
    }
    let mut shares = [0; 4];
    for n in 0..24_u8 {
        let current = world
            .ask(&key(100 + n), "GET", "/v/acme/devices/current")
            .await;
        shares[usize::from(n % 4)] += u32::from(current.short() == "200");
    }
    assert_eq!(shares, [3; 4]);
    assert_eq!(waiting(&world).await, (20, 20, 20));
}

/// Lets others go first, once: right before the commit that takes a place in a full queue.
struct Meanwhile {
    router: axum::Router,
    others: Mutex<Vec<axum::http::Request<Body>>>,
}

#[async_trait]
impl Hook for Meanwhile {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let takes_a_place = matches!(call, Call::Commit(writes) if writes.iter().any(|write| {
            matches!(write, Write::Delete { .. }) && write.key().partition.starts_with("pend/")
        }));
        if takes_a_place {
            let others = std::mem::take(&mut *self.others.lock().unwrap());
            for request in others {
                let router = self.router.clone();
                let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
                assert!(answer.status().is_success(), "{answer:?}");
            }
        }
        Ok(())
    }
}

/// A newcomer who counted two of its source in the queue, while the owner denied another machine
/// and a third of the source came in.
#[tokio::test]
async fn a_newcomer_decides_by_the_queue_as_it_is_when_it_enters() {
    let mut desk = desk().await;
    let world = &desk.world;
    for n in 1..=20 {
        let source = if n <= 2 { "192.0.2.1" } else { "198.51.100.1" };
        assert_eq!(enrol(world, &key(n), source).await, "201");
    }
    let id = vault_format::request::device_id(&"acme".parse().unwrap(), &key(20).public());
    let path = format!("/admin/vaults/acme/devices/{id}/deny");
    let denied = bearer(&desk.owner, "POST", &path, None, &[]);
    let third = enrolment(world, &key(21), "192.0.2.1");
    let meanwhile = Meanwhile {
        router: world.router.clone(),
        others: Mutex::new(vec![denied, third]),
    };
    let fourth = enrolment(world, &key(22), "192.0.2.1");
    let mut app = world.app.clone();
    app.ports.records = Hooked::new(&world.memory, Arc::new(meanwhile));
    desk.world.router = vault_service::router(app);
    let refused = desk.world.send(fourth).await;
    assert_eq!(refused.short(), "409 pending_queue_full");
    assert_eq!(waiting(&desk.world).await.0, 20);
}

#[tokio::test]
async fn what_waits_for_over_a_day_gives_way_and_is_kept_until_then() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    for n in 1..=20 {
        assert_eq!(enrol(&world, &key(n), &format!("192.0.2.{n}")).await, "201");
    }
    for (wait, wanted) in [(24 * 3600, "409 pending_queue_full"), (1, "201")] {
        world.clock.advance(wait);
        assert_eq!(
            enrol(&world, &key(21), "192.0.2.99").await,
            wanted,
            "{wait}"
        );
    }
    assert_eq!(waiting(&world).await, (20, 20, 20));
}

#[tokio::test]
async fn machines_denied_before_they_were_admitted_are_forgotten_after_30_days() {
    let desk = desk().await;
    let world = &desk.world;
    for n in 1..=4 {
        assert_eq!(world.enrol(&key(n), "acme", "machine").await.status, 201);
    }
    let slug = "acme".parse().unwrap();
    let path = |n: u8, verb: &str| {
        let id = vault_format::request::device_id(&slug, &key(n).public());
        format!("/admin/vaults/acme/devices/{id}/{verb}")
    };
    for (n, verb) in [(1, "deny"), (2, "admit"), (2, "revoke")] {
        assert_eq!(desk.post(&path(n, verb), &json!({})).await.short(), "200");
    }
    let rest = "/admin/vaults/acme/devices/deny-pending";
    assert_eq!(desk.post(rest, &json!({})).await.short(), "200");
    let month = device::DENIED_SECONDS;
    world.clock.advance(month - 1);
    for n in 1..=4 {
        let current = world.ask(&key(n), "GET", "/v/acme/devices/current").await;
        assert_eq!(current.json()["status"], "revoked", "{n}");
    }
    world.clock.advance(1);
    let mut known = Vec::new();
    for n in 1..=4 {
        let current = world.ask(&key(n), "GET", "/v/acme/devices/current").await;
        known.push(current.short());
    }
    let unknown = "401 device_unknown";
    assert_eq!(known, [unknown, "200", unknown, unknown]);
    assert_eq!(waiting(world).await, (0, 0, 1));
    let token = crate::admin::token(world, crate::admin::ADA, "acme", Scopes::ALL).await;
    let gone = desk
        .ask(&token, "POST", &path(1, "forget"), Some(&json!({})))
        .await;
    assert_eq!(gone.short(), "404 not_found");
}
