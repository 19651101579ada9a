//! Providers that are down, lie about themselves, or replace their keys.

use serde_json::json;
use vault_service::oidc::{FRESH_SECONDS, RETRY_SECONDS, ROTATION_SECONDS};

use super::double::Key;
use super::{DOWN, NOT_VALID, Place, SIGN_IN, START, sent};
use crate::common::{OWNER, OWNER_PASSWORD, Visitor, invite};

#[tokio::test]
async fn a_provider_that_is_down_is_said_to_be_down_and_passwords_go_on() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    place.provider.fails_at(&["discovery"]);
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    assert_eq!(page.page(), SIGN_IN, "the page itself needs no provider");
    let reply = visitor.fill(&page, START, &[]).await;
    assert_eq!(reply.page(), DOWN);
    assert_eq!(reply.header("retry-after"), "5");
    assert!(reply.body.contains("password"), "{}", reply.body);
    // For a moment nobody waits for it again.
    place.provider.fails_at(&[]);
    assert_eq!(visitor.fill(&page, START, &[]).await.page(), DOWN);
    let signed_in = visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    assert_eq!(signed_in.status, 303);
    place.world.clock.advance(RETRY_SECONDS);
    place.signed_in(|_| {}).await;
}

#[tokio::test]
async fn what_a_provider_said_serves_on_while_it_does_not_answer() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    place.signed_in(|_| {}).await;
    place.world.clock.advance(FRESH_SECONDS);
    place.provider.fails_at(&["discovery", "keys"]);
    place.signed_in(|_| {}).await;
    place.world.clock.advance(23 * 3600);
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    assert_eq!(visitor.fill(&page, START, &[]).await.page(), DOWN);
}

#[tokio::test]
async fn a_provider_that_fails_after_the_sign_in_there_signs_nobody_in() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    for path in ["token", "keys"] {
        place.provider.fails_at(&[path]);
        let (mut visitor, reply) = place.back(|_| {}).await;
        assert_eq!(reply.page(), DOWN, "{path}");
        assert_eq!(visitor.get("/account").await.page(), SIGN_IN, "{path}");
    }
    assert!(place.account("ada@example.org").await.proofs.is_empty());
    place.provider.fails_at(&[]);
    place.world.clock.advance(RETRY_SECONDS);
    place.signed_in(|_| {}).await;
}

#[tokio::test]
async fn a_refused_code_is_the_sign_in_s_and_a_refused_client_the_operator_s() {
    for (error, page) in [
        ("invalid_grant", NOT_VALID),
        ("invalid_client", DOWN),
        ("unauthorized_client", DOWN),
    ] {
        let place = Place::new().await;
        place.provider.refuses(error);
        let (_, reply) = place.back(|_| {}).await;
        assert_eq!(reply.page(), page, "{error}");
    }
}

#[tokio::test]
async fn a_provider_that_is_another_than_the_settings_say_is_not_used() {
    for (name, value) in [
        ("issuer", json!("https://evil.example")),
        ("authorization_endpoint", json!("javascript:alert(1)")),
        ("token_endpoint", json!("http://metadata.internal/latest")),
        ("jwks_uri", json!("file:///etc/passwd")),
        ("jwks_uri", json!(null)),
    ] {
        let place = Place::new().await;
        place.provider.says(name, value);
        let mut visitor = Visitor::new(place.app());
        let page = visitor.get("/account").await;
        let reply = visitor.fill(&page, START, &[]).await;
        assert_eq!(reply.page(), DOWN, "{name}");
        assert!(!reply.body.contains("evil"), "{}", reply.body);
    }
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it_at_most_once_a_minute() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    place.signed_in(|_| {}).await;
    place.signed_in(|_| {}).await;
    assert_eq!(place.provider.fetched_keys(), 1);
    place.provider.rotates_to(Key::new("second"));
    let (_, reply) = place.back(|_| {}).await;
    assert_eq!(
        reply.page(),
        NOT_VALID,
        "the keys are younger than a minute"
    );
    place.world.clock.advance(ROTATION_SECONDS);
    place.signed_in(|_| {}).await;
    assert_eq!(place.provider.fetched_keys(), 2);
    // Tokens under names that nobody has do not have them fetched without end.
    for _ in 0..3 {
        let (mut visitor, address) = place.at_provider("/account").await;
        let forged = Key::new("third").signed(&place.provider.claims(&address));
        let back = place.provider.answer_with(&address, forged);
        assert_eq!(visitor.get(&back).await.page(), NOT_VALID);
    }
    assert_eq!(place.provider.fetched_keys(), 2);
    // The former key counts no more.
    place.signed_in(|_| {}).await;
}

#[tokio::test]
async fn a_provider_that_takes_the_secret_in_the_body_alone_gets_it_there() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    let name = "token_endpoint_auth_methods_supported";
    place.provider.says(name, json!(["client_secret_post"]));
    place.signed_in(|_| {}).await;
    let mut visitor = Visitor::new(place.app());
    sent(&mut visitor, "/account").await;
}
