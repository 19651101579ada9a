//! `GET /healthz`.

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use crate::support::{Answer, get, world, world_with, world_without_store};

/// The answer without how long the ping took, which is measured and differs from run to run.
fn without_latency(answer: &Answer) -> Value {
    let mut shown = answer.json();
    let latency = shown["database"]["latency_ms"].take();
    assert!(latency.is_u64(), "{latency}");
    shown
}

#[tokio::test]
async fn says_since_when_and_whether_the_database_answers() {
    let world = world();
    world.clock.advance(60);
    let answer = world.send(get("/healthz")).await;
    assert_eq!(answer.status, 200);
    insta::assert_json_snapshot!(without_latency(&answer), @r#"
    {
      "background": {
        "failing_since": null,
        "late": false,
        "succeeded_at": null
      },
      "boot_time": "2026-11-21T02:00:10Z",
      "database": {
        "latency_ms": null,
        "status": "ok"
      },
      "status": "ok",
      "version": "0.5.0"
    }
    "#);
    assert_eq!(answer.header("cache-control"), "private, no-store");
}

#[tokio::test]
async fn a_dead_database_is_503_in_the_same_shape() {
    let answer = world_without_store().send(get("/healthz")).await;
    assert_eq!(answer.status, 503);
    insta::assert_json_snapshot!(without_latency(&answer), @r#"
    {
      "background": {
        "failing_since": null,
        "late": false,
        "succeeded_at": null
      },
      "boot_time": "2026-11-21T02:00:10Z",
      "database": {
        "latency_ms": null,
        "status": "error"
      },
      "status": "error",
      "version": "0.5.0"
    }
    "#);
}

#[tokio::test]
async fn says_when_background_work_last_succeeded() {
    let world = world();
    world.work().await;
    let done = world.now();
    world.clock.advance(60);
    let answer = world.send(get("/healthz")).await;
    let shown = &answer.json()["background"];
    assert_eq!(shown["succeeded_at"], done.to_string());
    assert_eq!(shown["failing_since"], Value::Null);
}

#[tokio::test]
async fn stands_below_the_prefix_of_the_public_url() {
    let world =
        world_with(|config| config.public_url = "https://vault.example/base".parse().unwrap());
    assert_eq!(world.send(get("/base/healthz")).await.status, 200);
    assert_eq!(world.send(get("/healthz")).await.short(), "404 not_found");
}

#[tokio::test]
async fn other_methods_are_told_which_there_are() {
    for method in ["POST", "OPTIONS"] {
        let request = Request::builder().method(method).uri("/healthz");
        let answer = world().send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.short(), "405 method_not_allowed");
        assert_eq!(answer.header("allow"), "GET,HEAD");
    }
}
