//! `/admin/users`: who has a part, what they may do, and that every change acts at once.

use std::sync::Arc;

use serde_json::{Value, json};
use vault_service::model::account::{INVITE_SECONDS, account_key, invite_key};
use vault_service::model::audit::Entry;
use vault_service::model::namespace::Kind;
use vault_service::model::token::{Secret, SecretKind};
use vault_service::model::user::{Role, Scopes, User, membership_key};

use super::{ADA, BOB, Desk, EVE, desk_of, empty_desk, reference, token};
use crate::common::{self, PASSWORD, Visitor};
use crate::support::Answer;

const USERS: &str = "/admin/users";
const NEW: &str = "new@example.org";

impl Desk {
    async fn replace(&self, path: &str, body: &Value) -> Answer {
        self.ask(&self.owner, "PUT", path, Some(body)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.ask(&self.owner, "DELETE", path, None).await
    }

    /// Gives BOB a part in `acme`, with a token of all that he may do.
    async fn bob(&self, role: Role, scopes: Scopes) -> (User, String) {
        let bob = common::member(&self.world.app, BOB, &reference(&self.acme), role, scopes).await;
        (bob, token(&self.world, BOB, "acme", scopes).await)
    }

    /// ADA's id.
    async fn ada(&self) -> String {
        self.id_of(ADA).await
    }

    async fn id_of(&self, email: &str) -> String {
        let listed = self.get(USERS).await.json();
        let users = listed["items"].as_array().unwrap();
        let found = users.iter().find(|user| user["email"] == email).unwrap();
        found["id"].as_str().unwrap().to_owned()
    }

    /// The last entry of this action.
    async fn last(&self, action: &str) -> Entry {
        let entries = self.entries(&self.acme).await;
        let mut of_it = entries.into_iter().filter(|entry| entry.action == action);
        of_it.next_back().unwrap()
    }

    /// How many users `acme` has.
    async fn people(&self) -> usize {
        self.get(USERS).await.json()["items"]
            .as_array()
            .unwrap()
            .len()
    }
}

/// The path of an invitation.
fn link(answer: &Answer) -> String {
    let url = answer.json()["invite_url"].as_str().unwrap().to_owned();
    url.strip_prefix("https://vault.example")
        .unwrap()
        .to_owned()
}

/// Sets a password by an invitation; status and heading of the page.
async fn accept(desk: &Desk, path: &str) -> (u16, String) {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(path).await;
    if page.status != 200 {
        return (page.status, page.heading().to_owned());
    }
    let csrf = page.hidden(path, "csrf");
    let fields = [("csrf", csrf.as_str()), ("password", PASSWORD)];
    let done = visitor.post(path, &fields).await;
    (done.status, done.heading().to_owned())
}

const GONE: &str = "This invitation is no longer valid";

#[tokio::test]
async fn users_are_listed_page_by_page_of_one_vault() {
    let desk = empty_desk().await;
    let _stranger = desk.stranger().await;
    desk.world.clock.advance(60);
    let (bob, bobs) = desk.bob(Role::Member, Scopes::READ).await;
    desk.world.clock.advance(60);
    desk.ask(&bobs, "GET", "/admin/vaults", None).await;
    let listed = desk.get(USERS).await.json();
    assert_eq!(listed["next"], Value::Null);
    assert_eq!(
        listed["items"][1],
        json!({
            "id": bob.id,
            "email": BOB,
            "role": "role:member",
            "scopes": ["read"],
            "profile": null,
            "created_at": "2026-11-21T02:01:10Z",
            "last_seen_at": "2026-11-21T02:02:10Z",
        })
    );
    assert_eq!(listed["items"][0]["email"], ADA);
    assert_eq!(
        listed["items"].as_array().unwrap().len(),
        2,
        "EVE belongs to another vault"
    );

    let first = desk.get("/admin/users?limit=1").await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 1);
    let next = first["next"].as_str().unwrap();
    let second = desk
        .get(&format!("/admin/users?limit=1&after={next}"))
        .await
        .json();
    assert_eq!(
        (&second["items"][0]["email"], &second["next"]),
        (&json!(BOB), &Value::Null)
    );
    for bad in ["limit=0", "limit=101", "limit=x", "after=%00"] {
        let answer = desk.get(&format!("{USERS}?{bad}")).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{bad}");
    }
}

#[tokio::test]
async fn somebody_new_gets_an_invitation_that_is_shown_once_and_kept_nowhere() {
    let desk = empty_desk().await;
    desk.commits.clear();
    let body =
        json!({"email": "New@Example.org", "role": "role:member", "scopes": ["read", "write"]});
    let made = desk.post(USERS, &body).await;
    assert_eq!(made.status, 201);
    let shown = made.json();
    assert_eq!(
        (&shown["email"], &shown["role"], &shown["scopes"]),
        (
            &json!(NEW),
            &json!("role:member"),
            &json!(["read", "write"])
        )
    );
    assert_eq!(shown["last_seen_at"], Value::Null);
    assert_eq!(
        desk.commits.partitions(),
        [["acct", "audit", "invite", "user"]],
        "one commit"
    );
    let path = link(&made);
    let secret = path.rsplit('/').next().unwrap().to_owned();

    let entry = desk.last("user.create").await;
    assert_eq!(entry.target.as_deref(), shown["id"].as_str());
    assert_eq!((entry.before, entry.outcome.as_str()), (None, "done"));
    assert_eq!(
        entry.after,
        Some(
            json!({"email": NEW, "role": "role:member", "scopes": ["read", "write"], "profile": null})
        )
    );
    let listed = desk.get(USERS).await;
    assert!(!listed.blotted().contains("invite_url"));
    for partition in desk.commits.written() {
        for record in desk
            .world
            .app
            .records
            .list(&partition, "", None, 1000)
            .await
            .unwrap()
        {
            assert!(
                !record.document.as_str().contains(&secret) && !record.key.key.contains(&secret),
                "{}",
                record.key
            );
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
    assert_eq!(accept(&desk, &path).await.0, 200);
    let news = token(&desk.world, NEW, "acme", Scopes::ALL).await;
    let vaults = desk.ask(&news, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"][0]["role"], "role:member");
    assert_eq!(accept(&desk, &path).await, (404, GONE.to_owned()));
}

#[tokio::test]
async fn who_can_sign_in_joins_without_an_invitation_and_only_once() {
    let desk = empty_desk().await;
    desk.stranger().await;
    desk.world.clock.advance(1);
    let made = desk.post(USERS, &json!({"email": EVE})).await;
    assert_eq!(
        (made.status.as_u16(), made.json().get("invite_url")),
        (201, None)
    );
    assert_eq!(
        (&made.json()["role"], &made.json()["scopes"]),
        (&json!("role:member"), &json!(["read"])),
        "without other words: a member who may read"
    );
    let eves = token(&desk.world, EVE, "acme", Scopes::READ).await;
    let vaults = desk.ask(&eves, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"].as_array().unwrap().len(), 2);
    let again = desk
        .post(USERS, &json!({"email": EVE, "role": "role:owner"}))
        .await;
    assert_eq!(again.short(), "409 user_exists");
    assert_eq!(
        desk.post(USERS, &json!({"email": ADA})).await.short(),
        "409 user_exists",
        "oneself too"
    );
    let listed = desk.get(USERS).await.json();
    let mut users = listed["items"].as_array().unwrap().iter();
    let eve = users.find(|user| user["email"] == EVE).unwrap();
    assert_eq!(eve["role"], "role:member", "nothing changed");
    assert_eq!(desk.count("user.create user_exists").await, 2);
}

#[tokio::test]
async fn an_invitation_is_given_anew_and_the_one_before_is_dead() {
    let mut desk = empty_desk().await;
    let first = desk.post(USERS, &json!({"email": NEW})).await;
    desk.world.clock.advance(INVITE_SECONDS + 1);
    let expired = accept(&desk, &link(&first)).await;
    assert_eq!(expired, (404, GONE.to_owned()));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let body = json!({"email": NEW, "scopes": ["read", "write"]});
    let second = desk.post(USERS, &body).await;
    let third = desk.post(USERS, &body).await;
    for again in [&second, &third] {
        assert_eq!(
            (again.status.as_u16(), &again.json()["id"]),
            (201, &first.json()["id"]),
            "the same user"
        );
        assert_eq!(again.json()["scopes"], json!(["read", "write"]));
    }
    let entry = desk.last("user.create").await;
    assert_eq!(entry.before.unwrap()["email"], NEW);
    assert_eq!(accept(&desk, &link(&second)).await, (404, GONE.to_owned()));
    assert_eq!(accept(&desk, &link(&third)).await.0, 200);
    let again = desk.post(USERS, &body).await;
    assert_eq!(again.short(), "409 user_exists");
}

/// The link sets the password of the account in every vault, so nobody else may get one.
#[tokio::test]
async fn who_waits_for_another_vault_s_invitation_is_not_invited_away() {
    let desk = empty_desk().await;
    let stranger = desk.stranger().await;
    let first = desk
        .post(
            USERS,
            &json!({"email": NEW, "role": "role:owner", "scopes": ["read", "write"]}),
        )
        .await;
    let body = json!({"email": NEW});
    let refused = desk.ask(&stranger, "POST", USERS, Some(&body)).await;
    assert_eq!(refused.short(), "409 invitation_pending");
    // Nor an owner that an operator invited.
    let operator = desk.operator().await;
    let body = json!({"slug": "fresh", "owner": "fresh@example.org"});
    let made = desk
        .ask(&operator, "POST", "/admin/operator/namespaces", Some(&body))
        .await;
    let refused = desk
        .ask(
            &stranger,
            "POST",
            USERS,
            Some(&json!({"email": "fresh@example.org"})),
        )
        .await;
    assert_eq!(refused.short(), "409 invitation_pending");
    for path in [link(&first), link(&made)] {
        assert_eq!(
            accept(&desk, &path).await.0,
            200,
            "the first link still works"
        );
    }
    let joined = desk
        .ask(&stranger, "POST", USERS, Some(&json!({"email": NEW})))
        .await;
    assert_eq!(
        (joined.status.as_u16(), joined.json().get("invite_url")),
        (201, None)
    );
}

#[tokio::test]
async fn removing_who_never_came_removes_the_invitation_and_the_account() {
    let desk = empty_desk().await;
    let made = desk.post(USERS, &json!({"email": NEW})).await;
    let path = link(&made);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.delete(&format!("{USERS}/{id}")).await.status, 200);
    assert_eq!(accept(&desk, &path).await, (404, GONE.to_owned()));
    let secret = Secret::parse(SecretKind::Invite, path.rsplit('/').next().unwrap()).unwrap();
    let email = NEW.parse().unwrap();
    let left = desk
        .world
        .app
        .records
        .get_many(&[
            account_key(&email),
            invite_key(&secret.hash()),
            membership_key(&email, &desk.acme.slug),
        ])
        .await
        .unwrap();
    assert_eq!(left.iter().flatten().count(), 0);
    // Another vault may invite now; and who can sign in keeps the account.
    let stranger = desk.stranger().await;
    let made = desk
        .ask(&stranger, "POST", USERS, Some(&json!({"email": NEW})))
        .await;
    assert_eq!(accept(&desk, &link(&made)).await.0, 200);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let path = format!("{USERS}/{id}");
    assert_eq!(desk.ask(&stranger, "DELETE", &path, None).await.status, 200);
    let account = desk.world.app.records.get(&account_key(&email)).await;
    assert!(account.unwrap().is_some());
}

#[tokio::test]
async fn bodies_that_are_refused_write_nothing() {
    let desk = empty_desk().await;
    let (bob, _) = desk.bob(Role::Member, Scopes::ALL).await;
    let of = |what: &str| format!("{USERS}/{}/{what}", bob.id);
    let long = "p".repeat(65);
    let before = desk.get(USERS).await.json();
    for (method, path, body, wanted) in [
        ("POST", USERS.to_owned(), json!({}), "400 json_invalid"),
        ("POST", USERS.into(), json!([]), "400 json_invalid"),
        (
            "POST",
            USERS.into(),
            json!({"email": 1}),
            "400 json_invalid",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": NEW, "rolle": "role:member"}),
            "400 json_invalid",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": NEW, "scopes": "read"}),
            "400 json_invalid",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": "new"}),
            "422 email_invalid",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": "n\u{e9}w@example.org"}),
            "422 email_invalid",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": NEW, "role": "owner"}),
            "422 role_unknown",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": NEW, "scopes": ["admin"]}),
            "422 scope_unknown",
        ),
        (
            "POST",
            USERS.into(),
            json!({"email": NEW, "scopes": ["read", "READ"]}),
            "422 scope_unknown",
        ),
        ("PUT", of("role"), json!({}), "400 json_invalid"),
        ("PUT", of("role"), json!({"role": null}), "400 json_invalid"),
        (
            "PUT",
            of("role"),
            json!({"role": "role:operator"}),
            "422 role_unknown",
        ),
        // What was left out or misspelt must not lift a restriction.
        ("PUT", of("profile"), json!({}), "400 json_invalid"),
        (
            "PUT",
            of("profile"),
            json!({"profil": null}),
            "400 json_invalid",
        ),
        (
            "PUT",
            of("profile"),
            json!({"profile": ""}),
            "422 profile_invalid",
        ),
        (
            "PUT",
            of("profile"),
            json!({"profile": long}),
            "422 profile_invalid",
        ),
        (
            "PUT",
            of("profile"),
            json!({"profile": "a\u{202e}b"}),
            "422 profile_invalid",
        ),
        (
            "PUT",
            of("profile"),
            json!({"profile": 1}),
            "422 profile_invalid",
        ),
        (
            "POST",
            of("scopes"),
            json!({"grant": "write"}),
            "400 json_invalid",
        ),
        (
            "POST",
            of("scopes"),
            json!({"grants": ["write"]}),
            "400 json_invalid",
        ),
        (
            "POST",
            of("scopes"),
            json!({"grant": ["offline_access"]}),
            "422 scope_unknown",
        ),
        (
            "POST",
            of("scopes"),
            json!({"revoke": ["admin"]}),
            "422 scope_unknown",
        ),
        (
            "POST",
            of("scopes"),
            json!({"grant": ["read"], "revoke": ["read"]}),
            "422 parameter_invalid",
        ),
    ] {
        let answer = desk.ask(&desk.owner, method, &path, Some(&body)).await;
        assert_eq!(answer.short(), wanted, "{method} {path} {body}");
    }
    let duplicate = format!("{{\"email\":\"{NEW}\",\"email\":\"{BOB}\"}}");
    for (media, body, wanted) in [
        (
            "application/json",
            duplicate.into_bytes(),
            "400 json_invalid",
        ),
        ("application/json", vec![b'['; 10_000], "400 json_invalid"),
        (
            "application/json",
            vec![b' '; 64 * 1024 + 1],
            "413 body_too_large",
        ),
        ("text/plain", b"{}".to_vec(), "415 media_type"),
    ] {
        let answer = desk
            .send(&desk.owner, "POST", USERS, Some((media, body)), &[])
            .await;
        assert_eq!(answer.short(), wanted);
    }
    assert_eq!(desk.get(USERS).await.json(), before);
    assert_eq!(desk.count("user.scopes scope_unknown").await, 2);
    assert_eq!(desk.count("user.create done").await, 0);
}

#[tokio::test]
async fn ids_of_another_vault_and_odd_ids_are_not_there() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let app = &desk.world.app;
    let eve = common::member(
        app,
        "eve2@example.org",
        &reference(&desk.other),
        Role::Owner,
        Scopes::ALL,
    )
    .await;
    for id in [
        eve.id.as_str(),
        "usr_00000000000000000000000000",
        "usr_",
        "USR_00000000000000000000000000",
        "usr_0000000000000000000000000%2F",
        "eve@example.org",
        "%00",
    ] {
        for (method, what, body) in [
            ("PUT", "/profile", Some(json!({"profile": null}))),
            ("PUT", "/role", Some(json!({"role": "role:owner"}))),
            ("POST", "/scopes", Some(json!({"grant": ["write"]}))),
            ("DELETE", "", None),
        ] {
            let path = format!("{USERS}/{id}{what}");
            let answer = desk.ask(&desk.owner, method, &path, body.as_ref()).await;
            assert_eq!(answer.short(), "404 user_not_found", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn requirement_44_every_change_acts_on_living_tokens_at_once_and_is_kept_before_and_after() {
    let desk = empty_desk().await;
    let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
    let of = |what: &str| format!("{USERS}/{}/{what}", bob.id);
    let invites = json!({"email": "x"});
    let may_write = async || desk.ask(&bobs, "POST", USERS, Some(&invites)).await;
    assert_eq!(may_write().await.short(), "422 email_invalid");

    desk.commits.clear();
    let revoked = desk
        .post(&of("scopes"), &json!({"revoke": ["write"]}))
        .await;
    assert_eq!(
        (revoked.status.as_u16(), &revoked.json()["scopes"]),
        (200, &json!(["read"]))
    );
    assert_eq!(desk.commits.partitions(), [["audit", "user"]]);
    let entry = desk.last("user.scopes").await;
    assert_eq!(
        (entry.before, entry.after, entry.target),
        (
            Some(json!({"scopes": ["read", "write"]})),
            Some(json!({"scopes": ["read"]})),
            Some(bob.id.clone())
        )
    );
    assert_eq!(may_write().await.short(), "403 insufficient_scope");
    assert_eq!(desk.ask(&bobs, "GET", USERS, None).await.status, 200);
    let granted = desk.post(&of("scopes"), &json!({"grant": ["write"]})).await;
    assert_eq!(granted.json()["scopes"], json!(["read", "write"]));
    assert_eq!(may_write().await.short(), "422 email_invalid");
    // Every call is kept, also one that changes nothing.
    desk.post(&of("scopes"), &json!({})).await;
    assert_eq!(desk.count("user.scopes done").await, 3);

    let demoted = desk
        .replace(&of("role"), &json!({"role": "role:member"}))
        .await;
    assert_eq!(demoted.json()["role"], "role:member");
    assert_eq!(may_write().await.short(), "403 owner_required");
    assert_eq!(
        desk.ask(&bobs, "GET", USERS, None).await.short(),
        "403 owner_required"
    );
    let entry = desk.last("user.role").await;
    assert_eq!(
        (entry.before, entry.after),
        (
            Some(json!({"role": "role:owner"})),
            Some(json!({"role": "role:member"}))
        )
    );

    for profile in [json!("restricted"), json!("r\u{e9}view 2"), Value::Null] {
        let bound = desk
            .replace(&of("profile"), &json!({ "profile": profile }))
            .await;
        assert_eq!(
            (bound.status.as_u16(), &bound.json()["profile"]),
            (200, &profile)
        );
    }
    let kept = desk.entries(&desk.acme).await;
    let profiles: Vec<_> = kept
        .iter()
        .filter(|entry| entry.action == "user.profile")
        .map(|entry| entry.after.clone().unwrap()["profile"].clone())
        .collect();
    assert_eq!(profiles.len(), 3);

    let removed = desk.delete(&format!("{USERS}/{}", bob.id)).await;
    assert_eq!(
        (removed.status.as_u16(), &removed.json()["email"]),
        (200, &json!(BOB))
    );
    assert_eq!(
        desk.ask(&bobs, "GET", "/admin/vaults", None).await.short(),
        "401 token_invalid"
    );
    let again = desk.delete(&format!("{USERS}/{}", bob.id)).await;
    assert_eq!(again.short(), "404 user_not_found");
    assert_eq!(desk.count("user.remove user_not_found").await, 1);
    assert_eq!(desk.count("user.remove done").await, 1);
    // Who comes back is another user: old tokens stay dead.
    assert_eq!(desk.post(USERS, &json!({"email": BOB})).await.status, 201);
    assert_eq!(
        desk.ask(&bobs, "GET", "/admin/vaults", None).await.short(),
        "401 token_invalid"
    );
}

#[tokio::test]
async fn an_owner_steps_back_only_while_another_stays() {
    let desk = empty_desk().await;
    let ada = desk.ada().await;
    let of = |what: &str| format!("{USERS}/{ada}{what}");
    let nobody_stays = async |why: &str| {
        for answer in [
            desk.delete(&of("")).await,
            desk.replace(&of("/role"), &json!({"role": "role:member"}))
                .await,
            desk.post(&of("/scopes"), &json!({"revoke": ["write"]}))
                .await,
        ] {
            assert_eq!(answer.short(), "409 last_owner", "{why}");
        }
    };
    nobody_stays("alone").await;
    assert_eq!(desk.count("user.remove last_owner").await, 1);
    // What takes no ownership away goes through.
    let kept = desk
        .post(&of("/scopes"), &json!({"revoke": ["read"]}))
        .await;
    assert_eq!(kept.status, 200);
    assert_eq!(
        desk.replace(&of("/role"), &json!({"role": "role:owner"}))
            .await
            .status,
        200
    );

    let (_, _) = desk.bob(Role::Member, Scopes::ALL).await;
    nobody_stays("beside a member").await;
    let bob = desk.id_of(BOB).await;
    let bobs = format!("{USERS}/{bob}");
    desk.replace(&format!("{bobs}/role"), &json!({"role": "role:owner"}))
        .await;
    desk.post(&format!("{bobs}/scopes"), &json!({"revoke": ["write"]}))
        .await;
    nobody_stays("beside an owner who may not write").await;
    desk.delete(&bobs).await;
    let invited = desk
        .post(
            USERS,
            &json!({"email": NEW, "role": "role:owner", "scopes": ["read", "write"]}),
        )
        .await;
    nobody_stays("beside an owner who never signed in").await;
    assert_eq!(accept(&desk, &link(&invited)).await.0, 200);
    let gone = desk.delete(&of("")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
    assert_eq!(
        desk.get(USERS).await.short(),
        "401 token_invalid",
        "one's own tokens are dead too"
    );
}

/// 1,050 members between the two owners: the search goes on behind the first page.
#[tokio::test]
async fn another_owner_is_found_behind_many_members() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    for _ in 0..21 {
        let mut writes = Vec::new();
        for _ in 0..50 {
            let number = vault_store::random::ulid(&*app.clock, &*app.random).to_lowercase();
            let email = format!("m{number}@example.org").parse().unwrap();
            let user = User::new(
                email,
                reference(&desk.acme),
                Role::Member,
                Scopes::READ,
                desk.world.now(),
                &*app.random,
            );
            writes.extend(user.creation().unwrap());
        }
        assert!(app.records.commit(writes).await.unwrap().is_done());
    }
    desk.world.clock.advance(10);
    desk.bob(Role::Owner, Scopes::ALL).await;
    let ada = desk
        .world
        .app
        .records
        .get(&membership_key(&ADA.parse().unwrap(), &desk.acme.slug))
        .await
        .unwrap()
        .unwrap()
        .document
        .read::<Value>()
        .unwrap()["user_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let gone = desk.delete(&format!("{USERS}/{ada}")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
}

#[tokio::test]
async fn two_owners_who_remove_each_other_at_once_leave_one() {
    for round in 0..20 {
        let desk = Arc::new(desk_of(Kind::Hosted, |_| {}).await);
        let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let ada = desk.ada().await;
        let remove = |token: String, id: String| {
            let desk = Arc::clone(&desk);
            async move {
                let path = format!("{USERS}/{id}");
                desk.ask(&token, "DELETE", &path, None).await.short()
            }
        };
        desk.commits.interfere(round % 3);
        let both = tokio::join!(
            tokio::spawn(remove(desk.owner.clone(), bob.id.clone())),
            tokio::spawn(remove(bobs.clone(), ada.clone()))
        );
        let mut answers = [both.0.unwrap(), both.1.unwrap()];
        answers.sort();
        assert_eq!(answers[0], "200", "{answers:?}");
        assert!(
            answers[1] == "409 last_owner" || answers[1] == "401 token_invalid",
            "{answers:?}"
        );
        let left = [
            desk.get(USERS).await.status.as_u16(),
            desk.ask(&bobs, "GET", USERS, None).await.status.as_u16(),
        ];
        assert!(left == [200, 401] || left == [401, 200], "{left:?}");
    }
}

/// Both read that the other stays; the commit of the second does not find it so.
#[tokio::test]
async fn two_owners_who_step_back_at_once_leave_one() {
    for round in 0..20 {
        let desk = Arc::new(empty_desk().await);
        let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let ada = desk.ada().await;
        let step_back = |token: String, id: String| {
            let desk = Arc::clone(&desk);
            async move {
                let path = format!("{USERS}/{id}/role");
                let body = json!({"role": "role:member"});
                desk.ask(&token, "PUT", &path, Some(&body)).await.short()
            }
        };
        desk.commits.interfere(round % 3);
        let both = tokio::join!(
            tokio::spawn(step_back(desk.owner.clone(), ada)),
            tokio::spawn(step_back(bobs, bob.id))
        );
        let mut answers = [both.0.unwrap(), both.1.unwrap()];
        answers.sort();
        assert_eq!(answers, ["200", "409 last_owner"]);
    }
}

#[tokio::test]
async fn an_invitation_accepted_twice_at_once_sets_one_password() {
    for _ in 0..5 {
        let desk = empty_desk().await;
        let made = desk.post(USERS, &json!({"email": NEW})).await;
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
        let tokens = common::tokens(app, (NEW, winner), "acme", Scopes::READ).await;
        assert_eq!(tokens.scope, "read");
    }
}

/// Whichever comes first: no token that is good afterwards writes.
#[tokio::test]
async fn a_scope_revoked_during_a_refresh_is_not_carried_on() {
    for _ in 0..20 {
        let desk = Arc::new(empty_desk().await);
        let app = &desk.world.app;
        let bob = common::member(app, BOB, &reference(&desk.acme), Role::Owner, Scopes::ALL).await;
        let bobs = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
        let path = format!("{USERS}/{}/scopes", bob.id);
        let revoke = json!({"revoke": ["write"]});
        let (refreshed, revoked) = tokio::join!(
            common::refresh(app, &bobs.client, &bobs.refresh),
            desk.post(&path, &revoke)
        );
        assert_eq!((refreshed.status, revoked.status.as_u16()), (200, 200));
        let after = common::refresh(app, &bobs.client, &refreshed.text("refresh_token")).await;
        assert_eq!(after.text("scope"), "read");
        let tokens = [
            &bobs.access,
            &refreshed.text("access_token"),
            &after.text("access_token"),
        ];
        for token in tokens {
            let tried = desk
                .ask(token, "POST", USERS, Some(&json!({"email": "x"})))
                .await;
            assert_eq!(tried.short(), "403 insufficient_scope");
        }
    }
}

#[tokio::test]
async fn two_who_invite_the_same_person_at_once_make_one_user_and_one_good_link() {
    for _ in 0..10 {
        let desk = Arc::new(empty_desk().await);
        let (_, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let invite = |token: String| {
            let desk = Arc::clone(&desk);
            async move {
                desk.ask(&token, "POST", USERS, Some(&json!({"email": NEW})))
                    .await
            }
        };
        let both = tokio::join!(
            tokio::spawn(invite(desk.owner.clone())),
            tokio::spawn(invite(bobs))
        );
        let answers = [both.0.unwrap(), both.1.unwrap()];
        assert_eq!(answers[0].json()["id"], answers[1].json()["id"]);
        assert_eq!(desk.people().await, 3);
        let mut good = 0;
        for answer in &answers {
            assert_eq!(answer.status, 201);
            good += usize::from(accept(&desk, &link(answer)).await.0 == 200);
        }
        assert_eq!(good, 1);
    }
}

/// A right that was taken since the request began is not used: the commit checks it.
#[tokio::test]
async fn who_was_demoted_meanwhile_changes_nothing_any_more() {
    let desk = empty_desk().await;
    let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
    let eve = common::member(
        &desk.world.app,
        EVE,
        &reference(&desk.acme),
        Role::Member,
        Scopes::READ,
    )
    .await;
    for (method, path, body) in [
        ("POST", USERS.to_owned(), Some(json!({"email": NEW}))),
        (
            "POST",
            format!("{USERS}/{}/scopes", eve.id),
            Some(json!({"grant": ["write"]})),
        ),
        ("DELETE", format!("{USERS}/{}", eve.id), None),
    ] {
        let role = format!("{USERS}/{}/role", bob.id);
        desk.replace(&role, &json!({"role": "role:owner"})).await;
        let before = desk.people().await;
        desk.commits.demote_before_next(bob.clone());
        let answer = desk.ask(&bobs, method, &path, body.as_ref()).await;
        assert_eq!(answer.short(), "403 owner_required", "{method} {path}");
        assert_eq!(desk.people().await, before);
    }
}

/// What a user may do, as the model of the test below sees it.
#[derive(Clone, Copy, Debug)]
struct Part {
    owner: bool,
    write: bool,
    there: bool,
}

impl Part {
    const fn administers(self) -> bool {
        self.there && self.owner && self.write
    }
}

/// Any order of changes by anybody: the answers are those of a model of a few lines, and an owner always stays.
#[tokio::test]
async fn whatever_owners_do_to_each_other_one_stays() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let mut people = vec![(desk.ada().await, desk.owner.clone())];
    for name in ["bob", "cyd", "dan", "eli"] {
        let email = format!("{name}@example.org");
        let home = reference(&desk.acme);
        let user = common::member(app, &email, &home, Role::Owner, Scopes::ALL).await;
        people.push((
            user.id,
            token(&desk.world, &email, "acme", Scopes::ALL).await,
        ));
    }
    let all = Part {
        owner: true,
        write: true,
        there: true,
    };
    let mut parts = [all; 5];
    let random = vault_testing::SeededRandom::new(7);
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..400 {
        let [by, on, what, _] = vault_store::random::bytes::<4>(&random).map(usize::from);
        let (by, on) = (by % 5, on % 5);
        // Removing is rare, or nobody would be left to go on.
        let what = if step % 10 == 9 { 4 } else { what % 4 };
        let before = parts[on];
        let after = match what {
            0 => Part {
                owner: false,
                ..before
            },
            1 => Part {
                owner: true,
                ..before
            },
            2 => Part {
                write: false,
                ..before
            },
            3 => Part {
                write: true,
                ..before
            },
            _ => Part {
                there: false,
                ..before
            },
        };
        let others = (0..5).any(|other| other != on && parts[other].administers());
        let wanted = match parts[by] {
            Part { there: false, .. } => "401 token_invalid",
            Part { owner: false, .. } => "403 owner_required",
            Part { write: false, .. } => "403 insufficient_scope",
            _ if !before.there => "404 user_not_found",
            _ if before.administers() && !after.administers() && !others => "409 last_owner",
            _ => "200",
        };
        if wanted == "200" {
            parts[on] = after;
        }
        let path = format!("{USERS}/{}", people[on].0);
        let (method, path, body) = match what {
            0 => ("PUT", path + "/role", Some(json!({"role": "role:member"}))),
            1 => ("PUT", path + "/role", Some(json!({"role": "role:owner"}))),
            2 => ("POST", path + "/scopes", Some(json!({"revoke": ["write"]}))),
            3 => ("POST", path + "/scopes", Some(json!({"grant": ["write"]}))),
            _ => ("DELETE", path, None),
        };
        let answer = desk.ask(&people[by].1, method, &path, body.as_ref()).await;
        assert_eq!(
            answer.short(),
            wanted,
            "step {step}: {by} {method} {path} {parts:?}"
        );
        seen.insert(wanted);
        assert!(parts.iter().any(|part| part.administers()), "step {step}");
    }
    assert_eq!(seen.len(), 6, "every answer came: {seen:?}");
}
