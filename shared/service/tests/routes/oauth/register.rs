use axum::http::{Request, header};
use serde_json::json;

use vault_service::model::user::Scopes;

use super::{ADMIN, owned, world_at};
use crate::common::{
    CALLBACK, Reply, Tokens, VERIFIER, Visitor, authorize, bootstrap, exchange, get, post_client,
    post_form, refresh, send,
};
use crate::support::{World, world};

async fn post(place: &World, body: &'static str, media: &str) -> Reply {
    let request = Request::post("/oauth/register").header(header::CONTENT_TYPE, media);
    send(&place.app, request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn requirement_9_a_registration_is_201_and_told_back_in_full() {
    let place = world();
    let metadata = json!({
        "client_name": "Claude",
        "redirect_uris": ["https://claude.ai/api/mcp/auth_callback", "http://localhost:3118/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
        "scope": "read write",
        "application_type": "native",
    });
    let reply = post_client(&place.app, &metadata).await;
    assert_eq!(reply.status, 201);
    let headers = ["content-type", "cache-control", "pragma"].map(|name| reply.header(name));
    assert_eq!(headers, ["application/json", "no-store", "no-cache"]);
    let id = reply.text("client_id");
    assert!(id.starts_with("cli_"), "{id}");
    let mut wanted = metadata;
    wanted["client_id"] = id.into();
    wanted["client_id_issued_at"] = place.now().unix().into();
    wanted["token_endpoint_auth_method"] = "none".into();
    wanted.as_object_mut().unwrap().remove("application_type");
    assert_eq!(reply.json(), wanted);
}

#[tokio::test]
async fn requirement_10_errors_are_those_of_rfc_7591() {
    let place = world();
    let uris = "400 invalid_redirect_uri";
    let metadata = "400 invalid_client_metadata";
    for (name, value, error) in [
        ("x", json!(1), uris),
        ("redirect_uris", json!(["http://app.example/cb"]), uris),
        ("redirect_uris", json!(["javascript:alert(1)"]), uris),
        ("grant_types", json!(["password"]), metadata),
        ("client_name", json!(["x"]), metadata),
    ] {
        let mut sent = json!({});
        if error == metadata {
            sent["redirect_uris"] = json!([CALLBACK]);
        }
        sent[name] = value;
        let reply = post_client(&place.app, &sent).await;
        assert_eq!(reply.short(), error, "{sent}");
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
        let reply = post(&place, body, "application/json").await;
        assert_eq!(reply.short(), metadata, "{body}");
    }
}

/// What VS Code sends.
#[tokio::test]
async fn an_editor_registers_six_redirect_addresses_and_may_use_each() {
    let sent = [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
        "http://localhost/",
        "http://localhost:33418/",
    ];
    let place = owned().await;
    let reply = post_client(&place.app, &json!({ "redirect_uris": sent })).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert_eq!(reply.json()["redirect_uris"], json!(sent));
    for redirect in sent {
        let address = authorize(&reply.text("client_id"), redirect, &[]);
        assert_eq!(
            get(&place.app, &address).await.page(),
            "200 Sign in",
            "{redirect}"
        );
    }
}

#[tokio::test]
async fn requirement_10_twenty_redirect_addresses_of_512_bytes_and_no_more() {
    let place = owned().await;
    let address = |n: usize| format!("{:a<512}", format!("https://app{n}.example/"));
    let sent: Vec<String> = (0..20).map(address).collect();
    let reply = post_client(&place.app, &json!({ "redirect_uris": sent })).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert_eq!(reply.json()["redirect_uris"], json!(sent));
    // The last one gets the code, and the code a token.
    let (client, last) = (reply.text("client_id"), sent[19].as_str());
    let asked = authorize(&client, last, &[]);
    let mut visitor = Visitor::new(&place.app);
    let answer = visitor.approve(&asked, ADMIN, "default", Scopes::READ);
    let answer = answer.await;
    let location = answer.header("location");
    assert!(location.starts_with(&format!("{last}?code=")), "{location}");
    let code = answer.returned("code").unwrap();
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", &client),
        ("code", &code),
        ("code_verifier", VERIFIER),
        ("redirect_uri", last),
    ];
    let given = post_form(&place.app, "/oauth/token", &fields).await;
    assert_eq!(given.status, 200, "{}", given.body);

    let mut longer = sent.clone();
    longer[19].push('a');
    let more = [sent, vec![CALLBACK.to_owned()]].concat();
    for (redirects, problem) in [
        (
            longer,
            "redirect_uris[19] has 513 bytes; it must have 1 to 512",
        ),
        (more, "redirect_uris has 21 entries; it must have 1 to 20"),
    ] {
        let reply = post_client(&place.app, &json!({ "redirect_uris": redirects })).await;
        assert_eq!(reply.short(), "400 invalid_redirect_uri");
        assert_eq!(reply.json()["error_description"], problem);
    }
}

#[tokio::test]
async fn requirement_12_bodies_are_bounded_and_typed() {
    let place = world();
    let long = json!({ "redirect_uris": [CALLBACK], "software_statement": "x".repeat(16 * 1024) });
    let long = post_client(&place.app, &long).await;
    assert_eq!(long.short(), "413 invalid_request");
    let text = post(&place, "{}", "text/plain").await;
    assert_eq!(text.short(), "415 invalid_request");
}

#[tokio::test]
async fn requirement_12_registrations_are_limited_per_source_and_forgotten_when_unused() {
    let place = world_at("https://vault.example", |config| {
        config.limits.register_per_source = 3;
    });
    let metadata = json!({ "redirect_uris": [CALLBACK] });
    for _ in 0..3 {
        assert_eq!(post_client(&place.app, &metadata).await.status, 201);
    }
    let reply = post_client(&place.app, &metadata).await;
    // The clock stands ten seconds behind the hour.
    assert_eq!(reply.short(), "429 temporarily_unavailable");
    assert_eq!(reply.header("retry-after"), "3590");
    place.clock.advance(3600);
    let client = post_client(&place.app, &metadata).await.text("client_id");

    let address = authorize(&client, CALLBACK, &[]);
    place.clock.advance(24 * 3600 - 1);
    assert_eq!(get(&place.app, &address).await.status, 200);
    place.clock.advance(1);
    assert_eq!(get(&place.app, &address).await.status, 400);
}

#[tokio::test]
async fn a_source_has_fifty_registrations_that_no_app_has_used() {
    let place = world_at("https://vault.example", |config| {
        config.limits.unused_per_source = 50;
    });
    bootstrap(&place.app).await;
    let metadata = json!({ "redirect_uris": [CALLBACK] });
    let mut clients = Vec::new();
    for _ in 0..50 {
        let made = post_client(&place.app, &metadata).await;
        clients.push(made.text("client_id"));
        place.clock.advance(60);
    }
    let reply = post_client(&place.app, &metadata).await;
    assert_eq!(reply.short(), "429 temporarily_unavailable");
    // The registrations of a day (UTC) are counted together.
    let day_ends = 24 * 3600 - place.app.ports.now().unix() % (24 * 3600);
    assert_eq!(reply.header("retry-after"), day_ends.to_string());
    // One that is used makes room for one more.
    let used = exchange(&place.app, &clients[7], &place.code(&clients[7]).await).await;
    let used = Tokens::of(&clients[7], &used);
    for status in [201, 429] {
        assert_eq!(post_client(&place.app, &metadata).await.status, status);
    }
    // A day later the others are gone, and the used one is not.
    place.clock.advance(24 * 3600);
    assert_eq!(post_client(&place.app, &metadata).await.status, 201);
    let next = refresh(&place.app, &used.client, &used.refresh).await;
    assert_eq!(next.status, 200, "{}", next.body);
}
