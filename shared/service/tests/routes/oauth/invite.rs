use vault_service::model::account::{self, INVITE_SECONDS};
use vault_service::model::user::{Role, Scopes};

use super::{Place, owned};
use crate::common::{OWNER, PASSWORD, Visitor, member, namespace, sign_in, tokens};

async fn invite(place: &Place, email: &str) -> Option<String> {
    let (app, email) = (&place.app, email.parse().unwrap());
    let invited = account::invite(
        &*app.records,
        &email,
        app.config.public_url.base(),
        app.clock.now(),
        &*app.random,
    )
    .await;
    let invited = invited.unwrap();
    assert!(app.records.commit(invited.writes).await.unwrap().is_done());
    invited.url.map(|url| {
        url.strip_prefix("https://vault.example")
            .unwrap()
            .to_owned()
    })
}

#[tokio::test]
async fn an_invitation_sets_a_password_once() {
    let place = owned().await;
    let path = invite(&place, "ada@example.org").await.unwrap();
    assert!(path.starts_with("/oauth/invite/vin_"), "{path}");
    let mut ada = Visitor::new(&place.app);
    let page = ada.get(&path).await;
    assert_eq!((page.status, page.heading()), (200, "Choose a password"));
    assert!(
        page.body.contains("ada@example.org") && page.header("referrer-policy") == "no-referrer"
    );

    let csrf = page.hidden(&path, "csrf");
    let short = ada
        .post(&path, &[("csrf", &csrf), ("password", "eleven char")])
        .await;
    assert_eq!(short.status, 422);
    assert!(
        short.body.contains("at least 12 characters"),
        "{}",
        short.body
    );

    let done = ada
        .post(&path, &[("csrf", &csrf), ("password", PASSWORD)])
        .await;
    assert_eq!((done.status, done.heading()), (200, "Your password is set"));
    let base = place.app.config.public_url.base();
    for next in [format!("vault cloud connect {base}"), format!("{base}/mcp")] {
        let next = format!("<code>{next}</code>");
        assert!(done.body.contains(&next), "{}", done.body);
    }
    for reply in [
        ada.get(&path).await,
        ada.post(&path, &[("csrf", &csrf), ("password", "another password")])
            .await,
    ] {
        assert_eq!(
            (reply.status, reply.heading()),
            (404, "This invitation is no longer valid")
        );
    }
    assert_eq!(
        invite(&place, "ada@example.org").await,
        None,
        "who can sign in needs none"
    );
}

#[tokio::test]
async fn forms_of_others_and_other_links_are_refused() {
    let place = owned().await;
    let path = invite(&place, "ada@example.org").await.unwrap();
    let mut ada = Visitor::new(&place.app);
    let csrf = ada.get(&path).await.hidden(&path, "csrf");
    let mut other = Visitor::new(&place.app);
    assert_eq!(
        other
            .post(&path, &[("csrf", &csrf), ("password", PASSWORD)])
            .await
            .status,
        403,
        "no cookie"
    );
    other.get(&path).await;
    assert_eq!(
        other
            .post(&path, &[("csrf", &csrf), ("password", PASSWORD)])
            .await
            .status,
        403,
        "another cookie"
    );
    assert_eq!(
        ada.post(&path, &[("password", PASSWORD)]).await.status,
        403,
        "no token"
    );
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
    let old = invite(&place, "ada@example.org").await.unwrap();
    let new = invite(&place, "ada@example.org").await.unwrap();
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
    let acme = namespace(&place.app, "acme").await;
    member(&place.app, OWNER, &acme, Role::Member, Scopes::READ).await;
    member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Owner,
        Scopes::ALL,
    )
    .await;
    let ada = tokens(
        &place.app,
        ("ada@example.org", PASSWORD),
        "acme",
        Scopes::ALL,
    )
    .await;
    assert_eq!(ada.scope, "read write");
    sign_in(
        &place.app,
        OWNER,
        crate::common::OWNER_PASSWORD,
        Scopes::READ,
    )
    .await;
}
