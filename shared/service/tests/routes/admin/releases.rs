//! `…/releases`: what was published.

use serde_json::json;
use vault_format::hash::Digest;
use vault_service::model::user::Scopes;

use super::{ADA, Desk, desk, empty_desk, token};
use crate::support::vector;

const PATH: &str = "/admin/vaults/acme/releases";

/// Releases 42 to 44 of the vectors.
async fn three() -> Desk {
    let desk = desk().await;
    for (seconds, name) in [
        (3600, "catalog-43-rotated.json"),
        (23 * 3600, "catalog-44-withdrawn.json"),
    ] {
        desk.world.clock.advance(seconds);
        desk.world.publish("acme", vector(name)).await.unwrap();
    }
    let owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    Desk { owner, ..desk }
}

#[tokio::test]
async fn releases_are_listed_oldest_first_in_pages() {
    let desk = three().await;
    let page = async |query: &str| {
        let page = desk.get(&format!("{PATH}?{query}")).await.json();
        let items = page["items"].as_array().unwrap().iter();
        let numbers: Vec<_> = items.map(|item| item["release"].clone()).collect();
        (json!(numbers), page["next"].clone())
    };
    assert_eq!(page("").await, (json!([42, 43, 44]), json!(null)));
    let (numbers, next) = page("limit=2").await;
    assert_eq!(numbers, json!([42, 43]));
    let next = next.as_str().unwrap();
    assert!(next.ends_with(".0000000000000043"), "{next}");
    for (query, numbers) in [
        (format!("limit=2&after={next}"), json!([44])),
        ("after=1024.9007199254740991".to_owned(), json!([])),
    ] {
        assert_eq!(page(&query).await, (numbers, json!(null)), "{query}");
    }
    for query in [
        "after=43",
        "after=x",
        "after=-001.0000000000000043",
        "after=0001.43",
        "after=0001.00000000000000043",
        "after=00010000000000000043",
        "limit=0",
    ] {
        let answer = desk.get(&format!("{PATH}?{query}")).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{query}");
    }
    let none = empty_desk().await.get(PATH).await;
    assert_eq!(none.json(), json!({"items": [], "next": null}));
}

#[tokio::test]
async fn a_release_and_its_exact_bytes() {
    let desk = three().await;
    for (number, name) in [
        (42, "catalog-42.json"),
        (43, "catalog-43-rotated.json"),
        (44, "catalog-44-withdrawn.json"),
    ] {
        let bytes = vector(name);
        let path = format!("{PATH}/{number}");
        let shown = desk.get(&path).await.json();
        assert_eq!(shown["release"], number);
        assert_eq!(shown["sha256"], json!(Digest::of(&bytes)));
        let mut members: Vec<_> = shown.as_object().unwrap().keys().cloned().collect();
        members.sort_unstable();
        let wanted = "added by changed payload_sha256 published_at release removed root_version sha256 signers skills";
        assert_eq!(members.join(" "), wanted);
        let catalog = desk.get(&format!("{path}/catalog")).await;
        assert_eq!(catalog.body, bytes);
        assert_eq!(catalog.header("content-type"), "application/json");
        let tag = format!("\"{}\"", Digest::of(&bytes));
        assert_eq!(catalog.header("etag"), tag);
    }
    let of = async |query: &str| {
        let path = format!("/admin/vaults/acme/releases/42{query}");
        desk.get(&path).await.short()
    };
    assert_eq!(of("?root_version=1").await, "200");
    assert_eq!(of("?root_version=9").await, "404 not_found");
    assert_eq!(of("?root_version=01").await, "422 parameter_invalid");
    for odd in [
        "41",
        "45",
        "042",
        "+42",
        "42.0",
        "0",
        "x",
        "%34%32x",
        "18446744073709551616",
        "99999999999999999",
    ] {
        for tail in ["", "/catalog"] {
            let answer = desk.get(&format!("{PATH}/{odd}{tail}")).await;
            assert_eq!(answer.short(), "404 not_found", "{odd}{tail}");
        }
    }
}

/// Once its bytes were collected a release is still known, and its catalog is 404.
#[tokio::test]
async fn a_collected_catalog_is_404() {
    let desk = desk().await;
    desk.lose_catalog().await;
    for (path, wanted) in [("42", "200"), ("42/catalog", "404 not_found")] {
        let answer = desk.get(&format!("{PATH}/{path}")).await;
        assert_eq!(answer.short(), wanted, "{path}");
    }
}
