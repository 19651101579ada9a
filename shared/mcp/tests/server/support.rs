//! A server over a shelf in memory, and the shortest way to ask it something.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use vault_format::draft::Submitter;
use vault_mcp::{Denied, Names, Person, Right, Server, Session};
use vault_policy::Policy;
use vault_shelf::Writes;
use vault_testing::memory::shelf::MemoryShelf;

pub struct World {
    pub shelf: Arc<MemoryShelf>,
    service: StreamableHttpService<Server, NeverSessionManager>,
}

/// What came back, and what HTTP would make of it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub body: Value,
    pub text: String,
    pub denied: Option<Denied>,
}

pub fn world(writes: Writes) -> World {
    let server = Server::over_http();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts();
    World {
        shelf: Arc::new(MemoryShelf::new("acme", writes)),
        service: StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config),
    }
}

/// The three skills that most tests look at.
pub fn stocked(writes: Writes) -> World {
    let world = world(writes);
    let put = |name: &str, description: &str, tags: &[&str], files: &[(&str, &[u8])]| {
        world
            .shelf
            .put_text(name, description, tags, files)
            .unwrap();
    };
    put(
        "release-notes",
        "Writes release notes from merged changes",
        &["docs"],
        &[
            ("templates/notes.md", b"# Notes\n"),
            ("templates/deep/er.txt", b"deep"),
            ("logo.png", b"\x89PNG\0\xff"),
        ],
    );
    put(
        "code-review",
        "Reviews a change for mistakes",
        &["dev"],
        &[],
    );
    put("payroll", "Runs the payroll of the firm", &["secret"], &[]);
    world
}

pub fn owner() -> Person {
    Person {
        local: false,
        ..Person::local_owner()
    }
}

/// A member with both scopes, as the policy knows it.
pub fn member(email: &str) -> Person {
    Person {
        ids: vec![email.to_owned(), "cli_1".to_owned()],
        profile: None,
        owner: false,
        read: Right::Granted,
        write: Right::Granted,
        submitter: Submitter {
            user_id: "usr_1".to_owned(),
            client_id: Some("cli_1".to_owned()),
        },
        local: false,
    }
}

/// `ana@example.org` gets what is tagged `docs` or named `code-review`.
pub fn policy() -> Policy {
    Policy::from_toml(
        r#"
[profiles.writer]
groups = ["texts"]
[groups.texts]
skills = ["tag:docs", "code-review"]
tools = ["get_skill"]
[callers."ana@example.org"]
profile = "writer"
"#,
    )
    .unwrap()
}

impl World {
    pub async fn ask(&self, person: &Person, method: &str, params: Value) -> Reply {
        self.ask_with(person, Names::Plain, method, params).await
    }

    pub async fn ask_with(
        &self,
        person: &Person,
        names: Names,
        method: &str,
        params: Value,
    ) -> Reply {
        let session = Session::new(self.shelf.clone(), person.clone(), names);
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = http::Request::post("/mcp")
            .header("host", "vault.example")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .body(message.to_string())
            .unwrap();
        request.extensions_mut().insert(session.clone());
        let response = self.service.handle(request).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Reply {
            body: serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")),
            text,
            denied: session.denied().cloned(),
        }
    }

    /// What the owner is answered.
    pub async fn owner_asks(&self, method: &str, params: Value) -> Reply {
        self.ask(&owner(), method, params).await
    }

    /// What a tool answers the owner.
    pub async fn owner_calls(&self, tool: &str, arguments: Value) -> Reply {
        self.call(&owner(), tool, arguments).await
    }

    pub async fn call(&self, person: &Person, tool: &str, arguments: Value) -> Reply {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask(person, "tools/call", params).await
    }
}

impl Reply {
    /// The structured result of a tool that answered.
    pub fn structured(&self) -> &Value {
        let result = &self.body["result"];
        assert_eq!(result["isError"], false, "{}", self.text);
        &result["structuredContent"]
    }

    /// The code of what went wrong, whoever says it.
    pub fn code(&self) -> &str {
        let of_tool = &self.body["result"]["_meta"]["dev.vault/error"]["code"];
        let of_protocol = &self.body["error"]["data"]["code"];
        of_tool
            .as_str()
            .or(of_protocol.as_str())
            .unwrap_or_else(|| panic!("no code in {}", self.text))
    }

    /// The names in a list of a structured result.
    pub fn names(&self, list: &str) -> Vec<&str> {
        let items = self.structured()[list].as_array().unwrap();
        items
            .iter()
            .map(|item| item["name"].as_str().or(item.as_str()).unwrap())
            .collect()
    }
}
