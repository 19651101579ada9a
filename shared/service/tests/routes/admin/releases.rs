//! `…/releases`: what was published.

use serde_json::json;
use vault_format::hash::Digest;
use vault_store::objects::Class;

use super::{Desk, desk, empty_desk};
use crate::support::vector;

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
    let token = super::token(
        &desk.world,
        super::ADA,
        "acme",
        vault_service::model::user::Scopes::ALL,
    )
    .await;
    Desk {
        owner: token,
        ..desk
    }
}

#[tokio::test]
async fn releases_are_listed_oldest_first_in_pages() {
    let desk = three().await;
    let all = desk.get("/admin/vaults/acme/releases").await.json();
    let numbers = |list: &serde_json::Value| -> Vec<u64> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["release"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(
        (numbers(&all), &all["next"]),
        (vec![42, 43, 44], &json!(null))
    );
    let page = desk.get("/admin/vaults/acme/releases?limit=2").await.json();
    let next = page["next"].as_str().unwrap();
    assert_eq!(numbers(&page), [42, 43]);
    assert!(next.ends_with(".0000000000000043"), "{next}");
    let page = desk
        .get(&format!("/admin/vaults/acme/releases?limit=2&after={next}"))
        .await
        .json();
    assert_eq!((numbers(&page), &page["next"]), (vec![44], &json!(null)));
    let page = desk
        .get("/admin/vaults/acme/releases?after=1024.9007199254740991")
        .await
        .json();
    assert_eq!(page, json!({"items": [], "next": null}));
    for query in [
        "after=43",
        "after=x",
        "after=-001.0000000000000043",
        "after=0001.43",
        "after=0001.00000000000000043",
        "after=00010000000000000043",
        "limit=0",
    ] {
        let answer = desk
            .get(&format!("/admin/vaults/acme/releases?{query}"))
            .await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{query}");
    }
    let none = empty_desk().await.get("/admin/vaults/acme/releases").await;
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
        let shown = desk
            .get(&format!("/admin/vaults/acme/releases/{number}"))
            .await
            .json();
        assert_eq!(
            (&shown["release"], &shown["sha256"]),
            (&json!(number), &json!(Digest::of(&bytes)))
        );
        let mut members: Vec<_> = shown
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        members.sort_unstable();
        assert_eq!(
            members,
            [
                "added",
                "by",
                "changed",
                "payload_sha256",
                "published_at",
                "release",
                "removed",
                "root_version",
                "sha256"
            ]
        );
        let catalog = desk
            .get(&format!("/admin/vaults/acme/releases/{number}/catalog"))
            .await;
        assert_eq!(
            (&catalog.body[..], catalog.header("content-type")),
            (&bytes[..], "application/json")
        );
        assert_eq!(
            catalog.header("etag"),
            format!("\"{}\"", Digest::of(&bytes))
        );
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
            let answer = desk
                .get(&format!("/admin/vaults/acme/releases/{odd}{tail}"))
                .await;
            assert_eq!(answer.short(), "404 not_found", "{odd}{tail}");
        }
    }
}

/// Once its bytes were collected a release is still known, and its catalog is 404.
#[tokio::test]
async fn a_collected_catalog_is_404() {
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    desk.world
        .publish("acme", vector("catalog-42.json"))
        .await
        .unwrap();
    let sha256 = desk
        .world
        .read_namespace("acme")
        .await
        .current
        .unwrap()
        .sha256;
    desk.world
        .app
        .objects
        .delete(&desk.acme.object(Class::Catalogs, sha256))
        .await
        .unwrap();
    assert_eq!(
        desk.get("/admin/vaults/acme/releases/42").await.short(),
        "200"
    );
    assert_eq!(
        desk.get("/admin/vaults/acme/releases/42/catalog")
            .await
            .short(),
        "404 not_found"
    );
}
