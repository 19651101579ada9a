//! `POST /mcp`, driven in process: transport, rights, revisions, tools.

mod rights;
mod transport;

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};
use vault_service::App;
use vault_service::model::namespace::Namespace;
use vault_service::model::user::{Role, Scopes};
use vault_service::shelf::Shelves;
use vault_shelf::{Shelf, Writes};
use vault_testing::memory::Memory;
use vault_testing::memory::shelf::MemoryShelf;

use crate::admin::reference;
use crate::common::{
    OWNER, OWNER_PASSWORD, PASSWORD, Reply, bootstrap, home, member, send, sign_in,
};
use crate::support;

/// A service whose namespace `default` has this shelf.
pub struct World {
    pub app: App,
    pub shelf: Arc<MemoryShelf>,
    pub memory: Arc<Memory>,
    pub owner: String,
}

struct One(Arc<MemoryShelf>);

impl Shelves for One {
    fn shelf(&self, _: &App, _: &Namespace, _: Option<IpAddr>) -> Arc<dyn Shelf> {
        self.0.clone()
    }
}

/// A vault with three skills, and its owner signed in.
pub async fn world() -> World {
    world_with(Writes::Signed, |_| {}).await
}

pub async fn world_with(
    writes: Writes,
    change: impl FnOnce(&mut vault_service::config::Config),
) -> World {
    let support::World {
        mut app, memory, ..
    } = support::world_with(|config| {
        config.allowed_origins = vec!["https://app.example".to_owned()];
        change(config);
    });
    bootstrap(&app).await;
    let shelf = Arc::new(MemoryShelf::new("default", writes));
    let put = |name, description, tags: &[&str], files: &[(&str, &[u8])]| {
        shelf.put_text(name, description, tags, files).unwrap();
    };
    put(
        "release-notes",
        "Writes release notes from merged changes",
        &["docs"],
        &[
            ("templates/notes.md", b"# Notes\n"),
            ("logo.png", b"\x89PNG\0"),
        ],
    );
    put(
        "code-review",
        "Reviews a change for mistakes",
        &["dev"],
        &[],
    );
    put("payroll", "Runs the payroll of the firm", &["secret"], &[]);
    app = app.with_shelves(Arc::new(One(shelf.clone())));
    let owner = sign_in(&app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    World {
        app,
        shelf,
        memory,
        owner,
    }
}

impl World {
    /// An access token of a new member, with these scopes of those that the user has.
    pub async fn member(&self, email: &str, user: Scopes, token: Scopes) -> String {
        let home = reference(&home(&self.app, "default").await);
        member(&self.app, email, &home, Role::Member, user).await;
        sign_in(&self.app, email, PASSWORD, token).await
    }

    /// Sends a message as a client of the older revisions does.
    pub async fn post(&self, token: &str, message: &Value) -> Reply {
        send(&self.app, request(token, message.to_string()).body).await
    }

    /// Calls a tool.
    pub async fn call(&self, token: &str, tool: &str, arguments: Value) -> Reply {
        let params = json!({ "name": tool, "arguments": arguments });
        self.post(token, &rpc("tools/call", &params)).await
    }
}

/// A JSON-RPC request.
pub fn rpc(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// A request that can still be changed.
pub struct Sent {
    pub body: Request<Body>,
}

pub fn request(token: &str, body: String) -> Sent {
    let mut builder = Request::post("/mcp")
        .header(header::HOST, "vault.example")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream");
    if !token.is_empty() {
        builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    Sent {
        body: builder.body(Body::from(body)).unwrap(),
    }
}

impl Sent {
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.body.headers_mut().insert(name, value.parse().unwrap());
        self
    }

    pub fn without(mut self, name: &'static str) -> Self {
        self.body.headers_mut().remove(name);
        self
    }
}
