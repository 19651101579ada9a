//! `POST …/pin/reset`: forgetting the pinned key.

use serde_json::{Value, json};
use vault_service::model::namespace::{Pin, Pinned};
use vault_testing::memory::shelf::Owner;

use super::{Desk, desk};
use crate::support::{Answer, file_of, read_file, vector};

impl Desk {
    async fn reset(&self, body: &Value) -> Answer {
        self.post("/admin/vaults/acme/pin/reset", body).await
    }
}

#[tokio::test]
async fn a_reset_repeats_the_name_and_is_one_commit() {
    let desk = desk().await;
    let pin = desk.world.read_namespace("acme").await.pin;
    assert!(pin.vault_pin().is_some());
    for (body, wanted) in [
        (json!({"slug": "other"}), "422 confirmation_mismatch"),
        (json!({"slug": "ACME"}), "422 confirmation_mismatch"),
        (json!({}), "400 json_invalid"),
        (json!([]), "400 json_invalid"),
        (
            json!({"slug": "acme", "more": "x".repeat(64 * 1024)}),
            "413 body_too_large",
        ),
    ] {
        assert_eq!(desk.reset(&body).await.short(), wanted);
        assert_eq!(desk.world.read_namespace("acme").await.pin, pin);
    }
    desk.commits.clear();
    let confirm = json!({"slug": "acme"});
    let done = desk.reset(&confirm).await.json();
    assert_eq!(done, json!({"slug": "acme", "pin": null}));
    let together = vec!["audit".to_owned(), "ns".into(), "permit".into()];
    assert!(
        desk.commits.partitions().contains(&together),
        "in one commit"
    );
    let after = desk.world.read_namespace("acme").await.pin;
    assert_eq!(after, Pinned::Nothing);
    let pin = pin.vault_pin().unwrap();
    let entries = desk.entries(&desk.acme).await;
    let done = entries
        .iter()
        .find(|entry| entry.action == "pin.reset" && entry.outcome == "done")
        .unwrap();
    assert_eq!(
        done.before,
        Some(json!({"vault_id": pin.vault_id, "root_version": pin.root_version}))
    );
}

/// The next catalog counts as the first, of any vault, under any key, with any number; `If-Match`
/// still names the current file.
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
        let path = "/admin/vaults/acme/catalog";
        let headers = [("if-match", tag)];
        desk.send(&desk.owner, "PUT", path, body, &headers).await
    };
    let tag = desk.world.etag("acme").await;
    assert_eq!(push(&tag).await.short(), "422 vault_changed");
    assert_eq!(desk.reset(&json!({"slug": "acme"})).await.short(), "200");
    let served = desk.get("/admin/vaults/acme/catalog").await;
    assert_eq!(served.body, vector("catalog-42.json"));
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
    let pin = namespace.pin.vault_pin().unwrap();
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
