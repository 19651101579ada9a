//! The route table as data: one row per route. The router checks callers against the rows, and
//! infrastructure files and documents are generated from them.

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use vault_format::since::Since;

use crate::model::user::Role;

/// The callers that a route accepts. The guard of each class checks them before the handler runs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Auth {
    /// Every caller, without authentication.
    Public,
    /// An OAuth client that sends its `client_id`, or a valid access token.
    ClientOrBearer,
    /// A valid access token, for data of the account itself: a suspended vault does not block it,
    /// and an operator's token is accepted.
    Account,
    /// A valid access token for a vault.
    Bearer,
    /// Like [`Self::Bearer`], with the scope `write`.
    BearerWrite,
    /// A valid access token for a vault, of an owner or a publisher.
    Publisher,
    /// Like [`Self::Publisher`], with the scope `write`.
    PublisherWrite,
    /// A valid access token for a vault, of an owner.
    Owner,
    /// Like [`Self::Owner`], with the scope `write`.
    OwnerWrite,
    /// A valid access token with the scope `operator`, of an account that operates the service.
    Operator,
    /// Like [`Self::Operator`], with the scope `write`.
    OperatorWrite,
    /// A device (a machine of the vault) that signs the request with its key.
    Device,
    /// A signed-in browser. If a role is given, its user has at least that role in the vault of the
    /// path.
    Session(Option<Role>),
}

/// A group of routes: on AWS, one cloud function serves it, and the log names requests by it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Group {
    /// Discovery, client registration, sign-in and consent, and tokens.
    OAuth,
    /// Owner and operator routes, the console, the health check, and background work.
    Admin,
    /// Enrolment of devices, and their state.
    Devices,
    /// Catalogs and bundles, for devices.
    Catalog,
    /// Tools for agents at `/mcp`.
    Mcp,
}

impl Group {
    /// Returns the name of the group's cloud function: of its binary, of the folder of its zip
    /// file, and of its key in `infra/routes.json`.
    pub const fn function_name(self) -> &'static str {
        match self {
            Self::OAuth => "oauth",
            Self::Admin => "admin",
            Self::Devices => "devices",
            Self::Catalog => "catalog",
            Self::Mcp => "mcp",
        }
    }
}

/// The audience that a token must have at a route (RFC 8707): a token for another audience is
/// rejected.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Audience {
    /// Any token: the route revokes the token that it is sent.
    Any,
    /// A token for a vault, either for `/mcp` alone or for the whole service.
    Mcp,
    /// A token for a vault, for the whole service.
    Vault,
    /// A token for the whole service, whether for a vault or for an operator.
    Service,
}

impl Audience {
    /// Returns the path of the audience below the public URL; the token's `resource` is that
    /// address.
    pub const fn resource_path(self) -> &'static str {
        match self {
            Self::Any | Self::Mcp => "/mcp",
            Self::Vault | Self::Service => "",
        }
    }
}

/// One route of the service, from which the router, infrastructure files and documents are made.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Name in two parts, such as `user.change`: the action in audit records.
    pub name: &'static str,
    /// Method; a GET route answers HEAD too.
    pub method: &'static str,
    /// Path below the public URL, with `{…}` for a variable.
    pub path: &'static str,
    /// Callers that the route accepts. The guard rejects all others before the handler runs.
    pub auth: Auth,
    /// Cloud function that serves the route; see [`Group`].
    pub group: Group,
    /// First version of vault that has the route.
    pub since: Since,
}

impl Route {
    /// Creates a route that has existed since the first version served over HTTP.
    pub(crate) const fn new(
        group: Group,
        auth: Auth,
        name: &'static str,
        method: &'static str,
        path: &'static str,
    ) -> Self {
        Self {
            name,
            method,
            path,
            auth,
            group,
            since: Since::NEW,
        }
    }

    /// Whether the route is also served at the root of the origin if the public URL has a path
    /// prefix, with the prefix after the document's name: RFC 8414 puts well-known documents there.
    fn is_at_root(&self) -> bool {
        self.path.starts_with("/.well-known/")
    }

    /// Returns the audience that a token must have for this route.
    pub const fn audience(&self) -> Audience {
        match (self.group, self.auth) {
            (Group::OAuth, _) => Audience::Any,
            (Group::Mcp, _) => Audience::Mcp,
            (_, Auth::Account | Auth::Operator | Auth::OperatorWrite) => Audience::Service,
            _ => Audience::Vault,
        }
    }

    /// Returns the method as a filter of the router; a filter for GET answers HEAD too.
    pub(crate) fn method_filter(&self) -> MethodFilter {
        match self.method {
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        }
    }
}

/// One row of the table of routes: a route and its handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRow<H> {
    pub(crate) route: Route,
    pub(crate) handler: H,
}

/// Declares `ROWS`, the rows of one group: `name METHOD path Class(what) function;`. The module's
/// macro `handler!` builds its `Handler` from the class, the text in the parentheses and the
/// function; the handler determines the callers that its row accepts.
macro_rules! rows {
    ($group:ident: $(
        $name:literal $method:ident $path:literal $class:ident $(($($with:tt)*))? $function:path;
    )*) => {
        const ROWS: &[$crate::route::RouteRow<Handler>] = &[$({
            const HANDLER: Handler = handler!($class $(($($with)*))? $function);
            $crate::route::RouteRow {
                route: $crate::route::Route::new(
                    $crate::route::Group::$group,
                    HANDLER.auth(),
                    $name,
                    stringify!($method),
                    $path,
                ),
                handler: HANDLER,
            }
        }),*];

        pub(crate) fn routes() -> Vec<&'static $crate::route::Route> {
            ROWS.iter().map(|row| &row.route).collect()
        }
    };
}
pub(crate) use rows;

/// Builds the router for the rows of a group, below `prefix`.
pub(crate) fn router<H: 'static, S: Clone + Send + Sync + 'static>(
    prefix: &str,
    rows: &'static [RouteRow<H>],
    methods: impl Fn(&'static RouteRow<H>) -> MethodRouter<S>,
) -> Router<S> {
    rows.iter().fold(Router::new(), |router, row| {
        mount_route(router, prefix, &row.route, &methods(row))
    })
}

/// Adds the handler of a row to a router, below `prefix`.
pub(crate) fn mount_route<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    prefix: &str,
    route: &Route,
    methods: &MethodRouter<S>,
) -> Router<S> {
    let paths = route_paths(prefix, route);
    let add = |router: Router<S>, path: &String| router.route(path, methods.clone());
    paths.iter().fold(router, add)
}

/// Returns all paths at which a row is served if the public URL has this prefix.
fn route_paths(prefix: &str, route: &Route) -> Vec<String> {
    let mut paths = vec![format!("{prefix}{}", route.path)];
    // Without a prefix, the paths below would be equal to the first one, and the router panics if a
    // path is added twice.
    if prefix.is_empty() {
        return paths;
    }
    if route.path == "/" {
        // The public URL is written without a slash at its end, and people open it in that form.
        paths.push(prefix.to_owned());
    }
    if route.is_at_root() {
        paths.push(root_path(route.path, prefix));
    }
    paths
}

/// Finds the name of a request's group for the log, by the path of the request.
#[derive(Debug, Default)]
pub(crate) struct LogGroups(Vec<(String, &'static str)>);

impl LogGroups {
    pub(crate) fn add_route(&mut self, prefix: &str, route: &Route, name: &'static str) {
        let paths = route_paths(prefix, route).into_iter();
        self.0.extend(paths.map(|path| (path, name)));
    }

    /// Finds the group of the row with this path; `none` if no row has it.
    pub(crate) fn find_group(&self, path: &str) -> &'static str {
        let mut groups = self.0.iter();
        let group = groups.find(|(template, _)| matches_template(template, path));
        group.map_or("none", |(_, name)| name)
    }
}

/// Whether a path matches a template such as `/admin/users/{id}`.
fn matches_template(template: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for segment in template.split('/') {
        let Some(given) = segments.next() else {
            return false;
        };
        let fits = match segment.split_once('{') {
            None => segment == given,
            Some((before, variable)) => {
                let after = variable.split_once('}').map_or("", |(_, after)| after);
                let value = given.strip_prefix(before);
                // A variable stands for one character at least, as in the router.
                let value = value.and_then(|value| value.strip_suffix(after));
                value.is_some_and(|value| !value.is_empty())
            }
        };
        if !fits {
            return false;
        }
    }
    segments.next().is_none()
}

/// Returns the path of a well-known document for a public URL with a path: the prefix follows the
/// document's name (RFC 8414 section 3.1, RFC 9728 section 3.1), and the resource's own path
/// follows the prefix.
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
    use super::*;

    #[test]
    fn a_path_fits_the_row_that_answers_it() {
        for (template, path, fitting) in [
            ("/", "/", true),
            ("/", "", false),
            ("/admin/users", "/admin/users", true),
            ("/admin/users", "/admin/users/", false),
            ("/admin/users/{id}", "/admin/users/usr_1", true),
            ("/admin/users/{id}", "/admin/users/", false),
            ("/admin/users/{id}", "/admin/users/usr_1/x", false),
            ("/v/{slug}/bundles/{hash}.json", "/v/a/bundles/b.json", true),
            ("/v/{slug}/bundles/{hash}.json", "/v/a/bundles/b", false),
            ("/v/{slug}/bundles/{hash}.json", "/v/a/bundles/.json", false),
        ] {
            assert_eq!(
                matches_template(template, path),
                fitting,
                "{template} {path}"
            );
        }
    }
}
