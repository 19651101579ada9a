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
    /// Tools for agents.
    Mcp,
}

impl Group {
    /// The name of its function: binary, folder of its zip, key in `infra/routes.json`.
    pub const fn function(self) -> &'static str {
        match self {
            Self::OAuth => "oauth",
            Self::Admin => "admin",
            Self::Devices => "devices",
            Self::Catalog => "catalog",
            Self::Mcp => "mcp",
        }
    }
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

/// Whether the service is there: answered by every process.
const HEALTH: &[Route] = &[route(
    "health.show",
    "GET",
    "/healthz",
    Auth::Public,
    Group::Admin,
    || axum::routing::get(health::show),
)];

/// What is under `/v/`.
const HOSTED: &[Route] = &[
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

/// What one process answers: everything, or one group and health.
///
/// Each is a constant of its own, so that a program of one group carries no code of the others.
#[derive(Clone, Copy)]
pub struct Part {
    group: Option<Group>,
    tables: &'static [&'static [Route]],
}

impl Part {
    /// Everything.
    pub const ALL: Self = Self {
        group: None,
        tables: &[
            HEALTH,
            HOSTED,
            crate::oauth::ROUTES,
            crate::admin::ROUTES,
            crate::mcp::ROUTES,
        ],
    };
    /// Discovery, registration, consent, tokens.
    pub const OAUTH: Self = Self::one(Group::OAuth, &[HEALTH, crate::oauth::ROUTES]);
    /// Owner and operator routes.
    pub const ADMIN: Self = Self::one(Group::Admin, &[HEALTH, crate::admin::ROUTES]);
    /// Tools for agents.
    pub const MCP: Self = Self::one(Group::Mcp, &[HEALTH, crate::mcp::ROUTES]);
    /// Enrolment and device state, and every path that nobody has.
    pub const DEVICES: Self = Self::one(Group::Devices, &[HEALTH]);
    /// Catalogs and bundles.
    pub const CATALOG: Self = Self::one(Group::Catalog, &[HEALTH]);

    const fn one(group: Group, tables: &'static [&'static [Route]]) -> Self {
        Self {
            group: Some(group),
            tables,
        }
    }

    /// The part of a group that is known at run time only: its program carries all of them.
    pub const fn of(group: Group) -> Self {
        match group {
            Group::OAuth => Self::OAUTH,
            Group::Admin => Self::ADMIN,
            Group::Devices => Self::DEVICES,
            Group::Catalog => Self::CATALOG,
            Group::Mcp => Self::MCP,
        }
    }

    /// Its group; `None` for everything.
    pub const fn group(self) -> Option<Group> {
        self.group
    }

    fn rows(self) -> impl Iterator<Item = &'static Route> {
        self.tables.iter().copied().flatten()
    }
}

/// All routes.
pub fn all() -> impl Iterator<Item = &'static Route> {
    Part::ALL.rows()
}

/// The router of a part, but for `/v/`, below `prefix`.
pub(crate) fn router(prefix: &str, part: Part) -> Router<App> {
    let mut router = Router::new();
    for row in part.rows() {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use super::*;

    /// What a gateway is told beyond the table: an unsigned request to any path under `/v/` gets our 401, and any other path our 404.
    const REST: [&str; 2] = ["ANY /v/{proxy+}", "$default"];

    /// The key of a path at the gateway. A variable there fills a whole segment, and a method is not named: the function itself answers HEAD,
    /// and 405 with `Allow`.
    fn route_key(path: &str) -> String {
        let segments: Vec<String> = path
            .split('/')
            .map(|segment| match (segment.find('{'), segment.find('}')) {
                (Some(start), Some(end)) => match segment[start + 1..end].strip_prefix('*') {
                    Some(rest) => format!("{{{rest}+}}"),
                    None => segment[start..=end].to_owned(),
                },
                _ => segment.to_owned(),
            })
            .collect();
        format!("ANY {}", segments.join("/"))
    }

    /// `infra/routes.json`: each function's route keys.
    fn page() -> String {
        let mut functions = BTreeMap::new();
        for row in all() {
            let function = row.group.function();
            let before = functions.insert(route_key(row.path), function);
            assert!(
                before.is_none_or(|before| before == function),
                "{} belongs to two functions: a gateway sends a path to one",
                row.path
            );
        }
        functions.extend(REST.map(|key| (key.to_owned(), Group::Devices.function())));
        let mut keys: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, function) in functions {
            keys.entry(function).or_default().push(key);
        }
        let mut page = serde_json::to_string_pretty(&keys).unwrap();
        let _ = writeln!(page);
        page
    }

    #[test]
    fn the_gateway_has_the_routes_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/routes.json");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        let fresh = page();
        if kept != fresh {
            std::fs::write(format!("{path}.new"), fresh).unwrap();
            panic!("infra/routes.json is out of date: {path}.new is what it should be");
        }
    }

    #[test]
    fn a_variable_fills_its_segment_at_the_gateway() {
        for (path, key) in [
            ("/healthz", "ANY /healthz"),
            (
                "/v/{slug}/bundles/{bundle_hash}.json",
                "ANY /v/{slug}/bundles/{bundle_hash}",
            ),
            ("/console/{*rest}", "ANY /console/{rest+}"),
        ] {
            assert_eq!(route_key(path), key);
        }
    }
}
