//! `/admin/operator/accounts`: the ways back for people and operators.

use serde_json::json;
use vault_service::model::user::Scopes;

use super::about;
use crate::admin::{ADA, Desk, EVE, empty_desk, token};
use crate::common::{self, OWNER, PASSWORD, Visitor, set_password};

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

/// Nobody is locked out for good: the person gets a new password, and what the former one signed in is over.
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
    let ada = common::operator_token_of(&desk.world.app, who, "acme", Scopes::ALL).await;
    assert_eq!(about(&desk, &ada, OWNER, "revoke").await.status, 200);
    let former = desk.ask(&operator, "GET", ACCOUNTS, None).await;
    assert_eq!(former.short(), "403 operator_required");
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
        page.body.contains("You have no part in any vault."),
        "{}",
        page.body
    );
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
