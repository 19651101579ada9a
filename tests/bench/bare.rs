//! The baselines, each a process of its own with the same runtime as `vault serve`.
//!
//! [`CATALOG`]: an axum handler that does nothing but `verify_strict` and answers the same bytes. It takes key, time and signature
//! from the headers of the request and holds the bytes in memory: no check of the key, no look-up,
//! no limits, no clock, no log.
//!
//! [`TOOL`]: rmcp over Streamable HTTP, set up as the service sets it up, with one tool that answers nothing: no bearer, no skills.
//!
//! [`LAYERS`]: the same tool behind the layers of the service: its bearer check on the records of a running service, its limits, no log.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ed25519_dalek::{Signature, VerifyingKey};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use vault_service::config::{Config, Limits};
use vault_service::mcp::Protocol;
use vault_service::router::protocol_router;
use vault_service::serve::serve_router;
use vault_service::{App, Ports};
use vault_sql::Sql;
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;

/// The first argument that turns this program into the baseline of the catalog; the file follows.
pub const CATALOG: &str = "bare-catalog";
/// The first argument that turns this program into the baseline of the tools.
pub const TOOL: &str = "bare-tool";

/// The first argument that turns this program into the baseline of the tools behind the service's
/// layers; its database and public URL follow.
pub const LAYERS: &str = "bare-layers";

/// A running baseline; ends with this value.
pub struct Bare {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Bare {
    /// Starts one that answers this file to signed requests.
    pub fn catalog(catalog: &std::path::Path) -> Self {
        Self::start(&[CATALOG.as_ref(), catalog.as_os_str()])
    }

    /// Starts one with a tool that answers nothing.
    pub fn tool() -> Self {
        Self::start(&[TOOL.as_ref()])
    }

    /// Starts one with that tool behind the layers of the service that keeps its records in this
    /// file.
    pub fn layers(database: &std::path::Path, public_url: &str) -> Self {
        Self::start(&[LAYERS.as_ref(), database.as_os_str(), public_url.as_ref()])
    }

    fn start(words: &[&OsStr]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program once more");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("its address");
        Self {
            child,
            address: line.trim().parse().expect("an address"),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side, when these are its words: serves until it is killed. `None`: they are not.
pub fn serve(words: &[String]) -> Option<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (&first, rest) = words.split_first()?;
    if ![CATALOG, TOOL, LAYERS].contains(&first) {
        return None;
    }
    // As in cli/src/server.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port");
        let address = listener.local_addr().expect("its address");
        writeln!(std::io::stdout(), "{address}").expect("a reader");
        let router = match (first, rest) {
            (CATALOG, [catalog]) => {
                let catalog = Bytes::from(std::fs::read(catalog).expect("a catalog"));
                Router::new()
                    .route("/v/{slug}/catalog.json", get(answer))
                    .with_state(catalog)
            }
            (LAYERS, [database, public_url]) => {
                let app = app(database, public_url).await;
                let config = Arc::clone(&app.config);
                let router = protocol_router(app, Protocol::from_handler(Empty));
                return serve_router(listener, &config, router, std::future::pending()).await;
            }
            _ => Router::new().nest_service("/mcp", empty_tool()),
        };
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.expect("a server");
    });
    Some(())
}

/// A service on another one's records.
async fn app(database: &str, public_url: &str) -> App {
    let clock = Arc::new(SystemClock);
    let store = Sql::open_database(database, clock.clone())
        .await
        .expect("the database of a service");
    let mut config = Config::new(public_url.parse().expect("its address"));
    config.limits = Limits::disabled();
    let ports = Ports {
        records: store.records(),
        objects: store.objects(),
        clock,
        random: Arc::new(SystemRandom),
    };
    App::new(ports, config)
}

/// As in `shared/service/src/mcp`.
fn empty_tool() -> StreamableHttpService<Empty, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    StreamableHttpService::new(|| Ok(Empty), Arc::default(), config)
}

/// One tool, whatever it is called; it answers nothing.
#[derive(Clone)]
struct Empty;

impl ServerHandler for Empty {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("empty", "1"))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

async fn answer(
    State(catalog): State<Bytes>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if verified(&method, uri.path(), &headers).is_none() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], catalog).into_response()
}

fn verified(method: &Method, path: &str, headers: &HeaderMap) -> Option<()> {
    let text = |name| headers.get(name)?.to_str().ok();
    let key: [u8; 32] = URL_SAFE_NO_PAD
        .decode(text("x-vault-device")?)
        .ok()?
        .try_into()
        .ok()?;
    let signature: [u8; 64] = URL_SAFE_NO_PAD
        .decode(text("x-vault-signature")?)
        .ok()?
        .try_into()
        .ok()?;
    let signed = format!("{method}\n{path}\n{}", text("x-vault-timestamp")?);
    VerifyingKey::from_bytes(&key)
        .ok()?
        .verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature))
        .ok()
}
