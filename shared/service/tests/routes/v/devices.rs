//! `POST /v/<slug>/devices`: the one write of a device.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use serde_json::json;
use vault_format::keys::SecretKey;
use vault_service::config::Limits;
use vault_service::http::Peer;
use vault_service::model::device::{self, DeviceStatus};
use vault_service::model::namespace::{self, Kind, Namespace, Queue, Status};

use crate::support::{World, key, world, world_with};

async fn acme() -> World {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    world
}

/// The counter, and what it counts.
async fn pending(world: &World) -> (i64, usize, usize) {
    let slug = "acme".parse().unwrap();
    let records = &world.app.records;
    let queue: Queue = match records
        .get_one(&namespace::device_queue_key(&slug))
        .await
        .unwrap()
    {
        Some(record) => record.read().unwrap(),
        None => Queue::default(),
    };
    let index = records
        .list_page(&device::pending_partition(&slug), "", None, 1000)
        .await
        .unwrap();
    let devices = records
        .list_page(&device::devices_partition(&slug), "", None, 1000)
        .await
        .unwrap();
    (queue.pending, index.len(), devices.len())
}

#[tokio::test]
async fn a_machine_without_a_name_enrols_with_an_empty_one() {
    let world = acme().await;
    let body = json!({ "public_key": key(1).public() }).to_string();
    let enrolled = world.post_devices(&key(1), "acme", &body).await;
    assert_eq!(enrolled.status, 201);
    assert_eq!(enrolled.json()["hostname"], "");
    let named = json!({ "public_key": key(1).public(), "hostname": "later" }).to_string();
    let again = world.post_devices(&key(1), "acme", &named).await;
    assert_eq!(again.json()["hostname"], "", "the first value stays");
}

#[tokio::test]
async fn the_first_time_is_201_the_next_200_and_the_first_name_stays() {
    let world = acme().await;
    let first = world.enrol(&key(1), "acme", " Ada's laptop ").await;
    assert_eq!(first.status, 201);
    insta::assert_json_snapshot!(first.json(), @r#"
    {
      "device_id": "dev_h6gu4wwjvta4a46wtephq336xx",
      "enrolled_at": "2026-11-21T02:00:10Z",
      "hostname": "Ada's laptop",
      "public_key": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
      "status": "pending"
    }
    "#);
    assert_eq!(first.header("location"), "");
    assert_eq!(first.header("content-type"), "application/json");
    world.clock.advance(100);
    let second = world.enrol(&key(1), "acme", "renamed").await;
    assert_eq!(second.status, 200);
    assert_eq!(second.json(), first.json());
    assert_eq!(pending(&world).await, (1, 1, 1));
    world
        .set_status("acme", &key(1), DeviceStatus::Revoked)
        .await;
    let third = world.enrol(&key(1), "acme", "laptop").await;
    assert_eq!(
        (third.status.as_u16(), &third.json()["status"]),
        (200, &json!("revoked"))
    );
}

#[tokio::test]
async fn an_unknown_slug_is_told_to_the_person_who_mistyped_it() {
    let world = acme().await;
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    world.change("acme", change).await;
    for slug in ["nobody", "acme"] {
        let answer = world.enrol(&key(1), slug, "laptop").await;
        assert_eq!(answer.short(), "404 vault_not_found", "{slug}");
    }
}

/// The body is checked in this order: size, media type, JSON, key, name; and all of it before the
/// look-up.
#[tokio::test]
async fn bodies_are_refused_in_the_order_of_the_table() {
    let world = world();
    let me = key(1);
    let mine = me.public().to_string();
    let other = key(2).public().to_string();
    let padded = |size: usize| {
        let empty = json!({ "public_key": mine, "hostname": "laptop", "x": "" })
            .to_string()
            .len();
        json!({ "public_key": mine, "hostname": "laptop", "x": "x".repeat(size - empty) })
            .to_string()
    };
    for (body, wanted) in [
        (padded(4097), "413 body_too_large"),
        (padded(4096), "404 vault_not_found"),
        (String::new(), "400 json_invalid"),
        ("{".into(), "400 json_invalid"),
        ("[]".into(), "400 json_invalid"),
        (json!([mine, "laptop"]).to_string(), "400 json_invalid"),
        ("null".into(), "400 json_invalid"),
        (
            json!({ "hostname": "laptop" }).to_string(),
            "400 json_invalid",
        ),
        (
            json!({ "public_key": 7, "hostname": "laptop" }).to_string(),
            "400 json_invalid",
        ),
        (
            format!("{{\"public_key\":\"{mine}\",\"public_key\":\"{mine}\",\"hostname\":\"x\"}}"),
            "400 json_invalid",
        ),
        (
            format!("\u{feff}{{\"public_key\":\"{mine}\",\"hostname\":\"x\"}}"),
            "400 json_invalid",
        ),
        (
            json!({ "public_key": other, "hostname": "\n" }).to_string(),
            "400 public_key_mismatch",
        ),
        (
            json!({ "public_key": format!("{mine}="), "hostname": "laptop" }).to_string(),
            "400 public_key_mismatch",
        ),
        (
            json!({ "public_key": mine.to_uppercase(), "hostname": "laptop" }).to_string(),
            "400 public_key_mismatch",
        ),
        (
            json!({ "public_key": "", "hostname": "laptop" }).to_string(),
            "400 public_key_mismatch",
        ),
        (
            json!({ "public_key": mine }).to_string(),
            "404 vault_not_found",
        ),
        (
            json!({ "public_key": mine, "hostname": "" }).to_string(),
            "400 hostname_invalid",
        ),
        (
            json!({ "public_key": mine, "hostname": "x".repeat(65) }).to_string(),
            "400 hostname_invalid",
        ),
        (
            json!({ "public_key": mine, "hostname": "a\u{202e}b" }).to_string(),
            "400 hostname_invalid",
        ),
        (
            json!({ "public_key": mine, "hostname": "a\u{1b}[2J" }).to_string(),
            "400 hostname_invalid",
        ),
    ] {
        let answer = world.post_devices(&me, "nobody", &body).await;
        assert_eq!(answer.short(), wanted, "{body:.80}");
        let text = String::from_utf8_lossy(&answer.body);
        for sent in [mine.as_str(), "nobody", "laptop"] {
            assert!(!text.contains(sent), "nothing is echoed: {text}");
        }
    }
    for (media_type, size, wanted) in [
        ("", 10, "415 media_type"),
        ("text/plain", 10, "415 media_type"),
        ("text/plain", 4097, "413 body_too_large"),
        ("application/problem+json", 10, "415 media_type"),
    ] {
        let mut request = world.signed(&me, "POST", "/v/nobody/devices");
        request
            .headers_mut()
            .insert(CONTENT_TYPE, media_type.parse().unwrap());
        *request.body_mut() = Body::from("x".repeat(size));
        assert_eq!(
            world.send(request).await.short(),
            wanted,
            "{media_type} {size}"
        );
    }
}

#[tokio::test]
async fn fifty_at_once_leave_exactly_twenty() {
    let world = acme().await;
    let keys: Vec<SecretKey> = (1..=50).map(key).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for key in &keys {
        let request = {
            let mut request = world.signed(key, "POST", "/v/acme/devices");
            request
                .headers_mut()
                .insert(CONTENT_TYPE, "application/json".parse().unwrap());
            *request.body_mut() = json!({ "public_key": key.public(), "hostname": "machine" })
                .to_string()
                .into();
            request
        };
        let router = world.router.clone();
        tasks.spawn(async move {
            tower::ServiceExt::oneshot(router, request)
                .await
                .unwrap()
                .status()
                .as_u16()
        });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![201; 20], vec![409; 30]].concat());
    assert_eq!(pending(&world).await, (20, 20, 20));
    let full = world.enrol(&key(99), "acme", "late").await;
    assert_eq!(full.short(), "409 pending_queue_full");
    let mut known = 0;
    for key in &keys {
        known += u32::from(world.enrol(key, "acme", "again").await.status == 200);
    }
    assert_eq!(known, 20, "a machine that is enrolled is never locked out");
}

#[tokio::test]
async fn twenty_at_once_with_one_key_are_one_device() {
    let world = acme().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut request = world.signed(&key(1), "POST", "/v/acme/devices");
        request
            .headers_mut()
            .insert(CONTENT_TYPE, "application/json".parse().unwrap());
        *request.body_mut() = json!({ "public_key": key(1).public(), "hostname": "machine" })
            .to_string()
            .into();
        let router = world.router.clone();
        tasks.spawn(async move {
            tower::ServiceExt::oneshot(router, request)
                .await
                .unwrap()
                .status()
                .as_u16()
        });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 19], vec![201]].concat());
    assert_eq!(pending(&world).await, (1, 1, 1));
}

/// Enrolments are counted per slug and source, and per source; a key that is enrolled is not
/// counted.
#[tokio::test]
async fn enrolments_are_limited_per_source() {
    let world = world_with(|config| {
        config.limits = Limits {
            enrol_per_slug: 2,
            enrol_per_source: 3,
            ..Limits::disabled()
        };
    });
    world.namespace("acme", Kind::Hosted).await;
    world.namespace("other", Kind::Hosted).await;
    let enrol = async |n: u8, slug: &str, source: &str| {
        let mut request = world.signed(&key(n), "POST", &format!("/v/{slug}/devices"));
        request
            .headers_mut()
            .insert(CONTENT_TYPE, "application/json".parse().unwrap());
        request
            .extensions_mut()
            .insert(Peer(SocketAddr::new(source.parse().unwrap(), 1)));
        *request.body_mut() = json!({ "public_key": key(n).public(), "hostname": "machine" })
            .to_string()
            .into();
        world.send(request).await.short()
    };
    let (one, two) = ("192.0.2.1", "192.0.2.2");
    for (n, slug, source, wanted) in [
        (1, "acme", one, "201"),
        (2, "acme", one, "201"),
        (3, "acme", one, "429 rate_limited"),
        (1, "acme", one, "200"),
        (3, "other", one, "201"),
        (4, "other", one, "429 rate_limited"),
        (4, "nobody", one, "429 rate_limited"),
        (3, "acme", two, "201"),
        // One person has all addresses of an IPv6 network.
        (6, "acme", "2001:db8:1:1::1", "201"),
        (7, "acme", "2001:db8:1:1::2", "201"),
        (8, "acme", "2001:db8:1:1::3", "429 rate_limited"),
        (8, "acme", "2001:db8:1:2::3", "201"),
        // A network of many sources has four times as much.
        (9, "acme", "2001:db8:2:100::1", "201"),
        (10, "acme", "2001:db8:2:101::1", "201"),
        (11, "acme", "2001:db8:2:102::1", "201"),
        (12, "acme", "2001:db8:2:103::1", "201"),
        (13, "acme", "2001:db8:2:104::1", "201"),
        (14, "acme", "2001:db8:2:105::1", "201"),
        (15, "acme", "2001:db8:2:106::1", "201"),
        (16, "acme", "2001:db8:2:107::1", "201"),
        (17, "acme", "2001:db8:2:108::1", "429 rate_limited"),
        (17, "acme", "2001:db8:2:200::1", "201"),
    ] {
        assert_eq!(enrol(n, slug, source).await, wanted, "{n} {slug} {source}");
    }
    world.clock.advance(50);
    assert_eq!(enrol(5, "acme", one).await, "201", "the next minute");
}
