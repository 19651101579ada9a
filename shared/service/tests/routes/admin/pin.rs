//! `POST …/pin/reset`: forgetting the pinned key.

use serde_json::{Value, json};
use vault_service::config::Limits;
use vault_service::model::namespace::{Kind, Pin, Pinned};
use vault_testing::memory::shelf::Owner;

use super::{Desk, desk, desk_of};
use crate::common::PASSWORD;
use crate::support::{Answer, file_of, read_file, vector};

const STALE: &str = "403 fresh_sign_in_required";

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
    let (long, longer) = ("x".repeat(5000), "x".repeat(64 * 1024));
    let mismatch = "422 confirmation_mismatch";
    let with = |password: &str| json!({"slug": "acme", "password": password});
    for (body, wanted) in [
        (json!({"slug": "other"}), mismatch),
        (json!({"slug": "ACME", "password": PASSWORD}), mismatch),
        (with("wrong"), STALE),
        (with(""), STALE),
        (with(&long), STALE),
        (json!({"password": PASSWORD}), "400 json_invalid"),
        (json!({"slug": "acme", "password": 1}), "400 json_invalid"),
        (json!([]), "400 json_invalid"),
        (
            json!({"slug": "acme", "more": longer}),
            "413 body_too_large",
        ),
    ] {
        let answer = desk.reset(&body).await;
        assert_eq!(answer.short(), wanted, "{body:.40}");
        assert_eq!(desk.world.read_namespace("acme").await.pin, pin);
    }
    desk.world.clock.advance(299);
    desk.commits.clear();
    let acme = json!({"slug": "acme"});
    let reset = desk.reset(&acme).await.json();
    assert_eq!(reset, json!({"slug": "acme", "pin": null}));
    let one_commit = vec!["audit".to_owned(), "ns".into()];
    assert!(desk.commits.partitions().contains(&one_commit));
    let after = desk.world.read_namespace("acme").await.pin;
    assert_eq!(after, Pinned::Nothing);
    let pin = pin.vault().unwrap();
    let entries = desk.entries(&desk.acme).await;
    let mut done = entries.iter().filter(|entry| entry.outcome == "done");
    let done = done.find(|entry| entry.action == "pin.reset").unwrap();
    let before = json!({"vault_id": pin.vault_id, "root_version": pin.root_version});
    assert_eq!(done.before, Some(before));
    // An entry names no password.
    assert!(!format!("{entries:?}").contains(PASSWORD));

    desk.world.clock.advance(1);
    assert_eq!(desk.reset(&acme).await.short(), STALE);
    assert_eq!(desk.reset(&with(PASSWORD)).await.short(), "200");
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
        assert_eq!(desk.reset(&wrong).await.short(), STALE);
    }
    let right = json!({"slug": "acme", "password": PASSWORD});
    let refused = desk.reset(&right).await;
    assert_eq!(refused.short(), "429 rate_limited");
    assert_eq!(refused.header("retry-after"), "900");
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
