//! An unsigned request learns nothing.

use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Namespace, Status};

use crate::support::{get, key, world, world_with};

/// Requests of every kind that lack a signature: routes that are there and not, methods that are
/// known and not, odd paths.
fn unsigned() -> Vec<(&'static str, String)> {
    let hash = "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703";
    let mut requests = Vec::new();
    for path in [
        "/v/".to_owned(),
        "/v/acme".into(),
        "/v/acme/".into(),
        "/v/acme/catalog.json".into(),
        "/v/acme/catalog.json?query".into(),
        "/v/acme/devices".into(),
        "/v/acme/devices/current".into(),
        format!("/v/acme/bundles/{hash}.json"),
        format!("/v/acme/bundles/{}.json", hash.to_uppercase()),
        "/v/nobody/catalog.json".into(),
        "/v/%61cme/catalog.json".into(),
        "/v/ac%2Fme/catalog.json".into(),
        "/v/%ff/catalog.json".into(),
        "/v/acme/bundles/..%2f..%2fx.json".into(),
        "/v/../admin/users".into(),
        "/v//catalog.json".into(),
        "/v/acme;x/catalog.json".into(),
        "/v/admin/catalog.json".into(),
        "/v/suspended/catalog.json".into(),
        "/v/deleted/devices".into(),
        "/v/./acme/catalog.json".into(),
        "/v/%00".into(),
        "/v/acme/catalog.json;x".into(),
        format!("/v/{}", "a".repeat(1021)),
    ] {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "TRACE", "get"] {
            requests.push((method, path.clone()));
        }
    }
    for method in ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND"] {
        requests.push((method, "/v/acme/catalog.json".to_owned()));
    }
    requests
}

#[tokio::test]
async fn all_answers_are_the_same_to_the_byte() {
    let world = world();
    world.acme().await;
    for (slug, status) in [
        ("suspended", Status::Suspended),
        ("deleted", Status::Deleted),
    ] {
        world.namespace(slug, Kind::Hosted).await;
        let change = |namespace: &mut Namespace| namespace.status = status;
        world.change(slug, change).await;
    }
    let reference = world.send(get("/v/acme/catalog.json")).await.blotted();
    insta::assert_snapshot!(reference, @r#"
    401 Unauthorized
    www-authenticate: VaultDevice
    content-type: application/problem+json
    strict-transport-security: max-age=31536000
    cache-control: private, no-store
    x-content-type-options: nosniff
    content-length: 194

    {"code":"signature_required","detail":"This route accepts only requests that a device signed.","request_id":"[id]","status":401,"title":"Unauthorized","type":"about:blank"}
    "#);
    let requests = unsigned();
    assert!(requests.len() > 40);
    for (method, path) in requests {
        let request = Request::builder()
            .method(method)
            .uri(&path)
            .body(Body::empty())
            .unwrap();
        let answer = world.send(request).await;
        if method == "HEAD" {
            let head = reference.split("\n\n").next().unwrap();
            assert_eq!(answer.blotted().trim_end(), head, "{method} {path}");
        } else {
            assert_eq!(answer.blotted(), reference, "{method} {path}");
        }
    }
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "GET"),
        ("authorization", "Bearer vat_x"),
        ("cookie", "a=b"),
        ("if-none-match", "*"),
        ("range", "bytes=0-0"),
        ("accept-encoding", "gzip, br"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-host", "evil.example"),
        ("x-original-url", "/admin"),
        ("x-http-method-override", "POST"),
        ("upgrade", "h2c"),
    ] {
        for method in ["GET", "OPTIONS"] {
            let mut request = get("/v/acme/catalog.json");
            *request.method_mut() = method.parse().unwrap();
            request
                .headers_mut()
                .insert("origin", "https://a.example".parse().unwrap());
            request.headers_mut().insert(name, value.parse().unwrap());
            assert_eq!(
                world.send(request).await.blotted(),
                reference,
                "{method} {name}"
            );
        }
    }
}

#[tokio::test]
async fn a_missing_or_doubled_header_counts_as_unsigned() {
    let world = world();
    world.acme().await;
    let device = world.device("acme", 1, DeviceStatus::Active).await;
    let reference = world.send(get("/v/acme/catalog.json")).await.blotted();
    for name in ["x-vault-device", "x-vault-timestamp", "x-vault-signature"] {
        let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
        let value = request.headers_mut().remove(name).unwrap();
        assert_eq!(
            world.send(request).await.blotted(),
            reference,
            "without {name}"
        );
        let mut request = world.signed(&device, "GET", "/v/acme/catalog.json");
        request.headers_mut().append(name, value);
        assert_eq!(
            world.send(request).await.blotted(),
            reference,
            "{name} twice"
        );
    }
}

#[tokio::test]
async fn joined_headers_are_not_in_their_form() {
    let world = world();
    let request = || world.signed(&key(1), "GET", "/v/acme/catalog.json");
    for name in ["x-vault-device", "x-vault-timestamp", "x-vault-signature"] {
        let mut doubled = request();
        let value = doubled.headers()[name].to_str().unwrap().to_owned();
        doubled
            .headers_mut()
            .insert(name, format!("{value},{value}").parse().unwrap());
        assert_eq!(
            world.send(doubled).await.short(),
            "401 signature_invalid",
            "{name}"
        );
        let mut odd = request();
        odd.headers_mut()
            .insert(name, axum::http::HeaderValue::from_bytes(b"\xe4").unwrap());
        assert_eq!(
            world.send(odd).await.short(),
            "401 signature_invalid",
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_body_is_not_read_before_the_signature_is_good() {
    let world = world();
    world.acme().await;
    let request = Request::post("/v/acme/devices")
        .header("content-type", "application/json")
        .body(Body::from(vec![b'x'; 5_000_000]))
        .unwrap();
    assert_eq!(world.send(request).await.short(), "401 signature_required");
}

#[tokio::test]
async fn below_a_prefix_only_the_prefixed_paths_are_hosted() {
    let world =
        world_with(|config| config.public_url = "https://vault.example/base".parse().unwrap());
    assert_eq!(
        world.send(get("/base/v/acme/catalog.json")).await.short(),
        "401 signature_required"
    );
    for path in [
        "/v/acme/catalog.json",
        "/basev/acme/catalog.json",
        "/base/V/acme/catalog.json",
        "/base/v",
    ] {
        assert_eq!(
            world.send(get(path)).await.short(),
            "404 not_found",
            "{path}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is sent below `/v/`, signed or not: never a redirect, never a 5xx, and no cache may
    /// keep it.
    #[test]
    fn nothing_ever_redirects(
        method in "[A-Z]{1,8}|GET|HEAD|POST|OPTIONS",
        rest in "(acme|%61cme|ACME|\\.\\.|)?(/{1,2}(catalog\\.json|devices|devices/current|bundles/[0-9a-fA-F]{64}\\.json|[!-~&&[^#?\"<>\\\\^`{|}]]{0,20})){0,3}/?",
        sign in any::<bool>(),
        query in "(\\?[a-z=&/]{0,10})?",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let path = format!("/v/{rest}");
        let answer = runtime.block_on(async {
            let world = world();
            let mut request = Request::builder().method(method.as_str()).uri(format!("{path}{query}")).body(Body::empty()).unwrap();
            if sign {
                *request.headers_mut() = crate::support::signed_at(&key(1), &method, &path, world.now()).headers().clone();
            }
            world.send(request).await
        });
        prop_assert!(answer.status.is_client_error(), "{} {method} {path}", answer.status);
        prop_assert_eq!(answer.header("cache-control"), "private, no-store");
        prop_assert_eq!(answer.header("x-content-type-options"), "nosniff");
        prop_assert!(sign || answer.status == 401);
        prop_assert!(sign || method == "HEAD" || answer.short() == "401 signature_required");
        prop_assert!(!sign || !answer.short().contains("signature"), "{} {method} {path}", answer.short());
    }
}
