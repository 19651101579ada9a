//! Who gets notices: the webhooks and owners that the settings of the vault and of the service
//! allow.

use std::collections::BTreeSet;

use serde_json::json;
use vault_service::model::namespace::Status;
use vault_service::model::user::{Role, Scopes, User};

use super::payment;
use crate::admin::{ADA, BOB, EVE, empty_desk, reference};
use crate::common;

/// The operator may allow fewer ports than at the time when an owner added the webhook.
#[tokio::test]
async fn a_webhook_whose_port_is_no_longer_allowed_gets_nothing() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("hooks.example", &[]).await;
    desk.allow_ports(&[8443]);
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (0, 1));
    let path = format!("/admin/vaults/acme/notices/{id}/test");
    let tested = desk.post(&path, &json!({})).await.json();
    assert_eq!(tested["arrived"], false);
    assert!(endpoints.got().is_empty());
    let shown = &desk.destinations().await["webhooks"][0];
    assert_eq!(shown["state"], "failing");
    let failure = shown["last_failure"].as_str().unwrap();
    assert!(failure.contains("the port 8443, have"), "{failure}");
    assert_eq!(failure, tested["failure"]);
    desk.allow_ports(&[443]);
    desk.world.clock.advance(60);
    assert_eq!(desk.send_due().await, (1, 0));
}

#[tokio::test]
async fn a_removed_webhook_and_a_deleted_vault_get_nothing_more() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let path = format!("/admin/vaults/acme/notices/{id}");
    assert_eq!(
        desk.ask(&desk.owner, "DELETE", &path, None).await.status,
        200
    );
    assert_eq!(desk.send_due().await, (0, 0));
    desk.webhook("b.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let status = async |status| {
        desk.world
            .change("acme", |vault| vault.status = status)
            .await;
    };
    status(Status::Suspended).await;
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(
        desk.unsent(&desk.acme).await.len(),
        1,
        "a suspended vault waits"
    );
    status(Status::Deleted).await;
    desk.world.clock.advance(3600);
    assert_eq!(desk.send_due().await, (0, 0));
    assert!(endpoints.got().is_empty());
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn owners_get_mail_and_nobody_else() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(true);
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    common::member(app, BOB, &home, Role::Member, Scopes::ALL).await;
    let eve = common::member(app, EVE, &home, Role::Owner, Scopes::ALL).await;
    let on = json!({ "mail": true });
    let path = "/admin/vaults/acme/notices/mail";
    assert_eq!(
        desk.ask(&desk.owner, "PUT", path, Some(&on)).await.json(),
        on
    );
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (2, 0));
    let mails = endpoints.mails();
    let to: BTreeSet<_> = mails.iter().map(|mail| mail.to.as_str()).collect();
    assert_eq!(to, BTreeSet::from([ADA, EVE]));
    let ids: BTreeSet<_> = mails.iter().map(|mail| mail.id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    let text = &mails[0].text;
    assert!(
        text.contains("https://vault.example") && !text.contains('@'),
        "{text}"
    );
    // Who is no owner any more when the mail leaves gets none.
    desk.queue_notice(&desk.acme, payment()).await;
    let demoted = User {
        role: Role::Member,
        ..eve.clone()
    };
    common::put(app, eve.key(), &demoted).await;
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.mails()[0].to.as_str(), ADA);
    // A service whose mail server was taken away drops what waits for it.
    desk.queue_notice(&desk.acme, payment()).await;
    desk.sending(false);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}
