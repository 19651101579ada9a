//! `/account` and the ways back: what a person decides about the own account, and what operators
//! can do about it.

mod apps;
mod conflicts;
mod earlier;
mod epochs;
mod memberships;
mod notices;
mod operators;
pub mod passkeys;
mod passkeys_refused;
pub mod second_factor;

use serde_json::{Value, json};

use crate::admin::Desk;
use crate::common::{Reply, Visitor};
use crate::support::Answer;

/// The answer to an operator's request about an account.
pub async fn about(desk: &Desk, operator: &str, email: &str, what: &str) -> Answer {
    let path = format!("/admin/operator/accounts/{email}/{what}");
    desk.ask(operator, "POST", &path, None).await
}

/// The answer to an owner who invites an address.
async fn invited(desk: &Desk, owner: &str, email: &str, role: &str) -> Answer {
    let body = json!({ "email": email, "role": role, "scopes": ["read", "write"] });
    desk.ask(owner, "POST", "/admin/users", Some(&body)).await
}

/// A browser on the account page.
pub async fn account_page<'a>(desk: &'a Desk, email: &str, password: &str) -> (Visitor<'a>, Reply) {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/account").await;
    let signed_in = visitor.log_in(&page, email, password).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
    let page = visitor.get("/account").await;
    assert_eq!(page.heading(), "Your account", "{}", page.body);
    (visitor, page)
}

/// The vaults that a token's account has, with its role there.
async fn vaults(desk: &Desk, token: &str) -> Vec<(String, String)> {
    let listed = desk.ask(token, "GET", "/admin/vaults", None).await.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = listed["items"].as_array().unwrap().iter();
    items
        .map(|item| (text(&item["slug"]), text(&item["role"])))
        .collect()
}
