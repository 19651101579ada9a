//! Who may call what: every row of the route table, for everybody who can come along.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::Status;
use vault_service::model::user::{Role, Scopes};
use vault_service::route::{Audience, Auth, Group, Route};

use super::{ADA, BOB, CY, Desk, desk, reference, token};
use crate::common::samples::{Sample, samples};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD};
use crate::support::{Answer, SOURCE, World, key};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    Nobody,
    BadToken,
    Device,
    Member,
    ReadingPublisher,
    Publisher,
    ReadingOwner,
    Owner,
    OwnerAtMcp,
    OwnerOfAnother,
    Operator,
    ReadingOperator,
    OperatorAtMcp,
}

/// What the table's row says of this caller.
fn wanted(who: Who, sample: &Sample) -> &'static str {
    // A path that names no vault is about the token's own.
    let of_acme = sample.path.starts_with("/admin/vaults/");
    match (sample.route.auth, who) {
        (Auth::Device, Who::Device) => sample.answer,
        (Auth::Device, _) => "401 signature_required",
        (
            Auth::Owner
            | Auth::OwnerWrite
            | Auth::Publisher
            | Auth::PublisherWrite
            | Auth::Operator
            | Auth::OperatorWrite
            | Auth::Bearer
            | Auth::BearerWrite
            | Auth::Account,
            _,
        ) => wanted_of_token(who, sample, of_acme),
        // The client's own id would do as well.
        (Auth::ClientOrBearer, Who::Nobody | Who::Device) => "401 invalid_client",
        (Auth::ClientOrBearer, Who::BadToken) => "401 invalid_token",
        // The roles behind a session are tested with the pages of the console.
        (Auth::Public | Auth::Session(_) | Auth::ClientOrBearer, _) => sample.answer,
    }
}

fn wanted_of_token(who: Who, sample: &Sample, of_acme: bool) -> &'static str {
    let (auth, audience) = (sample.route.auth, sample.route.audience());
    match who {
        Who::Nobody | Who::Device => "401 token_required",
        Who::BadToken => "401 token_invalid",
        Who::OwnerAtMcp | Who::OperatorAtMcp if !matches!(audience, Audience::Mcp) => {
            "401 token_invalid"
        }
        // An operator's token is for no vault, its own neither.
        Who::Operator | Who::ReadingOperator if audience != Audience::Service => {
            "401 token_invalid"
        }
        _ if auth == Auth::Account => sample.answer,
        Who::ReadingOwner | Who::ReadingPublisher | Who::ReadingOperator
            if auth == Auth::BearerWrite =>
        {
            "403 insufficient_scope"
        }
        Who::OwnerOfAnother | Who::Operator | Who::ReadingOperator
            if of_acme && matches!(auth, Auth::Bearer | Auth::BearerWrite) =>
        {
            "404 not_found"
        }
        _ if matches!(auth, Auth::Bearer | Auth::BearerWrite) => sample.answer,
        Who::Operator if matches!(auth, Auth::Operator | Auth::OperatorWrite) => sample.answer,
        Who::ReadingOperator if auth == Auth::Operator => sample.answer,
        Who::ReadingOperator if auth == Auth::OperatorWrite => "403 insufficient_scope",
        _ if matches!(auth, Auth::Operator | Auth::OperatorWrite) => "403 operator_required",
        Who::Member | Who::Publisher | Who::ReadingPublisher
            if matches!(auth, Auth::Owner | Auth::OwnerWrite) =>
        {
            "403 owner_required"
        }
        Who::Member => "403 publisher_required",
        Who::ReadingPublisher if auth == Auth::PublisherWrite => "403 insufficient_scope",
        Who::ReadingOwner if matches!(auth, Auth::OwnerWrite | Auth::PublisherWrite) => {
            "403 insufficient_scope"
        }
        // A good token of an owner, but not of this vault: another slug is not there.
        Who::OwnerOfAnother if of_acme => "404 not_found",
        _ => sample.answer,
    }
}

/// The challenge to this answer, where it has one: it leads to a token that opens the row.
fn challenge(who: Who, answer: &str, row: &Route) -> String {
    let error = match answer {
        "401 token_required" => "",
        "401 token_invalid" => "error=\"invalid_token\", ",
        "403 insufficient_scope" => "error=\"insufficient_scope\", ",
        "401 signature_required" => return "VaultDevice".to_owned(),
        _ => return String::new(),
    };
    let path = if row.path == "/mcp" { "/mcp" } else { "" };
    let more = if who == Who::ReadingOperator && answer.starts_with("403") {
        " operator"
    } else {
        ""
    };
    format!(
        "Bearer {error}resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource{path}\", scope=\"read write{more}\""
    )
}

/// The samples of `/admin`.
fn admin_samples() -> impl Iterator<Item = Sample> {
    let all = samples().into_iter();
    all.filter(|sample| sample.route.path.starts_with("/admin/"))
}

impl Desk {
    async fn sample(&self, token: &str, sample: &Sample) -> Answer {
        let body = (!sample.body.is_empty()).then(|| ("", sample.body.into()));
        let (method, path) = (sample.route.method, &sample.path);
        self.send(token, method, path, body, &sample.headers())
            .await
    }
}

/// A token of `/mcp` alone.
async fn token_for_mcp(world: &World, who: (&str, &str), slug: &str) -> String {
    let resource = [("resource", "https://vault.example/mcp")];
    common::tokens_for(&world.app, who, slug, Scopes::ALL, &resource)
        .await
        .access
}

/// What members may see their own of.
const DRAFTS: &str = "/admin/vaults/{slug}/drafts";

/// Whether a path is about what publishers push and read.
fn is_of_releases(path: &str) -> bool {
    let below = path.strip_prefix("/admin/vaults/{slug}");
    below.is_some_and(|below| {
        below.is_empty()
            || ["/objects/", "/catalog", "/releases"]
                .iter()
                .any(|begin| below.starts_with(begin))
    })
}

/// The rows themselves: who changes something needs the scope, and what is of the service needs its
/// operator.
#[test]
fn rows_ask_for_no_less_than_their_paths_and_methods_demand() {
    for row in samples().iter().map(|sample| sample.route) {
        let wanted = match (row.method, row.path) {
            (_, "/admin/vaults" | "/admin/confirmations/{id}") => Auth::Account,
            (_, "/mcp") => Auth::Bearer,
            ("GET", path) if path.starts_with("/admin/operator/") => Auth::Operator,
            (_, path) if path.starts_with("/admin/operator/") => Auth::OperatorWrite,
            ("GET", path) if path.starts_with(DRAFTS) => Auth::Bearer,
            ("POST", DRAFTS) => Auth::BearerWrite,
            ("DELETE", path) if path.starts_with(DRAFTS) => Auth::BearerWrite,
            (_, path) if path.starts_with(DRAFTS) => Auth::PublisherWrite,
            // A question that is too long for an address.
            ("POST", "/admin/vaults/{slug}/objects/missing") => Auth::Publisher,
            // It ends the vault, not a release.
            ("DELETE", "/admin/vaults/{slug}") => Auth::OwnerWrite,
            // The contract demands the role alone.
            ("POST", "/admin/users/{id}/scopes") | ("DELETE", "/admin/clients/{id}") => Auth::Owner,
            ("GET", path) if is_of_releases(path) => Auth::Publisher,
            (_, path) if is_of_releases(path) => Auth::PublisherWrite,
            ("GET", path) if path.starts_with("/admin/") => Auth::Owner,
            (_, path) if path.starts_with("/admin/") => Auth::OwnerWrite,
            (_, path) if path.starts_with("/v/") => Auth::Device,
            _ => continue,
        };
        assert_eq!(row.auth, wanted, "{} {}", row.method, row.path);
    }
}

#[tokio::test]
async fn everybody_may_what_the_table_says_and_no_more() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    common::member(
        app,
        CY,
        &reference(&desk.acme),
        Role::Publisher,
        Scopes::ALL,
    )
    .await;
    let device = world.device("acme", 7, DeviceStatus::Active).await;
    let before = world.read_namespace("acme").await;
    let people = [
        (Who::Nobody, String::new()),
        (Who::BadToken, format!("vat_{}", "A".repeat(43))),
        (Who::Device, String::new()),
        (Who::Member, token(world, BOB, "acme", Scopes::ALL).await),
        (
            Who::ReadingPublisher,
            token(world, CY, "acme", Scopes::READ).await,
        ),
        (Who::Publisher, token(world, CY, "acme", Scopes::ALL).await),
        (
            Who::ReadingOwner,
            token(world, ADA, "acme", Scopes::READ).await,
        ),
        (Who::Owner, desk.owner.clone()),
        (
            Who::OwnerAtMcp,
            token_for_mcp(world, (ADA, PASSWORD), "acme").await,
        ),
        (Who::OwnerOfAnother, desk.stranger().await),
        (Who::Operator, desk.operator().await),
        (
            Who::ReadingOperator,
            common::operator_token_with(app, Scopes::READ).await,
        ),
        (
            Who::OperatorAtMcp,
            token_for_mcp(world, (OWNER, OWNER_PASSWORD), "default").await,
        ),
    ];
    let mut wrong = Vec::new();
    for sample in samples() {
        let (method, path) = (sample.route.method, &sample.path);
        for (who, token) in &people {
            // There the header would name a client.
            let auth = sample.route.auth;
            if matches!(auth, Auth::Public | Auth::Session(_)) && !token.is_empty() {
                continue;
            }
            let answer = if *who == Who::Device {
                let mut request = world.signed(&device, method, path);
                for (name, value) in sample.headers() {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
                *request.body_mut() = sample.body.into();
                world.send(request).await
            } else {
                desk.sample(token, &sample).await
            };
            let (got, wanted) = (answer.short(), wanted(*who, &sample));
            let wrong_challenge =
                answer.header("www-authenticate") != challenge(*who, wanted, sample.route);
            let is_private = answer.header("cache-control") == "private, no-store";
            let is_page = matches!(auth, Auth::Session(_));
            if got != wanted
                || wrong_challenge && !path.starts_with("/oauth")
                || !is_private
                    && !is_page
                    && !matches!(sample.route.group, Group::OAuth | Group::Mcp)
            {
                wrong.push(format!(
                    "{who:?}: {method} {path}: {got}, not {wanted}; {:?}",
                    answer.headers
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
        ("vault.show", "publisher_required")
    );
    assert_eq!(last.actor, bob.id);
    assert_eq!(last.source.unwrap().to_string(), SOURCE);
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

/// A suspended namespace refuses its people on every route, operators excepted, and that is audited
/// too; a deleted one is gone.
#[tokio::test]
async fn a_suspended_vault_is_403_and_a_deleted_one_401() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.world
        .change("acme", |namespace| namespace.status = Status::Suspended)
        .await;
    for sample in admin_samples() {
        let answer = desk.sample(&desk.owner, &sample).await;
        // What else the account has is its own to see.
        let wanted = match sample.route.auth {
            Auth::Account if sample.route.path.contains("{id}") => "404 not_found",
            Auth::Account => "200",
            _ => "403 vault_suspended",
        };
        assert_eq!(answer.short(), wanted, "{}", sample.path);
    }
    assert_eq!(desk.count("vault.show vault_suspended").await, 1);
    let shown = desk
        .ask(&operator, "GET", "/admin/operator/namespaces/acme", None)
        .await;
    assert_eq!(shown.json()["status"], "suspended");
    let owners = token(&desk.world, OWNER, "default", Scopes::ALL).await;
    desk.world
        .change("default", |namespace| namespace.status = Status::Suspended)
        .await;
    let own = desk
        .ask(&owners, "GET", "/admin/vaults/default", None)
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
    for sample in admin_samples() {
        let request = Request::builder()
            .method(sample.route.method)
            .uri(&sample.path)
            .header("authorization", format!("Bearer vat_{}", "A".repeat(43)))
            .body(Body::empty())
            .unwrap();
        let answer = world.send(request).await;
        assert_eq!(
            (answer.short().as_str(), answer.header("retry-after")),
            ("503 unavailable", "1"),
            "{}",
            sample.path
        );
    }
}
