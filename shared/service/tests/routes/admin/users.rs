//! `/admin/users`: who has a part, what they may do, and that every change acts at once.

use serde_json::{Value, json};
use vault_service::model::audit::Entry;
use vault_service::model::kept;
use vault_service::model::membership::{INVITATION_SECONDS, invitation_key};
use vault_service::model::user::{Role, Scopes, User};

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

/// A member of `acme` from now on, as the person sees it: no link for the inviter, an answer by the invited.
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
    assert_eq!(commits, [["audit", "invited", "user"]], "one commit");
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

/// Only who could make any link that sets a password gets one: an operator.
#[tokio::test]
async fn no_owner_but_an_operator_gets_a_link_that_sets_a_password() {
    let desk = empty_desk().await;
    let made = desk.post(USERS, &json!({"email": NEW})).await;
    assert_eq!(made.json().get("invite_url"), None);
    let operator = desk.operator().await;
    let body = json!({"email": NEW, "role": "role:member"});
    let by_operator = desk.ask(&operator, "POST", USERS, Some(&body)).await;
    assert_eq!(by_operator.status, 201);
    let path = link(&by_operator);
    let secret = path.rsplit('/').next().unwrap().to_owned();
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
    assert_eq!(desk.invite(&desk.owner, BOB).await.status, 201);
    common::answer_invitation(&desk.world.app, BOB, "acme", "accept").await;
    let refused = desk.ask(&bobs, "GET", "/admin/vaults", None).await;
    assert_eq!(refused.short(), "401 token_invalid");
    assert_eq!(desk.invite(&desk.owner, BOB).await.status, 409);
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
    common::proven(&desk.world.app, NEW).await;
    assert_eq!(desk.post(USERS, &body).await.status, 201);
    nobody_stays("beside an owner who has not accepted").await;
    common::answer_invitation(&desk.world.app, NEW, "acme", "accept").await;
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
            let email = format!("m{number}@example.org");
            let user = common::listed_user(app, &email, &reference(&desk.acme), Scopes::READ);
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
