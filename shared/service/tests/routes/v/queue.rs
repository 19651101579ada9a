//! The queue of waiting machines when it is full, and what becomes of those that were denied.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use serde_json::json;
use vault_format::keys::SecretKey;
use vault_service::http::Peer;
use vault_service::model::device;
use vault_service::model::namespace::{self, Kind, Queue};
use vault_service::model::user::Scopes;
use vault_store::records::Records;

use crate::admin::desk;
use crate::support::{World, key, world};

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
    let queue = records
        .get_one(&namespace::device_queue_key(&slug))
        .await
        .unwrap();
    let queue: Queue = queue.unwrap().read().unwrap();
    let listed =
        async |partition: &str| records.list_page(partition, "", None, 1000).await.unwrap();
    let entries = listed(&device::pending_partition(&slug)).await;
    let devices = listed(&device::devices_partition(&slug)).await;
    (queue.pending, entries.len(), devices.len())
}

/// Twenty machines may wait, from wherever they come. Whoever waits keeps the place until the owner
/// decides: neither time nor another network takes it.
#[tokio::test]
async fn any_twenty_machines_wait_and_none_gives_way() {
    for thief in ["2001:db8:1:2::", "198.51.100."] {
        let world = world();
        world.namespace("acme", Kind::Hosted).await;
        for n in 1..=20 {
            assert_eq!(enrol(&world, &key(n), &format!("{thief}{n}")).await, "201");
        }
        for (wait, newcomer) in [(0, 21), (24 * 3600 + 1, 22), (30 * 24 * 3600, 23)] {
            world.clock.advance(wait);
            let refused = enrol(&world, &key(newcomer), "192.0.2.1").await;
            assert_eq!(refused, "409 pending_queue_full");
            let current = world
                .ask(&key(newcomer), "GET", "/v/acme/devices/current")
                .await;
            assert_eq!(current.short(), "401 device_unknown");
        }
        for n in 1..=20 {
            // An enrolled key gets its own record, as often as it asks.
            assert_eq!(enrol(&world, &key(n), "192.0.2.1").await, "200");
            let current = world.ask(&key(n), "GET", "/v/acme/devices/current").await;
            assert_eq!(current.json()["status"], "pending");
        }
        assert_eq!(waiting(&world).await, (20, 20, 20));
    }
}

#[tokio::test]
async fn of_many_newcomers_at_once_as_many_enter_as_there_are_places() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    for n in 1..=15 {
        assert_eq!(enrol(&world, &key(n), "198.51.100.1").await, "201");
    }
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..24_u8 {
        let request = enrolment(&world, &key(100 + n), &format!("192.0.2.{n}"));
        let router = world.router.clone();
        tasks.spawn(async move {
            let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
            answer.status().as_u16()
        });
    }
    let statuses = tasks.join_all().await;
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    // Who met too many others is asked to come again.
    assert_eq!(count(409) + count(503), 19, "{statuses:?}");
    assert_eq!(count(201), 5, "{statuses:?}");
    assert_eq!(waiting(&world).await, (20, 20, 20));
}

/// The owner empties the network of a stranger; the machines of others keep their places.
#[tokio::test]
async fn an_owner_denies_the_machines_of_one_network() {
    let desk = desk().await;
    let world = &desk.world;
    let thief = "2001:db8:1:";
    for n in 1..=18 {
        let source = format!("{thief}{n}::1");
        assert_eq!(enrol(world, &key(n), &source).await, "201");
    }
    assert_eq!(enrol(world, &key(19), "192.0.2.1").await, "201");
    assert_eq!(enrol(world, &key(20), "192.0.2.200").await, "201");
    let list = "/admin/vaults/acme/devices";
    let listed = desk.get(list).await.json();
    let networks = listed["items"].as_array().unwrap().iter();
    let mut networks: Vec<_> = networks.map(|it| it["network"].as_str().unwrap()).collect();
    networks.sort_unstable();
    networks.dedup();
    assert_eq!(networks, ["192.0.2.0/24", "2001:db8:1::/48"]);
    let deny = format!("{list}/deny-pending");
    for (network, denied) in [
        ("2001:db8:2::/48", 0),
        ("2001:db8:1::/48", 18),
        ("2001:db8:1::/48", 0),
    ] {
        let answer = desk.post(&deny, &json!({ "network": network })).await;
        assert_eq!(answer.json()["items"].as_array().unwrap().len(), denied);
    }
    assert_eq!(waiting(world).await.0, 2);
    assert_eq!(desk.count("device.deny-pending done").await, 1);
    // Its address is of no use once the owner has decided.
    let listed = desk.get(list).await.json();
    let decided = listed["items"].as_array().unwrap().iter();
    let decided = decided.filter(|it| it["status"] == "revoked");
    assert!(decided.clone().count() == 18 && decided.clone().all(|it| it.get("network").is_none()));
    assert_eq!(enrol(world, &key(21), "192.0.2.1").await, "201");
}

/// What was asked is what is denied: neither a machine that came meanwhile nor one that another
/// owner has admitted.
#[tokio::test]
async fn an_owner_denies_the_machines_that_were_shown() {
    let desk = desk().await;
    let world = &desk.world;
    for n in 1..=4 {
        assert_eq!(enrol(world, &key(n), "192.0.2.1").await, "201");
    }
    let slug = "acme".parse().unwrap();
    let id = |n: u8| vault_format::request::device_id(&slug, &key(n).public());
    let admit = format!("/admin/vaults/acme/devices/{}/admit", id(2));
    assert_eq!(desk.post(&admit, &json!({})).await.short(), "200");
    let deny = "/admin/vaults/acme/devices/deny-pending";
    let asked = json!({ "devices": [id(1), id(2), id(3), "dev_x"] });
    let answer = desk.post(deny, &asked).await.json();
    let denied = answer["items"].as_array().unwrap().iter();
    let mut denied: Vec<_> = denied.map(|it| it["device_id"].as_str().unwrap()).collect();
    denied.sort_unstable();
    let mut wanted = [id(1), id(3)];
    wanted.sort();
    assert_eq!(denied, wanted);
    let status = async |n| {
        let current = world.ask(&key(n), "GET", "/v/acme/devices/current").await;
        current.json()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (status(2).await, status(4).await),
        ("active".into(), "pending".into())
    );
    for (asked, wanted) in [
        (
            json!({ "devices": vec!["dev_x"; 101] }),
            "422 parameter_invalid",
        ),
        (json!({ "networks": "192.0.2.0/24" }), "400 json_invalid"),
    ] {
        assert_eq!(desk.post(deny, &asked).await.short(), wanted);
    }
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
