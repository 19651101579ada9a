use std::net::SocketAddr;

use vault_service::http::Peer;
use vault_service::model::user::{Role, Scopes};
use vault_service::oauth::sign_in::confirm;
use vault_service::oauth::throttle::WINDOW_SECONDS;
use zeroize::Zeroizing;

use super::{owned, place_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Reply, Visitor, authorize, bootstrap, form_request, member,
    namespace, register,
};

/// One attempt from an address.
async fn attempt(
    visitor: &mut Visitor<'_>,
    address: &str,
    source: &str,
    email: &str,
    password: &str,
) -> Reply {
    let page = visitor.get(address).await;
    let (csrf, return_to) = (
        page.hidden("/oauth/login", "csrf"),
        page.hidden("/oauth/login", "return_to"),
    );
    let fields = [
        ("csrf", csrf.as_str()),
        ("return_to", &return_to),
        ("email", email),
        ("password", password),
    ];
    let mut request = form_request("/oauth/login", &fields);
    request
        .extensions_mut()
        .insert(Peer(SocketAddr::new(source.parse().unwrap(), 1)));
    visitor.send(request).await
}

#[tokio::test]
async fn requirement_28_unknown_accounts_and_wrong_passwords_read_the_same() {
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Member,
        Scopes::READ,
    )
    .await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let mut bodies = Vec::new();
    for email in ["ada@example.org", "bob@example.org", "no address"] {
        let page = visitor.get(&address).await;
        let reply = visitor.log_in(&page, email, "not the password").await;
        assert_eq!((reply.status, reply.heading()), (422, "Sign in"), "{email}");
        assert!(
            reply
                .body
                .contains("role=\"alert\">Wrong email or password."),
            "{}",
            reply.body
        );
        assert!(
            !reply.body.contains("not the password"),
            "a password is never sent back"
        );
        let csrf = reply.hidden("/oauth/login", "csrf");
        bodies.push(
            reply
                .body
                .replace(&csrf, "")
                .replace(&format!("value=\"{email}\""), "")
                .replace(" autofocus", ""),
        );
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

#[tokio::test]
async fn requirement_28_a_sixth_failure_in_a_quarter_of_an_hour_is_429() {
    let place = place_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 5;
    });
    bootstrap(&place.app).await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    for _ in 0..5 {
        assert_eq!(
            attempt(&mut visitor, &address, "192.0.2.1", OWNER, "wrong")
                .await
                .status,
            422
        );
    }
    let refused = attempt(&mut visitor, &address, "192.0.2.1", OWNER, OWNER_PASSWORD).await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, "900"),
        "even with the right one"
    );
    assert!(
        refused.body.contains("Too many attempts"),
        "{}",
        refused.body
    );
    assert_eq!(
        attempt(
            &mut visitor,
            &address,
            "192.0.2.1",
            "Owner@Example.org ",
            "wrong"
        )
        .await
        .status,
        429
    );
    assert_eq!(
        attempt(
            &mut visitor,
            &address,
            "192.0.2.1",
            "bob@example.org",
            "wrong"
        )
        .await
        .status,
        422
    );
    let confirmed = |source: &str| {
        let (app, source) = (place.app.clone(), source.parse().ok());
        async move {
            confirm(
                &app,
                &OWNER.parse().unwrap(),
                Zeroizing::new(OWNER_PASSWORD.to_owned()),
                source,
            )
            .await
        }
    };
    assert_eq!(
        confirmed("192.0.2.1").await.unwrap_err().status(),
        429,
        "routes that ask again count as well"
    );
    assert!(confirmed("192.0.2.9").await.unwrap());
    assert_eq!(
        attempt(&mut visitor, &address, "192.0.2.2", OWNER, OWNER_PASSWORD)
            .await
            .status,
        303,
        "another source"
    );
    place.clock.advance(WINDOW_SECONDS);
    let mut visitor = Visitor::new(&place.app);
    assert_eq!(
        attempt(&mut visitor, &address, "192.0.2.1", OWNER, OWNER_PASSWORD)
            .await
            .status,
        303
    );
}

#[tokio::test]
async fn requirement_28_a_success_forgets_the_failures_before_it() {
    let place = place_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 5;
    });
    bootstrap(&place.app).await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    for _ in 0..3 {
        let mut visitor = Visitor::new(&place.app);
        for _ in 0..4 {
            assert_eq!(
                attempt(&mut visitor, &address, "192.0.2.1", OWNER, "wrong")
                    .await
                    .status,
                422
            );
        }
        assert_eq!(
            attempt(&mut visitor, &address, "192.0.2.1", OWNER, OWNER_PASSWORD)
                .await
                .status,
            303
        );
    }
}

#[tokio::test]
async fn forms_that_are_no_forms_are_refused() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.get(&address).await;
    let csrf = page.hidden("/oauth/login", "csrf");
    let twice = [
        ("csrf", csrf.as_str()),
        ("return_to", &address),
        ("email", OWNER),
        ("email", OWNER),
    ];
    assert_eq!(visitor.post("/oauth/login", &twice).await.status, 400);
    let long = "x".repeat(30_000);
    assert_eq!(
        visitor
            .post("/oauth/login", &[("csrf", &csrf), ("password", &long)])
            .await
            .status,
        413
    );
    let mut json = form_request("/oauth/login", &[("csrf", &csrf)]);
    json.headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    assert_eq!(visitor.send(json).await.status, 415);
}

#[tokio::test]
async fn signing_out_without_a_place_to_go_says_so() {
    let place = owned().await;
    let mut visitor = Visitor::new(&place.app);
    assert_eq!(
        visitor.post("/oauth/logout", &[("csrf", "x")]).await.status,
        403
    );
}
