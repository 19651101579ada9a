use vault_service::model::account::INVITE_SECONDS;
use vault_service::model::user::{Role, Scopes};

use super::{ADA, owned};
use crate::common::{OWNER, OWNER_PASSWORD, PASSWORD, Visitor, invite, member, sign_in, tokens};

const GONE: &str = "404 This link is no longer valid";

#[tokio::test]
async fn an_invitation_sets_a_password_once() {
    let place = owned().await;
    let path = invite(&place.app, ADA.0).await.unwrap();
    assert!(path.starts_with("/oauth/invite/vin_"), "{path}");
    let mut ada = Visitor::new(&place.app);
    let page = ada.get(&path).await;
    assert_eq!(page.page(), "200 Choose a password");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert!(page.body.contains(ADA.0), "{}", page.body);

    let short = ada.accept(&path, "eleven char").await;
    assert_eq!(short.status, 422);
    let body = short.body;
    assert!(body.contains("at least 12 characters"), "{body}");

    let done = ada.accept(&path, PASSWORD).await;
    assert_eq!(done.page(), "200 Your password is set");
    let base = place.app.config.public_url.base();
    for next in [format!("vault cloud connect {base}"), format!("{base}/mcp")] {
        let next = format!("<code>{next}</code>");
        assert!(done.body.contains(&next), "{}", done.body);
    }
    assert_eq!(ada.get(&path).await.page(), GONE);
    let csrf = page.hidden(&path, "csrf");
    let fields = [("csrf", csrf.as_str()), ("password", "another password")];
    assert_eq!(ada.post(&path, &fields).await.page(), GONE);
    // Who can sign in needs none.
    assert_eq!(invite(&place.app, ADA.0).await, None);
}

#[tokio::test]
async fn forms_of_others_and_other_links_are_refused() {
    let place = owned().await;
    let path = invite(&place.app, ADA.0).await.unwrap();
    let mut ada = Visitor::new(&place.app);
    let csrf = ada.get(&path).await.hidden(&path, "csrf");
    let fields = [("password", PASSWORD), ("csrf", csrf.as_str())];
    let mut other = Visitor::new(&place.app);
    for cookie in ["none", "another"] {
        assert_eq!(other.post(&path, &fields).await.status, 403, "{cookie}");
        other.get(&path).await;
    }
    let tokenless = ada.post(&path, &fields[..1]).await;
    assert_eq!(tokenless.status, 403);
    for bad in [
        "/oauth/invite/x",
        "/oauth/invite/vin_",
        &path.replace("vin_", "vat_"),
        &path.to_lowercase(),
    ] {
        assert_eq!(ada.get(bad).await.status, 404, "{bad}");
    }
}

#[tokio::test]
async fn a_newer_invitation_replaces_an_older_and_72_hours_end_it() {
    let place = owned().await;
    let old = invite(&place.app, ADA.0).await.unwrap();
    let new = invite(&place.app, ADA.0).await.unwrap();
    let mut ada = Visitor::new(&place.app);
    assert_eq!(ada.get(&old).await.status, 404);
    place.clock.advance(INVITE_SECONDS - 1);
    assert_eq!(ada.get(&new).await.status, 200);
    place.clock.advance(1);
    assert_eq!(ada.get(&new).await.status, 404);
}

#[tokio::test]
async fn an_account_can_have_parts_in_several_namespaces() {
    let place = owned().await;
    let (acme, _) = place.ada(Role::Owner, Scopes::ALL).await;
    member(&place.app, OWNER, &acme, Role::Member, Scopes::READ).await;
    let ada = tokens(&place.app, ADA, "acme", Scopes::ALL).await;
    assert_eq!(ada.scope, "read write");
    sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::READ).await;
}
