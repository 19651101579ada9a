use vault_service::accounts::throttle::ACCOUNT_SECONDS;
use vault_service::model::user::{Role, Scopes};

use super::{ADA, owned, world_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Visitor, audited, authorize, bootstrap, form_request, invite,
    register,
};
use crate::support::World;

/// A service that counts failures, and the address of a client there.
async fn limited() -> (World, String) {
    let place = world_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 30;
        config.limits.sign_in_per_account = 20;
    });
    bootstrap(&place.app).await;
    let client = register(&place.app, CALLBACK).await;
    (place, authorize(&client, CALLBACK, &[]))
}

/// Status of one attempt from this source, and after how many seconds the next makes sense.
async fn attempt(
    visitor: &mut Visitor<'_>,
    address: &str,
    source: &str,
    email: &str,
    password: &str,
) -> (u16, String) {
    visitor.source = source.parse().ok();
    let page = visitor.get(address).await;
    let reply = visitor.log_in(&page, email, password).await;
    let body = &reply.body;
    let says = body.contains("Too many attempts");
    assert_eq!(reply.status == 429, says, "{body}");
    (reply.status, reply.header("retry-after").to_owned())
}

fn wrong() -> (u16, String) {
    (422, String::new())
}

fn right() -> (u16, String) {
    (303, String::new())
}

fn wait(seconds: i64) -> (u16, String) {
    (429, seconds.to_string())
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
async fn requirement_28_a_source_fails_thirty_times_in_a_quarter_of_an_hour() {
    const HERE: &str = "192.0.2.1";
    let (place, address) = limited().await;
    let mut visitor = Visitor::new(&place.app);
    for n in 0..30 {
        let email = format!("user-{n}@example.org");
        let found = attempt(&mut visitor, &address, HERE, &email, "Spring2026!!").await;
        assert_eq!(found, wrong(), "{n}");
    }
    place.clock.advance(90);
    // Even with the right one. The clock stands a hundred seconds behind the quarter.
    let found = attempt(&mut visitor, &address, HERE, OWNER, OWNER_PASSWORD).await;
    assert_eq!(found, wait(800));
    let elsewhere = attempt(&mut visitor, &address, "192.0.2.2", OWNER, OWNER_PASSWORD).await;
    assert_eq!(elsewhere, right());
    place.clock.advance(800);
    let mut visitor = Visitor::new(&place.app);
    let later = attempt(&mut visitor, &address, HERE, OWNER, OWNER_PASSWORD).await;
    assert_eq!(later, right());
}

/// Twenty wrong passwords from one address, or from everywhere, keep nobody out of a new browser
/// elsewhere, and give each network three tries more.
#[tokio::test]
async fn requirement_28_failures_at_an_account_slow_down_each_network_by_itself() {
    let (place, address) = limited().await;
    let mut thief = Visitor::new(&place.app);
    for email in [OWNER, "nobody@example.org"] {
        for n in 0..20 {
            let source = format!("198.51.100.{n}");
            let found = attempt(&mut thief, &address, &source, email, "wrong").await;
            assert_eq!(found, wrong(), "{email} {n}");
        }
        for source in ["198.51.100.99", "2001:db8::1"] {
            for n in 0..3 {
                let found = attempt(&mut thief, &address, source, email, "wrong").await;
                assert_eq!(found, wrong(), "{email} {source} {n}");
            }
            let found = attempt(&mut thief, &address, source, email, OWNER_PASSWORD).await;
            assert_eq!(found, wait(ACCOUNT_SECONDS - 10), "{email} {source}");
        }
    }
    // A success takes its own try back and no other.
    for _ in 0..4 {
        let mut new = Visitor::new(&place.app);
        let found = attempt(&mut new, &address, "192.0.2.4", OWNER, OWNER_PASSWORD).await;
        assert_eq!(found, right(), "a new browser elsewhere");
    }
    let refused = attempt(&mut thief, &address, "198.51.100.99", OWNER, "wrong").await;
    assert_eq!(refused, wait(ACCOUNT_SECONDS - 10));
    place.clock.advance(ACCOUNT_SECONDS);
    let found = attempt(&mut thief, &address, "198.51.100.99", OWNER, OWNER_PASSWORD).await;
    assert_eq!(found, right(), "the hour is over");
}

/// Uses up the tries of a network at an account that has too many failures.
async fn exhaust(place: &World, address: &str, source: &str, email: &str) {
    let mut thief = Visitor::new(&place.app);
    for n in 0..20 {
        let elsewhere = format!("203.0.113.{n}");
        attempt(&mut thief, address, &elsewhere, email, "wrong").await;
    }
    for _ in 0..3 {
        let found = attempt(&mut thief, address, source, email, "wrong").await;
        assert_eq!(found, wrong());
    }
    let refused = attempt(&mut thief, address, source, email, "wrong").await;
    assert_eq!(refused.0, 429);
}

#[tokio::test]
async fn requirement_28_a_browser_that_signed_in_before_is_not_slowed_down() {
    const HERE: &str = "192.0.2.4";
    let (place, address) = limited().await;
    place.ada(Role::Member, Scopes::READ).await;
    let [mut own, mut other] = [Visitor::new(&place.app), Visitor::new(&place.app)];
    let found = attempt(&mut own, &address, HERE, OWNER, OWNER_PASSWORD).await;
    assert_eq!(found, right());
    let found = attempt(&mut other, &address, HERE, ADA.0, ADA.1).await;
    assert_eq!(found, right());
    exhaust(&place, &address, HERE, OWNER).await;
    // One that signed in to another account is no better than any.
    let slowed = wait(ACCOUNT_SECONDS - 10);
    for (visitor, wanted) in [(&mut other, slowed), (&mut own, right())] {
        visitor.cookie = None;
        let found = attempt(visitor, &address, HERE, OWNER, OWNER_PASSWORD).await;
        assert_eq!(found, wanted);
    }
}

/// Even from a network whose tries are used up, perhaps by somebody else there.
#[tokio::test]
async fn whoever_opens_an_invitation_or_a_reset_link_signs_in_in_that_browser() {
    const HERE: &str = "192.0.2.4";
    let (place, address) = limited().await;
    let invitation = invite(&place.app, ADA.0).await.unwrap();
    exhaust(&place, &address, HERE, ADA.0).await;
    let mut ada = Visitor::new(&place.app);
    ada.source = HERE.parse().ok();
    assert_eq!(ada.accept(&invitation, ADA.1).await.status, 200);
    let mut other = Visitor::new(&place.app);
    let elsewhere = attempt(&mut other, &address, HERE, ADA.0, ADA.1).await;
    assert_eq!(elsewhere, wait(ACCOUNT_SECONDS - 10), "another browser");
    let found = attempt(&mut ada, &address, HERE, ADA.0, ADA.1).await;
    assert_eq!(found, right());
}

#[tokio::test]
async fn requirement_28_a_success_hides_no_failures() {
    const HERE: &str = "192.0.2.1";
    let (place, address) = limited().await;
    for n in 0..30 {
        let mut visitor = Visitor::new(&place.app);
        let email = format!("user-{n}@example.org");
        let found = attempt(&mut visitor, &address, HERE, &email, "wrong").await;
        assert_eq!(found, wrong(), "{n}");
        // An office is not locked out by one slip.
        let wanted = if n < 29 { right() } else { wait(890) };
        let found = attempt(&mut visitor, &address, HERE, OWNER, OWNER_PASSWORD).await;
        assert_eq!(found, wanted, "{n}");
    }
}

/// The owners of a vault read who signed in and from where, and that somebody guesses: once in a
/// quarter of an hour, so that guesses do not bury the rest. What strangers type is nobody's.
#[tokio::test]
async fn sign_ins_are_noted_in_the_vaults_of_the_account() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    // To the beginning of a quarter.
    place.clock.advance(900 - place.now().unix() % 900);
    for (email, password) in [
        (OWNER, "wrong"),
        (OWNER, "wrong again"),
        ("nobody@example.org", "wrong"),
        (OWNER, OWNER_PASSWORD),
    ] {
        attempt(&mut visitor, &address, "192.0.2.7", email, password).await;
    }
    visitor.cookie = None;
    place.clock.advance(900);
    attempt(&mut visitor, &address, "192.0.2.8", OWNER, "wrong").await;
    let entries = audited(&place.app, "default").await.into_iter();
    let sign_ins = entries.filter(|entry| entry.action == "account.sign-in");
    let mut noted: Vec<_> = sign_ins
        .map(|entry| {
            assert_eq!(entry.target.as_deref(), Some(OWNER));
            (entry.outcome, entry.source.unwrap().to_string())
        })
        .collect();
    noted.sort();
    let wanted = [
        ("done", "192.0.2.7"),
        ("wrong_password", "192.0.2.7"),
        ("wrong_password", "192.0.2.8"),
    ];
    assert_eq!(
        noted,
        wanted.map(|(outcome, source)| (outcome.to_owned(), source.to_owned()))
    );
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
