//! The baseline of the catalog: an axum handler that does nothing but `verify_strict` and answers the same bytes.
//!
//! A process of its own with the same runtime as `vault serve`. It takes key, time and signature from the headers of the
//! request and holds the bytes in memory: no check of the key, no look-up, no limits, no clock, no log.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

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

/// The first argument that turns this program into the baseline.
pub const WORD: &str = "bare-server";

/// A running baseline; ends with this value.
pub struct Bare {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Bare {
    /// Starts one that answers this file to signed requests.
    pub fn start(catalog: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(WORD)
            .arg(catalog)
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

/// The child's side: serves until it is killed.
pub fn serve(catalog: &str) {
    let catalog = Bytes::from(std::fs::read(catalog).expect("a catalog"));
    // As in cli/src/serve.rs.
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
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new()
            .route("/v/{slug}/catalog.json", get(answer))
            .with_state(catalog);
        axum::serve(listener, router).await.expect("a server");
    });
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
