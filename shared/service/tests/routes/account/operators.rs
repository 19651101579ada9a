//! `/admin/operator/accounts`: the ways back for people and operators.

use serde_json::json;
use vault_service::model::account::{account_key, account_partition};
use vault_service::model::permit::CONFIRMED_SECONDS;
use vault_service::model::user::{MEMBERSHIPS, Role, Scopes};
use vault_store::records::{Document, When, Write};

use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, EVE, empty_desk, reference, token};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, set_password};

const ACCOUNTS: &str = "/admin/operator/accounts";

/// Status of a sign-in with the members' password.
async fn sign_in(desk: &Desk, email: &str) -> u16 {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, email, PASSWORD).await.status
}

#[tokio::test]
async fn an_invited_address_is_proven_by_the_operator_s_link() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    let body = json!({ "email": "New@Example.org" });
    let made = desk.ask(&operator, "POST", ACCOUNTS, Some(&body)).await;
    assert_eq!(made.status, 201);
    assert_eq!(
        (&made.json()["email"], &made.json()["proven"]),
        (&json!("new@example.org"), &json!(false))
    );
    let again = desk.ask(&operator, "POST", ACCOUNTS, Some(&body)).await;
    let (old, new) = (made.json(), again.json());
    assert_eq!(old["id"], new["id"]);
    let path = old["invite_url"].as_str().unwrap()["https://vault.example".len()..].to_owned();
    assert_eq!(
        Visitor::new(&desk.world.app).get(&path).await.status,
        404,
        "replaced"
    );
    set_password(&desk.world.app, new["invite_url"].as_str().unwrap()).await;
    let third = desk
        .ask(&operator, "POST", ACCOUNTS, Some(&body))
        .await
        .json();
    assert_eq!(
        (&third["proven"], third.get("invite_url")),
        (&json!(true), None)
    );
    let listed = desk.ask(&operator, "GET", ACCOUNTS, None).await.json();
    let emails: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["email"])
        .collect();
    assert_eq!(emails, [ADA, "new@example.org", OWNER]);
}

/// Nobody is locked out for good: the person gets a new password, and what the former one signed in
/// is over.
#[tokio::test]
async fn a_reset_account_signs_in_by_a_new_link_and_by_nothing_from_before() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    let reset = about(&desk, &operator, ADA, "reset").await;
    assert_eq!(reset.status, 200);
    assert_eq!(desk.get("/admin/vaults").await.short(), "401 token_invalid");
    assert_eq!(sign_in(&desk, ADA).await, 422);
    set_password(
        &desk.world.app,
        reset.json()["invite_url"].as_str().unwrap(),
    )
    .await;
    assert_eq!(sign_in(&desk, ADA).await, 303);
    assert_eq!(
        desk.count("account.reset done").await,
        1,
        "the owners of the vault read it"
    );
    let nobody = about(&desk, &operator, "nobody@example.org", "reset").await;
    assert_eq!(nobody.short(), "404 account_not_found");
}

#[tokio::test]
async fn a_disabled_account_can_do_nothing_until_it_is_enabled() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    assert_eq!(about(&desk, &operator, ADA, "disable").await.status, 200);
    assert_eq!(desk.get("/admin/vaults").await.short(), "401 token_invalid");
    assert_eq!(sign_in(&desk, ADA).await, 422, "as with a wrong password");
    assert_eq!(about(&desk, &operator, ADA, "enable").await.status, 200);
    assert_eq!(sign_in(&desk, ADA).await, 303);
    assert_eq!(
        desk.get("/admin/vaults").await.short(),
        "401 token_invalid",
        "what ended stays ended"
    );
}

#[tokio::test]
async fn a_second_operator_takes_over_and_the_last_one_stays() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    for what in ["revoke", "disable"] {
        let last = about(&desk, &operator, OWNER, what).await;
        assert_eq!(last.short(), "409 last_operator", "{what}");
    }
    let path = format!("{ACCOUNTS}/{OWNER}");
    let last = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(last.short(), "409 last_operator");
    assert_eq!(
        about(&desk, &operator, ADA, "grant").await.json()["operator"],
        json!(true)
    );
    let who = (ADA, PASSWORD);
    let ada = common::operator_token_of(&desk.world.app, who, Scopes::ALL).await;
    assert_eq!(about(&desk, &ada, OWNER, "revoke").await.status, 200);
    let former = desk.ask(&operator, "GET", ACCOUNTS, None).await;
    assert_eq!(former.short(), "401 token_invalid");
}

/// What becomes of the operator's own vault, in a way that its owners or the operator can bring
/// about.
#[derive(Clone, Copy, Debug)]
enum Blow {
    MemberRemoved,
    ScopeRevoked,
    RoleTaken,
    VaultLeft,
    VaultSuspended,
    VaultSignedOut,
}

impl Blow {
    async fn strike(self, desk: &Desk) {
        let app = &desk.world.app;
        let home = common::home(app, "default").await;
        let home = reference(&home);
        common::member(app, BOB, &home, Role::Owner, Scopes::ALL).await;
        let bobs = token(&desk.world, BOB, "default", Scopes::ALL).await;
        let users = desk.ask(&bobs, "GET", "/admin/users", None).await.json();
        let mut users = users["items"].as_array().unwrap().iter();
        let operator = users.find(|user| user["email"] == OWNER).unwrap();
        let user = format!("/admin/users/{}", operator["id"].as_str().unwrap());
        let (scopes, role) = (format!("{user}/scopes"), format!("{user}/role"));
        let (revoke, member) = (json!({"revoke": ["write"]}), json!({"role": "role:member"}));
        let named = json!({"slug": "default"});
        let sign_out = "/admin/vaults/default/sign-out";
        let suspend = "/admin/operator/namespaces/default/suspend";
        let operator = desk.operator().await;
        let done = match self {
            Self::MemberRemoved => desk.ask(&bobs, "DELETE", &user, None).await,
            Self::ScopeRevoked => desk.ask(&bobs, "POST", &scopes, Some(&revoke)).await,
            Self::RoleTaken => desk.ask(&bobs, "PUT", &role, Some(&member)).await,
            Self::VaultSignedOut => desk.ask(&bobs, "POST", sign_out, Some(&named)).await,
            Self::VaultSuspended => desk.ask(&operator, "POST", suspend, None).await,
            Self::VaultLeft => {
                let (mut visitor, page) = account_page(desk, OWNER, OWNER_PASSWORD).await;
                let csrf = page.hidden("/account/vaults", "csrf");
                let fields = [("csrf", csrf.as_str()), ("namespace", "default")];
                let left = visitor.post("/account/vaults", &fields).await;
                assert_eq!(left.status, 303, "{}", left.body);
                return;
            }
        };
        assert_eq!(done.status, 200, "{self:?} {done:?}");
    }
}

/// The owners of the vault that the service began with are people like any others, and may know
/// each other no better.
#[tokio::test]
async fn what_becomes_of_a_vault_does_not_decide_who_operates_the_service() {
    for blow in [
        Blow::MemberRemoved,
        Blow::ScopeRevoked,
        Blow::RoleTaken,
        Blow::VaultLeft,
        Blow::VaultSuspended,
        Blow::VaultSignedOut,
    ] {
        let desk = empty_desk().await;
        let before = desk.operator().await;
        blow.strike(&desk).await;
        let after = desk.operator().await;
        for operator in [&before, &after] {
            let listed = desk.ask(operator, "GET", ACCOUNTS, None).await;
            assert_eq!(listed.status, 200, "{blow:?}");
            let path = "/admin/operator/namespaces/default/resume";
            let resumed = desk.ask(operator, "POST", path, None).await;
            assert_eq!(resumed.status, 200, "{blow:?} {resumed:?}");
        }
    }
}

/// Whoever is made an operator can act as one, with no vault at all.
#[tokio::test]
async fn an_operator_needs_no_vault() {
    let desk = empty_desk().await;
    let (app, operator) = (&desk.world.app, desk.operator().await);
    common::proven(app, BOB).await;
    assert_eq!(about(&desk, &operator, BOB, "grant").await.status, 200);
    let bob = (BOB, PASSWORD);
    let bobs = common::operator_token_of(app, bob, Scopes::ALL).await;
    assert_eq!(about(&desk, &bobs, OWNER, "revoke").await.status, 200);
    let vaults = desk.ask(&bobs, "GET", "/admin/vaults", None).await;
    assert_eq!(vaults.json()["items"], json!([]));
    // It opens nothing of any vault, and no tool.
    for path in ["/admin/vaults/acme", "/admin/users", "/admin/audit"] {
        let refused = desk.ask(&bobs, "GET", path, None).await;
        assert_eq!(refused.short(), "401 token_invalid", "{path}");
    }
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let list = ("application/json", list.to_string().into_bytes());
    let host = [("host", "vault.example")];
    let refused = desk.send(&bobs, "POST", "/mcp", Some(list), &host).await;
    assert_eq!(refused.status, 401);
    // The app is in the person's list, and ends there.
    let (mut visitor, page) = account_page(&desk, BOB, PASSWORD).await;
    assert!(
        page.body.contains("the whole service, as an operator"),
        "{}",
        page.body
    );
    let path = "/account/apps";
    let (csrf, grant) = (page.hidden(path, "csrf"), page.hidden(path, "grant"));
    let fields = [("csrf", csrf.as_str()), ("grant", &grant)];
    assert_eq!(visitor.post(path, &fields).await.status, 303);
    let ended = desk.ask(&bobs, "GET", ACCOUNTS, None).await;
    assert_eq!(ended.short(), "401 token_invalid");
}

#[tokio::test]
async fn a_deleted_account_leaves_every_vault() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    let path = format!("{ACCOUNTS}/{ADA}");
    let gone = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(gone.status, 200, "{gone:?}");
    assert_eq!(gone.json()["without_owner"], json!(["acme"]));
    assert_eq!(desk.get("/admin/vaults").await.short(), "401 token_invalid");
    assert_eq!(sign_in(&desk, ADA).await, 422);
    let again = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(again.short(), "404 account_not_found");
    // The address is free, and its next account has nothing of the former one.
    common::proven(&desk.world.app, ADA).await;
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    let page = visitor.get("/account").await;
    assert!(
        page.body.contains("You are not a member of any vault."),
        "{}",
        page.body
    );
}

/// Makes an account a member of many vaults past all rules.
async fn join_vaults(desk: &Desk, email: &str, count: usize) {
    join_vaults_from(desk, email, 0, count).await;
}

async fn join_vaults_from(desk: &Desk, email: &str, first: usize, count: usize) {
    for number in first..first + count {
        let app = &desk.world.app;
        let home = common::namespace(app, &format!("vault-{number}")).await;
        common::member(app, email, &home, Role::Member, Scopes::READ).await;
    }
}

/// The permit is used when the deletion begins: while it lasts the deletion goes on, and nobody uses
/// the account meanwhile. A deletion that was left to lie needs another permit.
#[tokio::test]
async fn a_deletion_goes_on_within_its_permit_and_later_with_another_one() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    join_vaults(&desk, BOB, 230).await;
    let path = format!("{ACCOUNTS}/{BOB}");
    let begun = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(begun.short(), "503 unavailable");
    assert_eq!(sign_in(&desk, BOB).await, 422);
    let listed = async || {
        let accounts = desk.ask(&operator, "GET", ACCOUNTS, None).await.json();
        let mut accounts = accounts["items"].as_array().unwrap().iter();
        let bob = accounts.find(|account| account["email"] == BOB).unwrap();
        bob["deletion_begun"].clone()
    };
    assert_eq!(listed().await, true);
    desk.world.clock.advance(CONFIRMED_SECONDS - 1);
    join_vaults_from(&desk, BOB, 230, 230).await;
    let more = desk.ask_once(&operator, "DELETE", &path, None).await;
    assert_eq!(more.short(), "503 unavailable", "within the permit");
    desk.world.clock.advance(1);
    let late = desk.ask_once(&operator, "DELETE", &path, None).await;
    assert_eq!(late.short(), "403 confirmation_needed");
    assert_eq!(listed().await, true);
    let done = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(done.short(), "200", "{done:?}");
}

/// A link for an account that cannot sign in, and may end at any time, helps nobody.
#[tokio::test]
async fn no_link_is_made_or_used_while_an_account_is_being_deleted() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    join_vaults(&desk, BOB, 230).await;
    let reset = about(&desk, &operator, BOB, "reset").await;
    let url = reset.json()["invite_url"].as_str().unwrap().to_owned();
    let link = url["https://vault.example".len()..].to_owned();
    let mut visitor = Visitor::new(&desk.world.app);
    assert_eq!(visitor.get(&link).await.status, 200);
    let path = format!("{ACCOUNTS}/{BOB}");
    let begun = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(begun.short(), "503 unavailable");
    let refused = "409 account_deletion_begun";
    assert_eq!(about(&desk, &operator, BOB, "reset").await.short(), refused);
    let body = json!({ "email": BOB });
    let invited = desk.ask(&operator, "POST", ACCOUNTS, Some(&body)).await;
    assert_eq!(invited.short(), refused);
    let body = json!({ "slug": "tenant-9", "owner": BOB });
    let namespaces = "/admin/operator/namespaces";
    let created = desk.ask(&operator, "POST", namespaces, Some(&body)).await;
    assert_eq!(created.short(), refused);
    assert_eq!(visitor.get(&link).await.status, 404);
    assert_eq!(about(&desk, &operator, BOB, "enable").await.status, 200);
    assert_eq!(visitor.get(&link).await.status, 200);
    assert_eq!(about(&desk, &operator, BOB, "reset").await.status, 200);
}

/// The rights of the operator end with the first step, so no second request could continue.
#[tokio::test]
async fn an_operator_deletes_the_own_account_only_where_one_request_does() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let operator = desk.operator().await;
    join_vaults(&desk, BOB, 201).await;
    assert_eq!(about(&desk, &operator, BOB, "grant").await.status, 200);
    let bobs = common::operator_token_of(app, (BOB, PASSWORD), Scopes::ALL).await;
    let path = format!("{ACCOUNTS}/{BOB}");
    let refused = desk.ask(&bobs, "DELETE", &path, None).await;
    assert_eq!(refused.short(), "409 own_account_large");
    assert_eq!(sign_in(&desk, BOB).await, 303, "nothing has begun");
    // Another operator deletes it in two requests.
    let begun = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(begun.short(), "503 unavailable");
    let done = desk.ask_once(&operator, "DELETE", &path, None).await;
    assert_eq!(done.status, 200, "{done:?}");
}

/// An operator who enables the account changes their mind: the deletion needs a new confirmation.
#[tokio::test]
async fn enabling_an_account_cancels_its_deletion() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    join_vaults(&desk, BOB, 230).await;
    let path = format!("{ACCOUNTS}/{BOB}");
    let begun = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(begun.short(), "503 unavailable");
    assert_eq!(about(&desk, &operator, BOB, "enable").await.status, 200);
    assert_eq!(sign_in(&desk, BOB).await, 303);
    let again = desk.ask_once(&operator, "DELETE", &path, None).await;
    assert_eq!(again.short(), "403 confirmation_needed");
}

/// Also while the memberships are removed: none is removed after it.
#[tokio::test]
async fn a_deletion_stops_when_the_account_is_enabled() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    join_vaults(&desk, BOB, 230).await;
    let path = format!("{ACCOUNTS}/{BOB}");
    let begun = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(begun.short(), "503 unavailable");
    let mut account = common::account(&desk.world.app, BOB).await;
    account.enable();
    let partition = account_partition(&account.id);
    let memberships = async || {
        let records = &desk.world.app.records;
        let listed = records.list_page(&partition, MEMBERSHIPS, None, 1000).await;
        listed.unwrap().len()
    };
    let before = memberships().await;
    assert!(before > 0);
    let document = Document::from_value(&account).unwrap();
    let enabled = Write::put(account_key(&account.id), document, When::Any);
    desk.commits.write_before_next(vec![enabled]);
    let stopped = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(stopped.short(), "503 unavailable");
    assert_eq!(memberships().await, before);
}

/// Nobody but operators: the owner of a namespace gets no link for anybody.
#[tokio::test]
async fn an_owner_manages_no_accounts() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let body = json!({ "email": EVE });
    for (method, path, body) in [
        ("GET", ACCOUNTS.to_owned(), None),
        ("POST", ACCOUNTS.to_owned(), Some(&body)),
        ("POST", format!("{ACCOUNTS}/{EVE}/reset"), None),
        ("DELETE", format!("{ACCOUNTS}/{EVE}"), None),
    ] {
        let refused = desk.ask(&desk.owner, method, &path, body).await;
        assert_eq!(refused.short(), "403 operator_required", "{method} {path}");
    }
    token(&desk.world, EVE, "other", Scopes::ALL).await;
}
