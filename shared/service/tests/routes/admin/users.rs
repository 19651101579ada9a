//! `/admin/users`: who has a part, what they may do, and that every change acts at once.

use serde_json::{Value, json};
use vault_service::model::account::{INVITE_SECONDS, account_key, invite_key};
use vault_service::model::audit::Entry;
use vault_service::model::kept;
use vault_service::model::token::{Secret, SecretKind};
use vault_service::model::user::{Role, Scopes, User, membership_key};

use super::{ADA, BOB, Desk, EVE, empty_desk, reference, token};
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
        let id = &self.listed(email).await["id"];
        id.as_str().unwrap().to_owned()
    }

    /// What the list says of a user.
    async fn listed(&self, email: &str) -> Value {
        let listed = self.get(USERS).await.json();
        let mut users = listed["items"].as_array().unwrap().iter();
        users.find(|user| user["email"] == email).unwrap().clone()
    }

    /// Invites a user without naming a role or scopes.
    async fn invite(&self, token: &str, email: &str) -> Answer {
        let body = json!({ "email": email });
        self.ask(token, "POST", USERS, Some(&body)).await
    }

    /// The last entry of this action.
    async fn last(&self, action: &str) -> Entry {
        let entries = self.entries(&self.acme).await;
        let mut of_it = entries.into_iter().filter(|entry| entry.action == action);
        of_it.next_back().unwrap()
    }

    /// How many users `acme` has.
    async fn people(&self) -> usize {
        let listed = self.get(USERS).await.json();
        listed["items"].as_array().unwrap().len()
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
async fn accept(desk: &Desk, path: &str) -> String {
    let mut visitor = Visitor::new(&desk.world.app);
    visitor.accept(path, PASSWORD).await.page()
}

const SET: &str = "200 Your password is set";
const GONE: &str = "404 This invitation is no longer valid";

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

#[tokio::test]
async fn somebody_new_gets_an_invitation_that_is_shown_once_and_kept_nowhere() {
    let desk = empty_desk().await;
    desk.commits.clear();
    let body =
        json!({"email": "New@Example.org", "role": "role:member", "scopes": ["read", "write"]});
    let made = desk.post(USERS, &body).await;
    assert_eq!(made.status, 201);
    let shown = made.json();
    for (member, value) in [
        ("email", json!(NEW)),
        ("role", json!("role:member")),
        ("scopes", json!(["read", "write"])),
        ("last_seen_at", Value::Null),
    ] {
        assert_eq!(shown[member], value, "{member}");
    }
    let one_commit = [["acct", "audit", "invite", "user"]];
    assert_eq!(desk.commits.partitions(), one_commit);
    let path = link(&made);
    let secret = path.rsplit('/').next().unwrap().to_owned();

    let entry = desk.last("user.create").await;
    assert_eq!(entry.target.as_deref(), shown["id"].as_str());
    assert_eq!((entry.before, entry.outcome.as_str()), (None, "done"));
    let after =
        json!({"email": NEW, "role": "role:member", "scopes": ["read", "write"], "profile": null});
    assert_eq!(entry.after, Some(after));
    let listed = desk.get(USERS).await;
    assert!(!listed.blotted().contains("invite_url"));
    for partition in desk.commits.written() {
        let records = kept::all(&*desk.world.app.records, &partition).await;
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
    let news = token(&desk.world, NEW, "acme", Scopes::ALL).await;
    let vaults = desk.ask(&news, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"][0]["role"], "role:member");
    assert_eq!(accept(&desk, &path).await, GONE);
}

#[tokio::test]
async fn who_can_sign_in_joins_without_an_invitation_and_only_once() {
    let desk = empty_desk().await;
    desk.stranger().await;
    desk.world.clock.advance(1);
    let made = desk.invite(&desk.owner, EVE).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json().get("invite_url"), None);
    // Without other words: a member who may read.
    let eve = desk.listed(EVE).await;
    assert_eq!(eve["role"], "role:member");
    assert_eq!(eve["scopes"], json!(["read"]));
    let eves = token(&desk.world, EVE, "acme", Scopes::READ).await;
    let vaults = desk.ask(&eves, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"].as_array().unwrap().len(), 2);
    // Oneself too.
    for email in [EVE, ADA] {
        let body = json!({"email": email, "role": "role:owner"});
        let again = desk.post(USERS, &body).await;
        assert_eq!(again.short(), "409 user_exists", "{email}");
    }
    assert_eq!(desk.listed(EVE).await["role"], "role:member");
    assert_eq!(desk.count("user.create user_exists").await, 2);
}

#[tokio::test]
async fn an_invitation_is_given_anew_and_the_one_before_is_dead() {
    let mut desk = empty_desk().await;
    let first = desk.invite(&desk.owner, NEW).await;
    desk.world.clock.advance(INVITE_SECONDS + 1);
    assert_eq!(accept(&desk, &link(&first)).await, GONE);
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let body = json!({"email": NEW, "scopes": ["read", "write"]});
    let second = desk.post(USERS, &body).await;
    let third = desk.post(USERS, &body).await;
    for again in [&second, &third] {
        assert_eq!(again.status, 201);
        let (again, first) = (again.json(), first.json());
        assert_eq!(again["id"], first["id"], "the same user");
        assert_eq!(again["scopes"], json!(["read", "write"]));
    }
    let entry = desk.last("user.create").await;
    assert_eq!(entry.before.unwrap()["email"], NEW);
    assert_eq!(accept(&desk, &link(&second)).await, GONE);
    assert_eq!(accept(&desk, &link(&third)).await, SET);
    let again = desk.post(USERS, &body).await;
    assert_eq!(again.short(), "409 user_exists");
}

/// The link sets the password of the account in every vault, so nobody else may get one.
#[tokio::test]
async fn who_waits_for_another_vault_s_invitation_is_not_invited_away() {
    let desk = empty_desk().await;
    let stranger = desk.stranger().await;
    let first = desk.invite(&desk.owner, NEW).await;
    // Nor an owner that an operator invited.
    let operator = desk.operator().await;
    let path = "/admin/operator/namespaces";
    let body = json!({"slug": "fresh", "owner": "fresh@example.org"});
    let made = desk.ask(&operator, "POST", path, Some(&body)).await;
    for (email, made) in [(NEW, first), ("fresh@example.org", made)] {
        let refused = desk.invite(&stranger, email).await;
        assert_eq!(refused.short(), "409 invitation_pending", "{email}");
        // The first link still works.
        assert_eq!(accept(&desk, &link(&made)).await, SET);
    }
    let joined = desk.invite(&stranger, NEW).await;
    assert_eq!(joined.status, 201);
    assert_eq!(joined.json().get("invite_url"), None);
}

#[tokio::test]
async fn removing_who_never_came_removes_the_invitation_and_the_account() {
    let desk = empty_desk().await;
    let made = desk.invite(&desk.owner, NEW).await;
    let path = link(&made);
    let user = format!("{USERS}/{}", desk.id_of(NEW).await);
    assert_eq!(desk.delete(&user).await.status, 200);
    assert_eq!(accept(&desk, &path).await, GONE);
    let secret = Secret::parse(SecretKind::Invite, path.rsplit('/').next().unwrap()).unwrap();
    let email = NEW.parse().unwrap();
    let keys = [
        account_key(&email),
        invite_key(&secret.hash()),
        membership_key(&email, &desk.acme.slug),
    ];
    let left = desk.world.app.records.get_many(&keys).await.unwrap();
    assert_eq!(left.iter().flatten().count(), 0);
    // Another vault may invite now; and who can sign in keeps the account.
    let stranger = desk.stranger().await;
    let made = desk.invite(&stranger, NEW).await;
    assert_eq!(accept(&desk, &link(&made)).await, SET);
    let path = format!("{USERS}/{}", made.json()["id"].as_str().unwrap());
    assert_eq!(desk.ask(&stranger, "DELETE", &path, None).await.status, 200);
    let account = desk.world.app.records.get(&account_key(&email)).await;
    assert!(account.unwrap().is_some());
}

/// A line each: what is asked of the users or of BOB, the body, and behind `|` the answer. What was left out or misspelt must not lift a
/// restriction.
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
    for invited in [201, 409] {
        let refused = desk.ask(&bobs, "GET", "/admin/vaults", None).await;
        assert_eq!(refused.short(), "401 token_invalid");
        assert_eq!(desk.invite(&desk.owner, BOB).await.status, invited);
    }
}

#[tokio::test]
async fn an_owner_steps_back_only_while_another_stays() {
    let desk = empty_desk().await;
    let ada = desk.ada().await;
    let of = |what: &str| format!("{USERS}/{ada}{what}");
    let member = json!({"role": "role:member"});
    let owner = json!({"role": "role:owner"});
    let reader = json!({"revoke": ["write"]});
    let nobody_stays = async |why: &str| {
        for answer in [
            desk.delete(&of("")).await,
            desk.replace(&of("/role"), &member).await,
            desk.post(&of("/scopes"), &reader).await,
        ] {
            assert_eq!(answer.short(), "409 last_owner", "{why}");
        }
    };
    nobody_stays("alone").await;
    assert_eq!(desk.count("user.remove last_owner").await, 1);
    // What takes no ownership away goes through.
    let revoked = json!({"revoke": ["read"]});
    assert_eq!(desk.post(&of("/scopes"), &revoked).await.status, 200);
    assert_eq!(desk.replace(&of("/role"), &owner).await.status, 200);

    desk.bob(Role::Member, Scopes::ALL).await;
    nobody_stays("beside a member").await;
    let bobs = format!("{USERS}/{}", desk.id_of(BOB).await);
    desk.replace(&format!("{bobs}/role"), &owner).await;
    desk.post(&format!("{bobs}/scopes"), &reader).await;
    nobody_stays("beside an owner who may not write").await;
    desk.delete(&bobs).await;
    let body = json!({"email": NEW, "role": "role:owner", "scopes": ["read", "write"]});
    let invited = desk.post(USERS, &body).await;
    nobody_stays("beside an owner who never signed in").await;
    assert_eq!(accept(&desk, &link(&invited)).await, SET);
    let gone = desk.delete(&of("")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
    // One's own tokens are dead too.
    assert_eq!(desk.get(USERS).await.short(), "401 token_invalid");
}

/// 1,050 members between the two owners: the search goes on behind the first page.
#[tokio::test]
async fn another_owner_is_found_behind_many_members() {
    let desk = empty_desk().await;
    let ada = desk.ada().await;
    let app = &desk.world.app;
    for _ in 0..21 {
        let mut writes = Vec::new();
        for _ in 0..50 {
            let number = vault_store::random::ulid(&*app.clock, &*app.random).to_lowercase();
            let email = format!("m{number}@example.org").parse().unwrap();
            let (home, now) = (reference(&desk.acme), desk.world.now());
            let (role, scopes) = (Role::Member, Scopes::READ);
            let user = User::new(email, home, role, scopes, now, &*app.random);
            writes.extend(user.creation().unwrap());
        }
        common::commit(app, writes).await;
    }
    desk.world.clock.advance(10);
    desk.bob(Role::Owner, Scopes::ALL).await;
    let gone = desk.delete(&format!("{USERS}/{ada}")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
}

/// Whether they remove each other or step back: both read that the other stays, and the commit of the second does not find it so.
#[tokio::test]
async fn two_owners_who_go_at_once_leave_one() {
    let member = json!({"role": "role:member"});
    for round in 0..40 {
        let desk = empty_desk().await;
        let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let ada = format!("{USERS}/{}", desk.ada().await);
        let bob = format!("{USERS}/{}", bob.id);
        desk.commits.interfere(round % 3);
        let remove = round < 20;
        let both = if remove {
            tokio::join!(
                desk.ask(&desk.owner, "DELETE", &bob, None),
                desk.ask(&bobs, "DELETE", &ada, None)
            )
        } else {
            let (ada, bob) = (ada + "/role", bob + "/role");
            tokio::join!(
                desk.ask(&desk.owner, "PUT", &ada, Some(&member)),
                desk.ask(&bobs, "PUT", &bob, Some(&member))
            )
        };
        let mut answers = [both.0.short(), both.1.short()];
        answers.sort();
        let lost = answers[1].as_str();
        let lost = lost == "409 last_owner" || remove && lost == "401 token_invalid";
        assert!(answers[0] == "200" && lost, "{answers:?}");
        let mut left = [
            desk.get(USERS).await.short(),
            desk.ask(&bobs, "GET", USERS, None).await.short(),
        ];
        left.sort();
        let gone = ["403 owner_required", "401 token_invalid"][usize::from(remove)];
        assert_eq!(left, ["200", gone]);
    }
}

#[tokio::test]
async fn an_invitation_accepted_twice_at_once_sets_one_password() {
    for _ in 0..5 {
        let desk = empty_desk().await;
        let path = link(&desk.invite(&desk.owner, NEW).await);
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

#[tokio::test]
async fn two_who_invite_the_same_person_at_once_make_one_user_and_one_good_link() {
    for _ in 0..10 {
        let desk = empty_desk().await;
        let (_, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let both = tokio::join!(desk.invite(&desk.owner, NEW), desk.invite(&bobs, NEW));
        let answers = [both.0, both.1];
        assert_eq!(answers[0].json()["id"], answers[1].json()["id"]);
        assert_eq!(desk.people().await, 3);
        let mut good = 0;
        for answer in &answers {
            assert_eq!(answer.status, 201);
            good += usize::from(accept(&desk, &link(answer)).await == SET);
        }
        assert_eq!(good, 1);
    }
}

/// A right that was taken since the request began is not used: the commit checks it.
#[tokio::test]
async fn who_was_demoted_meanwhile_changes_nothing_any_more() {
    let desk = empty_desk().await;
    let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let eve = common::member(app, EVE, &home, Role::Member, Scopes::READ).await;
    let eve = format!("{USERS}/{}", eve.id);
    let scopes = format!("{eve}/scopes");
    for (method, path, body) in [
        ("POST", USERS, Some(json!({"email": NEW}))),
        ("POST", &scopes, Some(json!({"grant": ["write"]}))),
        ("DELETE", &eve, None),
    ] {
        let role = format!("{USERS}/{}/role", bob.id);
        desk.replace(&role, &json!({"role": "role:owner"})).await;
        let before = desk.people().await;
        desk.commits.demote_before_next(bob.clone());
        let answer = desk.ask(&bobs, method, path, body.as_ref()).await;
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
        let mut after = before;
        match what {
            0 | 1 => after.owner = what == 1,
            2 | 3 => after.write = what == 3,
            _ => after.there = false,
        }
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
