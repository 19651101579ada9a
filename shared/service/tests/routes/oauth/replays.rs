//! Codes, verifiers, tokens and addresses that are replayed, expired, swapped or somebody else's:
//! each gets its error, changes nothing, and stands in the log of the namespace whose person is
//! concerned.

use vault_service::App;
use vault_service::model::user::{Role, Scopes};

use super::{ADA, ADMIN, CONSENT, owned};
use crate::common::{
    CALLBACK, Tokens, VERIFIER, Visitor, audited, authorize, exchange, get, post_form, refresh,
    register,
};

/// What the log of `default` says the token endpoint refused: reason and client, sorted.
async fn refused(app: &App) -> Vec<(String, String)> {
    let entries = audited(app, "default").await.into_iter();
    let mut refused: Vec<_> = entries
        .filter(|entry| entry.action == "token.grant")
        .map(|entry| {
            assert_eq!(entry.outcome, "invalid_grant", "{entry:?}");
            assert!(entry.actor.starts_with("usr_"), "{entry:?}");
            let reason = entry.after.unwrap()["reason"].as_str().unwrap().to_owned();
            (reason, entry.client.unwrap())
        })
        .collect();
    refused.sort();
    refused
}

#[tokio::test]
async fn requirements_26_30_a_code_is_for_its_client_its_verifier_and_its_address() {
    let place = owned().await;
    let app = &place.app;
    let (client, other) = (register(app, CALLBACK).await, register(app, CALLBACK).await);
    let good = place.code(&client).await;
    let swapped = "another-verifier-that-is-long-enough-for-the-rule";
    for (who, verifier, redirect) in [
        (&other, VERIFIER, CALLBACK),
        (&client, swapped, CALLBACK),
        (&client, VERIFIER, "https://app.example/other"),
        (&client, VERIFIER, "https://app.example/cb/"),
    ] {
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", who.as_str()),
            ("code", &good),
            ("code_verifier", verifier),
            ("redirect_uri", redirect),
        ];
        let reply = post_form(app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), "400 invalid_grant", "{verifier} {redirect}");
    }
    let reasons = [
        ("code_of_another_client".to_owned(), other.clone()),
        ("redirect_uri_differs".to_owned(), client.clone()),
        ("redirect_uri_differs".to_owned(), client.clone()),
        ("verifier_wrong".to_owned(), client.clone()),
    ];
    assert_eq!(refused(app).await, reasons);
    // None of that used it up.
    let held = Tokens::of(&client, &exchange(app, &client, &good).await);
    assert!(place.is_good(&held.access).await);
    // A code, an access token or a refresh token in another's place is nothing.
    for (kind, name, value) in [
        ("refresh_token", "refresh_token", held.access.as_str()),
        ("refresh_token", "refresh_token", &good),
        ("authorization_code", "code", &held.refresh),
        ("authorization_code", "code", &held.access),
    ] {
        let fields = [
            ("grant_type", kind),
            ("client_id", client.as_str()),
            ("code_verifier", VERIFIER),
            (name, value),
        ];
        let reply = post_form(app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), "400 invalid_grant", "{kind}");
    }
    assert!(!place.is_good(&held.refresh).await, "nor is it a bearer");
    assert_eq!(refused(app).await.len(), 4, "of nobody, so only logged");
    assert!(place.is_good(&held.access).await);
}

#[tokio::test]
async fn requirements_26_32_replays_end_the_family_and_are_noted_once() {
    let place = owned().await;
    let app = &place.app;
    let client = register(app, CALLBACK).await;
    let used = place.code(&client).await;
    let held = Tokens::of(&client, &exchange(app, &client, &used).await);
    for _ in 0..3 {
        let reply = exchange(app, &client, &used).await;
        assert_eq!(reply.short(), "400 invalid_grant");
    }
    assert!(!place.is_good(&held.access).await);
    let first = place.tokens(Scopes::ALL).await;
    let second = place.renewed(&first).await;
    place.clock.advance(11);
    let foreign = refresh(app, &client, &second.refresh).await;
    assert_eq!(foreign.short(), "400 invalid_grant");
    // A stranger's try harms nobody.
    assert!(place.is_good(&second.access).await);
    for _ in 0..3 {
        let reply = place.refresh(&first).await;
        assert_eq!(reply.short(), "400 invalid_grant");
    }
    assert!(!place.is_good(&second.access).await);
    let mut noted = vec![
        ("code_reused".to_owned(), client.clone()),
        ("refresh_reused".to_owned(), first.client.clone()),
        ("token_of_another_client".to_owned(), client),
    ];
    noted.sort();
    assert_eq!(refused(app).await, noted);
}

#[tokio::test]
async fn requirement_42_a_foreign_token_stays_and_the_try_is_noted() {
    let place = owned().await;
    let app = &place.app;
    place.ada(Role::Member, Scopes::READ).await;
    let held = place.tokens(Scopes::ALL).await;
    let other = register(app, CALLBACK).await;
    for token in [&held.refresh, &held.access] {
        let fields = [("client_id", other.as_str()), ("token", token)];
        let reply = post_form(app, "/oauth/revoke", &fields).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    }
    assert!(place.is_good(&held.access).await);
    let fields = [
        ("client_id", held.client.as_str()),
        ("token", &held.refresh),
    ];
    assert_eq!(post_form(app, "/oauth/revoke", &fields).await.status, 200);
    let entries = audited(app, "default").await;
    let mut outcomes: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action == "token.revoke")
        .map(|entry| (entry.outcome.as_str(), entry.client.as_deref().unwrap()))
        .collect();
    outcomes.sort_unstable();
    let (own, other) = (held.client.as_str(), ("not_yours", other.as_str()));
    assert_eq!(outcomes, [("done", own), other, other]);
    assert_eq!(audited(app, "acme").await.len(), 0);
}

#[tokio::test]
async fn requirements_17_18_addresses_that_look_alike_are_others() {
    let place = owned().await;
    let app = &place.app;
    for (registered, asked) in [
        (CALLBACK, "https://app.example/cb/"),
        (CALLBACK, "https://app.example/cb?x=1"),
        (CALLBACK, "https://app.example/cb#x"),
        (CALLBACK, "https://app.example/./cb"),
        (CALLBACK, "https://app.example/x/../cb"),
        (CALLBACK, "https://app.example/%63b"),
        (CALLBACK, "https://app.example/CB"),
        (CALLBACK, "https://APP.example/cb"),
        (CALLBACK, "HTTPS://app.example/cb"),
        (CALLBACK, "https://app.example:443/cb"),
        (CALLBACK, "https://app.example:8443/cb"),
        (CALLBACK, "http://app.example/cb"),
        (CALLBACK, "https://app.example.evil.example/cb"),
        (CALLBACK, "https://evil.example/https://app.example/cb"),
        (CALLBACK, "https://app.example@evil.example/cb"),
        (CALLBACK, "https://user@app.example/cb"),
        (CALLBACK, "https://app.example\\@evil.example/cb"),
        (CALLBACK, "https://app.example%2f@evil.example/cb"),
        (CALLBACK, "https://app.exampl\u{435}/cb"),
        (CALLBACK, "//app.example/cb"),
        (CALLBACK, "/cb"),
        (CALLBACK, " https://app.example/cb"),
        (CALLBACK, "https://app.example/cb\n"),
        (CALLBACK, "javascript:alert(1)"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5000/other"),
        ("http://127.0.0.1/cb", "http://localhost:5000/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.2:5000/cb"),
        ("http://127.0.0.1/cb", "http://127.1:5000/cb"),
        ("http://127.0.0.1/cb", "https://127.0.0.1:5000/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5@evil.example/cb"),
        ("app://callback/cb", "app://callback:1/cb"),
        ("app://callback/cb", "app2://callback/cb"),
    ] {
        let client = register(app, registered).await;
        let reply = get(app, &authorize(&client, asked, &[])).await;
        assert_eq!(reply.page(), "400 This request is not safe", "{asked}");
        assert_eq!(reply.header("location"), "", "{asked}");
    }
}

#[tokio::test]
async fn requirement_24_consent_is_asked_for_each_time() {
    let place = owned().await;
    let app = &place.app;
    for redirect in [CALLBACK, "http://127.0.0.1:5000/cb", "app://callback/cb"] {
        let client = register(app, redirect).await;
        let address = authorize(&client, redirect, &[]);
        let mut visitor = Visitor::new(app);
        let answer = visitor
            .approve(&address, ADMIN, "default", Scopes::ALL)
            .await;
        assert!(answer.returned("code").is_some());
        for address in [&address, &authorize(&client, redirect, &[("x", "1")])] {
            let page = visitor.get(address).await;
            assert_eq!(page.page(), CONSENT, "{redirect}: nothing is remembered");
        }
    }
}

#[tokio::test]
async fn requirement_21_a_long_state_survives_every_form() {
    let place = owned().await;
    let app = &place.app;
    let client = register(app, CALLBACK).await;
    // Each of these is three bytes in the query, and nine where the query stands in a form.
    let state = "=&%".repeat(500);
    let address = authorize(&client, CALLBACK, &[]).replace(
        "state=a+state",
        &format!("state={}", "%3D%26%25".repeat(500)),
    );
    assert!(address.len() > 4500 && address.contains("%3D%26"));
    let answer = Visitor::new(app)
        .approve(&address, ADMIN, "default", Scopes::ALL)
        .await;
    assert_eq!(answer.returned("state"), Some(state));
}

#[tokio::test]
async fn a_consent_stands_in_the_log_of_the_vault_that_it_opens() {
    let place = owned().await;
    let app = &place.app;
    let (_, ada) = place.ada(Role::Member, Scopes::ALL).await;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[("scope", "read write")]);
    let mut visitor = Visitor::new(app);
    let page = visitor.arrive(&address, ADA.0, ADA.1).await;
    visitor.decide(&page, "deny", "acme", Scopes::ALL).await;
    assert_eq!(visitor.get(&address).await.status, 302);
    visitor.cookie = None;
    visitor.approve(&address, ADA, "acme", Scopes::READ).await;
    let mut entries = audited(app, "acme").await;
    entries.retain(|entry| entry.action == "oauth.consent");
    let [consent] = &entries[..] else {
        panic!("a no changes nothing: {entries:?}")
    };
    assert_eq!(consent.actor, ada.id);
    assert_eq!(consent.client, Some(client));
    assert_eq!(consent.outcome, "done");
    let after = consent.after.as_ref().unwrap();
    assert_eq!(after["scopes"], serde_json::json!(["read"]));
    assert_eq!(after["answer_to"], "app.example");
}
