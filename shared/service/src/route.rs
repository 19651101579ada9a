//! The routes as data: one row a route. The router lets in whom a row is for, and infrastructure
//! and documents are written from the rows.

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use vault_format::since::Since;

use crate::model::user::Role;

/// Who may call a route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Auth {
    /// Anybody.
    Public,
    /// A client that names itself, or a good access token.
    ClientOrBearer,
    /// A good access token, for what is the account's own: a suspended vault does not close it, and
    /// an operator's token opens it.
    Account,
    /// A good access token that acts on a vault.
    Bearer,
    /// The same, with the scope `write`.
    BearerWrite,
    /// A good access token that acts on a vault, of an owner or a publisher.
    Publisher,
    /// The same, with the scope `write`.
    PublisherWrite,
    /// A good access token that acts on a vault, of an owner.
    Owner,
    /// The same, with the scope `write`.
    OwnerWrite,
    /// A good access token with the scope `operator`, of an account that operates the service.
    Operator,
    /// The same, with the scope `write`.
    OperatorWrite,
    /// A device's signature.
    Device,
    /// A signed-in browser. Where a role is named, its user has at least that role in the vault of
    /// the path.
    Session(Option<Role>),
}

/// Which function serves a route on AWS, and under which name it is logged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Group {
    /// Discovery, registration, consent, tokens.
    OAuth,
    /// Owner and operator routes, the console, and health.
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

/// What a token must be good for at a route (RFC 8707): one that is for something else is not a
/// token there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Audience {
    /// Any token: the route ends what it is sent.
    Any,
    /// A token that acts on a vault, for `/mcp` alone or for the service as a whole.
    Mcp,
    /// A token that acts on a vault, for the service as a whole.
    Vault,
    /// A token for the service as a whole, whether it acts on a vault or for an operator.
    Service,
}

impl Audience {
    /// Its path below the public URL.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Any | Self::Mcp => "/mcp",
            Self::Vault | Self::Service => "",
        }
    }
}

/// One route.
#[derive(Clone, Copy, Debug)]
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
    /// The version of vault that had it first.
    pub since: Since,
}

impl Route {
    /// A route of the first version that is served over HTTP.
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

    /// Whether it also answers at the origin's root when the public URL has a path prefix, with
    /// that prefix behind it: RFC 8414 puts a well-known document there.
    fn is_at_root(&self) -> bool {
        self.path.starts_with("/.well-known/")
    }

    /// What a token that opens the route must be good for.
    pub const fn audience(&self) -> Audience {
        match (self.group, self.auth) {
            (Group::OAuth, _) => Audience::Any,
            (Group::Mcp, _) => Audience::Mcp,
            (_, Auth::Account | Auth::Operator | Auth::OperatorWrite) => Audience::Service,
            _ => Audience::Vault,
        }
    }

    /// The method as the router knows it; it answers HEAD where it answers GET.
    pub(crate) fn method_filter(&self) -> MethodFilter {
        match self.method {
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        }
    }
}

/// A route with what answers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<H> {
    pub(crate) route: Route,
    pub(crate) handler: H,
}

/// Declares `ROWS`, the rows of one group: `name METHOD path Class(what) function;`. The module's
/// macro `handler!` makes its `Handler` of the class, of what stands in the parentheses and of the
/// function; the handler says whom its row is for.
macro_rules! rows {
    ($group:ident: $(
        $name:literal $method:ident $path:literal $class:ident $(($($with:tt)*))? $function:path;
    )*) => {
        const ROWS: &[$crate::route::Row<Handler>] = &[$({
            const HANDLER: Handler = handler!($class $(($($with)*))? $function);
            $crate::route::Row {
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

        /// The routes of this group.
        pub(crate) fn routes() -> Vec<&'static $crate::route::Route> {
            ROWS.iter().map(|row| &row.route).collect()
        }
    };
}
pub(crate) use rows;

/// What answers the rows of a group, below `prefix`.
pub(crate) fn router<H: 'static, S: Clone + Send + Sync + 'static>(
    prefix: &str,
    rows: &'static [Row<H>],
    methods: impl Fn(&'static Row<H>) -> MethodRouter<S>,
) -> Router<S> {
    rows.iter().fold(Router::new(), |router, row| {
        mount(router, prefix, &row.route, &methods(row))
    })
}

/// Adds what answers a row to a router, below `prefix`.
pub(crate) fn mount<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    prefix: &str,
    route: &Route,
    methods: &MethodRouter<S>,
) -> Router<S> {
    let paths = paths(prefix, route);
    let add = |router: Router<S>, path: &String| router.route(path, methods.clone());
    paths.iter().fold(router, add)
}

/// The paths of a row where the public URL has this prefix.
fn paths(prefix: &str, route: &Route) -> Vec<String> {
    let mut paths = vec![format!("{prefix}{}", route.path)];
    if prefix.is_empty() {
        return paths;
    }
    if route.path == "/" {
        // The public URL is written without a slash at its end, and people open it so.
        paths.push(prefix.to_owned());
    }
    if route.is_at_root() {
        paths.push(root_path(route.path, prefix));
    }
    paths
}

/// The names of groups in the log, by the paths of their rows.
#[derive(Debug, Default)]
pub(crate) struct LogGroups(Vec<(String, &'static str)>);

impl LogGroups {
    /// Adds the paths of a row below `prefix`.
    pub(crate) fn add(&mut self, prefix: &str, route: &Route, name: &'static str) {
        let paths = paths(prefix, route).into_iter();
        self.0.extend(paths.map(|path| (path, name)));
    }

    /// The group of the row with this path; `none` where no row has it.
    pub(crate) fn find(&self, path: &str) -> &'static str {
        let mut groups = self.0.iter();
        let found = groups.find(|(template, _)| fits(template, path));
        found.map_or("none", |(_, name)| name)
    }
}

/// Whether a path is one of those that a row's path, with its variables, stands for.
fn fits(template: &str, path: &str) -> bool {
    let mut given = path.split('/');
    for segment in template.split('/') {
        let Some(given) = given.next() else {
            return false;
        };
        let fits = match segment.split_once('{') {
            None => segment == given,
            Some((before, variable)) => {
                let after = variable.split_once('}').map_or("", |(_, after)| after);
                let value = given.strip_prefix(before);
                let value = value.and_then(|value| value.strip_suffix(after));
                value.is_some_and(|value| !value.is_empty())
            }
        };
        if !fits {
            return false;
        }
    }
    given.next().is_none()
}

/// Where a well-known document stands for a public URL with a path: the prefix follows the
/// document's name (RFC 8414 section 3.1, RFC 9728 section 3.1), and what the resource has of its
/// own follows the prefix.
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
            assert_eq!(fits(template, path), fitting, "{template} {path}");
        }
    }
}
