//! `/console`: the pages on which members of a vault see its state and decide what waits for a
//! decision.
//!
//! Rules: each route names the least role, and the guard checks it and creates the value that the
//! handler takes. A form is sent to the address of its page, because its token is valid only there.
//! A form changes something only through the function that the route below `/admin` also uses. It
//! then redirects to a page with a notice from a closed list of sentences ([`Outcome`]).
//!
//! No page runs a script, renders the text of a skill, or asks for a signing key.

mod agents;
mod app_end;
mod apps;
mod audit;
mod audit_change;
mod catalogs;
mod changes;
mod choose;
mod codes;
mod confirm;
mod content;
mod csv;
mod difference;
mod draft_commands;
mod drafts;
mod export;
mod fleet;
mod form_action;
mod guard;
mod history;
mod machine;
mod machines;
mod names;
mod namespace;
mod outcome;
mod overview;
mod page;
mod people;
mod releases;
mod skill;
mod skills;
mod timeline;
mod visibility;

use std::pin::Pin;
use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::on;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_gate::finding::Finding;
use vault_policy::CompiledPolicy;
use vault_policy::published::PublishedProfiles;
use vault_store::recent::Recent;

use crate::app::App;
use crate::model::user::Role;
use crate::route::{self, Auth, rows};
use crate::shelf::Releases;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::layout::render_console_page;

use catalogs::Catalogs;
use guard::{ConsoleForm, ConsolePage, SignedInVisitor};
use outcome::Outcome;
use page::PageLayout;

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, ErrorPage>> + Send>>;

/// Least role that may open a page.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Access {
    /// Every member.
    Member,
    /// Owners and publishers.
    Publisher,
    /// Owners only.
    Owner,
    /// Owners, also while the vault is suspended.
    SuspendedOwner,
}

/// Handler of a route, with the least role.
#[derive(Clone, Copy)]
enum Handler {
    /// The page at `/console` itself, which needs no membership.
    Choose(fn(SignedInVisitor, Form) -> HandlerFuture),
    /// A page about the vault that the path names.
    Page(Access, fn(ConsolePage) -> HandlerFuture),
    /// A form of the page at the same path, for people with the right to write.
    Form(Access, fn(ConsoleForm) -> HandlerFuture),
}

impl Handler {
    /// Returns the access class of the route, so that the route table states what the guard
    /// enforces.
    const fn auth(self) -> Auth {
        let access = match self {
            Self::Choose(_) => return Auth::Session(None),
            Self::Page(access, _) | Self::Form(access, _) => access,
        };
        Auth::Session(Some(match access {
            Access::Member => Role::Member,
            Access::Publisher => Role::Publisher,
            Access::Owner | Access::SuspendedOwner => Role::Owner,
        }))
    }
}

/// Caches of the console. All entries are immutable.
struct Cache {
    /// Verified current releases.
    releases: Releases,
    /// Parsed catalogs, also of earlier releases.
    catalogs: Catalogs,
    /// Profiles of releases, by namespace and hash of the catalog.
    profiles: Recent<(NamespaceId, Digest), Arc<PublishedProfiles>>,
    /// Expiry times of catalogs, by namespace and hash.
    ends: Recent<(NamespaceId, Digest), Timestamp>,
    /// Compiled policies, by the hash of the policy.
    policies: Recent<Digest, CompiledPolicy>,
    /// Findings of the gate about a skill, by the hash of its bundle.
    findings: Recent<Digest, Arc<Vec<Finding>>>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            releases: Releases::default(),
            catalogs: Catalogs::default(),
            profiles: Recent::new(16 << 20),
            ends: Recent::new(64 << 10),
            policies: Recent::new(8 << 20),
            findings: Recent::new(4 << 20),
        }
    }
}

/// Page for a person whose role may not open the requested page.
#[derive(Template)]
#[template(path = "console/role_needed.html")]
struct RoleNeededPage {
    shell: PageLayout,
    /// Roles that may open the requested page.
    needed: &'static str,
}

/// Returns the answer 403, with a page that names the roles that may open the requested page.
fn role_needed(page: &ConsolePage, access: Access) -> Response {
    let needed = match access {
        Access::Owner | Access::SuspendedOwner => "the owners",
        // A page for members is open to every role, so the case does not occur.
        Access::Publisher | Access::Member => "the owners and publishers",
    };
    let page = RoleNeededPage {
        shell: PageLayout::for_page(page),
        needed,
    };
    render_console_page(StatusCode::FORBIDDEN, &page)
}

// A function pointer cannot name the future of each handler, so the futures are boxed.
macro_rules! handler {
    (Choose $handler:path) => {
        Handler::Choose(|visitor, query| Box::pin($handler(visitor, query)))
    };
    (Page ($access:ident) $handler:path) => {
        Handler::Page(Access::$access, |page| Box::pin($handler(page)))
    };
    (Form ($access:ident) $handler:path) => {
        Handler::Form(Access::$access, |form| Box::pin($handler(form)))
    };
}

rows! { Admin:
    "console.choose" GET "/console" Choose choose::show_choice;
    "console.overview" GET "/console/{slug}" Page(Member) overview::show_overview;
    "console-machines.list" GET "/console/{slug}/machines" Page(Owner) machines::show_machines;
    "console-machines.deny-pending" POST "/console/{slug}/machines" Form(Owner) machines::deny_shown_machines;
    "console-codes.list" GET "/console/{slug}/machines/codes" Page(Owner) codes::show_codes;
    "console-codes.change" POST "/console/{slug}/machines/codes" Form(Owner) codes::change_codes;
    "console-machines.show" GET "/console/{slug}/machines/{id}" Page(Owner) machine::show_machine;
    "console-machines.change" POST "/console/{slug}/machines/{id}" Form(Owner) machine::decide_machine;
    "console-releases.list" GET "/console/{slug}/releases" Page(Publisher) releases::list_releases;
    "console-releases.show" GET "/console/{slug}/releases/{release}" Page(Publisher) releases::show_release;
    "console-drafts.list" GET "/console/{slug}/drafts" Page(Publisher) drafts::list_drafts;
    "console-drafts.show" GET "/console/{slug}/drafts/{id}" Page(Publisher) drafts::show_draft;
    "console-drafts.change" POST "/console/{slug}/drafts/{id}" Form(Publisher) drafts::decide_draft;
    "console-people.list" GET "/console/{slug}/people" Page(Owner) people::list_people;
    "console-people.invite" POST "/console/{slug}/people" Form(Owner) people::invite_person;
    "console-people.show" GET "/console/{slug}/people/{id}" Page(Owner) people::show_person;
    "console-people.change" POST "/console/{slug}/people/{id}" Form(Owner) people::change_person;
    "console-apps.list" GET "/console/{slug}/apps" Page(Owner) apps::show_apps;
    "console-apps.end" POST "/console/{slug}/apps" Form(Owner) app_end::end_access;
    "console-audit.list" GET "/console/{slug}/audit" Page(Owner) audit::show_log;
    "console-audit.lines" GET "/console/{slug}/audit.jsonl" Page(Owner) audit::json_lines;
    "console-audit.table" GET "/console/{slug}/audit.csv" Page(Owner) audit::comma_separated;
    "console-export.part" GET "/console/{slug}/export.jsonl" Page(SuspendedOwner) export::export_part;
    "console-namespace.show" GET "/console/{slug}/namespace" Page(Owner) namespace::show_namespace;
    "console-namespace.change" POST "/console/{slug}/namespace" Form(Owner) namespace::change_namespace;
    "console-confirmation.show" GET "/console/{slug}/confirm/{id}" Page(Owner) confirm::show_confirmation;
    "console-confirmation.decide" POST "/console/{slug}/confirm/{id}" Form(Owner) confirm::decide_confirmation;
    "console-skills.list" GET "/console/{slug}/skills" Page(Owner) skills::show_skills;
    "console-skills.show" GET "/console/{slug}/skills/{name}" Page(Owner) skill::show_skill;
}

/// Pages of a vault in the navigation: title, path below the vault's, and least role.
const PAGES: &[(&str, &str, Access)] = &[
    ("Overview", "", Access::Member),
    ("Machines", "/machines", Access::Owner),
    ("Releases", "/releases", Access::Publisher),
    ("Skills", "/skills", Access::Owner),
    ("Drafts", "/drafts", Access::Publisher),
    ("People", "/people", Access::Owner),
    ("Apps", "/apps", Access::Owner),
    ("Log", "/audit", Access::Owner),
    ("Vault", "/namespace", Access::Owner),
];

pub(crate) fn router(prefix: &str) -> Router<App> {
    // One cache for all routes, so that what one page has parsed serves the next.
    let cache = Arc::<Cache>::default();
    route::router(prefix, ROWS, |row| {
        let cache = Arc::clone(&cache);
        let serve = move |State(app): State<App>, request: Request| {
            guard::answer_request(app, Arc::clone(&cache), row, request)
        };
        on(row.route.method_filter(), serve)
    })
}
