//! `GET /v/<slug>/devices/current`.

use serde_json::json;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Namespace, Subscription};

use crate::support::world;

#[tokio::test]
async fn one_small_poll_tells_all_that_changed() {
    let world = world();
    world.acme().await;
    let pending = world.device("acme", 1, DeviceStatus::Pending).await;
    let answer = world.ask(&pending, "GET", "/v/acme/devices/current").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("cache-control"), "private, no-store");
    insta::assert_json_snapshot!(answer.json(), @r#"
    {
      "catalog": {
        "release": 42,
        "sha256": "f8d2771041d3db1de3e26ce4907066f5e06ca50a1e324145964945dd7f48889e",
        "size": 2877
      },
      "device_id": "dev_h6gu4wwjvta4a46wtephq336xx",
      "enrolled_at": "2026-11-21T02:00:10Z",
      "hostname": "machine 1",
      "status": "pending"
    }
    "#);
    let active = world.device("acme", 2, DeviceStatus::Active).await;
    let admitted = world.ask(&active, "GET", "/v/acme/devices/current").await;
    assert_eq!(admitted.json()["status"], "active");
    assert_eq!(admitted.json()["catalog"], answer.json()["catalog"]);
    let head = world.ask(&pending, "HEAD", "/v/acme/devices/current").await;
    assert_eq!(
        (head.status, &head.headers, head.body.len()),
        (answer.status, &answer.headers, 0)
    );
}

#[tokio::test]
async fn a_revoked_device_learns_just_that() {
    let world = world();
    world.acme().await;
    let revoked = world.device("acme", 1, DeviceStatus::Revoked).await;
    let answer = world
        .ask(&revoked, "GET", "/v/acme/devices/current")
        .await
        .json();
    assert_eq!(answer["status"], "revoked");
    assert_eq!(answer.get("catalog"), None);
}

#[tokio::test]
async fn only_an_active_device_learns_that_the_subscription_has_lapsed() {
    let world = world();
    world.acme().await;
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    world.change("acme", change).await;
    for (n, status, lapsed) in [
        (1, DeviceStatus::Pending, json!(null)),
        (2, DeviceStatus::Revoked, json!(null)),
        (3, DeviceStatus::Active, json!(true)),
    ] {
        let device = world.device("acme", n, status).await;
        let answer = world.ask(&device, "GET", "/v/acme/devices/current").await;
        assert_eq!(answer.json()["lapsed"], lapsed, "{status:?}");
    }
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Active;
    world.change("acme", change).await;
    let device = world.device("acme", 4, DeviceStatus::Active).await;
    let answer = world.ask(&device, "GET", "/v/acme/devices/current").await;
    assert_eq!(answer.json()["lapsed"], json!(null));
}

#[tokio::test]
async fn before_the_first_release_there_is_no_catalog() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let active = world.device("acme", 1, DeviceStatus::Active).await;
    let answer = world
        .ask(&active, "GET", "/v/acme/devices/current")
        .await
        .json();
    assert_eq!(answer["status"], "active");
    assert!(answer["catalog"].is_null());
}
