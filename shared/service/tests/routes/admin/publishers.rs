//! The role `role:publisher`: who gives it, what it opens, and what a person reads who consents.

use serde_json::json;
use vault_format::hash::Digest;
use vault_service::model::user::{Role, Scopes};

use super::{BOB, CY, Desk, desk, empty_desk, reference, token};
use crate::common::{self, CALLBACK, PASSWORD, Visitor, authorize, register};
use crate::support::{Answer, vector};

impl Desk {
    /// CY's token with both scopes, as a publisher of `acme`.
    pub(super) async fn publisher(&self) -> String {
        let (app, home) = (&self.world.app, reference(&self.acme));
        common::member(app, CY, &home, Role::Publisher, Scopes::ALL).await;
        token(&self.world, CY, "acme", Scopes::ALL).await
    }

    async fn push_as(&self, token: &str, bytes: Vec<u8>) -> Answer {
        let tag = self.world.etag("acme").await;
        let body = Some(("application/octet-stream", bytes));
        let headers = [("if-match", tag.as_str())];
        self.send(token, "PUT", "/admin/vaults/acme/catalog", body, &headers)
            .await
    }
}

#[tokio::test]
async fn an_owner_makes_a_publisher_and_invites_one() {
    let desk = empty_desk().await;
    let (bob, _) = desk.bob(Role::Member, Scopes::ALL).await;
    let path = format!("/admin/users/{}/role", bob.id);
    let role = json!({ "role": "role:publisher" });
    let changed = desk.replace(&path, &role).await;
    assert_eq!(changed.json()["role"], "role:publisher");
    assert_eq!(desk.last("user.role").await.after, Some(role));
    let body = json!({ "email": CY, "role": "role:publisher", "scopes": ["read", "write"] });
    let invited = desk.post("/admin/users", &body).await;
    assert_eq!(invited.json()["role"], "role:publisher");
}

/// The role is read on every request: a token that was given before opens the rows at once, and no
/// longer when the role is taken.
#[tokio::test]
async fn a_publisher_pushes_releases_until_the_role_is_taken() {
    let desk = desk().await;
    let (bob, bobs) = desk.bob(Role::Member, Scopes::ALL).await;
    let path = format!("/admin/users/{}/role", bob.id);
    desk.world.clock.advance(60);
    let next = || vector("catalog-43-rotated.json");
    assert_eq!(
        desk.push_as(&bobs, next()).await.short(),
        "403 publisher_required"
    );
    desk.replace(&path, &json!({ "role": "role:publisher" }))
        .await;
    desk.world.clock.advance(3600);
    let pushed = desk.push_as(&bobs, next()).await;
    assert_eq!(pushed.short(), "200", "{pushed:?}");
    assert_eq!(pushed.json()["by"], bob.id);
    common::member(
        &desk.world.app,
        CY,
        &reference(&desk.acme),
        Role::Owner,
        Scopes::ALL,
    )
    .await;
    let owner = token(&desk.world, CY, "acme", Scopes::ALL).await;
    let member = json!({ "role": "role:member" });
    let changed = desk.ask(&owner, "PUT", &path, Some(&member)).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let shown = desk.ask(&bobs, "GET", "/admin/vaults/acme", None).await;
    assert_eq!(shown.short(), "403 publisher_required");
}

/// A publisher is no owner: the vault needs one beside it.
#[tokio::test]
async fn a_publisher_stores_nothing_beyond_the_quota() {
    let desk = empty_desk().await;
    desk.limit(10, 0).await;
    let cy = desk.publisher().await;
    let put = async |bytes: &[u8]| {
        let hash = Digest::of(bytes);
        let path = format!("/admin/vaults/acme/objects/bundles/{hash}");
        let body = Some(("application/octet-stream", bytes.to_vec()));
        desk.send(&cy, "PUT", &path, body, &[]).await
    };
    assert_eq!(put(b"12345678").await.status, 201);
    let full = put(b"123").await;
    assert_eq!(full.short(), "413 quota_exceeded");
    let numbers = json!({ "name": "bytes", "used": 8, "asked": 3, "limit": 10 });
    assert_eq!(full.json()["quota"], numbers);
}

#[tokio::test]
async fn a_publisher_does_not_stand_in_for_the_last_owner() {
    let desk = empty_desk().await;
    desk.publisher().await;
    let ada = desk.ada().await;
    let path = format!("/admin/users/{ada}/role");
    let answer = desk
        .replace(&path, &json!({ "role": "role:publisher" }))
        .await;
    assert_eq!(answer.short(), "409 last_owner");
}

const PUBLISHES: &str = "read every skill of the vaults where you are a publisher";

/// An app that reaches `/admin` is told about; one of `/mcp` alone has nothing of it. The box for
/// writing stays open to the person.
#[tokio::test]
async fn a_consent_page_says_what_a_publisher_gives() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    desk.publisher().await;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let mcp = [("resource", "https://vault.example/mcp")];
    for (who, more, publishes, writing) in [
        (CY, &[][..], true, "Propose, edit and publish skills"),
        (CY, &mcp[..], false, "Propose, edit and publish skills"),
        (BOB, &[][..], false, "Propose and edit skills"),
    ] {
        let client = register(app, CALLBACK).await;
        let scope = [("scope", "read write")];
        let address = authorize(&client, CALLBACK, &[&scope[..], more].concat());
        let page = Visitor::new(app).arrive(&address, who, PASSWORD).await;
        assert_eq!(page.body.contains(PUBLISHES), publishes, "{who} {more:?}");
        assert!(page.body.contains(writing), "{who} {more:?}: {}", page.body);
        assert!(!page.body.contains("administers the vaults"), "{who}");
        let box_of = |scope: &str| {
            let at = page.body.split(&format!("value=\"{scope}\"")).nth(1);
            at.unwrap().split('>').next().unwrap().contains("checked")
        };
        assert!(box_of("read") && !box_of("write"), "{}", page.body);
    }
}
