//! The vault service: its routes as plain functions over the ports of `vault_store`.
//!
//! Handlers know no database, no cloud and no environment: they hold an [`App`]. The same handlers run behind [`serve`] and as functions;
//! nothing that is right or wrong depends on what a process remembers.

mod admin;
pub mod bearer;
pub mod config;
pub mod error;
mod health;
pub mod hosted;
pub mod http;
pub mod mcp;
pub mod model;
pub mod oauth;
pub mod outbound;
pub mod publish;
mod retry;
pub mod routes;
pub mod serve;
pub mod shelf;
pub mod uploads;
mod welcome;
pub mod work;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use vault_format::time::Timestamp;
use vault_store::clock::Clock;
use vault_store::objects::Objects;
use vault_store::random::{Random, ulid};
use vault_store::records::Records;

use config::Config;
use error::{Code, Refusal};
use hosted::cache::Cache;
use hosted::{KnownKeys, ReadLimits};
use oauth::document::Documents;
use routes::Part;
use shelf::{Releases, Shelves};

/// What every handler holds: the ports, the configuration, and memory that only makes things faster.
#[derive(Clone)]
pub struct App {
    /// Small documents.
    pub records: Arc<dyn Records>,
    /// Immutable bytes.
    pub objects: Arc<dyn Objects>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Settings.
    pub config: Arc<Config>,
    /// When this process began to serve.
    pub boot_time: Timestamp,
    /// Objects that were read lately.
    pub cache: Arc<Cache>,
    pub(crate) protocol: Arc<OnceLock<mcp::Protocol>>,
    /// Where clients that are known by an address are looked up; without it there are none.
    pub documents: Option<Arc<dyn Documents>>,
    pub(crate) known_keys: Arc<KnownKeys>,
    pub(crate) read_limits: Arc<ReadLimits>,
    pub(crate) sets: Arc<publish::Sets>,
    /// Which shelf a namespace is read from by tools.
    pub shelves: Arc<dyn Shelves>,
    pub(crate) opened: Arc<shelf::Opened>,
    pub(crate) last_ping: Arc<health::LastPing>,
}

impl App {
    /// An app over these ports, with nothing remembered.
    pub fn new(
        records: Arc<dyn Records>,
        objects: Arc<dyn Objects>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        config: Config,
    ) -> Self {
        Self {
            boot_time: clock.now(),
            cache: Arc::new(Cache::new(config.cache_bytes)),
            protocol: Arc::default(),
            known_keys: Arc::default(),
            read_limits: Arc::default(),
            sets: Arc::default(),
            shelves: Arc::new(Releases),
            opened: Arc::default(),
            last_ping: Arc::default(),
            documents: None,
            records,
            objects,
            clock,
            random,
            config: Arc::new(config),
        }
    }

    /// The same app with other shelves: those of a server that holds a library.
    #[must_use]
    pub fn with_shelves(self, shelves: Arc<dyn Shelves>) -> Self {
        Self { shelves, ..self }
    }

    /// The same app with another handler behind `/mcp`.
    #[must_use]
    pub fn with_protocol(self, protocol: mcp::Protocol) -> Self {
        Self {
            protocol: Arc::new(OnceLock::from(protocol)),
            ..self
        }
    }

    /// The same app, which also serves clients that are known by the address of a document.
    #[must_use]
    pub fn with_documents(self, documents: Arc<dyn Documents>) -> Self {
        Self {
            documents: Some(documents),
            ..self
        }
    }

    /// A fresh id of 26 characters that sorts by time.
    pub fn fresh_id(&self) -> Arc<str> {
        ulid(&*self.clock, &*self.random).into()
    }
}

/// The answer for a path that no route has. A client that posts to the root, or adds a slash, most likely looks for
/// the MCP endpoint.
async fn not_found(State(app): State<App>, method: Method, uri: Uri) -> Refusal {
    let refusal = Refusal::from(Code::NotFound);
    let public_url = &app.config.public_url;
    let below = uri.path().strip_prefix(public_url.prefix());
    let seeks_mcp = match below {
        Some("" | "/") => method == Method::POST,
        Some("/mcp/") => true,
        _ => false,
    };
    if !seeks_mcp {
        return refusal;
    }
    let base = public_url.base();
    refusal.detail(format!(
        "There is nothing at this path. The MCP endpoint is {base}/mcp, without a slash at the end."
    ))
}

/// Everything the service answers, as one router.
///
/// Put [`http::Peer`] into a request's extensions where the address of the other end is known, and [`http::RawPath`] where the `Uri` of the
/// request is not what was sent.
pub fn router(app: App) -> Router {
    part_router(app, Part::ALL)
}

/// What one part answers; everything else is as unknown as a path that no group has. Unsigned requests under `/v/` learn as
/// little as ever.
pub fn part_router(app: App, part: Part) -> Router {
    let routes = routes::router(app.config.public_url.prefix(), part)
        .fallback(not_found)
        .method_not_allowed_fallback(|| async { Refusal::from(Code::MethodNotAllowed) })
        .with_state(app.clone());
    let held = Arc::new((app, routes, part.group()));
    Router::new().fallback(move |request: Request| {
        let held = Arc::clone(&held);
        async move { http::answer(&held.0, &held.1, held.2, request).await }
    })
}
