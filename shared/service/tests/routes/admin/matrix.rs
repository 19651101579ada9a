//! Who may call what: every row of the route table under `/admin`, for everybody who can come along.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use vault_service::model::namespace::Status;
use vault_service::model::user::{Role, Scopes};
use vault_service::routes;

use super::{ADA, BOB, desk, reference, token};
use crate::common;
use crate::support::key;

/// Who a route is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum For {
    Anybody,
    Owner,
    OwnerWrite,
    Operator,
    OperatorWrite,
}

struct Row {
    name: &'static str,
    method: &'static str,
    path: String,
    body: Option<(&'static str, Value)>,
    allowed: For,
    /// What an owner (or the operator) gets: the request is good but for an id that nobody has, so that nothing is changed.
    answer: &'static str,
}

fn rows() -> Vec<Row> {
    let none = "0".repeat(64);
    let device = "dev_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    let (user, client) = (
        "usr_00000000000000000000000000",
        "cli_00000000000000000000000000",
    );
    let json = "application/json";
    let of = |path: &str| format!("/admin/vaults/acme{path}");
    let row = |name, method, path: String, body: Option<Value>, allowed, answer| Row {
        name,
        method,
        path,
        body: body.map(|body| (json, body)),
        allowed,
        answer,
    };
    let write = For::OwnerWrite;
    vec![
        row(
            "vault.list",
            "GET",
            "/admin/vaults".into(),
            None,
            For::Anybody,
            "200",
        ),
        row("vault.show", "GET", of(""), None, For::Owner, "200"),
        row(
            "object.missing",
            "POST",
            of("/objects/missing"),
            Some(json!({"class": "bundles", "objects": []})),
            For::Owner,
            "200",
        ),
        row(
            "object.pack",
            "POST",
            of("/objects/bundles"),
            Some(json!({})),
            write,
            "415 media_type",
        ),
        row(
            "object.put",
            "PUT",
            of(&format!("/objects/bundles/{none}")),
            Some(json!({})),
            write,
            "415 media_type",
        ),
        row(
            "object.read",
            "GET",
            of(&format!("/objects/bundles/{none}")),
            None,
            For::Owner,
            "404 not_found",
        ),
        row(
            "catalog.current",
            "GET",
            of("/catalog"),
            None,
            For::Owner,
            "200",
        ),
        row(
            "catalog.publish",
            "PUT",
            of("/catalog"),
            Some(json!({})),
            write,
            "428 precondition_required",
        ),
        row(
            "release.list",
            "GET",
            of("/releases"),
            None,
            For::Owner,
            "200",
        ),
        row(
            "release.show",
            "GET",
            of("/releases/41"),
            None,
            For::Owner,
            "404 not_found",
        ),
        row(
            "release.catalog",
            "GET",
            of("/releases/41/catalog"),
            None,
            For::Owner,
            "404 not_found",
        ),
        row(
            "pin.reset",
            "POST",
            of("/pin/reset"),
            Some(json!({"slug": "x"})),
            write,
            "422 confirmation_mismatch",
        ),
        row(
            "device.list",
            "GET",
            of("/devices"),
            None,
            For::Owner,
            "200",
        ),
        row(
            "device.deny-pending",
            "POST",
            of("/devices/deny-pending"),
            None,
            write,
            "200",
        ),
        row(
            "device.admit",
            "POST",
            of(&format!("/devices/{device}/admit")),
            None,
            write,
            "404 not_found",
        ),
        row(
            "device.deny",
            "POST",
            of(&format!("/devices/{device}/deny")),
            None,
            write,
            "404 not_found",
        ),
        row(
            "device.revoke",
            "POST",
            of(&format!("/devices/{device}/revoke")),
            None,
            write,
            "404 not_found",
        ),
        row(
            "device.forget",
            "POST",
            of(&format!("/devices/{device}/forget")),
            None,
            write,
            "404 not_found",
        ),
        row(
            "user.list",
            "GET",
            "/admin/users".into(),
            None,
            For::Owner,
            "200",
        ),
        row(
            "user.create",
            "POST",
            "/admin/users".into(),
            Some(json!({"email": "nobody"})),
            write,
            "422 email_invalid",
        ),
        row(
            "user.profile",
            "PUT",
            format!("/admin/users/{user}/profile"),
            Some(json!({"profile": null})),
            write,
            "404 user_not_found",
        ),
        row(
            "user.role",
            "PUT",
            format!("/admin/users/{user}/role"),
            Some(json!({"role": "role:member"})),
            write,
            "404 user_not_found",
        ),
        row(
            "user.scopes",
            "POST",
            format!("/admin/users/{user}/scopes"),
            Some(json!({"grant": ["read"]})),
            write,
            "404 user_not_found",
        ),
        row(
            "user.remove",
            "DELETE",
            format!("/admin/users/{user}"),
            None,
            write,
            "404 user_not_found",
        ),
        row(
            "client.list",
            "GET",
            "/admin/clients".into(),
            None,
            For::Owner,
            "200",
        ),
        row(
            "client.revoke",
            "DELETE",
            format!("/admin/clients/{client}"),
            None,
            write,
            "404 client_not_found",
        ),
        row(
            "audit.list",
            "GET",
            "/admin/audit".into(),
            None,
            For::Owner,
            "200",
        ),
        row(
            "namespace.list",
            "GET",
            "/admin/operator/namespaces".into(),
            None,
            For::Operator,
            "200",
        ),
        row(
            "namespace.create",
            "POST",
            "/admin/operator/namespaces".into(),
            Some(json!({"slug": "-", "owner": ADA})),
            For::OperatorWrite,
            "422 slug_invalid",
        ),
        row(
            "namespace.show",
            "GET",
            "/admin/operator/namespaces/nobody".into(),
            None,
            For::Operator,
            "404 not_found",
        ),
        row(
            "namespace.suspend",
            "POST",
            "/admin/operator/namespaces/nobody/suspend".into(),
            None,
            For::OperatorWrite,
            "404 not_found",
        ),
        row(
            "namespace.resume",
            "POST",
            "/admin/operator/namespaces/nobody/resume".into(),
            None,
            For::OperatorWrite,
            "404 not_found",
        ),
    ]
}

#[test]
fn every_admin_route_stands_in_the_matrix() {
    let table: BTreeSet<_> = routes::all()
        .filter(|route| route.path.starts_with("/admin"))
        .map(|route| (route.name, route.method))
        .collect();
    let here: BTreeSet<_> = rows().iter().map(|row| (row.name, row.method)).collect();
    assert_eq!(here, table);
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Nobody,
    BadToken,
    Member,
    ReadingOwner,
    Owner,
    OwnerOfAnother,
    Operator,
    ReadingOperator,
}

fn wanted(who: Who, row: &Row) -> &'static str {
    match (who, row.allowed) {
        (Who::Nobody, _) => "401 token_required",
        (Who::BadToken, _) => "401 token_invalid",
        (_, For::Anybody)
        | (Who::Operator, For::Operator | For::OperatorWrite)
        | (Who::ReadingOperator, For::Operator)
        | (Who::Owner, For::Owner | For::OwnerWrite)
        | (Who::ReadingOwner, For::Owner) => row.answer,
        (Who::ReadingOperator, For::OperatorWrite | For::OwnerWrite)
        | (Who::ReadingOwner, For::OwnerWrite) => "403 insufficient_scope",
        (_, For::Operator | For::OperatorWrite) => "403 operator_required",
        (Who::Member, _) => "403 owner_required",
        // The path names no vault: an owner acts on the token's own.
        (Who::OwnerOfAnother | Who::Operator, _) if !row.path.starts_with("/admin/vaults/") => {
            row.answer
        }
        (Who::ReadingOperator, For::Owner) if !row.path.starts_with("/admin/vaults/") => row.answer,
        // A good token of an owner, but not of this vault: another slug is not there.
        (Who::OwnerOfAnother | Who::Operator | Who::ReadingOperator, _) => "404 not_found",
    }
}

#[tokio::test]
async fn everybody_may_what_the_table_says_and_no_more() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let before = world.read_namespace("acme").await;
    let people = [
        (Who::Nobody, String::new()),
        (Who::BadToken, format!("vat_{}", "A".repeat(43))),
        (Who::Member, token(world, BOB, "acme", Scopes::ALL).await),
        (
            Who::ReadingOwner,
            token(world, ADA, "acme", Scopes::READ).await,
        ),
        (Who::Owner, desk.owner.clone()),
        (Who::OwnerOfAnother, desk.stranger().await),
        (Who::Operator, desk.operator().await),
        (
            Who::ReadingOperator,
            token(world, common::OWNER, "default", Scopes::READ).await,
        ),
    ];
    for row in rows() {
        for (who, token) in &people {
            let body = row
                .body
                .as_ref()
                .map(|(media, body)| (*media, body.to_string().into_bytes()));
            let answer = desk.send(token, row.method, &row.path, body, &[]).await;
            assert_eq!(
                answer.short(),
                wanted(*who, &row),
                "{who:?}: {} {}",
                row.method,
                row.path
            );
            assert_eq!(answer.header("cache-control"), "private, no-store");
            let challenge = answer.header("www-authenticate");
            match answer.short().as_str() {
                "401 token_required" => {
                    assert!(
                        challenge.starts_with("Bearer resource_metadata=\"https://vault.example/"),
                        "{challenge}"
                    );
                }
                "401 token_invalid" => {
                    assert!(
                        challenge.starts_with("Bearer error=\"invalid_token\", "),
                        "{challenge}"
                    );
                }
                "403 insufficient_scope" => {
                    assert!(
                        challenge.starts_with("Bearer error=\"insufficient_scope\", "),
                        "{challenge}"
                    );
                    assert!(challenge.ends_with("scope=\"read write\""), "{challenge}");
                }
                _ => assert_eq!(challenge, "", "{who:?}: {}", row.path),
            }
        }
    }
    assert_eq!(world.read_namespace("acme").await, before);
}

/// A challenge would send clients to the consent page in vain.
#[tokio::test]
async fn who_can_never_have_a_scope_is_not_challenged() {
    let desk = desk().await;
    let app = &desk.world.app;
    common::member(app, BOB, &reference(&desk.acme), Role::Owner, Scopes::READ).await;
    let reading = token(&desk.world, BOB, "acme", Scopes::READ).await;
    let answer = desk
        .ask(
            &reading,
            "POST",
            "/admin/vaults/acme/devices/deny-pending",
            None,
        )
        .await;
    assert_eq!(answer.short(), "403 insufficient_scope");
    assert_eq!(answer.header("www-authenticate"), "");
}

/// Members and strangers get the same answer whether an id exists or not.
#[tokio::test]
async fn who_may_not_call_learns_nothing_about_ids() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    world.enrol(&key(1), "acme", "laptop").await;
    let device = vault_format::request::device_id(&"acme".parse().unwrap(), &key(1).public());
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let member = token(world, BOB, "acme", Scopes::ALL).await;
    let stranger = desk.stranger().await;
    let unknown = "dev_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    for token in [&member, &stranger] {
        for (method, there, not_there) in [
            (
                "POST",
                format!("/admin/vaults/acme/devices/{device}/admit"),
                format!("/admin/vaults/acme/devices/{unknown}/admit"),
            ),
            (
                "GET",
                "/admin/vaults/acme/releases/42".into(),
                "/admin/vaults/acme/releases/41".into(),
            ),
            (
                "GET",
                "/admin/vaults/acme".into(),
                "/admin/vaults/nobody".into(),
            ),
            (
                "GET",
                "/admin/vaults/default/catalog".into(),
                "/admin/vaults/nobody/catalog".into(),
            ),
            (
                "GET",
                "/admin/operator/namespaces/acme".into(),
                "/admin/operator/namespaces/nobody".into(),
            ),
        ] {
            let one = desk.ask(token, method, &there, None).await;
            let other = desk.ask(token, method, &not_there, None).await;
            assert!(one.status.is_client_error());
            assert_eq!(one.blotted(), other.blotted(), "{there}");
        }
    }
}

/// Refusals of somebody who is signed in are kept, those of strangers are not.
#[tokio::test]
async fn refusals_of_the_signed_in_are_audited() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let bob = common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let member = token(world, BOB, "acme", Scopes::ALL).await;
    let before = desk.entries(&desk.acme).await.len();
    desk.ask("", "GET", "/admin/vaults/acme", None).await;
    desk.ask(
        "vat_x",
        "POST",
        "/admin/vaults/acme/devices/deny-pending",
        None,
    )
    .await;
    assert_eq!(
        desk.entries(&desk.acme).await.len(),
        before,
        "strangers are only logged"
    );

    world.clock.advance(1);
    desk.ask(&member, "GET", "/admin/vaults/acme", None).await;
    let entries = desk.entries(&desk.acme).await;
    let last = entries.last().unwrap();
    assert_eq!(entries.len(), before + 1);
    assert_eq!(
        (last.action.as_str(), last.outcome.as_str()),
        ("vault.show", "owner_required")
    );
    assert_eq!(last.actor, bob.id);
    assert_eq!(last.source.unwrap().to_string(), super::SOURCE);
    assert!(
        last.client.as_ref().unwrap().starts_with("cli_"),
        "{last:?}"
    );

    desk.post("/admin/vaults/acme/devices/dev_x/admit", &json!({}))
        .await;
    assert_eq!(desk.count("device.admit not_found").await, 1);
    desk.get("/admin/vaults/acme/releases/7").await;
    assert_eq!(
        desk.count("release.show not_found").await,
        0,
        "looking is not trying"
    );
}

/// A suspended namespace refuses its people on every route, operators excepted, and that is audited too; a deleted one is gone.
#[tokio::test]
async fn a_suspended_vault_is_403_and_a_deleted_one_401() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.world
        .change("acme", |namespace| namespace.status = Status::Suspended)
        .await;
    for row in rows() {
        let body = row
            .body
            .as_ref()
            .map(|(media, body)| (*media, body.to_string().into_bytes()));
        let answer = desk
            .send(&desk.owner, row.method, &row.path, body, &[])
            .await;
        assert_eq!(answer.short(), "403 vault_suspended", "{}", row.path);
    }
    assert_eq!(desk.count("vault.show vault_suspended").await, 1);
    let shown = desk
        .ask(&operator, "GET", "/admin/operator/namespaces/acme", None)
        .await;
    assert_eq!(shown.json()["status"], "suspended");
    desk.world
        .change("default", |namespace| namespace.status = Status::Suspended)
        .await;
    let own = desk
        .ask(&operator, "GET", "/admin/vaults/default", None)
        .await;
    assert_eq!(own.short(), "200", "operators are excepted");
    desk.world
        .change("acme", |namespace| namespace.status = Status::Active)
        .await;
    assert_eq!(
        desk.get("/admin/vaults/acme").await.short(),
        "200",
        "it acts at once"
    );
    desk.world
        .change("acme", |namespace| namespace.status = Status::Deleted)
        .await;
    assert_eq!(
        desk.get("/admin/vaults/acme").await.short(),
        "401 token_invalid"
    );
    let gone = desk
        .ask(&operator, "GET", "/admin/operator/namespaces/acme", None)
        .await;
    assert_eq!(gone.short(), "404 not_found");
}

#[tokio::test]
async fn other_methods_and_paths_below_admin() {
    let desk = desk().await;
    for (method, path, wanted, allow) in [
        (
            "DELETE",
            "/admin/vaults",
            "405 method_not_allowed",
            "GET,HEAD",
        ),
        (
            "POST",
            "/admin/vaults/acme/catalog",
            "405 method_not_allowed",
            "GET,HEAD,PUT",
        ),
        (
            "PUT",
            "/admin/vaults/acme/objects/missing",
            "405 method_not_allowed",
            "POST",
        ),
        (
            "PATCH",
            "/admin/operator/namespaces",
            "405 method_not_allowed",
            "GET,HEAD,POST",
        ),
        (
            "OPTIONS",
            "/admin/vaults/acme/devices",
            "405 method_not_allowed",
            "GET,HEAD",
        ),
        ("GET", "/admin", "404 not_found", ""),
        ("GET", "/admin/", "404 not_found", ""),
        ("GET", "/admin/vaults/", "404 not_found", ""),
        ("GET", "/admin/vaults/acme/", "404 not_found", ""),
        ("GET", "/admin/vaults/acme/nothing", "404 not_found", ""),
        ("GET", "/admin//vaults", "404 not_found", ""),
        ("GET", "/admin/vaults/%FF", "404 not_found", ""),
        ("GET", "/admin/vaults/acme%2Fcatalog", "404 not_found", ""),
        ("GET", "/admin/vaults/ACME", "404 not_found", ""),
        ("GET", "/admin/vaults/../vaults/acme", "404 not_found", ""),
    ] {
        let answer = desk.ask(&desk.owner, method, path, None).await;
        let mut allowed: Vec<_> = answer.header("allow").split(',').collect();
        allowed.sort_unstable();
        assert_eq!(
            (answer.short().as_str(), allowed.join(",").as_str()),
            (wanted, allow),
            "{method} {path}"
        );
    }
    let head = desk
        .ask(&desk.owner, "HEAD", "/admin/vaults/acme/catalog", None)
        .await;
    let got = desk.get("/admin/vaults/acme/catalog").await;
    assert_eq!((head.status.as_u16(), &head.headers), (200, &got.headers));
    assert!(head.body.is_empty());
}

/// A fault of ours never reads as a refusal.
#[tokio::test]
async fn a_store_that_is_down_is_503_and_no_refusal() {
    let world = crate::support::world_without_store();
    for row in rows() {
        let request = axum::http::Request::builder()
            .method(row.method)
            .uri(&row.path)
            .header("authorization", format!("Bearer vat_{}", "A".repeat(43)))
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = world.send(request).await;
        assert_eq!(
            (answer.short().as_str(), answer.header("retry-after")),
            ("503 unavailable", "1"),
            "{}",
            row.path
        );
    }
}
