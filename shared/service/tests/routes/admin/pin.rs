//! `POST …/pin/reset`: forgetting the pinned key.

use serde_json::{Value, json};
use vault_service::config::Limits;
use vault_service::model::namespace::{Kind, Pin, Pinned};
use vault_testing::memory::shelf::Owner;

use super::{Desk, desk, desk_of};
use crate::common::PASSWORD;
use crate::support::{Answer, file_of, read_file, vector};

impl Desk {
    async fn reset(&self, body: &Value) -> Answer {
        self.post("/admin/vaults/acme/pin/reset", body).await
    }
}

#[tokio::test]
async fn a_fresh_sign_in_or_the_password_is_asked_for() {
    let desk = desk().await;
    let pin = desk.world.read_namespace("acme").await.pin;
    assert!(pin.vault().is_some());
    for (body, wanted) in [
        (json!({"slug": "other"}), "422 confirmation_mismatch"),
        (
            json!({"slug": "ACME", "password": PASSWORD}),
            "422 confirmation_mismatch",
        ),
        (
            json!({"slug": "acme", "password": "wrong"}),
            "403 fresh_sign_in_required",
        ),
        (
            json!({"slug": "acme", "password": ""}),
            "403 fresh_sign_in_required",
        ),
        (
            json!({"slug": "acme", "password": "x".repeat(5000)}),
            "403 fresh_sign_in_required",
        ),
        (json!({"password": PASSWORD}), "400 json_invalid"),
        (json!({"slug": "acme", "password": 1}), "400 json_invalid"),
        (json!([]), "400 json_invalid"),
        (
            json!({"slug": "acme", "more": "x".repeat(64 * 1024)}),
            "413 body_too_large",
        ),
    ] {
        assert_eq!(
            desk.reset(&body).await.short(),
            wanted,
            "{}",
            &body.to_string()[..20]
        );
        assert_eq!(desk.world.read_namespace("acme").await.pin, pin);
    }
    desk.world.clock.advance(299);
    desk.commits.clear();
    assert_eq!(
        desk.reset(&json!({"slug": "acme"})).await.json(),
        json!({"slug": "acme", "pin": null})
    );
    assert!(
        desk.commits
            .partitions()
            .contains(&vec!["audit".to_owned(), "ns".into()]),
        "in one commit"
    );
    let after = desk.world.read_namespace("acme").await.pin;
    assert_eq!(after, Pinned::Nothing);
    let pin = pin.vault().unwrap();
    let entries = desk.entries(&desk.acme).await;
    let done = entries
        .iter()
        .find(|entry| entry.action == "pin.reset" && entry.outcome == "done")
        .unwrap();
    assert_eq!(
        done.before,
        Some(json!({"vault_id": pin.vault_id, "root_version": pin.root_version}))
    );
    assert!(
        !format!("{entries:?}").contains(PASSWORD),
        "an entry names no password"
    );

    desk.world.clock.advance(1);
    assert_eq!(
        desk.reset(&json!({"slug": "acme"})).await.short(),
        "403 fresh_sign_in_required"
    );
    assert_eq!(
        desk.reset(&json!({"slug": "acme", "password": PASSWORD}))
            .await
            .short(),
        "200"
    );
}

#[tokio::test]
async fn guesses_are_counted_like_those_of_the_sign_in_page() {
    let limits = Limits {
        sign_in_failures: 5,
        ..Limits::off()
    };
    let desk = desk_of(Kind::Hosted, |config| config.limits = limits).await;
    let wrong = json!({"slug": "acme", "password": "wrong"});
    for _ in 0..5 {
        assert_eq!(
            desk.reset(&wrong).await.short(),
            "403 fresh_sign_in_required"
        );
    }
    let refused = desk
        .reset(&json!({"slug": "acme", "password": PASSWORD}))
        .await;
    assert_eq!(
        (refused.short().as_str(), refused.header("retry-after")),
        ("429 rate_limited", "900")
    );
}

/// The next catalog counts as the first, of any vault, under any key, with any number; `If-Match` still names the current file.
#[tokio::test]
async fn after_a_reset_any_catalog_is_the_first() {
    let desk = desk().await;
    let stranger = Owner::new(9);
    let (mut catalog, _) = read_file(&vector("catalog-1-first.json"));
    catalog.vault_id = stranger.vault_id();
    catalog.public_key = stranger.key().public();
    catalog.root_version = 1;
    catalog.root_sha256 = *stranger.chain().newest().payload_sha256();
    catalog.release = 7;
    catalog.previous = None;
    catalog.skills.clear();
    catalog.index.clear();
    let bytes = file_of(&catalog, stranger.chain(), stranger.key());
    let push = async |tag: &str| {
        let body = Some(("application/octet-stream", bytes.clone()));
        desk.send(
            &desk.owner,
            "PUT",
            "/admin/vaults/acme/catalog",
            body,
            &[("if-match", tag)],
        )
        .await
    };
    let tag = format!(
        "\"{}\"",
        desk.world
            .read_namespace("acme")
            .await
            .current
            .unwrap()
            .sha256
    );
    assert_eq!(push(&tag).await.short(), "422 vault_changed");
    assert_eq!(desk.reset(&json!({"slug": "acme"})).await.short(), "200");
    assert_eq!(
        desk.get("/admin/vaults/acme/catalog").await.body,
        vector("catalog-42.json"),
        "still served"
    );
    let stale = format!("\"{}\"", vault_format::hash::Digest::of(b"stale"));
    assert_eq!(push(&stale).await.short(), "412 release_conflict");
    assert_eq!(push(&tag).await.short(), "200");
    let pin = Pin::new(&stranger.state(), vec![stranger.key().public()]);
    let pinned = desk.world.read_namespace("acme").await.pin;
    assert_eq!(pinned, Pinned::Vault(pin));
}

#[tokio::test]
async fn a_reset_is_shown_to_every_owner_for_thirty_days() {
    let desk = desk().await;
    let shown = async || desk.get("/admin/vaults/acme").await.json()["pin_reset"].clone();
    assert_eq!(shown().await, Value::Null);
    let namespace = desk.world.read_namespace("acme").await;
    let pin = namespace.pin.vault().unwrap();
    assert_eq!(desk.reset(&json!({"slug": "acme"})).await.short(), "200");
    let reset = shown().await;
    assert_eq!(reset["vault_id"], json!(pin.vault_id));
    assert_eq!(reset["at"], json!(desk.world.now()));
    assert!(reset["by"].as_str().unwrap().starts_with("usr_"), "{reset}");
    let namespace = desk.world.read_namespace("acme").await;
    let at = |days| desk.world.now().plus_days(days);
    assert!(namespace.shown_reset(at(30).plus_seconds(-1)).is_some());
    assert_eq!(namespace.shown_reset(at(30)), None);
}
