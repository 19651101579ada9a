//! `GET /v/<slug>/catalog.json`.

use base64::Engine as _;
use vault_format::hash::Digest;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Namespace, Subscription};
use vault_store::objects::{Class, Objects as _};

use crate::support::{resigned, vector, world, world_with};

#[tokio::test]
async fn the_stored_bytes_are_served_to_waiting_and_admitted_devices() {
    let world = world();
    world.acme().await;
    let bytes = vector("catalog-42.json");
    for (n, status) in [(1, DeviceStatus::Pending), (2, DeviceStatus::Active)] {
        let device = world.device("acme", n, status).await;
        for _ in 0..2 {
            let answer = world.ask(&device, "GET", "/v/acme/catalog.json").await;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.body, bytes);
            let mut headers: Vec<_> = answer
                .headers
                .keys()
                .map(axum::http::HeaderName::as_str)
                .collect();
            headers.sort_unstable();
            assert_eq!(
                headers,
                [
                    "cache-control",
                    "content-length",
                    "content-type",
                    "repr-digest",
                    "strict-transport-security",
                    "x-content-type-options"
                ],
                "no validator, no redirect, no encoding"
            );
            assert_eq!(answer.header("content-type"), "application/json");
            assert_eq!(answer.header("cache-control"), "private, no-store");
            let digest =
                base64::engine::general_purpose::STANDARD.encode(Digest::of(&bytes).as_bytes());
            assert_eq!(answer.header("repr-digest"), format!("sha-256=:{digest}:"));
            let head = world.ask(&device, "HEAD", "/v/acme/catalog.json").await;
            assert_eq!((&head.headers, head.body.len()), (&answer.headers, 0));
            assert_eq!(head.header("content-length"), bytes.len().to_string());
        }
    }
}

#[tokio::test]
async fn head_is_signed_as_head() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
    *request.method_mut() = axum::http::Method::HEAD;
    assert_eq!(world.send(request).await.status, 401);
}

#[tokio::test]
async fn conditional_requests_get_the_whole_answer() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    for (name, value) in [
        ("if-none-match", "*"),
        ("if-modified-since", "Sat, 21 Nov 2026 02:00:10 GMT"),
        ("range", "bytes=0-9"),
        ("accept-encoding", "gzip, br"),
        ("if-match", "\"x\""),
    ] {
        let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
        request.headers_mut().insert(name, value.parse().unwrap());
        let answer = world.send(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body.len()),
            (200, 2877),
            "{name}"
        );
    }
}

#[tokio::test]
async fn refusals_in_the_order_of_the_table() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let revoked = world.device("acme", 1, DeviceStatus::Revoked).await;
    let active = world.device("acme", 2, DeviceStatus::Active).await;
    let pending = world.device("acme", 3, DeviceStatus::Pending).await;
    let answer = world.ask(&active, "GET", "/v/acme/catalog.json").await;
    assert_eq!(answer.short(), "404 catalog_not_published");
    assert_eq!(
        answer.json()["detail"],
        "This vault has no published catalog yet."
    );
    assert_eq!(
        world
            .ask(&pending, "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "404 catalog_not_published"
    );
    assert_eq!(
        world
            .ask(&revoked, "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "403 device_revoked"
    );
}

#[tokio::test]
async fn a_lapsed_subscription_does_not_stop_the_catalog() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    world.change("acme", change).await;
    assert_eq!(
        world
            .ask(&device, "GET", "/v/acme/catalog.json")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_new_release_and_a_revocation_act_at_once() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    world.ask(&device, "GET", "/v/acme/catalog.json").await;
    world.clock.advance(3600);
    world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await
        .unwrap();
    let answer = world.ask(&device, "GET", "/v/acme/catalog.json").await;
    assert_eq!(answer.body, vector("catalog-43-rotated.json"));
    world
        .set_status("acme", &device, DeviceStatus::Revoked)
        .await;
    assert_eq!(
        world
            .ask(&device, "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "403 device_revoked"
    );
}

#[tokio::test]
async fn lost_or_damaged_bytes_are_our_fault() {
    let world = world_with(|config| config.cache_bytes = 0);
    let namespace = world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let current = world.current("acme").await;
    world
        .memory
        .delete_object(&namespace.object_key(Class::Catalogs, current.sha256))
        .await
        .unwrap();
    assert_eq!(
        world
            .ask(&device, "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "503 unavailable"
    );
}

#[tokio::test]
async fn the_signed_path_has_the_prefix_of_the_public_url() {
    let world =
        world_with(|config| config.public_url = "https://vault.example/base".parse().unwrap());
    world.namespace("acme", Kind::Hosted).await;
    let catalog = resigned("catalog-1-first.json", |catalog| {
        catalog.audience = vec!["https://vault.example/base/v/acme/".into()];
        catalog.issued_at = world.now();
        catalog.expires_at = world.now().plus_days(90);
    });
    world.publish("acme", catalog.clone()).await.unwrap();
    // The helper that enrols signs the path without a prefix, which is refused here.
    let device = crate::support::key(1);
    let mut request = world.signed(&device, "POST", "/base/v/acme/devices");
    request
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    *request.body_mut() =
        serde_json::json!({ "public_key": device.public(), "hostname": "laptop" })
            .to_string()
            .into();
    assert_eq!(world.send(request).await.status, 201);
    assert_eq!(
        world
            .ask(&device, "GET", "/base/v/acme/catalog.json")
            .await
            .body,
        catalog
    );
    let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
    *request.uri_mut() = "/base/v/acme/catalog.json".parse().unwrap();
    assert_eq!(world.send(request).await.short(), "401 signature_invalid");
}
