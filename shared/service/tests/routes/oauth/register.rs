use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::{Place, place, place_at};
use crate::common::{Reply, send};

async fn post(place: &Place, body: impl Into<Body>, media: &str) -> Reply {
    let request = Request::post("/oauth/register")
        .header(header::CONTENT_TYPE, media)
        .body(body.into())
        .unwrap();
    send(&place.app, request).await
}

async fn register(place: &Place, metadata: &Value) -> Reply {
    post(place, metadata.to_string(), "application/json").await
}

#[tokio::test]
async fn requirement_9_a_registration_is_201_and_told_back_in_full() {
    let place = place();
    let metadata = json!({
        "client_name": "Claude",
        "redirect_uris": ["https://claude.ai/api/mcp/auth_callback", "http://localhost:3118/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
        "scope": "read write",
        "application_type": "native",
    });
    let reply = register(&place, &metadata).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (201, "application/json")
    );
    assert_eq!(
        (reply.header("cache-control"), reply.header("pragma")),
        ("no-store", "no-cache")
    );
    let mut answer = reply.json();
    let id = answer["client_id"].take();
    assert!(id.as_str().unwrap().starts_with("cli_"), "{id}");
    assert_eq!(
        answer,
        json!({
            "client_id": null,
            "client_id_issued_at": 1_795_219_200,
            "client_name": "Claude",
            "redirect_uris": ["https://claude.ai/api/mcp/auth_callback", "http://localhost:3118/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": "read write",
        })
    );
}

#[tokio::test]
async fn requirement_10_errors_are_those_of_rfc_7591() {
    let place = place();
    let good = "https://app.example/cb";
    for (metadata, error) in [
        (json!({}), "400 invalid_redirect_uri"),
        (
            json!({"redirect_uris": ["http://app.example/cb"]}),
            "400 invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["javascript:alert(1)"]}),
            "400 invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": [good], "grant_types": ["password"]}),
            "400 invalid_client_metadata",
        ),
        (
            json!({"redirect_uris": [good], "client_name": ["x"]}),
            "400 invalid_client_metadata",
        ),
    ] {
        let reply = register(&place, &metadata).await;
        assert_eq!(reply.short(), error, "{metadata}");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert!(reply.json()["error_description"].is_string());
    }
    for body in [
        "",
        "[]",
        "{",
        "null",
        "{\"redirect_uris\":[],\"redirect_uris\":[]}",
    ] {
        assert_eq!(
            post(&place, body, "application/json").await.short(),
            "400 invalid_client_metadata",
            "{body}"
        );
    }
}

#[tokio::test]
async fn requirement_12_bodies_are_bounded_and_typed() {
    let place = place();
    let long = json!({ "redirect_uris": ["https://app.example/cb"], "software_statement": "x".repeat(16 * 1024) });
    assert_eq!(register(&place, &long).await.short(), "413 invalid_request");
    assert_eq!(
        post(&place, "{}", "text/plain").await.short(),
        "415 invalid_request"
    );
}

#[tokio::test]
async fn requirement_12_registrations_are_limited_per_source_and_forgotten_when_unused() {
    let place = place_at("https://vault.example", |config| {
        config.limits.register_per_source = 3;
    });
    let metadata = json!({ "redirect_uris": ["https://app.example/cb"] });
    for _ in 0..3 {
        assert_eq!(register(&place, &metadata).await.status, 201);
    }
    let reply = register(&place, &metadata).await;
    assert_eq!(
        (reply.short().as_str(), reply.header("retry-after")),
        ("429 temporarily_unavailable", "3600")
    );
    place.clock.advance(3600);
    let client = register(&place, &metadata).await.text("client_id");

    let address = crate::common::authorize(&client, "https://app.example/cb", &[]);
    place.clock.advance(30 * 24 * 3600 - 1);
    assert_eq!(crate::common::get(&place.app, &address).await.status, 200);
    place.clock.advance(1);
    assert_eq!(crate::common::get(&place.app, &address).await.status, 400);
}
