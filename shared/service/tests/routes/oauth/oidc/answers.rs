//! What comes back from the provider, and what of it counts.

use serde_json::{Value, json};
use vault_service::config::SecondFactorPolicy;
use vault_service::model::provider_request::REQUEST_SECONDS;
use vault_service::model::user::{Role, Scopes};

use super::double::{Key, callback, encoded, parameter};
use super::{CONNECT, EXPIRED, NOT_VALID, Place, SIGN_IN, START, UNVERIFIED, sent};
use crate::common::{OWNER, OWNER_PASSWORD, Reply, Visitor, exchange, invite};

/// What a test changes in a token.
type Change = Box<dyn Fn(&mut Value)>;

#[tokio::test]
async fn a_request_to_the_provider_has_pkce_state_and_nonce() {
    let place = Place::new().await;
    let (_, first) = place.at_provider("/account").await;
    let (_, second) = place.at_provider("/account").await;
    let start = format!("{}/auth?tenant=1&", place.provider.issuer());
    assert!(first.starts_with(&start), "{first}");
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", super::CLIENT_ID),
        ("redirect_uri", "https://vault.example/oauth/oidc/callback"),
        ("scope", "openid email"),
        ("code_challenge_method", "S256"),
        ("prompt", ""),
        ("max_age", ""),
    ] {
        assert_eq!(parameter(&first, name), value, "{name}");
    }
    for name in ["state", "nonce", "code_challenge"] {
        let secrets = [&first, &second].map(|address| parameter(address, name));
        assert!(secrets[0].len() >= 43, "{name}");
        assert_ne!(secrets[0], secrets[1], "{name}");
    }
}

#[tokio::test]
async fn a_token_counts_for_this_service_this_request_and_its_time_alone() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    let now = place.world.now().unix();
    let bad: Vec<(&str, Change)> = vec![
        (
            "iss",
            Box::new(|c| c["iss"] = json!("https://evil.example")),
        ),
        ("aud", Box::new(|c| c["aud"] = json!("another client"))),
        ("no aud", Box::new(|c| c["aud"] = json!([]))),
        (
            "auds",
            Box::new(|c| c["aud"] = json!([c["aud"], "another"])),
        ),
        ("azp", Box::new(|c| c["azp"] = json!("another"))),
        ("nonce", Box::new(|c| c["nonce"] = json!("another"))),
        ("no nonce", Box::new(|c| c["nonce"] = json!(null))),
        ("expired", Box::new(move |c| c["exp"] = json!(now - 300))),
        ("exp", Box::new(|c| c["exp"] = json!("soon"))),
        ("future", Box::new(move |c| c["iat"] = json!(now + 301))),
        ("old", Box::new(move |c| c["iat"] = json!(now - 301))),
        ("sub", Box::new(|c| c["sub"] = json!(""))),
        ("long sub", Box::new(|c| c["sub"] = json!("s".repeat(256)))),
        ("no sub", Box::new(|c| c["sub"] = json!(null))),
    ];
    for (name, change) in bad {
        let (mut visitor, reply) = place.back(change).await;
        assert_eq!(reply.page(), NOT_VALID, "{name}");
        assert_eq!(visitor.get("/account").await.page(), SIGN_IN, "{name}");
    }
    assert!(place.account("ada@example.org").await.proofs.is_empty());
    let good: Vec<(&str, Change)> = vec![
        (
            "auds",
            Box::new(|c| {
                c["aud"] = json!([c["aud"], "another"]);
                c["azp"] = json!(super::CLIENT_ID);
            }),
        ),
        (
            "skew",
            Box::new(move |c| {
                c["iat"] = json!(now + 300);
                c["exp"] = json!(now - 299);
            }),
        ),
        (
            "fractions",
            Box::new(move |c| {
                let later: f64 = format!("{}.5", now + 600).parse().unwrap();
                c["exp"] = json!(later);
            }),
        ),
    ];
    for (name, change) in good {
        let (_, reply) = place.back(change).await;
        assert_eq!(reply.status, 303, "{name}: {}", reply.body);
    }
}

#[tokio::test]
async fn only_a_signature_of_the_provider_counts() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    let stranger = Key::new("first");
    let (_, address) = place.at_provider("/account").await;
    let claims = place.provider.claims(&address);
    let good = stranger.signed(&claims);
    let signature = good.rsplit('.').next().unwrap().to_owned();
    let under = |header: Value, signature: &str| {
        format!("{}.{}.{signature}", encoded(&header), encoded(&claims))
    };
    for token in [
        good.clone(),
        under(json!({ "alg": "none" }), ""),
        under(json!({ "alg": "none", "kid": "first" }), &signature),
        under(json!({ "alg": "HS256", "kid": "first" }), &signature),
        under(
            json!({ "alg": "ES256", "kid": "first", "crit": ["exp"] }),
            &signature,
        ),
        under(json!({ "alg": "ES256", "kid": "second" }), &signature),
        format!("{good}.x"),
        "x.y".to_owned(),
        String::new(),
        format!("{good}{}", "A".repeat(16 * 1024)),
    ] {
        let (mut visitor, address) = place.at_provider("/account").await;
        let back = place.provider.answer_with(&address, token.clone());
        assert_eq!(visitor.get(&back).await.page(), NOT_VALID, "{token}");
    }
    assert!(place.account("ada@example.org").await.proofs.is_empty());
}

#[tokio::test]
async fn a_request_is_answered_once_by_the_browser_that_made_it_within_ten_minutes() {
    let place = Place::new().await;
    invite(place.app(), "ada@example.org").await;
    let (mut visitor, address) = place.at_provider("/account").await;
    let back = place.provider.answer(&address, |_| {});
    // A link of somebody else, who wants this browser to be signed in as another person.
    let mut other = Visitor::new(place.app());
    assert_eq!(other.get(&back).await.page(), EXPIRED, "without a cookie");
    other.get("/account").await;
    assert_eq!(other.get(&back).await.page(), EXPIRED, "another browser");
    for bad in [
        "/oauth/oidc/callback",
        "/oauth/oidc/callback?code=x",
        "/oauth/oidc/callback?state=x&code=x",
        &format!("{back}&code=another"),
    ] {
        assert_eq!(visitor.get(bad).await.page(), EXPIRED, "{bad}");
    }
    let head = axum::http::Request::head(&back).body(axum::body::Body::empty());
    assert_eq!(visitor.send(head.unwrap()).await.status, 400);
    assert_eq!(place.provider.tokens_given(), 0);
    let mut same = Visitor::new(place.app());
    same.cookie.clone_from(&visitor.cookie);
    assert_eq!(visitor.get(&back).await.status, 303);
    assert_eq!(same.get(&back).await.page(), EXPIRED, "a replay");
    assert_eq!(place.provider.tokens_given(), 1);

    let (mut late, address) = place.at_provider("/account").await;
    place.world.clock.advance(REQUEST_SECONDS);
    let back = place.provider.answer(&address, |_| {});
    assert_eq!(late.get(&back).await.page(), EXPIRED, "after ten minutes");
}

#[tokio::test]
async fn the_answer_of_another_provider_counts_for_nothing() {
    let place = Place::new().await;
    for (from, supported) in [
        (Some("https://evil.example"), true),
        (Some("https://evil.example"), false),
        (None, true),
    ] {
        let name = "authorization_response_iss_parameter_supported";
        place.provider.says(name, json!(supported));
        place
            .world
            .clock
            .advance(vault_service::oidc::FRESH_SECONDS);
        let (mut visitor, address) = place.at_provider("/account").await;
        // A code that the provider would take.
        let good = place.provider.answer(&address, |_| {});
        let good = format!("https://vault.example{good}");
        let [state, code] = ["state", "code"].map(|name| parameter(&good, name));
        let mut fields = vec![("code", code.as_str())];
        fields.extend(from.map(|from| ("iss", from)));
        let back = callback(&state, &fields);
        assert_eq!(visitor.get(&back).await.page(), NOT_VALID, "{from:?}");
    }
    assert_eq!(place.provider.tokens_given(), 0);
}

#[tokio::test]
async fn an_error_of_the_provider_is_shown_as_text() {
    let place = Place::new().await;
    for (error, shown) in [
        ("access_denied", "The sign-in was declined there."),
        ("login_required", "Its reason is “login_required”."),
        (
            "<script>alert(1)</script>",
            "Its reason is “scriptalert1script”.",
        ),
    ] {
        let (mut visitor, address) = place.at_provider("/account").await;
        let issuer = place.provider.issuer();
        let fields = [
            ("error", error),
            ("iss", issuer),
            ("error_description", "<b>"),
        ];
        let back = callback(&parameter(&address, "state"), &fields);
        let reply = visitor.get(&back).await;
        assert_eq!(
            reply.page(),
            "403 The identity provider did not sign you in"
        );
        assert!(reply.body.contains(shown), "{}", reply.body);
        assert!(!reply.body.contains("<script>") && !reply.body.contains("<b>"));
        assert_eq!(visitor.get(&back).await.page(), EXPIRED);
    }
}

#[tokio::test]
async fn an_address_counts_when_the_provider_has_verified_it() {
    let place = Place::with(&[("VAULT_SIGN_UP", "open")], |_| {}).await;
    for (verified, counts) in [
        (json!(false), false),
        (json!("false"), false),
        (json!(null), false),
        (json!(1), false),
        (json!("true"), true),
        (json!(true), true),
    ] {
        let subject = verified.to_string();
        let change = |c: &mut Value| {
            c["sub"] = json!(subject);
            c["email"] = json!(format!("p{}@example.org", subject.len()));
            c["email_verified"] = verified;
        };
        let (_, reply) = place.back(change).await;
        let expected = if counts { 303 } else { 403 };
        assert_eq!(reply.status, expected, "{subject}: {}", reply.body);
        assert!(counts || reply.page() == UNVERIFIED);
    }
    for address in [json!(null), json!("ada"), json!("ad\u{e4}@example.org")] {
        let (_, reply) = place.back(|c| c["email"] = address.clone()).await;
        assert_eq!(reply.page(), UNVERIFIED, "{address}");
    }
}

#[tokio::test]
async fn an_address_that_is_not_in_the_token_is_asked_for() {
    let place = Place::with(&[("VAULT_SIGN_UP", "open")], |_| {}).await;
    let nameless = |c: &mut Value| {
        c["email"] = json!(null);
        c["email_verified"] = json!(null);
    };
    let of_another =
        json!({ "sub": "another", "email": "ada@example.org", "email_verified": true });
    place.provider.knows(of_another);
    let (_, reply) = place.back(nameless).await;
    assert_eq!(reply.page(), NOT_VALID);
    let subject = super::double::SUBJECT;
    place
        .provider
        .knows(json!({ "sub": subject, "email": "ada@example.org" }));
    let (_, reply) = place.back(nameless).await;
    assert_eq!(reply.page(), UNVERIFIED);
    let known = json!({ "sub": subject, "email": "ada@example.org", "email_verified": true });
    place.provider.knows(known);
    let (_, page) = place.signed_in(nameless).await;
    assert!(page.body.contains("ada@example.org"), "{}", page.body);
}

/// An account of the provider that is signed in there signs in here without any credentials. That
/// must not do where credentials are asked for.
#[tokio::test]
async fn where_credentials_are_asked_for_the_provider_has_to_ask_for_them() {
    let place = Place::new().await;
    // The first owner connects once.
    let as_owner = |c: &mut Value| c["email"] = json!(OWNER);
    let (mut owner, page) = place.back(as_owner).await;
    assert_eq!(page.page(), CONNECT, "{}", page.body);
    let password = [("password", OWNER_PASSWORD)];
    assert_eq!(
        owner
            .fill(&page, "/oauth/oidc/connect", &password)
            .await
            .status,
        303
    );

    for (more, fresh) in [
        (&[][..], false),
        (&[("prompt", "login")][..], true),
        (&[("max_age", "3600")][..], true),
    ] {
        let authorize = place.authorize(more).await;
        let client = parameter(&format!("https://x{authorize}"), "client_id");
        let (mut visitor, address) = place.at_provider(&authorize).await;
        let wanted = if fresh { ("login", "0") } else { ("", "") };
        let asked = ["prompt", "max_age"].map(|name| parameter(&address, name));
        assert_eq!((asked[0].as_str(), asked[1].as_str()), wanted, "{more:?}");
        let old = place.world.now().unix() - 301;
        let entered_before = |c: &mut Value| c["auth_time"] = json!(old);
        let back = visitor
            .get(&place.provider.answer(&address, entered_before))
            .await;
        if fresh {
            assert_eq!(back.page(), "403 Enter your credentials again", "{more:?}");
            let address = sent(&mut visitor, &authorize).await;
            let now = place.world.now().unix();
            let entered = |c: &mut Value| c["auth_time"] = json!(now);
            let back = visitor.get(&place.provider.answer(&address, entered)).await;
            assert_eq!(back.status, 303, "{}", back.body);
        }
        let page = visitor.get(&authorize).await;
        visitor.allow(&page, "default", Scopes::ALL).await;
        let code = visitor.get(&authorize).await.returned("code").unwrap();
        let token = exchange(place.app(), &client, &code)
            .await
            .text("access_token");
        let body = json!({ "email": "bob@example.org", "role": "role:owner", "scopes": ["read"] });
        let reply = place.invite_as(&token, &body).await;
        assert_eq!(reply.status, 403, "{more:?} {}", reply.body);
        // The session, and not the token, may confirm if the person entered credentials.
        let reply = reply.json();
        let page = reply["confirmation"]["url"].as_str().unwrap();
        let page = page.strip_prefix(place.app().config.public_url.origin());
        let page = visitor.get(page.unwrap()).await;
        assert_eq!(page.heading(), "Confirm this?", "{more:?} {}", page.body);
        // Without credentials, the page can only be declined.
        let asks_to_sign_in = page.body.contains("Sign in to confirm");
        assert_eq!(asks_to_sign_in, !fresh, "{more:?} {}", page.body);
        // A browser that is signed in and asked again is asked by the provider, too.
        let again = place.authorize(&[("prompt", "login")]).await;
        let address = sent(&mut visitor, &again).await;
        assert_eq!(parameter(&address, "prompt"), "login");
    }
}

/// A provider that does not state when credentials were entered confirms nothing: the person is led
/// to the second factor, and its code confirms once the factor has been there for a day.
#[tokio::test]
async fn a_provider_that_states_no_time_confirms_nothing() {
    let place = Place::new().await;
    let (mut ada, secret) = place.with_new_factor().await;
    let notes = ada.get("/account").await;
    assert!(notes.body.contains("does not count yet"), "{}", notes.body);
    for (wait, confirms) in [(60, false), (24 * 3600, true)] {
        place.world.clock.advance(wait);
        let authorize = place.authorize(&[("prompt", "login")]).await;
        let (mut ada, address) = place.at_provider(&authorize).await;
        let half = ada.get(&place.provider.answer(&address, silent)).await;
        assert_eq!(half.heading(), "Enter a code", "{}", half.body);
        let is_new = half.body.contains("This second factor is new.");
        assert_eq!(is_new, !confirms, "{}", half.body);
        let typed = crate::account::second_factor::code(&secret, place.world.now().unix());
        let fields = [("code", typed.as_str())];
        let back = ada.fill(&half, "/oauth/second-factor", &fields).await;
        assert_eq!(back.status, 303, "{}", back.body);
        let leads_on = back.header("location") != FACTOR;
        assert_eq!(leads_on, confirms, "{}", back.header("location"));
        let page = ada.get(FACTOR).await;
        let tells = page.body.contains("confirm such steps from 22 Nov 2026");
        assert_eq!(tells, !confirms, "{}", page.body);
        let page = ada.get(&authorize).await;
        let asks_again = page.heading() == "Sign in";
        assert_eq!(asks_again, !confirms, "{wait}: {}", page.body);
    }
}

/// Whoever found a browser open and set up a factor of their own does not lock the owner out: the
/// owner learns of it at the next sign-in and removes it, while it is new.
#[tokio::test]
async fn a_new_factor_that_is_not_the_persons_is_removed_at_the_next_sign_in() {
    let place = Place::with(&[], |config| {
        config.second_factor = SecondFactorPolicy::Owners;
    })
    .await;
    let (mut open, _) = place.with_new_factor().await;
    let page = open.get("/console/acme").await;
    assert!(
        page.body.contains("so its codes count from"),
        "a session with it has no second factor yet: {}",
        page.body
    );
    place.world.clock.advance(60);
    let (mut ada, address) = place.at_provider("/account").await;
    let half = ada.get(&place.provider.answer(&address, silent)).await;
    assert_eq!(half.heading(), "Enter a code", "{}", half.body);
    let csrf = half.hidden("/oauth/second-factor", "csrf");
    let fields = |csrf| [("csrf", csrf), ("return_to", "/account"), ("disown", "yes")];
    let back = ada
        .post("/oauth/second-factor", &fields(csrf.as_str()))
        .await;
    let found = (back.status, back.header("location"));
    assert_eq!(found, (303, "/account"), "{}", back.body);
    assert_eq!(place.account("ada@example.org").await.second_factor, None);
    let page = ada.get("/account").await;
    assert!(page.body.contains("has been removed"), "{}", page.body);

    // After a day it is the person's, and nobody removes it so.
    let (_, secret) = place.with_new_factor_in(ada).await;
    place.world.clock.advance(24 * 3600);
    let (mut ada, address) = place.at_provider("/account").await;
    let half = ada.get(&place.provider.answer(&address, silent)).await;
    assert!(
        !half.body.contains("I did not set this up"),
        "{}",
        half.body
    );
    let csrf = half.hidden("/oauth/second-factor", "csrf");
    let refused = ada
        .post("/oauth/second-factor", &fields(csrf.as_str()))
        .await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    let typed = crate::account::second_factor::code(&secret, place.world.now().unix());
    let back = ada
        .fill(&refused, "/oauth/second-factor", &[("code", &typed)])
        .await;
    assert_eq!(back.status, 303, "{}", back.body);
    let page = ada.get("/account").await;
    assert!(
        page.body
            .contains("a second factor was set up for your account"),
        "{}",
        page.body
    );
}

/// A person without a password whose sign-in is old signs in again at the provider and goes on.
#[tokio::test]
async fn the_second_factor_page_asks_a_person_without_a_password_to_sign_in_again() {
    let place = Place::new().await;
    crate::common::invite(place.app(), "ada@example.org").await;
    let (mut ada, _) = place.signed_in(|_| {}).await;
    let page = ada.get(FACTOR).await;
    place.world.clock.advance(301);
    let (asked, _) = place.turn_on(&mut ada, &page).await;
    assert_eq!(asked.page(), SIGN_IN, "{}", asked.body);
    let leaving = ada.fill(&asked, START, &[]).await;
    let address = leaving.header("refresh").strip_prefix("0;url=").unwrap();
    assert_eq!(parameter(address, "prompt"), "login");
    let back = ada.get(&place.provider.answer(address, |_| {})).await;
    let found = (back.status, back.header("location"));
    assert_eq!(found, (303, FACTOR), "{}", back.body);
    let page = ada.get(FACTOR).await;
    assert_eq!(place.turn_on(&mut ada, &page).await.0.status, 200);
    // A browser that is not signed in is asked for credentials on the way there, too.
    let (_, address) = place.at_provider(FACTOR).await;
    assert_eq!(parameter(&address, "prompt"), "login");
}

/// Credentials are as old as the provider says, and never newer than now.
#[tokio::test]
async fn credentials_are_fresh_from_the_time_that_the_provider_states() {
    let place = Place::new().await;
    crate::common::invite(place.app(), "ada@example.org").await;
    for (off, wait, fresh) in [
        (-200, 99, true),
        (-200, 101, false),
        (200, 299, true),
        (200, 301, false),
    ] {
        let now = place.world.now().unix();
        let (mut ada, address) = place.at_provider(FACTOR).await;
        let entered = |c: &mut Value| c["auth_time"] = json!(now + off);
        let back = ada.get(&place.provider.answer(&address, entered)).await;
        assert_eq!(back.status, 303, "{}", back.body);
        let page = ada.get(FACTOR).await;
        place.world.clock.advance(wait);
        let csrf = page.hidden(FACTOR, "csrf");
        let fields = [("csrf", csrf.as_str()), ("change", "on")];
        let changed = ada.post(FACTOR, &fields).await;
        let asks_again = changed.page() == SIGN_IN;
        assert_eq!(asks_again, !fresh, "{off} {wait}: {}", changed.body);
    }
}

/// The page of the second factor.
const FACTOR: &str = "/account/second-factor";

/// Leaves out what a provider states about the time of the credentials.
fn silent(claims: &mut Value) {
    claims["auth_time"] = Value::Null;
}

impl Place {
    /// An owner who set up a second factor after a sign-in that confirms nothing; the browser, and
    /// the secret of the factor.
    async fn with_new_factor(&self) -> (Visitor<'_>, String) {
        crate::common::invite(self.app(), "ada@example.org").await;
        let acme = crate::common::namespace(self.app(), "acme").await;
        let (ada, _) = self.signed_in(silent).await;
        let (role, scopes) = (Role::Owner, Scopes::ALL);
        crate::common::member(self.app(), "ada@example.org", &acme, role, scopes).await;
        self.with_new_factor_in(ada).await
    }

    async fn with_new_factor_in<'p>(&'p self, mut ada: Visitor<'p>) -> (Visitor<'p>, String) {
        let authorize = self.authorize(&[("prompt", "login")]).await;
        let address = sent(&mut ada, &authorize).await;
        let back = ada.get(&self.provider.answer(&address, silent)).await;
        assert_eq!((back.status, back.header("location")), (303, FACTOR));
        assert_eq!(ada.get(&authorize).await.page(), SIGN_IN, "it asks again");
        let page = ada.get(FACTOR).await;
        let told = "your identity provider does not say so";
        assert!(page.body.contains(told), "{}", page.body);
        assert!(page.body.contains("from tomorrow on"), "{}", page.body);
        let (turned_on, secret) = self.turn_on(&mut ada, &page).await;
        assert_eq!(turned_on.status, 200, "{}", turned_on.body);
        (ada, secret)
    }

    /// Sends the form that turns the second factor on; the answer, and the secret.
    async fn turn_on(&self, visitor: &mut Visitor<'_>, page: &Reply) -> (Reply, String) {
        let [csrf, secret] = ["csrf", "secret"].map(|name| page.hidden(FACTOR, name));
        let typed = crate::account::second_factor::code(&secret, self.world.now().unix());
        let fields = [
            ("csrf", csrf.as_str()),
            ("change", "on"),
            ("secret", &secret),
            ("new_code", &typed),
        ];
        (visitor.post(FACTOR, &fields).await, secret)
    }

    async fn invite_as(&self, token: &str, body: &Value) -> crate::common::Reply {
        let request = axum::http::Request::post("/admin/users")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(axum::body::Body::from(body.to_string()));
        crate::common::send(self.app(), request.unwrap()).await
    }
}

#[tokio::test]
async fn sign_ins_that_nobody_completes_are_counted_by_source() {
    let place = Place::with(&[], |config| config.limits.sign_in_failures = 3).await;
    invite(place.app(), "ada@example.org").await;
    let source = Some("192.0.2.9".parse().unwrap());
    for n in 0..5 {
        let mut visitor = Visitor::new(place.app());
        visitor.source = source;
        let address = sent(&mut visitor, "/account").await;
        let back = visitor.get(&place.provider.answer(&address, |_| {})).await;
        assert_eq!(
            back.status, 303,
            "{n}: one that is completed does not count"
        );
    }
    for (source, status) in [
        ("192.0.2.9", 200),
        ("192.0.2.9", 200),
        ("192.0.2.9", 200),
        ("192.0.2.9", 429),
        ("192.0.2.10", 200),
    ] {
        let mut visitor = Visitor::new(place.app());
        visitor.source = Some(source.parse().unwrap());
        let page = visitor.get("/account").await;
        let reply = visitor.fill(&page, START, &[]).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        assert_eq!(reply.header("retry-after").is_empty(), status == 200);
    }
}

#[tokio::test]
async fn forms_of_other_sites_go_nowhere() {
    let place = Place::new().await;
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    let csrf = page.hidden(START, "csrf");
    for (csrf, return_to, status) in [
        ("forged", "/account", 403),
        (csrf.as_str(), "https://evil.example/", 400),
        (csrf.as_str(), "/oauth/password", 403),
    ] {
        let fields = [("csrf", csrf), ("return_to", return_to)];
        assert_eq!(
            visitor.post(START, &fields).await.status,
            status,
            "{return_to}"
        );
    }
    let mut other = Visitor::new(place.app());
    other.get("/account").await;
    let fields = [("csrf", csrf.as_str()), ("return_to", "/account")];
    assert_eq!(other.post(START, &fields).await.status, 403);
}
