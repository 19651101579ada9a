//! The vault as a whole in a browser: what it shows, and the two changes that cannot be undone.

use vault_service::model::namespace::Subscription;

use super::{open, send, signed_in};
use crate::admin::{ADA, desk};
use crate::common::PASSWORD;

const VAULT: &str = "/console/acme/namespace";

#[tokio::test]
async fn it_says_what_is_paid_stored_and_pinned() {
    let desk = desk().await;
    desk.world
        .change("acme", |namespace| {
            namespace.quota_bytes = Some(1 << 30);
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    let acme = desk.world.read_namespace("acme").await;
    let fingerprint = acme.current.unwrap().fingerprint.unwrap().to_string();
    for text in [
        "lapsed: machines and people get no skills",
        "of the 1.0 GiB that one release may have",
        &acme.pin.vault().unwrap().vault_id.to_string(),
        &fingerprint,
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}

#[tokio::test]
async fn deletion_needs_the_name_and_a_fresh_sign_in_and_then_ends_everything() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    for typed in ["", "acm", "ACME", "other"] {
        let fields = [("change", "delete"), ("slug", typed)];
        let back = send(&mut owner, &page, VAULT, &fields).await;
        assert_eq!(
            back.header("location"),
            format!("{VAULT}?refused=confirmation_mismatch")
        );
    }
    let delete = [("change", "delete"), ("slug", "acme")];
    desk.world.clock.advance(301);
    let page = open(&mut owner, VAULT).await;
    let asked = send(&mut owner, &page, VAULT, &delete).await;
    assert_eq!(asked.page(), "200 Sign in");
    assert_eq!(desk.count("vault.delete done").await, 0);
    let back = owner.log_in(&asked, ADA, PASSWORD).await;
    assert_eq!(back.header("location"), VAULT);
    let page = open(&mut owner, VAULT).await;
    let back = send(&mut owner, &page, VAULT, &delete).await;
    assert_eq!((back.status, back.header("location")), (303, "/console"));
    assert_eq!(owner.get(VAULT).await.status, 404);
    let own = owner.get("/console").await;
    assert!(!own.body.contains("/console/acme"), "{}", own.body);
    let answer = desk.get("/admin/vaults/acme").await;
    assert_eq!(answer.short(), "401 token_invalid");
}

#[tokio::test]
async fn a_reset_of_the_pin_is_asked_for_as_a_deletion_is() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    let fields = [("change", "reset-pin"), ("slug", "acme")];
    let back = send(&mut owner, &page, VAULT, &fields).await;
    assert_eq!(back.header("location"), format!("{VAULT}?done=pin-reset"));
    assert!(
        desk.world
            .read_namespace("acme")
            .await
            .pin
            .vault()
            .is_none()
    );
    assert_eq!(desk.count("pin.reset done").await, 1);
}
