//! What belongs to HTTP and comes before every route.

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use serde_json::Value;

use crate::common::exchange::HOST;
use crate::common::samples::samples;
use crate::support::{get, world};

/// Size of the field `Host` that every request of a test has.
const HOST_BYTES: usize = "host: ".len() + HOST.len() + 2;

/// A page of an attacker reaches a service under a name of the attacker's (DNS rebinding). It gets
/// nothing from any route, with a token or without, but from those of machines, which sign what
/// they ask, and from the probe.
#[tokio::test]
async fn a_request_that_names_another_host_reaches_no_route() {
    let world = world();
    for hosts in [&["evil.example"][..], &[""], &[], &[HOST, HOST], &[HOST]] {
        for sample in samples() {
            let (method, path) = (sample.route.method, sample.path.as_str());
            let mut request = Request::builder().method(method).uri(path);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            let request = request.body(Body::empty()).unwrap();
            let router = world.router.clone();
            let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let code = match &body["code"] {
                Value::Null => &body["error"]["data"]["code"],
                code => code,
            };
            let is_refused = (status, code.as_str()) == (403, Some("host_forbidden"));
            let is_open = path.starts_with("/v/") || path == "/healthz" || hosts == [HOST];
            assert_eq!(
                is_refused, !is_open,
                "{method} {path} {hosts:?}: {status} {body}"
            );
        }
    }
}

#[tokio::test]
async fn long_paths_and_large_headers_are_refused_at_the_byte() {
    let world = world();
    for (length, wanted) in [(1024, "404 not_found"), (1025, "414 path_too_long")] {
        let path = format!("/{}", "a".repeat(length - 1));
        assert_eq!(world.send(get(&path)).await.short(), wanted);
    }
    // name, colon, space, value, line end
    for (length, wanted) in [
        (16 * 1024 - 5 - HOST_BYTES, "404 not_found"),
        (16 * 1024 - 4 - HOST_BYTES, "431 headers_too_large"),
    ] {
        let mut request = get("/nowhere");
        request
            .headers_mut()
            .insert("x", "v".repeat(length).parse().unwrap());
        assert_eq!(world.send(request).await.short(), wanted);
    }
    let answer = world.send(get(&format!("/v/{}", "a".repeat(1024)))).await;
    assert_eq!(
        answer.short(),
        "414 path_too_long",
        "before the signature is looked at"
    );
    assert_eq!(answer.header("cache-control"), "private, no-store");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let mut request = get("/v/acme/catalog.json");
    let large = "v".repeat(16 * 1024).parse().unwrap();
    request.headers_mut().insert("x", large);
    let answer = world.send(request).await;
    assert_eq!(
        answer.short(),
        "431 headers_too_large",
        "before the signature is looked at"
    );
    let query = format!("/healthz?{}", "q".repeat(15_000));
    assert_eq!(
        world.send(get(&query)).await.status,
        200,
        "a query is not a path"
    );
}

#[tokio::test]
async fn a_path_that_resembles_a_route_is_not_there() {
    let world = world();
    for path in [
        "/",
        "/v",
        "//v/acme/catalog.json",
        "/%76/acme/catalog.json",
        "/V/acme/catalog.json",
        "/healthz/",
        "/healthz%2f",
    ] {
        assert_eq!(
            world.send(get(path)).await.short(),
            "404 not_found",
            "{path}"
        );
    }
}

#[tokio::test]
async fn errors_are_problem_objects() {
    let answer = world().send(get("/nowhere")).await;
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let mut problem = answer.json();
    assert_eq!(problem["request_id"].as_str().unwrap().len(), 26);
    problem["request_id"] = "[id]".into();
    insta::assert_json_snapshot!(problem, @r#"
    {
      "code": "not_found",
      "detail": "There is nothing at this path.",
      "request_id": "[id]",
      "status": 404,
      "title": "Not Found",
      "type": "about:blank"
    }
    "#);
}

#[tokio::test]
async fn a_client_that_misses_the_mcp_endpoint_is_told_where_it_is() {
    let world = world();
    for (method, path, told) in [
        ("POST", "/", true),
        ("POST", "/mcp/", true),
        ("GET", "/mcp/", true),
        ("DELETE", "/mcp/", true),
        ("GET", "/", false),
        ("POST", "/mcp/x", false),
        ("GET", "/nowhere", false),
    ] {
        let request = Request::builder().method(method).uri(path);
        let answer = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.short(), "404 not_found", "{method} {path}");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(detail.contains("/mcp, without"), told, "{method} {path}");
    }
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let world = world();
    let got = world.send(get("/nowhere")).await;
    let head = world
        .send(Request::head("/nowhere").body(Body::empty()).unwrap())
        .await;
    assert_eq!((head.status, &head.headers), (got.status, &got.headers));
    assert!(head.body.is_empty());
}
