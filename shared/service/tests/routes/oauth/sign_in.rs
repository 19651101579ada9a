use vault_service::model::user::{Role, Scopes};
use vault_service::oauth::sign_in::confirm;
use vault_service::oauth::throttle::WINDOW_SECONDS;
use zeroize::Zeroizing;

use super::{ADA, owned, world_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Visitor, authorize, bootstrap, form_request, register,
};
use crate::support::World;

/// A service that counts failures, and the address of a client there.
async fn limited() -> (World, String) {
    let place = world_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 5;
    });
    bootstrap(&place.app).await;
    let client = register(&place.app, CALLBACK).await;
    (place, authorize(&client, CALLBACK, &[]))
}

/// The status of one attempt from this source.
async fn attempt(
    visitor: &mut Visitor<'_>,
    address: &str,
    source: &str,
    email: &str,
    password: &str,
) -> u16 {
    visitor.source = source.parse().ok();
    let page = visitor.get(address).await;
    let reply = visitor.log_in(&page, email, password).await;
    if reply.status == 429 {
        assert_eq!(reply.header("retry-after"), "900");
        let body = reply.body;
        assert!(body.contains("Too many attempts"), "{body}");
    }
    reply.status
}

#[tokio::test]
async fn requirement_28_unknown_accounts_and_wrong_passwords_read_the_same() {
    let place = owned().await;
    place.ada(Role::Member, Scopes::READ).await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let mut bodies = Vec::new();
    for email in [ADA.0, "bob@example.org", "no address"] {
        let page = visitor.get(&address).await;
        let reply = visitor.log_in(&page, email, "not the password").await;
        assert_eq!(reply.page(), "422 Sign in", "{email}");
        let body = &reply.body;
        let alert = "role=\"alert\">Wrong email or password.";
        assert!(body.contains(alert), "{body}");
        // A password is never sent back.
        assert!(!body.contains("not the password"), "{body}");
        let csrf = reply.hidden("/oauth/login", "csrf");
        let typed = format!("value=\"{email}\"");
        let differs = [csrf.as_str(), &typed, " autofocus"];
        bodies.push(
            differs
                .iter()
                .fold(body.clone(), |body, text| body.replace(text, "")),
        );
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

#[tokio::test]
async fn requirement_28_a_sixth_failure_in_a_quarter_of_an_hour_is_429() {
    const HERE: &str = "192.0.2.1";
    let (place, address) = limited().await;
    let mut visitor = Visitor::new(&place.app);
    for _ in 0..5 {
        let status = attempt(&mut visitor, &address, HERE, OWNER, "wrong").await;
        assert_eq!(status, 422);
    }
    for (source, email, password, wanted) in [
        (HERE, OWNER, OWNER_PASSWORD, 429),
        (HERE, "Owner@Example.org ", "wrong", 429),
        (HERE, "bob@example.org", "wrong", 422),
    ] {
        let status = attempt(&mut visitor, &address, source, email, password).await;
        assert_eq!(status, wanted, "{source} {email} {password}");
    }
    // Routes that ask again count as well.
    let confirmed = async |source: &str| {
        let (email, source) = (OWNER.parse().unwrap(), source.parse().ok());
        let password = Zeroizing::new(OWNER_PASSWORD.to_owned());
        confirm(&place.app, &email, password, source).await
    };
    assert_eq!(confirmed(HERE).await.unwrap_err().status(), 429);
    assert!(confirmed("192.0.2.9").await.unwrap());
    let elsewhere = attempt(&mut visitor, &address, "192.0.2.2", OWNER, OWNER_PASSWORD).await;
    assert_eq!(elsewhere, 303);
    place.clock.advance(WINDOW_SECONDS);
    let mut visitor = Visitor::new(&place.app);
    let later = attempt(&mut visitor, &address, HERE, OWNER, OWNER_PASSWORD).await;
    assert_eq!(later, 303);
}

#[tokio::test]
async fn requirement_28_a_success_forgets_the_failures_before_it() {
    let (place, address) = limited().await;
    for _ in 0..3 {
        let mut visitor = Visitor::new(&place.app);
        let wrong = [("wrong", 422); 4];
        for (password, wanted) in wrong.into_iter().chain([(OWNER_PASSWORD, 303)]) {
            let status = attempt(&mut visitor, &address, "192.0.2.1", OWNER, password).await;
            assert_eq!(status, wanted);
        }
    }
}

#[tokio::test]
async fn forms_that_are_no_forms_are_refused() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.get(&address).await;
    let twice = [("email", OWNER), ("email", OWNER)];
    let twice = visitor.fill(&page, "/oauth/login", &twice).await;
    assert_eq!(twice.status, 400);
    let long = [("password", &"x".repeat(30_000)[..])];
    let long = visitor.fill(&page, "/oauth/login", &long).await;
    assert_eq!(long.status, 413);
    let csrf = page.hidden("/oauth/login", "csrf");
    let mut json = form_request("/oauth/login", &[("csrf", &csrf)]);
    let media = "application/json".parse().unwrap();
    json.headers_mut().insert("content-type", media);
    assert_eq!(visitor.send(json).await.status, 415);
}

#[tokio::test]
async fn signing_out_without_a_place_to_go_says_so() {
    let place = owned().await;
    let mut visitor = Visitor::new(&place.app);
    let out = visitor.post("/oauth/logout", &[("csrf", "x")]).await;
    assert_eq!(out.status, 403);
}
