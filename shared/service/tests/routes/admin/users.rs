//! `/admin/users`: who has a part, what they may do, and that every change acts at once.

use serde_json::{Value, json};
use vault_service::model::audit::Entry;
use vault_service::model::user::{Role, Scopes, User};

use super::{ADA, BOB, Desk, EVE, empty_desk, reference, token};
use crate::common::{self, PASSWORD};
use crate::support::Answer;

pub(super) const USERS: &str = "/admin/users";
pub(super) const NEW: &str = "new@example.org";

impl Desk {
    pub(super) async fn replace(&self, path: &str, body: &Value) -> Answer {
        self.ask(&self.owner, "PUT", path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.ask(&self.owner, "DELETE", path, None).await
    }

    /// Gives BOB a part in `acme`, with a token of all that he may do.
    pub(super) async fn bob(&self, role: Role, scopes: Scopes) -> (User, String) {
        let bob = common::member(&self.world.app, BOB, &reference(&self.acme), role, scopes).await;
        (bob, token(&self.world, BOB, "acme", scopes).await)
    }

    /// ADA's id.
    pub(super) async fn ada(&self) -> String {
        self.id_of(ADA).await
    }

    pub(super) async fn id_of(&self, email: &str) -> String {
        let id = &self.listed(email).await["id"];
        id.as_str().unwrap().to_owned()
    }

    /// What the list says of a user.
    pub(super) async fn listed(&self, email: &str) -> Value {
        let listed = self.get(USERS).await.json();
        let mut users = listed["items"].as_array().unwrap().iter();
        users.find(|user| user["email"] == email).unwrap().clone()
    }

    /// Invites a user without naming a role or scopes.
    pub(super) async fn invite(&self, token: &str, email: &str) -> Answer {
        let body = json!({ "email": email });
        self.ask(token, "POST", USERS, Some(&body)).await
    }

    /// The last entry of this action.
    pub async fn last(&self, action: &str) -> Entry {
        let entries = self.entries(&self.acme).await;
        let mut of_it = entries.into_iter().filter(|entry| entry.action == action);
        of_it.next_back().unwrap()
    }

    /// How many users `acme` has.
    pub(super) async fn people(&self) -> usize {
        let listed = self.get(USERS).await.json();
        listed["items"].as_array().unwrap().len()
    }
}

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
    let shown = json!({
        "id": bob.id,
        "email": BOB,
        "role": "role:member",
        "scopes": ["read"],
        "profile": null,
        "created_at": "2026-11-21T02:01:10Z",
        "state": "active",
        "last_seen_at": "2026-11-21T02:02:10Z",
    });
    assert_eq!(listed["items"][0]["email"], ADA);
    assert_eq!(listed["items"][1], shown);
    // EVE belongs to another vault.
    assert_eq!(desk.people().await, 2);

    let first = desk.get("/admin/users?limit=1").await.json();
    assert_eq!(first["items"], json!([listed["items"][0]]));
    let next = first["next"].as_str().unwrap();
    let after = format!("/admin/users?limit=1&after={next}");
    let second = desk.get(&after).await.json();
    assert_eq!(second, json!({ "items": [shown], "next": null }));
    for bad in ["limit=0", "limit=101", "limit=x", "after=%00"] {
        let answer = desk.get(&format!("{USERS}?{bad}")).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{bad}");
    }
}

/// A line each: what is asked of the users or of BOB, the body, and behind `|` the answer. What was
/// left out or misspelt must not lift a restriction.
const REFUSED: &str = r#"
POST            {}                                               | 400 json_invalid
POST            []                                               | 400 json_invalid
POST            {"email": 1}                                     | 400 json_invalid
POST            {"email": "n@example.org", "rolle": "role:owner"}  | 400 json_invalid
POST            {"email": "n@example.org", "scopes": "read"}     | 400 json_invalid
POST            {"email": "n@example.org", "email": "m@example.org"} | 400 json_invalid
POST            {"email": "new"}                                 | 422 email_invalid
POST            {"email": "n\u00e9w@example.org"}                | 422 email_invalid
POST            {"email": "n@example.org", "role": "owner"}      | 422 role_unknown
POST            {"email": "n@example.org", "scopes": ["admin"]}  | 422 scope_unknown
POST            {"email": "n@example.org", "scopes": ["read", "READ"]} | 422 scope_unknown
PUT /role       {}                                               | 400 json_invalid
PUT /role       {"role": null}                                   | 400 json_invalid
PUT /role       {"role": "role:operator"}                        | 422 role_unknown
PUT /profile    {}                                               | 400 json_invalid
PUT /profile    {"profil": null}                                 | 400 json_invalid
PUT /profile    {"profile": ""}                                  | 422 profile_invalid
PUT /profile    {"profile": "[65 letters]"}                      | 422 profile_invalid
PUT /profile    {"profile": "a\u202eb"}                          | 422 profile_invalid
PUT /profile    {"profile": 1}                                   | 422 profile_invalid
POST /scopes    {"grant": "write"}                               | 400 json_invalid
POST /scopes    {"grants": ["write"]}                            | 400 json_invalid
POST /scopes    {"grant": ["offline_access"]}                    | 422 scope_unknown
POST /scopes    {"revoke": ["admin"]}                            | 422 scope_unknown
POST /scopes    {"grant": ["read"], "revoke": ["read"]}          | 422 parameter_invalid
"#;

#[tokio::test]
async fn bodies_that_are_refused_write_nothing() {
    const JSON: &str = "application/json";
    let desk = empty_desk().await;
    let (bob, _) = desk.bob(Role::Member, Scopes::ALL).await;
    let before = desk.get(USERS).await.json();
    for line in REFUSED.trim().lines() {
        let (row, wanted) = line.split_once(" | ").unwrap();
        let (asked, body) = row.split_at(row.find(['{', '[']).unwrap());
        let (method, path) = match asked.trim().split_once(' ') {
            Some((method, what)) => (method, format!("{USERS}/{}{what}", bob.id)),
            None => (asked.trim(), USERS.to_owned()),
        };
        let body = body.trim().replace("[65 letters]", &"p".repeat(65));
        let sent = Some((JSON, body.into_bytes()));
        let answer = desk.send(&desk.owner, method, &path, sent, &[]).await;
        assert_eq!(answer.short(), wanted, "{line}");
    }
    for (media, body, wanted) in [
        (JSON, vec![b'['; 10_000], "400 json_invalid"),
        (JSON, vec![b' '; 64 * 1024 + 1], "413 body_too_large"),
        ("text/plain", b"{}".to_vec(), "415 media_type"),
    ] {
        let sent = Some((media, body));
        let answer = desk.send(&desk.owner, "POST", USERS, sent, &[]).await;
        assert_eq!(answer.short(), wanted);
    }
    assert_eq!(desk.get(USERS).await.json(), before);
    assert_eq!(desk.count("user.scopes scope_unknown").await, 2);
    assert_eq!(desk.count("user.create done").await, 0);
    // A refusal names whom the request was about.
    let entries = common::audited(&desk.world.app, "acme").await;
    let refused: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action == "user.scopes")
        .collect();
    assert!(!refused.is_empty());
    for entry in refused {
        assert_eq!(entry.target.as_deref(), Some(bob.id.as_str()));
    }
}

#[tokio::test]
async fn ids_of_another_vault_and_odd_ids_are_not_there() {
    let desk = empty_desk().await;
    let (app, other) = (&desk.world.app, reference(&desk.other));
    let eve = common::member(app, EVE, &other, Role::Owner, Scopes::ALL).await;
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
    let may_write = async || desk.invite(&bobs, "x").await.short();
    assert_eq!(may_write().await, "422 email_invalid");

    desk.commits.clear();
    let body = json!({"revoke": ["write"]});
    let revoked = desk.post(&of("scopes"), &body).await;
    assert_eq!(revoked.status, 200);
    assert_eq!(revoked.json()["scopes"], json!(["read"]));
    assert_eq!(desk.commits.partitions(), [["audit", "user"]]);
    let entry = desk.last("user.scopes").await;
    assert_eq!(entry.target.as_ref(), Some(&bob.id));
    let scopes = |names: &[&str]| Some(json!({ "scopes": names }));
    assert_eq!(entry.before, scopes(&["read", "write"]));
    assert_eq!(entry.after, scopes(&["read"]));
    assert_eq!(may_write().await, "403 insufficient_scope");
    assert_eq!(desk.ask(&bobs, "GET", USERS, None).await.status, 200);
    let granted = desk.post(&of("scopes"), &json!({"grant": ["write"]})).await;
    assert_eq!(granted.json()["scopes"], json!(["read", "write"]));
    assert_eq!(may_write().await, "422 email_invalid");
    // Every call is kept, also one that changes nothing.
    desk.post(&of("scopes"), &json!({})).await;
    assert_eq!(desk.count("user.scopes done").await, 3);

    let member = json!({"role": "role:member"});
    let demoted = desk.replace(&of("role"), &member).await;
    assert_eq!(demoted.json()["role"], "role:member");
    assert_eq!(may_write().await, "403 owner_required");
    let refused = desk.ask(&bobs, "GET", USERS, None).await;
    assert_eq!(refused.short(), "403 owner_required");
    let entry = desk.last("user.role").await;
    assert_eq!(entry.before, Some(json!({"role": "role:owner"})));
    assert_eq!(entry.after, Some(member));

    for profile in [json!("restricted"), json!("r\u{e9}view 2"), Value::Null] {
        let body = json!({ "profile": profile });
        let bound = desk.replace(&of("profile"), &body).await;
        assert_eq!(bound.status, 200);
        assert_eq!(bound.json()["profile"], profile);
        assert_eq!(desk.last("user.profile").await.after, Some(body));
        desk.world.clock.advance(1);
    }

    let path = format!("{USERS}/{}", bob.id);
    let removed = desk.delete(&path).await;
    assert_eq!(removed.status, 200);
    assert_eq!(removed.json()["email"], BOB);
    assert_eq!(desk.delete(&path).await.short(), "404 user_not_found");
    assert_eq!(desk.count("user.remove user_not_found").await, 1);
    assert_eq!(desk.count("user.remove done").await, 1);
    // Who comes back is another user: old tokens stay dead.
    assert_eq!(desk.invite(&desk.owner, BOB).await.status, 201);
    common::answer_invitation(&desk.world.app, BOB, "acme", "accept").await;
    let refused = desk.ask(&bobs, "GET", "/admin/vaults", None).await;
    assert_eq!(refused.short(), "401 token_invalid");
    assert_eq!(desk.invite(&desk.owner, BOB).await.status, 409);
}

/// Whichever comes first: no token that is good afterwards writes.
#[tokio::test]
async fn a_scope_revoked_during_a_refresh_is_not_carried_on() {
    for _ in 0..20 {
        let desk = empty_desk().await;
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
            let tried = desk.invite(token, "x").await;
            assert_eq!(tried.short(), "403 insufficient_scope");
        }
    }
}
