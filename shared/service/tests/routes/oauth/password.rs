use std::net::SocketAddr;

use vault_service::App;
use vault_service::http::Peer;
use vault_service::model::user::Scopes;

use super::{owned, place_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Reply, Visitor, audited, authorize, bootstrap, form_request,
    register, tokens,
};

const PAGE: &str = "/oauth/password";
const NEW: &str = "another password of the owner";

/// A browser that is signed in, on the page.
async fn arrived<'a>(app: &'a App, password: &str) -> (Visitor<'a>, Reply) {
    let mut visitor = Visitor::new(app);
    let page = visitor.get(PAGE).await;
    assert_eq!((page.status, page.heading()), (200, "Sign in"));
    let back = visitor.log_in(&page, OWNER, password).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, PAGE),
        "{}",
        back.body
    );
    let page = visitor.get(PAGE).await;
    assert_eq!(
        (page.status, page.heading()),
        (200, "Change your password"),
        "{}",
        page.body
    );
    (visitor, page)
}

async fn change(visitor: &mut Visitor<'_>, page: &Reply, current: &str, new: &str) -> Reply {
    let csrf = page.hidden(PAGE, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", current),
        ("password", new),
    ];
    visitor.post(PAGE, &fields).await
}

/// What the log of `default` says about password changes, sorted.
async fn noted(app: &App) -> Vec<String> {
    let entries = audited(app, "default").await.into_iter();
    let changes = entries.filter(|entry| entry.action == "password.change");
    let mut outcomes: Vec<String> = changes
        .map(|entry| {
            assert!(entry.actor.starts_with("usr_"), "{entry:?}");
            assert_eq!(entry.target.as_deref(), Some(OWNER));
            entry.outcome
        })
        .collect();
    outcomes.sort();
    outcomes
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions_and_not_this_one() {
    let place = owned().await;
    let app = &place.app;
    let held = tokens(app, (OWNER, OWNER_PASSWORD), "default", Scopes::ALL).await;
    let (mut here, page) = arrived(app, OWNER_PASSWORD).await;
    let (mut there, _) = arrived(app, OWNER_PASSWORD).await;
    let before = here.cookie.clone();
    let done = change(&mut here, &page, OWNER_PASSWORD, NEW).await;
    assert_eq!(
        (done.status, done.heading()),
        (200, "Your password is changed"),
        "{}",
        done.body
    );
    assert_ne!(here.cookie, before, "a new value for the new session");
    assert_eq!(here.get(PAGE).await.heading(), "Change your password");
    assert_eq!(
        there.get(PAGE).await.heading(),
        "Sign in",
        "even one that began in the same second"
    );
    let mut old = Visitor {
        app,
        cookie: before,
    };
    assert_eq!(old.get(PAGE).await.heading(), "Sign in");

    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(app);
    let page = visitor.get(&address).await;
    let refused = visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    assert_eq!(refused.status, 422);
    let page = visitor.get(&address).await;
    assert_eq!(visitor.log_in(&page, OWNER, NEW).await.status, 303);
    let refreshed = crate::common::refresh(app, &held.client, &held.refresh).await;
    assert_eq!(refreshed.status, 200, "apps keep what they were allowed");
    assert_eq!(noted(app).await, ["done"]);
}

#[tokio::test]
async fn what_is_refused_changes_nothing_and_is_noted() {
    let place = owned().await;
    let app = &place.app;
    let (mut visitor, page) = arrived(app, OWNER_PASSWORD).await;
    let long = "x".repeat(1025);
    for (current, new, says) in [
        (OWNER_PASSWORD, "short", "at least 12 characters"),
        (OWNER_PASSWORD, long.as_str(), "1024 bytes"),
        (OWNER_PASSWORD, "", "at least 12 characters"),
        (
            OWNER_PASSWORD,
            OWNER_PASSWORD,
            "the same as the current one",
        ),
        ("not the password", NEW, "Wrong current password"),
        ("", NEW, "Wrong current password"),
    ] {
        let reply = change(&mut visitor, &page, current, new).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(reply.body.contains(says), "{}", reply.body);
        for secret in [current, new] {
            assert!(secret.len() < 9 || !reply.body.contains(secret));
        }
    }
    assert_eq!(noted(app).await, ["wrong_password", "wrong_password"]);

    // Forms of others.
    let csrf = page.hidden(PAGE, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", OWNER_PASSWORD),
        ("password", NEW),
    ];
    assert_eq!(
        Visitor::new(app).post(PAGE, &fields).await.status,
        403,
        "no cookie"
    );
    let (mut other, _) = arrived(app, OWNER_PASSWORD).await;
    assert_eq!(
        other.post(PAGE, &fields).await.status,
        403,
        "another browser"
    );
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let mut request = form_request(PAGE, &fields);
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(visitor.send(request).await.status, 403, "{name}");
    }
    assert_eq!(
        noted(app).await,
        ["form_forged", "wrong_password", "wrong_password"],
        "a signed-in person's refusal is noted, a stranger's is not"
    );
    place.clock.advance(3600);
    assert_eq!(visitor.post(PAGE, &fields).await.status, 403, "too old");
    let page = visitor.get(PAGE).await;
    assert_eq!(
        change(&mut visitor, &page, OWNER_PASSWORD, NEW)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn guesses_of_the_present_password_are_limited() {
    let place = place_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 5;
    });
    bootstrap(&place.app).await;
    let (mut visitor, page) = arrived(&place.app, OWNER_PASSWORD).await;
    let csrf = page.hidden(PAGE, "csrf");
    for (current, status) in [
        ("wrong 1", 422),
        ("wrong 2", 422),
        ("wrong 3", 422),
        ("wrong 4", 422),
        ("wrong 5", 422),
        (OWNER_PASSWORD, 429),
    ] {
        let fields = [
            ("csrf", csrf.as_str()),
            ("current", current),
            ("password", NEW),
        ];
        let mut request = form_request(PAGE, &fields);
        request
            .extensions_mut()
            .insert(Peer(SocketAddr::new("192.0.2.1".parse().unwrap(), 1)));
        let reply = visitor.send(request).await;
        assert_eq!(reply.status, status, "{current}");
        assert_eq!(
            reply.header("retry-after"),
            if status == 429 { "900" } else { "" }
        );
    }
    assert_eq!(
        noted(&place.app).await,
        [
            "rate_limited",
            "wrong_password",
            "wrong_password",
            "wrong_password",
            "wrong_password",
            "wrong_password"
        ]
    );
}

#[tokio::test]
async fn of_two_changes_at_once_one_counts() {
    let place = owned().await;
    let app = &place.app;
    let (mut one, page_one) = arrived(app, OWNER_PASSWORD).await;
    let (mut two, page_two) = arrived(app, OWNER_PASSWORD).await;
    let (first, second) = tokio::join!(
        change(
            &mut one,
            &page_one,
            OWNER_PASSWORD,
            "the first of two passwords"
        ),
        change(
            &mut two,
            &page_two,
            OWNER_PASSWORD,
            "the second of two passwords"
        ),
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(matches!(statuses[1], 409 | 422), "{statuses:?}");
    assert_eq!(
        noted(app)
            .await
            .iter()
            .filter(|said| *said == "done")
            .count(),
        1
    );
}
