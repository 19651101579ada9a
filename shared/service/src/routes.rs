//! The routes as data: what the router is assembled from, and what documents and infrastructure read.
//!
//! A row that the router serves carries the function that serves it, so table and router cannot disagree. The rows under `/v/` are served
//! by one entrance over the raw path; a test asks for each of them.

use axum::Router;
use axum::routing::MethodRouter;

use crate::{App, health};

/// Who may call a route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Auth {
    /// Anybody.
    Public,
    /// A good access token.
    Bearer,
    /// A good access token of an owner.
    Owner,
    /// The same, with the scope `write`.
    OwnerWrite,
    /// A good access token of an account that operates the service.
    Operator,
    /// The same, with the scope `write`.
    OperatorWrite,
    /// A device's signature.
    Device,
    /// A signed-in browser.
    Session,
    /// A payment provider's signature.
    Webhook,
}

/// Which function serves a route on AWS, and under which name it is logged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Group {
    /// Discovery, registration, consent, tokens.
    OAuth,
    /// Owner and operator routes, and health.
    Admin,
    /// Enrolment and device state.
    Devices,
    /// Catalogs and bundles.
    Catalog,
}

/// How much a caller may rely on a route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stability {
    /// Changes only with a new path or a year's notice.
    Stable,
    /// May change with a minor version.
    Beta,
}

/// Who answers a route.
#[derive(Clone, Copy)]
pub enum Served {
    /// The router, by this function.
    ByRouter(fn() -> MethodRouter<App>),
    /// The entrance for everything under `/v/`.
    ByHosted,
}

/// One route.
#[derive(Clone, Copy)]
pub struct Route {
    /// What it does, in two words: the action in audit entries.
    pub name: &'static str,
    /// The method; a GET route answers HEAD too.
    pub method: &'static str,
    /// The path below the public URL, with `{…}` for a segment.
    pub path: &'static str,
    /// Who may call it.
    pub auth: Auth,
    /// The function that serves it.
    pub group: Group,
    /// How much a caller may rely on it.
    pub stability: Stability,
    /// The version that had it first.
    pub since: &'static str,
    /// Who answers.
    pub served: Served,
    /// Whether it also answers at the origin's root when the public URL has a path prefix, with that prefix behind it:
    /// RFC 8414 puts a well-known document there.
    pub at_root: bool,
}

/// A hosted route.
const fn hosted(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    group: Group,
) -> Route {
    Route {
        name,
        method,
        path,
        auth: Auth::Device,
        group,
        stability: Stability::Beta,
        since: "0.5.0",
        served: Served::ByHosted,
        at_root: false,
    }
}

/// A route of the router.
pub(crate) const fn route(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    auth: Auth,
    group: Group,
    serve: fn() -> MethodRouter<App>,
) -> Route {
    Route {
        name,
        method,
        path,
        auth,
        group,
        stability: Stability::Beta,
        since: "0.5.0",
        served: Served::ByRouter(serve),
        at_root: false,
    }
}

const OWN: &[Route] = &[
    route(
        "health.show",
        "GET",
        "/healthz",
        Auth::Public,
        Group::Admin,
        || axum::routing::get(health::show),
    ),
    hosted("device.enrol", "POST", "/v/{slug}/devices", Group::Devices),
    hosted(
        "device.current",
        "GET",
        "/v/{slug}/devices/current",
        Group::Devices,
    ),
    hosted(
        "catalog.read",
        "GET",
        "/v/{slug}/catalog.json",
        Group::Catalog,
    ),
    hosted(
        "bundle.read",
        "GET",
        "/v/{slug}/bundles/{bundle_hash}.json",
        Group::Catalog,
    ),
];

/// All routes: those of this table, then each group's own.
pub fn all() -> impl Iterator<Item = &'static Route> {
    OWN.iter()
        .chain(crate::oauth::ROUTES)
        .chain(crate::admin::ROUTES)
}

/// The router of everything but `/v/`, below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    let mut router = Router::new();
    for row in all() {
        let Served::ByRouter(serve) = row.served else {
            continue;
        };
        router = router.route(&format!("{prefix}{}", row.path), serve());
        if row.at_root && !prefix.is_empty() {
            router = router.route(&root_path(row.path, prefix), serve());
        }
    }
    router
}

/// Where a well-known document stands for a public URL with a path: the prefix follows the document's name (RFC 8414 section 3.1, RFC 9728
/// section 3.1), and what the resource has of its own follows the prefix.
fn root_path(path: &str, prefix: &str) -> String {
    let name_end = path
        .match_indices('/')
        .nth(2)
        .map_or(path.len(), |(at, _)| at);
    let (name, rest) = path.split_at(name_end);
    format!("{name}{prefix}{rest}")
}
