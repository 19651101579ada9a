//! `POST /admin/users`: invitations, and what they tell and give whom.

use serde_json::{Value, json};
use vault_service::model::kept;
use vault_service::model::membership::{INVITATION_SECONDS, invitation_key};
use vault_service::model::namespace::Namespace;
use vault_service::model::user::{Role, Scopes};

use super::{ADA, Desk, EVE, empty_desk, token};
use crate::common::{self, OWNER, PASSWORD, Visitor};
use crate::support::Answer;

use super::permits::{NEEDED, confirm};
use super::users::{NEW, USERS};

/// The path of an invitation.
fn link(answer: &Answer) -> String {
    let url = answer.json()["invite_url"].as_str().unwrap().to_owned();
    url.strip_prefix("https://vault.example")
        .unwrap()
        .to_owned()
}

/// Sets a password by an invitation; status and heading of the page.
async fn accept(desk: &Desk, path: &str) -> String {
    let mut visitor = Visitor::new(&desk.world.app);
    visitor.accept(path, PASSWORD).await.page()
}

const SET: &str = "200 Your password is set";
const GONE: &str = "404 This link is no longer valid";

/// A member of `acme` from now on, as the person sees it: no link for the inviter, an answer by the
/// invited.
#[tokio::test]
async fn an_invited_person_is_a_user_once_the_invitation_is_accepted() {
    let desk = empty_desk().await;
    common::proven(&desk.world.app, NEW).await;
    desk.commits.clear();
    let body =
        json!({"email": "New@Example.org", "role": "role:member", "scopes": ["read", "write"]});
    let made = desk.post(USERS, &body).await;
    assert_eq!(made.status, 201);
    let shown = made.json();
    let about = |shown: &Value| {
        let members = ["email", "role", "scopes", "state", "last_seen_at"];
        members.map(|name| shown[name].clone())
    };
    let wanted = json!([NEW, "role:member", ["read", "write"], "invited", null]);
    assert_eq!(json!(about(&shown)), wanted);
    let commits = desk.commits.partitions();
    assert_eq!(
        commits,
        [["audit", "conn", "grant", "invited", "user"]],
        "one commit"
    );
    let entry = desk.last("user.create").await;
    assert_eq!(entry.target.as_deref(), shown["id"].as_str());
    assert_eq!((entry.before, entry.outcome.as_str()), (None, "done"));
    let standing = json!({
        "email": NEW, "state": "invited", "role": "role:member", "scopes": ["read", "write"], "profile": null,
    });
    assert_eq!(entry.after, Some(standing));

    common::answer_invitation(&desk.world.app, NEW, "acme", "accept").await;
    let news = token(&desk.world, NEW, "acme", Scopes::ALL).await;
    let vaults = desk.ask(&news, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"][0]["role"], "role:member");
    let entry = desk.last("membership.accept").await;
    assert_eq!(Some(entry.actor.as_str()), shown["id"].as_str());
    let listed = desk.get(USERS).await.json();
    let mut items = listed["items"].as_array().unwrap().iter();
    let news = items.find(|user| user["email"] == NEW).unwrap();
    assert_eq!(
        (&news["id"], &news["state"]),
        (&shown["id"], &json!("active"))
    );
    let again = desk
        .post(USERS, &json!({"email": NEW, "role": "role:owner"}))
        .await;
    assert_eq!(again.short(), "409 user_exists");
    let oneself = desk.post(USERS, &json!({"email": ADA})).await;
    assert_eq!(oneself.short(), "409 user_exists");
    assert_eq!(desk.count("user.create user_exists").await, 2);
}

/// Otherwise an app changes roles by inviting again, without the confirmation that a role takes.
#[tokio::test]
async fn an_invitation_with_another_role_than_an_earlier_one_is_confirmed() {
    let desk = empty_desk().await;
    let invite = async |role: &str, scopes: &[&str]| {
        let body = json!({ "email": NEW, "role": role, "scopes": scopes });
        desk.ask_once(&desk.owner, "POST", USERS, Some(&body)).await
    };
    assert_eq!(invite("role:member", &["read"]).await.status, 201);
    // The same role needs nothing, whatever the scopes.
    assert_eq!(invite("role:member", &["read", "write"]).await.status, 201);
    for (role, before, says) in [
        (
            "role:publisher",
            "role:member",
            "Change the invitation of new@example.org to a publisher of acme.",
        ),
        (
            "role:member",
            "role:publisher",
            "Change the invitation of new@example.org to a member of acme.",
        ),
    ] {
        // So that the newest entry of the log is that of this request.
        desk.world.clock.advance(1);
        let asked = invite(role, &["read"]).await;
        assert_eq!(asked.short(), NEEDED, "{role}");
        let listed = desk.get(USERS).await.json();
        let mut items = listed["items"].as_array().unwrap().iter();
        let invited = items.find(|user| user["email"] == NEW).unwrap();
        assert_eq!(invited["role"], before);
        let entry = desk.last("confirmation.ask").await;
        assert_eq!(entry.after, Some(json!({ "acts": [says] })));
        confirm(&desk, &asked, (ADA, PASSWORD)).await;
        let done = invite(role, &["read"]).await;
        assert_eq!(done.json()["role"], role);
    }
    // Back again: the permit was used.
    assert_eq!(invite("role:publisher", &["read"]).await.short(), NEEDED);
}

/// Neither the answer nor what is asked of the stores says whether there is an account.
#[tokio::test]
async fn an_owner_learns_nothing_about_accounts_from_an_invitation() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let mut told = Vec::new();
    for email in [EVE, "nobody@example.org"] {
        let before = desk.commits.reads();
        let made = desk.post(USERS, &json!({"email": email})).await;
        assert_eq!(made.status, 201);
        let mut shown = made.json();
        let members = shown.as_object_mut().unwrap();
        assert!(members.remove("id").is_some() && members.remove("email").is_some());
        told.push((shown, desk.commits.reads() - before));
        let again = desk.post(USERS, &json!({"email": email})).await;
        assert_eq!(again.status, 201, "waits until it is answered");
    }
    assert_eq!(told[0], told[1]);
    let role_and_scopes = (&told[0].0["role"], &told[0].0["scopes"]);
    let wanted = (&json!("role:member"), &json!(["read"]));
    assert_eq!(
        role_and_scopes, wanted,
        "without other words: a member who may read"
    );
}

/// Whoever has a link that sets a password is the account everywhere. So an app of an operator gets
/// none, however much it may: only an operator who has just signed in as one.
#[tokio::test]
async fn an_invitation_gives_nobody_a_link_and_an_operator_s_own_route_does() {
    let desk = empty_desk().await;
    let owners = token(&desk.world, OWNER, "default", Scopes::ALL).await;
    let body = json!({"email": NEW, "role": "role:member"});
    let operator = desk.operator().await;
    let before = common::account(&desk.world.app, OWNER).await;
    assert!(before.operator);
    let accounts = "/admin/operator/accounts";
    for by in [&desk.owner, &owners] {
        let made = desk.ask(by, "POST", USERS, Some(&body)).await;
        assert_eq!(made.status, 201);
        assert_eq!(made.json().get("invite_url"), None);
        let listed = desk.ask(&operator, "GET", accounts, None).await;
        assert!(!listed.blotted().contains(NEW), "nor an account");
    }
    let refused = desk.ask(&operator, "POST", USERS, Some(&body)).await;
    assert_eq!(refused.short(), "401 token_invalid", "it is for no vault");
    let by_operator = desk
        .ask(&operator, "POST", accounts, Some(&json!({"email": NEW})))
        .await;
    assert_eq!(by_operator.status, 201);
    let path = link(&by_operator);
    // An invitation replaces no link that an operator made.
    let made = desk.ask(&owners, "POST", USERS, Some(&body)).await;
    assert_eq!(
        (made.status.as_u16(), made.json().get("invite_url")),
        (201, None)
    );
    let secret = path.rsplit('/').next().unwrap().to_owned();
    for partition in desk.commits.written() {
        let records = kept::all_records(&desk.world.app, &partition).await;
        for record in records.unwrap() {
            let written = format!("{} {}", record.key, record.document.as_str());
            assert!(!written.contains(&secret), "{written}");
        }
    }
    // Nobody signs in before a password is set, with none at all either.
    let client = common::register(&desk.world.app, common::CALLBACK).await;
    let address = common::authorize(&client, common::CALLBACK, &[]);
    for password in ["", PASSWORD] {
        let mut visitor = Visitor::new(&desk.world.app);
        let page = visitor.get(&address).await;
        let refused = visitor.log_in(&page, NEW, password).await;
        assert_ne!(refused.status, 303, "{}", refused.body);
    }
    assert_eq!(accept(&desk, &path).await, SET);
    assert_eq!(accept(&desk, &path).await, GONE);
    // The invitations of both vaults wait, and each is answered on its own.
    common::answer_invitation(&desk.world.app, NEW, "default", "decline").await;
    common::answer_invitation(&desk.world.app, NEW, "acme", "accept").await;
    let news = token(&desk.world, NEW, "acme", Scopes::READ).await;
    let vaults = desk.ask(&news, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_invitation_is_given_anew_and_ends_after_seven_days() {
    let mut desk = empty_desk().await;
    common::proven(&desk.world.app, NEW).await;
    let first = desk.post(USERS, &json!({"email": NEW})).await;
    desk.world.clock.advance(INVITATION_SECONDS - 1);
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let body = json!({"email": NEW, "scopes": ["read", "write"]});
    let second = desk.post(USERS, &body).await;
    assert_eq!(second.json()["id"], first.json()["id"], "the same user");
    assert_eq!(second.json()["scopes"], json!(["read", "write"]));
    let entry = desk.last("user.create").await;
    assert_eq!(entry.before.unwrap()["email"], NEW);
    desk.world.clock.advance(INVITATION_SECONDS - 1);
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(desk.people().await, 2, "the seven days began anew");
    desk.world.clock.advance(1);
    assert_eq!(desk.people().await, 1);
    let third = desk.post(USERS, &body).await;
    assert_ne!(third.json()["id"], first.json()["id"], "another invitation");
}

#[tokio::test]
async fn an_invitation_is_withdrawn_and_touches_no_other_vault_s() {
    let desk = empty_desk().await;
    let stranger = desk.stranger().await;
    common::proven(&desk.world.app, NEW).await;
    let body = json!({"email": NEW});
    let made = desk.post(USERS, &body).await;
    let theirs = desk.ask(&stranger, "POST", USERS, Some(&body)).await;
    assert_eq!((made.status.as_u16(), theirs.status.as_u16()), (201, 201));
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.delete(&format!("{USERS}/{id}")).await.status, 200);
    let email = NEW.parse().unwrap();
    let keys = [&desk.acme, &desk.other].map(|home| invitation_key(&email, &home.slug));
    let left = desk.world.app.records.get_many(&keys).await.unwrap();
    assert_eq!((left[0].is_some(), left[1].is_some()), (false, true));
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, NEW, PASSWORD).await;
    let page = visitor.get("/account").await;
    assert!(
        page.body.contains("<strong>other</strong>"),
        "{}",
        page.body
    );
    assert!(
        !page.body.contains("<strong>acme</strong>"),
        "{}",
        page.body
    );
    // A form from before the end of the invitation changes nothing.
    let late = visitor.answer(&page, "acme", "accept").await;
    assert_eq!(late.status, 303);
    assert_eq!(desk.people().await, 1);
}

#[tokio::test]
async fn a_link_used_twice_at_once_sets_one_password() {
    for _ in 0..5 {
        let desk = empty_desk().await;
        let operator = desk.operator().await;
        let body = json!({"slug": "fresh", "owner": NEW});
        let path = "/admin/operator/namespaces";
        let made = desk.ask(&operator, "POST", path, Some(&body)).await;
        let path = link(&made);
        let app = &desk.world.app;
        let (mut one, mut other) = (Visitor::new(app), Visitor::new(app));
        let csrf = one.get(&path).await.hidden(&path, "csrf");
        let other_csrf = other.get(&path).await.hidden(&path, "csrf");
        let (first, second) = ("the first of two passwords", "the second of two passwords");
        let fields = [("csrf", csrf.as_str()), ("password", first)];
        let other_fields = [("csrf", other_csrf.as_str()), ("password", second)];
        let both = tokio::join!(one.post(&path, &fields), other.post(&path, &other_fields));
        let mut statuses = [both.0.status, both.1.status];
        let winner = if both.0.status == 200 { first } else { second };
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 404]);
        let tokens = common::tokens(app, (NEW, winner), "fresh", Scopes::READ).await;
        assert_eq!(tokens.scope, "read");
    }
}

#[tokio::test]
async fn two_who_invite_the_same_person_at_once_make_one_user() {
    for _ in 0..10 {
        let desk = empty_desk().await;
        let (_, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let both = tokio::join!(desk.invite(&desk.owner, NEW), desk.invite(&bobs, NEW));
        let answers = [both.0, both.1];
        assert_eq!(answers[0].json()["id"], answers[1].json()["id"]);
        assert_eq!(desk.people().await, 3);
        assert!(answers.iter().all(|answer| answer.status == 201));
    }
}

#[tokio::test]
async fn invitations_that_wait_take_places_of_the_quota_until_they_end() {
    let desk = empty_desk().await;
    let limit = |people| move |namespace: &mut Namespace| namespace.quota.people = Some(people);
    // The owner, and one more.
    desk.world.change("acme", limit(2)).await;
    let invite = async |email: &str| {
        let body = json!({ "email": email, "role": "role:member", "scopes": ["read"] });
        desk.post("/admin/users", &body).await
    };
    assert_eq!(invite("one@example.org").await.status, 201);
    let full = invite("two@example.org").await;
    assert_eq!(full.short(), "409 quota_full");
    let numbers = json!({ "name": "people", "used": 2, "asked": 1, "limit": 2 });
    assert_eq!(full.json()["quota"], numbers);
    // The same person again has the place already, and keeps it when accepting at the limit.
    assert_eq!(invite("one@example.org").await.status, 201);
    common::proven(&desk.world.app, "one@example.org").await;
    desk.world.change("acme", limit(1)).await;
    common::answer_invitation(&desk.world.app, "one@example.org", "acme", "accept").await;
    desk.world.change("acme", limit(3)).await;
    assert_eq!(invite("two@example.org").await.status, 201);
    assert_eq!(invite("three@example.org").await.status, 409);
    // An invitation that nobody accepts gives its place back.
    desk.world.clock.advance(7 * 24 * 3600);
    let owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let body = json!({ "email": "three@example.org", "role": "role:member", "scopes": ["read"] });
    let invited = desk.ask(&owner, "POST", "/admin/users", Some(&body)).await;
    assert_eq!(invited.status, 201, "{:?}", invited.json());
}
