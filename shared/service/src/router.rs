//! Assembles the whole service from its groups of routes. Only the programs that serve it import
//! this module.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use vault_store::StoreError;

use crate::app::App;
use crate::devices::{self, DeviceRoutes};
use crate::edge::Edge;
use crate::error::{ErrorCode, Refusal};
use crate::maintenance::{self, Report};
use crate::mcp::Protocol;
use crate::route::{Group, LogGroups, Route};
use crate::web::welcome;
use crate::{admin, console, health, mcp, oauth_routes};

/// The part of the service that one process serves: everything, or one group of routes and the
/// health check.
///
/// Each part is a constant, so that a program for one group contains no code of the others.
#[derive(Clone, Copy)]
pub struct Part {
    group: Option<Group>,
    tables: &'static [Table],
    work: Option<Work>,
}

/// Starts one run of the background work, such as garbage collection and notices.
pub type Work = fn(&App) -> RunningWork<'_>;

/// A run of the background work, as a future that ends with the report of the run.
pub type RunningWork<'a> = Pin<Box<dyn Future<Output = Result<Report, StoreError>> + Send + 'a>>;

/// The routes of one group, and the function that builds its router below a prefix.
#[derive(Clone, Copy)]
struct Table {
    /// Group that the request log names for these routes; `None` for the group of each row.
    log_name: Option<&'static str>,
    routes: fn() -> Vec<&'static Route>,
    router: fn(&str) -> Router<App>,
}

const HEALTH: Table = Table {
    log_name: Some("health"),
    routes: health::routes,
    router: health::router,
};
/// Routes below `/v/`. Their router here is empty: [`DeviceRoutes`] serves them, and matches the
/// path as it was sent.
const HOSTED: Table = Table {
    log_name: None,
    routes: devices::routes,
    router: |_| Router::new(),
};
const OAUTH: Table = Table {
    log_name: Some("oauth"),
    routes: oauth_routes::routes,
    router: oauth_routes::router,
};
const ADMIN: Table = Table {
    log_name: Some("admin"),
    routes: admin::routes,
    router: admin::router,
};
const CONSOLE: Table = Table {
    log_name: Some("console"),
    routes: console::routes,
    router: console::router,
};
const MCP: Table = Table {
    log_name: Some("mcp"),
    routes: mcp::routes,
    router: |prefix| mcp::router(prefix, None),
};

const WORK: Work = |app| Box::pin(maintenance::run_once(app));

impl Part {
    /// All groups and the background work in one process, as `vault serve` runs them.
    pub const ALL: Self = Self {
        group: None,
        tables: &[HEALTH, HOSTED, OAUTH, ADMIN, CONSOLE, MCP],
        work: Some(WORK),
    };
    /// Discovery metadata, client registration, sign-in and consent, and tokens.
    pub const OAUTH: Self = Self::one_group(Group::OAuth, &[HEALTH, OAUTH]);
    /// Owner and operator routes, the console, and background work.
    pub const ADMIN: Self = Self {
        work: Some(WORK),
        ..Self::one_group(Group::Admin, &[HEALTH, ADMIN, CONSOLE])
    };
    /// The MCP endpoint, through which agents read skills and submit changes.
    pub const MCP: Self = Self::one_group(Group::Mcp, &[HEALTH, MCP]);
    /// Enrolment and device state, and every path without a route.
    pub const DEVICES: Self = Self::one_group(Group::Devices, &[HEALTH]);
    /// Catalogs and bundles, which admitted machines read.
    pub const CATALOG: Self = Self::one_group(Group::Catalog, &[HEALTH]);

    const fn one_group(group: Group, tables: &'static [Table]) -> Self {
        Self {
            group: Some(group),
            tables,
            work: None,
        }
    }

    /// Returns the part for a group that is known only at run time; a program that uses it contains
    /// all parts.
    pub const fn for_group(group: Group) -> Self {
        match group {
            Group::OAuth => Self::OAUTH,
            Group::Admin => Self::ADMIN,
            Group::Devices => Self::DEVICES,
            Group::Catalog => Self::CATALOG,
            Group::Mcp => Self::MCP,
        }
    }

    /// Returns the group that the process serves; `None` for all groups.
    pub const fn group(self) -> Option<Group> {
        self.group
    }

    /// Returns the background work, if this process does it.
    pub const fn work(self) -> Option<Work> {
        self.work
    }

    /// Maps the paths below `prefix` to their groups in the log. Every part answers under `/v/`.
    fn log_groups(self, prefix: &str) -> LogGroups {
        let mut groups = LogGroups::default();
        for table in [&HOSTED].into_iter().chain(self.tables) {
            for route in (table.routes)() {
                let name = table.log_name.unwrap_or(route.group.function_name());
                groups.add_route(prefix, route, name);
            }
        }
        groups
    }
}

/// Lists the routes of all groups.
pub fn all_routes() -> impl Iterator<Item = &'static Route> {
    let tables = Part::ALL.tables.iter();
    tables.flat_map(|table| (table.routes)())
}

/// Builds the router of the whole service.
///
/// The caller must put [`crate::http::Peer`] into a request's extensions if the address of the
/// other end is known, and [`crate::http::RawPath`] if the request's `Uri` is not exactly what was
/// sent.
pub fn router(app: App) -> Router {
    part_router(app, Part::ALL)
}

/// Builds the router of one part. The routes of other groups are answered like unknown paths;
/// unsigned requests under `/v/` get the same answer from every part.
pub fn part_router(app: App, part: Part) -> Router {
    let prefix = app.config.public_url.prefix();
    let routers = part.tables.iter().map(|table| (table.router)(prefix));
    let routes = routers.fold(Router::new(), Router::merge);
    assemble_router(app, routes, part)
}

/// Builds the router of the whole service with another handler behind `/mcp`, for tests of the
/// transport.
pub fn protocol_router(app: App, protocol: Protocol) -> Router {
    let prefix = app.config.public_url.prefix();
    let routes = health::router(prefix)
        .merge(oauth_routes::router(prefix))
        .merge(admin::router(prefix))
        .merge(console::router(prefix))
        .merge(mcp::router(prefix, Some(protocol)));
    assemble_router(app, routes, Part::ALL)
}

fn assemble_router(app: App, routes: Router<App>, part: Part) -> Router {
    let groups = part.log_groups(app.config.public_url.prefix());
    let routes = routes
        .fallback(not_found)
        .method_not_allowed_fallback(|| async { Refusal::from(ErrorCode::MethodNotAllowed) })
        .with_state(app.clone());
    let hosted = DeviceRoutes::new(app.clone(), part.group);
    let edge = Arc::new(Edge::new(app, routes, hosted, groups));
    // Everything is a fallback of an empty router: the edge must see each request before axum
    // matches, and decodes, its path.
    Router::new().fallback(move |request: Request| {
        let edge = Arc::clone(&edge);
        async move { edge.answer_request(request).await }
    })
}

/// Answers a path that no route of this part has. A browser that opens the root gets the service's
/// front page from every part.
async fn not_found(State(app): State<App>, request: Request) -> Response {
    let public_url = &app.config.public_url;
    let below = request.uri().path().strip_prefix(public_url.prefix());
    let is_root = matches!(below, Some("" | "/"));
    if is_root && welcome::opens_page(request.method(), request.headers()) {
        return welcome::welcome_page(public_url, StatusCode::OK);
    }
    welcome::route_not_found(&app, &request).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use super::*;

    /// Route keys of the API gateway that stand for no row of the table: for an unsigned request to
    /// any path under `/v/`, which gets the service's 401, and for any other path, which gets its
    /// 404.
    const REST: [&str; 2] = ["ANY /v/{proxy+}", "$default"];

    /// Returns the key of a path at the API gateway. There, a variable fills a whole segment, and
    /// the method is always ANY: the function itself answers HEAD, and 405 with `Allow`.
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

    /// Writes `infra/routes.json`: the route keys of each cloud function.
    fn page() -> String {
        let mut functions = BTreeMap::new();
        for row in all_routes() {
            let function = row.group.function_name();
            let before = functions.insert(route_key(row.path), function);
            assert!(
                before.is_none_or(|before| before == function),
                "{} belongs to two functions: a gateway sends a path to one",
                row.path
            );
        }
        functions.extend(REST.map(|key| (key.to_owned(), Group::Devices.function_name())));
        let mut keys: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, function) in functions {
            keys.entry(function).or_default().push(key);
        }
        let mut page = serde_json::to_string_pretty(&keys).unwrap();
        let _ = writeln!(page);
        page
    }

    #[test]
    fn written_pages_have_the_routes_of_the_gateway() {
        vault_testing::page::assert_current("infra/routes.json", &page());
    }

    #[test]
    fn the_log_names_the_group_of_the_row_that_has_the_path() {
        let groups = Part::ALL.log_groups("");
        for route in all_routes() {
            assert_ne!(groups.find_group(route.path), "none", "{}", route.path);
        }
        for (path, group) in [
            ("/", "oauth"),
            ("/account", "oauth"),
            ("/account/new-vault/name", "oauth"),
            ("/oauth/invite/abc", "oauth"),
            ("/.well-known/openid-configuration", "oauth"),
            ("/hooks/payment", "admin"),
            ("/admin/users", "admin"),
            ("/console", "console"),
            ("/console/acme/machines/codes", "console"),
            ("/mcp", "mcp"),
            ("/healthz", "health"),
            ("/v/acme/catalog.json", "catalog"),
            ("/v/acme/devices/current", "devices"),
            ("/v/devices/catalog.json", "catalog"),
            ("/nowhere", "none"),
            ("/mcp/", "none"),
            ("", "none"),
        ] {
            assert_eq!(groups.find_group(path), group, "{path}");
        }
        let below = Part::ALL.log_groups("/skills");
        for (path, group) in [
            ("/skills", "oauth"),
            ("/skills/", "oauth"),
            ("/skills/mcp", "mcp"),
            ("/.well-known/oauth-protected-resource/skills/mcp", "oauth"),
            ("/mcp", "none"),
        ] {
            assert_eq!(below.find_group(path), group, "{path}");
        }
        let mcp = Part::MCP.log_groups("");
        assert_eq!(mcp.find_group("/account"), "none");
        assert_eq!(mcp.find_group("/v/acme/catalog.json"), "catalog");
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
