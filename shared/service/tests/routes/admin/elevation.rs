//! What a token needs to act for an operator: an app of the operator's alone does not.

use serde_json::json;
use vault_service::model::user::Scopes;

use super::{ADA, desk, token};
use crate::common::{
    self, CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize, exchange, register,
};

const LIST: &str = "/admin/operator/namespaces";

/// No token that was not asked for as an operator's opens anything of an operator, whatever else it
/// opens.
#[tokio::test]
async fn an_app_of_an_operator_is_not_the_operator() {
    let desk = desk().await;
    let app = &desk.world.app;
    let mcp = [("resource", "https://vault.example/mcp")];
    let who = (OWNER, OWNER_PASSWORD);
    let for_mcp = common::tokens_for(app, who, "default", Scopes::ALL, &mcp).await;
    let for_all = token(&desk.world, OWNER, "default", Scopes::ALL).await;
    let slug = json!({ "slug": "new", "owner": "new@example.org" });
    for (token, wanted) in [
        (&for_mcp.access, "401 token_invalid"),
        (&for_all, "403 operator_elevation_required"),
        (&desk.owner, "403 operator_required"),
        (&desk.operator().await, "200"),
    ] {
        assert_eq!(desk.ask(token, "GET", LIST, None).await.short(), wanted);
        if wanted != "200" {
            let made = desk.ask(token, "POST", LIST, Some(&slug)).await;
            assert_eq!(made.short(), wanted);
        }
    }
}

/// Credentials of before, in the same browser, are not enough; the tokens last 15 minutes and are
/// not refreshed.
#[tokio::test]
async fn an_operator_enters_credentials_for_fifteen_minutes() {
    let desk = desk().await;
    let app = &desk.world.app;
    let mut visitor = Visitor::new(app);
    let client = register(app, CALLBACK).await;
    let plain = authorize(&client, CALLBACK, &[("scope", "read write")]);
    let page = visitor.arrive(&plain, OWNER, OWNER_PASSWORD).await;
    assert!(!page.body.contains("operator of the whole service"));
    assert!(
        page.body
            .contains("it cannot do what needs your confirmation")
    );
    assert!(page.body.contains("after 30 days without use"));
    let scope = [("scope", "read write operator")];
    let address = authorize(&client, CALLBACK, &scope);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    assert!(
        page.body.contains("operator of the whole service"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("30 days"), "it lasts 15 minutes");
    assert!(!page.body.contains("name=\"namespace\""), "{}", page.body);
    visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    let code = visitor.get(&address).await.returned("code").unwrap();
    let reply = exchange(app, &client, &code).await.json();
    assert_eq!(reply["scope"], "read write operator");
    assert_eq!(reply["expires_in"], 900);
    assert_eq!(reply.get("refresh_token"), None);
    let token = reply["access_token"].as_str().unwrap();
    for (wait, wanted) in [(899, "200"), (1, "401 token_invalid")] {
        desk.world.clock.advance(wait);
        assert_eq!(desk.ask(token, "GET", LIST, None).await.short(), wanted);
    }
}

#[tokio::test]
async fn only_an_operator_s_app_for_the_service_is_offered_it() {
    let desk = desk().await;
    let app = &desk.world.app;
    for (who, more, scope) in [
        ((ADA, PASSWORD), ("x", "y"), "read write"),
        (
            (OWNER, OWNER_PASSWORD),
            ("resource", "https://vault.example/mcp"),
            "read write",
        ),
        ((OWNER, OWNER_PASSWORD), ("x", "y"), "read write operator"),
        ((OWNER, OWNER_PASSWORD), ("x", "operator"), "operator"),
    ] {
        let slug = if who.0 == ADA { "acme" } else { "default" };
        let client = register(app, CALLBACK).await;
        let asked = if more.1 == "operator" {
            "operator"
        } else {
            "read write operator"
        };
        let more = [more, ("scope", asked), ("vault_namespace", slug)];
        let address = authorize(&client, CALLBACK, &more);
        let mut visitor = Visitor::new(app);
        let answer = visitor.approve(&address, who, slug, Scopes::ALL).await;
        let code = answer.returned("code").unwrap();
        assert_eq!(exchange(app, &client, &code).await.text("scope"), scope);
    }
}

/// An account that is no operator any more has nothing left of it.
#[tokio::test]
async fn an_elevated_token_ends_with_the_operator() {
    let desk = desk().await;
    let token = desk.operator().await;
    let app = &desk.world.app;
    let email = OWNER.parse().unwrap();
    let found = vault_service::model::account::find_account(app, &email).await;
    let mut found = found.unwrap().unwrap();
    found.value.operator = false;
    let write = found.value.update_write(found.revision).unwrap();
    common::commit(app, vec![write]).await;
    let refused = desk.ask(&token, "GET", LIST, None).await;
    assert_eq!(refused.short(), "401 token_invalid");
}
