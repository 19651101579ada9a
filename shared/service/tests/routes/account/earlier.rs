//! Accounts and memberships as the version before accounts of their own has left them.

use serde_json::{Value, json};
use vault_service::App;
use vault_service::accounts::bootstrap::load_owner;
use vault_service::model::client::connection_key;
use vault_service::model::grant::grant_key;
use vault_service::model::namespace::Namespace;
use vault_service::model::session::session_key;
use vault_service::model::token::{Secret, SecretKind, token_key};
use vault_service::model::user::{State, User, users_partition};
use vault_store::records::{Document, RecordKey, When, Write};

use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, EVE, empty_desk};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD, Visitor};

async fn put(app: &App, partition: String, key: &str, value: &Value) {
    let document = Document::from_value(value).unwrap();
    let write = Write::put(RecordKey::new(partition, key), document, When::Any);
    assert!(
        app.records
            .commit_writes(vec![write])
            .await
            .unwrap()
            .is_done()
    );
}

/// Writes an account with the password of `like`, and its user in a namespace, in the earlier form.
async fn account(desk: &Desk, email: &str, home: &Namespace, role: &str, members: Value) {
    let app = &desk.world.app;
    let namespace = json!({ "slug": home.slug, "id": home.id });
    let mut account = json!({
        "email": email, "password": null, "password_set_at": null, "password_number": 0, "operator": false,
        "created_at": "2026-11-19T09:00:00Z", "invite": null,
    });
    for (name, value) in members.as_object().unwrap() {
        account[name] = value.clone();
    }
    put(app, format!("acct/{email}"), "account", &account).await;
    let id = format!("usr_{:0>26}", email.split('@').next().unwrap());
    let user = json!({
        "id": id, "email": email, "namespace": namespace, "role": role, "scopes": ["read", "write"], "profile": null,
        "created_at": "2026-11-19T09:00:00Z", "last_seen_at": null,
    });
    put(app, users_partition(&home.id), &id, &user).await;
    let entry = json!({ "user_id": id, "namespace": namespace });
    put(
        app,
        format!("acct/{email}"),
        &format!("ns/{}", home.slug),
        &entry,
    )
    .await;
}

/// Status of a sign-in.
async fn sign_in(app: &App, email: &str, password: &str) -> u16 {
    let mut visitor = Visitor::new(app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, email, password).await.status
}

/// What the earlier version had given to somebody who knew a password: an app's tokens, and a
/// browser that is signed in.
struct Held {
    client: String,
    access: String,
    refresh: String,
    cookie: String,
}

impl Held {
    /// Writes the records of that version: without epochs, and with the address for the account.
    async fn of(desk: &Desk, email: &str, home: &Namespace) -> Self {
        let app = &desk.world.app;
        let secret = |kind| Secret::fresh(kind, &app.random);
        let (access, refresh) = (secret(SecretKind::Access), secret(SecretKind::Refresh));
        let session = secret(SecretKind::Session);
        let client = common::register(app, common::CALLBACK).await;
        let (id, grant) = (client.parse().unwrap(), format!("gra_{:0>26}", "x"));
        let (at, until) = ("2026-11-20T09:00:00Z", "2027-05-19T09:00:00Z");
        let family = json!({
            "grant": grant, "namespace": { "slug": home.slug, "id": home.id }, "client": client,
            "user": format!("usr_{:0>26}", email.split('@').next().unwrap()), "account": email,
            "resource": "https://vault.example",
        });
        let token = |kind: &str| {
            json!({
                "kind": kind, "family": family, "scopes": ["read", "write"], "issued_at": at,
                "expires_at": until,
            })
        };
        let held = json!({
            "family": family, "scopes": ["read", "write"], "created_at": at, "ends_at": until,
            "refresh": refresh.hash(), "access": access.hash(), "previous": null, "revoked": null,
        });
        let connection = json!({
            "client": client, "name": "An app", "connected_at": at, "revoked_at": null,
        });
        let browser = json!({ "account": email, "signed_in_at": at, "ends_at": until });
        for (key, record) in [
            (token_key(&access.hash()), token("access")),
            (token_key(&refresh.hash()), token("refresh")),
            (grant_key(Some(&home.id), &id, &grant), held),
            (connection_key(&home.id, &id), connection),
            (session_key(&session.hash()), browser),
        ] {
            common::put(app, key, &record).await;
        }
        Self {
            client,
            access: access.text().to_owned(),
            refresh: refresh.text().to_owned(),
            cookie: format!("__Host-vault_session={}", session.text()),
        }
    }

    /// Whether the access token, the refresh token and the browser still open something.
    async fn alive(&self, desk: &Desk) -> [bool; 3] {
        let app = &desk.world.app;
        let asked = desk.ask(&self.access, "GET", "/admin/vaults", None).await;
        let refreshed = common::refresh(app, &self.client, &self.refresh).await;
        let mut browser = Visitor::new(app);
        browser.cookie = Some(self.cookie.clone());
        let page = browser.get("/account").await;
        let signed_in = page.heading() == "Your account";
        [asked.status == 200, refreshed.status == 200, signed_in]
    }
}

/// An owner who had set somebody's password holds tokens and a browser from then. They end with the
/// password, or the account would still be theirs when the person sets a new one.
#[tokio::test]
async fn what_was_signed_in_with_a_password_of_an_inviter_ends_with_it() {
    let desk = empty_desk().await;
    let (app, acme) = (&desk.world.app, &desk.acme);
    let hash = common::account(app, ADA).await;
    let hash = hash.password_hash().unwrap().to_owned();
    let invited = json!({ "password": hash, "invited_by": { "slug": "acme", "id": acme.id } });
    let carol = "carol@example.org";
    for (email, members) in [(BOB, invited), (carol, json!({ "password": hash }))] {
        account(&desk, email, acme, "role:member", members).await;
    }
    let (bobs, carols) = (
        Held::of(&desk, BOB, acme).await,
        Held::of(&desk, carol, acme).await,
    );
    let mark = json!({ "email": OWNER, "created_at": "2026-11-19T09:00:00Z" });
    put(app, "service".to_owned(), "owner", &mark).await;
    load_owner(app).await.unwrap();
    assert_eq!(carols.alive(&desk).await, [true; 3], "her own password");
    assert_eq!(bobs.alive(&desk).await, [false; 3]);
    // The documented way back, after which the person has the account alone.
    let operator = desk.operator().await;
    let body = json!({ "email": BOB });
    let path = "/admin/operator/accounts";
    let link = desk.ask(&operator, "POST", path, Some(&body)).await.json();
    common::set_password(app, link["invite_url"].as_str().unwrap()).await;
    account_page(&desk, BOB, PASSWORD).await;
    assert_eq!(bobs.alive(&desk).await, [false; 3]);
}

#[tokio::test]
async fn memberships_stay_and_passwords_that_an_owner_could_have_set_end() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let hash = common::account(app, ADA)
        .await
        .password_hash()
        .unwrap()
        .to_owned();
    let default = desk.world.read_namespace("default").await;
    let by = |home: &Namespace| json!({ "slug": home.slug, "id": home.id });
    // Carol was invited by an operator, Bob by the owner of `acme`, Eve by the operator's own
    // vault; Dan never came.
    let set = |invited_by: Value| json!({ "password": hash, "invited_by": invited_by });
    let acme = &desk.acme;
    account(
        &desk,
        "carol@example.org",
        acme,
        "role:owner",
        json!({ "password": hash }),
    )
    .await;
    account(&desk, BOB, acme, "role:member", set(by(acme))).await;
    account(&desk, EVE, acme, "role:member", set(by(&default))).await;
    account(
        &desk,
        "dan@example.org",
        acme,
        "role:member",
        json!({ "invited_by": by(acme) }),
    )
    .await;
    let mark = json!({ "email": OWNER, "created_at": "2026-11-19T09:00:00Z" });
    put(app, "service".to_owned(), "owner", &mark).await;

    for _ in 0..2 {
        assert_eq!(load_owner(app).await.unwrap(), Some(OWNER.parse().unwrap()));
    }
    let mut states = Vec::new();
    for record in app
        .records
        .list_page(&users_partition(&acme.id), "", None, 100)
        .await
        .unwrap()
    {
        let user: User = record.read().unwrap();
        states.push((user.email.to_string(), user.state() == State::Active));
        let left = app
            .records
            .list_page(&format!("acct/{}", user.email), "", None, 10)
            .await
            .unwrap();
        assert_eq!(left.len(), 0, "nothing of the earlier form: {left:?}");
    }
    states.sort();
    let name = |name: &str| format!("{name}@example.org");
    let wanted = [
        ("ada", true),
        ("bob", true),
        ("carol", true),
        ("dan", false),
        ("eve", true),
    ];
    assert_eq!(states, wanted.map(|(who, active)| (name(who), active)));
    for (email, status) in [
        ("carol@example.org", 303),
        (EVE, 303),
        (BOB, 422),
        ("dan@example.org", 422),
    ] {
        assert_eq!(sign_in(app, email, PASSWORD).await, status, "{email}");
    }
    assert_eq!(sign_in(app, OWNER, OWNER_PASSWORD).await, 303);
    let (_, page) = account_page(&desk, "carol@example.org", PASSWORD).await;
    assert!(page.body.contains("<strong>acme</strong>"), "{}", page.body);

    // The operator's list names who has to be invited again, and then the person is back in the
    // vault.
    let operator = desk.operator().await;
    let listed = desk
        .ask(&operator, "GET", "/admin/operator/accounts", None)
        .await
        .json();
    let items = listed["items"].as_array().unwrap().iter();
    let again: Vec<_> = items
        .filter(|item| item["invite_again"] == true)
        .map(|item| &item["email"])
        .collect();
    assert_eq!(again, [BOB]);
    let link = about(&desk, &operator, BOB, "reset").await.json();
    common::set_password(app, link["invite_url"].as_str().unwrap()).await;
    let (_, page) = account_page(&desk, BOB, PASSWORD).await;
    assert!(page.body.contains("<strong>acme</strong>"), "{}", page.body);
}
