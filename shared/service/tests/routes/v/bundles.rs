//! `GET /v/<slug>/bundles/<bundle_hash>.json`.

use vault_format::hash::Digest;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Namespace, Subscription};
use vault_service::model::release::withdrawn_key;
use vault_store::objects::{Class, Objects as _};

use crate::support::{World, big_table_parts, resigned, vector, world, world_with};

const CODE_REVIEW: &str = "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703";
const COMMIT_LOG: &str = "1db6dc66040e83889fb2b9f0f5a5d757d1bf1fc615ff56a4c791474a18533ed6";
const POLICY: &str = "b9225b67c4d0cccafabb0e376e292f0c845c06082e50e23fa584dfbccdb5a462";

fn path(hash: &str) -> String {
    format!("/v/acme/bundles/{hash}.json")
}

/// Release 43 with everything it names, at its own time.
async fn release_43() -> World {
    let world = world();
    world.acme().await;
    world.clock.advance(3600);
    world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await
        .unwrap();
    world
}

#[tokio::test]
async fn skills_indexes_profiles_variants_and_parts_are_served_to_the_byte() {
    let world = release_43().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let mut wanted = vec![
        vector("bundle-f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703.json"),
        vector("bundle-92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec.json"),
        vector("index-d5220c4acec69fcb03020aa0f346d1c2a56e55eb68957287ce8b443f827bc35e.json"),
        vector("profile-99e6002e884f08d908975cf4cbf43802e3fc2d7a71650e71c7915a0d482d8915.json"),
    ];
    wanted.extend(big_table_parts());
    for bytes in wanted {
        let hash = Digest::of(&bytes).to_string();
        let answer = world.ask(&device, "GET", &path(&hash)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body[..] == *bytes),
            (200, true),
            "{hash}"
        );
        assert!(answer.header("repr-digest").starts_with("sha-256=:"));
        let head = world.ask(&device, "HEAD", &path(&hash)).await;
        assert_eq!((&head.headers, head.body.len()), (&answer.headers, 0));
    }
}

/// The state of the device decides first, then the subscription, then whether the bundle exists.
#[tokio::test]
async fn refusals_in_the_order_of_the_table() {
    let world = world();
    world.acme().await;
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    world.change("acme", change).await;
    let pending = world.device("acme", 1, DeviceStatus::Pending).await;
    let revoked = world.device("acme", 2, DeviceStatus::Revoked).await;
    let active = world.device("acme", 3, DeviceStatus::Active).await;
    let absent = "0".repeat(64);
    for hash in [CODE_REVIEW, &absent] {
        assert_eq!(
            world.ask(&pending, "GET", &path(hash)).await.short(),
            "403 device_pending"
        );
        assert_eq!(
            world.ask(&revoked, "GET", &path(hash)).await.short(),
            "403 device_revoked"
        );
        assert_eq!(
            world.ask(&active, "GET", &path(hash)).await.short(),
            "402 subscription_lapsed"
        );
    }
    for live in [Subscription::Active, Subscription::None] {
        let change = |namespace: &mut Namespace| namespace.subscription = live;
        world.change("acme", change).await;
        assert_eq!(
            world.ask(&active, "GET", &path(CODE_REVIEW)).await.status,
            200
        );
        assert_eq!(
            world.ask(&active, "GET", &path(&absent)).await.short(),
            "404 bundle_not_found"
        );
    }
    assert_eq!(
        world.ask(&active, "GET", &path(POLICY)).await.short(),
        "404 bundle_not_found",
        "policies are not for devices"
    );
}

#[tokio::test]
async fn what_the_current_release_withdraws_is_gone_and_nothing_else() {
    let world = release_43().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    assert_eq!(
        world.ask(&device, "GET", &path(COMMIT_LOG)).await.status,
        200
    );
    world.clock.advance(23 * 3600);
    world
        .publish("acme", vector("catalog-44-withdrawn.json"))
        .await
        .unwrap();
    assert_eq!(
        world.ask(&device, "GET", &path(COMMIT_LOG)).await.short(),
        "404 bundle_not_found"
    );
    assert_eq!(
        world.ask(&device, "GET", &path(CODE_REVIEW)).await.status,
        200
    );
}

/// A publish that lost its race leaves its mark; the mark alone withdraws nothing.
#[tokio::test]
async fn a_mark_without_the_release_that_belongs_to_it_withdraws_nothing() {
    let world = release_43().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let namespace = world.read_namespace("acme").await;
    let mark = serde_json::json!({ "namespace_id": namespace.id, "since_release": 43 });
    let write = vault_store::records::Write::put(
        withdrawn_key(&namespace.slug, &COMMIT_LOG.parse().unwrap()),
        vault_store::records::Document::from_value(&mark).unwrap(),
        vault_store::records::When::Any,
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
    assert_eq!(
        world.ask(&device, "GET", &path(COMMIT_LOG)).await.status,
        200
    );
}

#[tokio::test]
async fn a_named_bundle_that_is_lost_is_503_whoever_names_it() {
    let world = world_with(|config| config.cache_bytes = 0);
    let namespace = world.acme().await;
    world.clock.advance(3600);
    world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await
        .unwrap();
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let part = Digest::of(&big_table_parts()[1]).to_string();
    let variant = "92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec";
    for hash in [CODE_REVIEW, variant, &part] {
        world
            .memory
            .delete_object(&namespace.object_key(Class::Bundles, hash.parse().unwrap()))
            .await
            .unwrap();
        let answer = world.ask(&device, "GET", &path(hash)).await;
        assert_eq!(answer.short(), "503 bundle_unavailable");
        assert_eq!(answer.header("retry-after"), "1");
    }
}

#[tokio::test]
async fn no_tenant_sees_another_s_bytes() {
    let world = world();
    world.acme().await;
    world.namespace("other", Kind::Hosted).await;
    let device = world.device("other", 1, DeviceStatus::Active).await;
    let path = format!("/v/other/bundles/{CODE_REVIEW}.json");
    assert_eq!(
        world.ask(&device, "GET", &path).await.short(),
        "404 bundle_not_found"
    );
}

#[tokio::test]
async fn what_was_uploaded_is_served_before_a_release_names_it() {
    let world = world();
    let namespace = world.namespace("acme", Kind::Hosted).await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let hash = world
        .put_object(&namespace, Class::Bundles, b"{}".to_vec())
        .await;
    assert_eq!(
        world
            .ask(&device, "GET", &path(&hash.to_string()))
            .await
            .status,
        200
    );
    let empty = resigned("catalog-1-first.json", |_| {});
    world.publish("acme", empty).await.unwrap();
    assert_eq!(
        world
            .ask(&device, "GET", &path(&hash.to_string()))
            .await
            .status,
        200
    );
}
