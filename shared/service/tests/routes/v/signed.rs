//! Signed requests: the signature, the rate limits, the path, and which vaults and devices are
//! known.

use axum::body::Body;
use axum::http::{HeaderName, Request};
use vault_format::keys::SecretKey;
use vault_format::time::Timestamp;
use vault_service::config::Limits;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Namespace, Status};

use crate::support::{get, key, signed_at, vector_json, world, world_with, world_without_store};

/// The stored requests, each through the router: a good one is answered as that of a stranger, a
/// bad one never gets that far.
#[tokio::test]
async fn device_vectors() {
    let vectors = vector_json("device-requests.json");
    let requests = vectors["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 52);
    for case in requests {
        let name = case["name"].as_str().unwrap();
        let path = case["path"].as_str().unwrap();
        let world = world_with(|config| {
            if path.starts_with("/base/") {
                config.public_url = "https://vault.example/base".parse().unwrap();
            }
        });
        world
            .clock
            .set(Timestamp::from_unix(case["server_now"].as_i64().unwrap()));
        let answer = world.send(request(case)).await;
        let code = answer.json()["code"].as_str().unwrap_or("").to_owned();
        match case["expect"].as_str().unwrap() {
            "signature_ok" if case["method"] == "POST" => {
                assert_eq!(answer.short(), "415 media_type", "{name}");
            }
            "signature_ok" if case["method"] == "HEAD" => assert_eq!(answer.status, 401, "{name}"),
            "signature_ok" => assert_eq!(answer.short(), "401 device_unknown", "{name}"),
            _ => {
                assert_eq!(answer.status, 401, "{name}");
                let refused = [
                    "signature_required",
                    "signature_invalid",
                    "timestamp_out_of_range",
                ];
                assert!(refused.contains(&code.as_str()), "{name}: {code}");
            }
        }
    }
}

#[tokio::test]
async fn enrolment_vectors() {
    let vectors = vector_json("device-requests.json");
    let enrolments = vectors["enrolments"].as_array().unwrap();
    assert_eq!(enrolments.len(), 8);
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    for case in enrolments {
        let name = case["name"].as_str().unwrap();
        world
            .clock
            .set(Timestamp::from_unix(case["server_now"].as_i64().unwrap()));
        let mut request = request(case);
        request
            .headers_mut()
            .insert("content-type", "application/json".parse().unwrap());
        *request.body_mut() = Body::from(case["body"].to_string());
        let answer = world.send(request).await;
        match case["expect_status"].as_u64() {
            Some(status) => assert_eq!(u64::from(answer.status.as_u16()), status, "{name}"),
            None => {
                assert!(answer.status.is_success(), "{name}: {}", answer.short());
                assert_eq!(answer.json()["hostname"], "laptop", "{name}");
            }
        }
    }
}

fn request(case: &serde_json::Value) -> Request<Body> {
    let mut request = Request::builder()
        .method(case["method"].as_str().unwrap())
        .uri(case["path"].as_str().unwrap())
        .body(Body::empty())
        .unwrap();
    for (name, value) in case["headers"].as_object().unwrap() {
        let name: HeaderName = name.parse().unwrap();
        request
            .headers_mut()
            .insert(name, value.as_str().unwrap().parse().unwrap());
    }
    request
}

#[tokio::test]
async fn time_may_be_300_seconds_off_and_the_answer_shows_the_service_s() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    for (skew, wanted) in [
        (-300, "200"),
        (300, "200"),
        (-301, "401 timestamp_out_of_range"),
        (301, "401 timestamp_out_of_range"),
    ] {
        let request = signed_at(
            &device,
            "GET",
            "/v/acme/catalog.json",
            world.now().plus_seconds(skew),
        );
        let answer = world.send(request).await;
        assert_eq!(answer.short(), wanted, "{skew}");
        if answer.status == 401 {
            assert_eq!(answer.header("date"), "Sat, 21 Nov 2026 02:00:10 GMT");
            assert_eq!(answer.header("www-authenticate"), "VaultDevice");
        }
    }
    // The form of the headers comes before the time, the time before the signature.
    let good = world.signed(&device, "GET", "/v/acme/catalog.json");
    let good = good.headers()["x-vault-signature"].clone();
    for (signature, wanted) in [
        ("x".parse().unwrap(), "401 signature_invalid"),
        (good, "401 timestamp_out_of_range"),
    ] {
        let late = world.now().plus_seconds(-301);
        let mut request = signed_at(&device, "GET", "/v/acme/catalog.json", late);
        request.headers_mut().insert("x-vault-signature", signature);
        assert_eq!(world.send(request).await.short(), wanted);
    }
}

#[tokio::test]
async fn the_query_is_neither_signed_nor_read() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
    *request.uri_mut() = "/v/acme/catalog.json?slug=other&x-vault-device=1"
        .parse()
        .unwrap();
    assert_eq!(world.send(request).await.status, 200);
}

/// After a good signature a path is a route or 404; nothing is decoded, normalised or redirected.
#[tokio::test]
async fn odd_paths_are_404_after_a_good_signature() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let hash = "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703";
    for path in [
        "/v/".to_owned(),
        "/v/acme".into(),
        "/v/acme/".into(),
        "/v/acme/catalog.json/".into(),
        "/v/acme/catalog.json;x".into(),
        "/v//acme/catalog.json".into(),
        "/v/acme//catalog.json".into(),
        "/v/./acme/catalog.json".into(),
        "/v/acme/../acme/catalog.json".into(),
        "/v/%61cme/catalog.json".into(),
        "/v/acme/catalog%2Ejson".into(),
        "/v/ac%2Fme/catalog.json".into(),
        "/v/%00/catalog.json".into(),
        "/v/ACME/catalog.json".into(),
        "/v/-acme/catalog.json".into(),
        "/v/ac--me/catalog.json".into(),
        "/v/acme/Catalog.json".into(),
        "/v/acme/devices/".into(),
        "/v/acme/devices/dev_x".into(),
        format!("/v/acme/bundles/{}.json", hash.to_uppercase()),
        format!("/v/acme/bundles/{}.json", &hash[1..]),
        format!("/v/acme/bundles/{hash}"),
        format!("/v/acme/bundles/{hash}.JSON"),
        format!("/v/{}/catalog.json", "a".repeat(64)),
        format!("/v/acme/bundles/{}.json", "0".repeat(240)),
    ] {
        let answer = world.ask(&device, "GET", &path).await;
        assert_eq!(answer.short(), "404 not_found", "{path}");
    }
}

#[tokio::test]
async fn methods_that_a_route_does_not_know_are_405_with_those_it_does() {
    let world = world();
    let hash = "0".repeat(64);
    for (path, allow, methods) in [
        (
            "/v/acme/devices".to_owned(),
            "POST",
            &["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"][..],
        ),
        (
            "/v/acme/devices/current".into(),
            "GET, HEAD",
            &["POST", "PUT", "OPTIONS", "PATCH", "get", "X"],
        ),
        (
            "/v/acme/catalog.json".into(),
            "GET, HEAD",
            &["POST", "PUT", "OPTIONS"],
        ),
        (
            format!("/v/acme/bundles/{hash}.json"),
            "GET, HEAD",
            &["POST", "DELETE", "OPTIONS"],
        ),
    ] {
        for method in methods {
            let answer = world.ask(&key(1), method, &path).await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("allow")),
                (405, allow),
                "{method} {path}"
            );
            assert_eq!(answer.header("access-control-allow-methods"), "");
        }
    }
}

/// An unknown device cannot tell which vaults or devices exist.
#[tokio::test]
async fn an_unknown_slug_and_an_unknown_key_read_the_same() {
    let world = world();
    world.acme().await;
    world.device("acme", 1, DeviceStatus::Active).await;
    world.namespace("gone", Kind::Hosted).await;
    let left = world.device("gone", 1, DeviceStatus::Active).await;
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    world.change("gone", change).await;
    let stranger = key(9);
    let reference = world
        .ask(&stranger, "GET", "/v/acme/catalog.json")
        .await
        .blotted();
    insta::assert_snapshot!(reference, @r#"
    401 Unauthorized
    www-authenticate: VaultDevice
    content-type: application/problem+json
    strict-transport-security: max-age=31536000
    cache-control: private, no-store
    x-content-type-options: nosniff
    content-length: 177

    {"code":"device_unknown","detail":"No device with this key is enrolled here.","request_id":"[id]","status":401,"title":"Unauthorized","type":"about:blank"}
    "#);
    for path in [
        "catalog.json",
        "devices/current",
        "bundles/f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703.json",
    ] {
        for (device, slug) in [
            (&stranger, "acme"),
            (&stranger, "nobody"),
            (&stranger, "admin"),
            (&stranger, "gone"),
            (&left, "gone"),
            (&left, "nobody"),
        ] {
            let answer = world.ask(device, "GET", &format!("/v/{slug}/{path}")).await;
            assert_eq!(answer.blotted(), reference, "{slug} {path}");
        }
    }
}

#[tokio::test]
async fn a_device_of_an_earlier_allocation_is_unknown() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    world
        .change("acme", |namespace| {
            namespace.id = vault_format::name::NamespaceId::from_parts(1, 1);
        })
        .await;
    assert_eq!(
        world
            .ask(&device, "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "401 device_unknown"
    );
    assert_eq!(
        world.enrol(&device, "acme", "again").await.status,
        201,
        "it may enrol in the new one"
    );
}

/// A suspended vault.
#[tokio::test]
async fn a_suspended_vault_tells_everybody_who_is_known() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let revoked = world.device("acme", 2, DeviceStatus::Revoked).await;
    let change = |namespace: &mut Namespace| namespace.status = Status::Suspended;
    world.change("acme", change).await;
    for device in [&device, &revoked] {
        for path in ["/v/acme/catalog.json", "/v/acme/devices/current"] {
            assert_eq!(
                world.ask(device, "GET", path).await.short(),
                "403 vault_suspended"
            );
        }
    }
    assert_eq!(
        world.enrol(&key(9), "acme", "new").await.short(),
        "404 vault_not_found"
    );
    assert_eq!(
        world
            .ask(&key(9), "GET", "/v/acme/catalog.json")
            .await
            .short(),
        "401 device_unknown"
    );
    let change = |namespace: &mut Namespace| namespace.status = Status::Active;
    world.change("acme", change).await;
    assert_eq!(
        world
            .ask(&device, "GET", "/v/acme/catalog.json")
            .await
            .status,
        200
    );
}

/// A fault of ours never reads as a refusal.
#[tokio::test]
async fn a_store_that_is_down_is_503() {
    let world = world_without_store();
    for path in ["/v/acme/catalog.json", "/v/acme/devices/current"] {
        let answer = world.ask(&key(1), "GET", path).await;
        assert_eq!(answer.short(), "503 unavailable");
        assert_eq!(answer.header("retry-after"), "1");
        assert!(!String::from_utf8_lossy(&answer.body).contains("db.internal"));
    }
    assert_eq!(
        world.enrol(&key(1), "acme", "laptop").await.short(),
        "503 unavailable"
    );
    assert_eq!(
        world.send(get("/v/acme/catalog.json")).await.short(),
        "401 signature_required"
    );
}

/// Reads are limited per device, and per class of route.
#[tokio::test]
async fn reads_are_limited_per_device_and_minute() {
    let world = world_with(|config| {
        config.limits = Limits {
            catalog_per_device: 3,
            bundles_per_device: 2,
            ..Limits::disabled()
        };
    });
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let other = world.device("acme", 2, DeviceStatus::Active).await;
    let bundle =
        "/v/acme/bundles/f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703.json";
    // Each at its own second, since a device that repeats itself within one sends the same request.
    let ask = async |device, method, path| {
        world.clock.advance(1);
        world.ask(device, method, path).await
    };
    for path in [
        "/v/acme/catalog.json",
        "/v/acme/devices/current",
        "/v/acme/catalog.json",
    ] {
        assert_eq!(ask(&device, "GET", path).await.status, 200);
    }
    let answer = ask(&device, "GET", "/v/acme/catalog.json").await;
    assert_eq!(answer.short(), "429 rate_limited");
    assert_eq!(
        answer.header("retry-after"),
        "46",
        "the clock shows 14 seconds past the minute"
    );
    assert_eq!(
        ask(&device, "PUT", "/v/acme/catalog.json").await.short(),
        "429 rate_limited",
        "the rate limit comes before the path"
    );
    let late = world.now().plus_seconds(999);
    let late = signed_at(&device, "GET", "/v/acme/catalog.json", late);
    let answer = world.send(late).await;
    assert_eq!(
        answer.short(),
        "401 timestamp_out_of_range",
        "timestamp and signature come first"
    );
    assert_eq!(ask(&device, "GET", bundle).await.status, 200);
    assert_eq!(ask(&device, "GET", bundle).await.status, 200);
    assert_eq!(
        ask(&device, "GET", bundle).await.short(),
        "429 rate_limited"
    );
    let answer = ask(&other, "GET", "/v/acme/catalog.json").await;
    assert_eq!(answer.status, 200);
    world.clock.advance(50);
    let answer = ask(&device, "GET", "/v/acme/catalog.json").await;
    assert_eq!(answer.status, 200);
}

/// Whoever has a copy of a device's request may send it for as long as it is valid. That must not
/// use up the reads of the device, neither in this minute nor in the next ones.
#[tokio::test]
async fn a_request_that_is_sent_again_uses_up_no_reads_of_its_device() {
    let world = world_with(|config| {
        config.limits = Limits {
            catalog_per_device: 4,
            ..Limits::disabled()
        };
    });
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let path = "/v/acme/catalog.json";
    assert_eq!(world.ask(&device, "GET", path).await.status, 200);
    world.clock.advance(1);
    let at = world.now();
    for minute in 0..4 {
        let mut repeated = Vec::new();
        for _ in 0..30 {
            let copy = signed_at(&device, "GET", path, at);
            repeated.push(world.send(copy).await.status);
        }
        // The copies have a limit of their own; the first of them all was the device's.
        let taken = repeated.iter().filter(|status| **status == 200).count();
        assert_eq!(taken, if minute == 0 { 5 } else { 4 }, "{minute}");
        let left = if minute == 0 { 2 } else { 4 };
        for n in 0..=left {
            world.clock.advance(1);
            let wanted = if n < left { 200 } else { 429 };
            let answer = world.ask(&device, "GET", path).await;
            assert_eq!(answer.status, wanted, "minute {minute}, read {n}");
        }
        world.clock.advance(60 - world.now().unix() % 60);
    }
    // It is valid for five minutes and no longer.
    world.clock.advance(300);
    let copy = signed_at(&device, "GET", path, at);
    assert_eq!(world.send(copy).await.short(), "401 timestamp_out_of_range");
}

/// All copies of a machine's requests have one limit together, and a machine that waits has none
/// beside its own: with a limit for each copy, a few signatures would read without end.
#[tokio::test]
async fn copies_of_many_requests_share_one_limit() {
    let world = world_with(|config| {
        config.limits = Limits {
            catalog_per_device: 6,
            ..Limits::disabled()
        };
    });
    world.acme().await;
    let path = "/v/acme/devices/current";
    for (n, status, most) in [(1, DeviceStatus::Active, 12), (2, DeviceStatus::Pending, 6)] {
        world.clock.advance(60 - world.now().unix() % 60);
        let device = world.device("acme", n, status).await;
        let mut taken = 0;
        for _ in 0..5 {
            world.clock.advance(1);
            let at = world.now();
            for _ in 0..10 {
                let copy = signed_at(&device, "GET", path, at);
                taken += usize::from(world.send(copy).await.status == 200);
            }
        }
        assert_eq!(taken, most, "{status:?}");
    }
}

/// After a restart no key is known to be admitted. A flood of other keys from the same network must
/// not get an admitted machine refused.
#[tokio::test]
async fn a_flood_of_keys_refuses_no_admitted_machine_of_the_network() {
    let world = world_with(|config| {
        config.limits = Limits {
            catalog_per_device: 1,
            ..Limits::disabled()
        };
    });
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let waiting = world.device("acme", 2, DeviceStatus::Pending).await;
    let world = world.restarted();
    let path = "/v/acme/devices/current";
    let mut refused = 0;
    // A key more than have a count of their own, and one more than the rest may ask for.
    for n in 0..=1025_u32 {
        let mut seed = [0xff; 32];
        seed[..4].copy_from_slice(&n.to_be_bytes());
        let stranger = SecretKey::from_seed(seed);
        refused += usize::from(world.ask(&stranger, "GET", path).await.status == 429);
    }
    assert_eq!(refused, 1);
    assert_eq!(world.ask(&device, "GET", path).await.status, 200);
    let answer = world.ask(&waiting, "GET", path).await;
    assert_eq!(answer.short(), "429 rate_limited");
    // It has its own limit all the same.
    world.clock.advance(1);
    let answer = world.ask(&device, "GET", path).await;
    assert_eq!(answer.short(), "429 rate_limited");
}
