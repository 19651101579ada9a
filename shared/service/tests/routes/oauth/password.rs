use vault_service::App;
use vault_service::model::user::Scopes;

use super::{owned, world_at};
use crate::common::{OWNER, OWNER_PASSWORD, Reply, Visitor, audited, bootstrap, form_request};

const PAGE: &str = "/oauth/password";
const NEW: &str = "another password of the owner";
const CHANGE: &str = "200 Change your password";

/// A browser that is signed in, on the page.
async fn arrived<'a>(app: &'a App, password: &str) -> (Visitor<'a>, Reply) {
    let mut visitor = Visitor::new(app);
    let page = visitor.arrive(PAGE, OWNER, password).await;
    assert_eq!(page.page(), CHANGE, "{}", page.body);
    (visitor, page)
}

async fn change(visitor: &mut Visitor<'_>, page: &Reply, current: &str, new: &str) -> Reply {
    let csrf = page.hidden(PAGE, "csrf");
    visitor.post(PAGE, &fields(&csrf, current, new)).await
}

fn fields<'a>(csrf: &'a str, current: &'a str, new: &'a str) -> [(&'static str, &'a str); 3] {
    [("csrf", csrf), ("current", current), ("password", new)]
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
    let held = place.tokens(Scopes::ALL).await;
    let (mut here, page) = arrived(app, OWNER_PASSWORD).await;
    let (mut there, _) = arrived(app, OWNER_PASSWORD).await;
    let mut old = Visitor::new(app);
    old.cookie.clone_from(&here.cookie);
    let done = change(&mut here, &page, OWNER_PASSWORD, NEW).await;
    assert_eq!(done.page(), "200 Your password is changed", "{}", done.body);
    assert_ne!(here.cookie, old.cookie, "a new value for the new session");
    assert_eq!(here.get(PAGE).await.page(), CHANGE);
    // Even one that began in the same second.
    for ended in [&mut there, &mut old] {
        assert_eq!(ended.get(PAGE).await.page(), "200 Sign in");
    }

    let mut visitor = Visitor::new(app);
    for (password, status) in [(OWNER_PASSWORD, 422), (NEW, 303)] {
        let page = visitor.get(PAGE).await;
        let reply = visitor.log_in(&page, OWNER, password).await;
        assert_eq!(reply.status, status, "{password}");
    }
    let refreshed = place.refresh(&held).await;
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
        (OWNER_PASSWORD, OWNER_PASSWORD, "same as the current one"),
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
    let fields = fields(&csrf, OWNER_PASSWORD, NEW);
    let stranger = Visitor::new(app);
    let (other, _) = arrived(app, OWNER_PASSWORD).await;
    for mut visitor in [stranger, other] {
        let cookie = visitor.cookie.clone();
        assert_eq!(visitor.post(PAGE, &fields).await.status, 403, "{cookie:?}");
    }
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let mut request = form_request(PAGE, &fields);
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(visitor.send(request).await.status, 403, "{name}");
    }
    // A signed-in person's refusal is noted, a stranger's is not.
    let wanted = ["form_forged", "wrong_password", "wrong_password"];
    assert_eq!(noted(app).await, wanted);
    place.clock.advance(3600);
    assert_eq!(visitor.post(PAGE, &fields).await.status, 403, "too old");
    let page = visitor.get(PAGE).await;
    let changed = change(&mut visitor, &page, OWNER_PASSWORD, NEW).await;
    assert_eq!(changed.status, 200);
}

#[tokio::test]
async fn guesses_of_the_present_password_are_limited() {
    let place = world_at("https://vault.example", |config| {
        config.limits.sign_in_failures = 5;
    });
    bootstrap(&place.app).await;
    let (mut visitor, page) = arrived(&place.app, OWNER_PASSWORD).await;
    visitor.source = "192.0.2.1".parse().ok();
    for current in ["wrong 1", "wrong 2", "wrong 3", "wrong 4", "wrong 5"] {
        let reply = change(&mut visitor, &page, current, NEW).await;
        assert_eq!((reply.status, reply.header("retry-after")), (422, ""));
    }
    let reply = change(&mut visitor, &page, OWNER_PASSWORD, NEW).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "890"));
    let mut wanted = ["wrong_password"; 6];
    wanted[0] = "rate_limited";
    assert_eq!(noted(&place.app).await, wanted);
}

#[tokio::test]
async fn of_two_changes_at_once_one_counts() {
    let place = owned().await;
    let app = &place.app;
    let (mut one, page_one) = arrived(app, OWNER_PASSWORD).await;
    let (mut two, page_two) = arrived(app, OWNER_PASSWORD).await;
    let (first, second) = ("the first of two passwords", "the second of two passwords");
    let (first, second) = tokio::join!(
        change(&mut one, &page_one, OWNER_PASSWORD, first),
        change(&mut two, &page_two, OWNER_PASSWORD, second),
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(matches!(statuses[1], 409 | 422), "{statuses:?}");
    let mut noted = noted(app).await;
    noted.retain(|outcome| outcome == "done");
    assert_eq!(noted.len(), 1);
}
