//! The layers of `/mcp` over a handler with the tools, resources and prompts that the conformance
//! scenarios ask for by name. What they are stands in `fixture.json`; this program only plays it.
//! For `tests/conformance/run`: `vault-conformance-fixture PORT PUBLIC_URL`, memory in place of
//! stores, and the owner of the test servers. For `tests/pages/run` and `tests/clients/run` it
//! knows two clients by their documents.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation,
    InputRequiredResult, InputResponses, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    Prompt, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use vault_service::accounts::bootstrap::ensure_first_owner;
use vault_service::config::{Config, Limits};
use vault_service::documents::{ClientUrl, Documents, FetchError, FetchedDocument};
use vault_service::mcp::Protocol;
use vault_service::model::namespace::Kind;
use vault_service::router::protocol_router;
use vault_service::serve::serve_router;
use vault_service::{App, Ports};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;
use vault_testing::memory::Memory;
use vault_tests::server::{OWNER_EMAIL, OWNER_PASSWORD};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, public_url] = &words[..] else {
        return Err("usage: vault-conformance-fixture PORT PUBLIC_URL".into());
    };
    let mut config = Config::new(public_url.parse()?);
    config.limits = Limits::disabled();
    config.allowed_origins = vec![public_url.clone()];
    let clock = Arc::new(SystemClock);
    let memory = Arc::new(Memory::new(clock.clone()));
    let player = Player(Arc::new(serde_json::from_str(include_str!(
        "fixture.json"
    ))?));
    let ports = Ports {
        records: memory.clone(),
        objects: memory,
        clock,
        random: Arc::new(SystemRandom),
    };
    let app = App::new(ports, config).with_documents(Arc::new(KnownDocuments));
    let password = OWNER_PASSWORD.into();
    ensure_first_owner(&app, Some(Kind::Hosted), Some(OWNER_EMAIL), Some(&password)).await?;
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    writeln!(std::io::stdout(), "listening")?;
    let config = Arc::clone(&app.config);
    let router = protocol_router(app, Protocol::from_handler(player));
    serve_router(listener, &config, router, std::future::pending()).await;
    Ok(())
}

/// The clients of these addresses are known; nobody is asked.
const NOTES: &str = "https://notes.example/client.json";
const MCP_REMOTE: &str = "https://mcp-remote.example/client.json";

struct KnownDocuments;

#[async_trait]
impl Documents for KnownDocuments {
    async fn fetch(&self, url: &ClientUrl) -> Result<FetchedDocument, FetchError> {
        let document = match url.as_str() {
            NOTES => json!({
                "client_id": NOTES,
                "client_name": "Notes",
                "redirect_uris": ["https://notes.example/callback"],
            }),
            // As a person hosts it for mcp-remote, with the members that mcp-remote registers.
            MCP_REMOTE => json!({
                "client_id": MCP_REMOTE,
                "client_name": "MCP CLI Client",
                "client_uri": "https://github.com/modelcontextprotocol/mcp-cli",
                "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
                "software_version": "0.15.1",
                "redirect_uris": ["http://localhost:3334/oauth/callback"],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            }),
            _ => return Err(FetchError::Unreachable("another address".into())),
        };
        Ok(FetchedDocument {
            status: 200,
            content_type: Some("application/json".to_owned()),
            body: document.to_string().into(),
            ..FetchedDocument::default()
        })
    }
}

/// All that the handler plays.
#[derive(Deserialize)]
struct Fixture {
    tools: Vec<FixtureTool>,
    resources: Vec<FixtureResource>,
    templates: Vec<FixtureTemplate>,
    prompts: Vec<FixturePrompt>,
}

#[derive(Deserialize)]
struct FixtureTool {
    tool: Tool,
    /// Its answers: all but the last ask the client for something first.
    rounds: Vec<Map<String, Value>>,
    /// Whether the client must have declared sampling.
    #[serde(default)]
    needs_sampling: bool,
    /// Whether only what the client declared is asked for.
    #[serde(default)]
    declared_only: bool,
}

#[derive(Deserialize)]
struct FixtureResource {
    resource: Resource,
    contents: Map<String, Value>,
}

#[derive(Deserialize)]
struct FixtureTemplate {
    template: ResourceTemplate,
    text: String,
}

#[derive(Deserialize)]
struct FixturePrompt {
    prompt: Prompt,
    rounds: Vec<Map<String, Value>>,
}

#[derive(Clone)]
struct Player(Arc<Fixture>);

/// The answer whose turn it is. A state that no round gave is refused: what comes back from a
/// client is not to be believed.
fn turn<'r>(
    rounds: &'r [Map<String, Value>],
    responses: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<&'r Map<String, Value>, ErrorData> {
    let given = |round: &Map<String, Value>| {
        let asked = round.get("inputRequests").and_then(Value::as_object);
        let responses = responses.map(|responses| serde_json::to_value(responses).ok());
        let responses = responses.flatten();
        let answered = |key: &String| {
            let all = responses.as_ref();
            all.and_then(|all| all.get(key))
                .is_some_and(Value::is_object)
        };
        asked.is_some_and(|asked| asked.keys().all(answered))
    };
    let at = match state {
        None => 0,
        Some(state) => rounds
            .iter()
            .position(|round| round.get("requestState").and_then(Value::as_str) == Some(state))
            .ok_or_else(|| ErrorData::invalid_params("no state of this server", None))?,
    };
    let round = rounds.get(at).ok_or_else(broken)?;
    if given(round) {
        rounds.get(at + 1).ok_or_else(broken)
    } else {
        Ok(round)
    }
}

fn broken() -> ErrorData {
    ErrorData::internal_error("fixture.json is not what this program plays", None)
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|_| broken())
}

/// A last answer. Older revisions do not know what kind of result it is; rmcp takes that out for
/// them.
fn complete<T: DeserializeOwned>(mut round: Map<String, Value>) -> Result<T, ErrorData> {
    round.insert("resultType".to_owned(), json!("complete"));
    read(Value::Object(round))
}

fn asks(round: &Map<String, Value>) -> Result<Option<InputRequiredResult>, ErrorData> {
    if !round.contains_key("inputRequests") {
        return Ok(None);
    }
    let mut round = round.clone();
    round.insert("resultType".to_owned(), json!("input_required"));
    read(Value::Object(round)).map(Some)
}

/// Leaves out what the client has not declared.
fn declared(round: &mut Map<String, Value>, context: &RequestContext<RoleServer>) {
    let capabilities = context.client_capabilities();
    let has = |method: &str| {
        capabilities.as_ref().is_some_and(|has| match method {
            "elicitation/create" => has.elicitation.is_some(),
            "sampling/createMessage" => has.sampling.is_some(),
            _ => has.roots.is_some(),
        })
    };
    if let Some(Value::Object(asked)) = round.get_mut("inputRequests") {
        asked.retain(|_, request| request["method"].as_str().is_some_and(has));
    }
}

impl ServerHandler for Player {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("fixture", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.0.tools.iter().map(|row| row.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tools = self.0.tools.iter().map(|row| &row.tool);
        tools.find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let row = self
            .0
            .tools
            .iter()
            .find(|row| row.tool.name == request.name);
        let row = row.ok_or_else(|| ErrorData::invalid_params("no such tool", None))?;
        let capabilities = context.client_capabilities();
        if row.needs_sampling && capabilities.is_none_or(|has| has.sampling.is_none()) {
            let needed = read(json!({ "sampling": {} }))?;
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let mut round = turn(
            &row.rounds,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
        )?
        .clone();
        if row.declared_only {
            declared(&mut round, &context);
        }
        if let Some(asked) = asks(&round)? {
            return Ok(asked.into());
        }
        complete::<CallToolResult>(round).map(CallToolResponse::from)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = self.0.resources.iter().map(|row| row.resource.clone());
        Ok(ListResourcesResult::with_all_items(all.collect()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = self.0.templates.iter().map(|row| row.template.clone());
        Ok(ListResourceTemplatesResult::with_all_items(all.collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let row = self.0.resources.iter().find(|row| row.resource.uri == uri);
        let contents: ResourceContents = if let Some(row) = row {
            let mut contents = row.contents.clone();
            contents.insert("uri".to_owned(), json!(uri));
            contents.insert("mimeType".to_owned(), json!(row.resource.mime_type));
            read(Value::Object(contents))?
        } else {
            let mut templates = self.0.templates.iter();
            let found = templates.find_map(|row| {
                let (before, after) = row.template.uri_template.split_once("{id}")?;
                let id = uri.strip_prefix(before)?.strip_suffix(after)?;
                Some((row.text.replace("{id}", id), &row.template.mime_type))
            });
            let (text, kind) = found.ok_or_else(|| {
                ErrorData::resource_not_found("no such resource", Some(json!({ "uri": uri })))
            })?;
            read(json!({ "uri": uri, "mimeType": kind, "text": text }))?
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = self.0.prompts.iter().map(|row| row.prompt.clone());
        Ok(ListPromptsResult::with_all_items(all.collect()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let row = self
            .0
            .prompts
            .iter()
            .find(|row| row.prompt.name == request.name);
        let row = row.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        let round = turn(
            &row.rounds,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
        )?;
        if let Some(asked) = asks(round)? {
            return Ok(asked.into());
        }
        let arguments = request.arguments.as_ref();
        let round = round.iter();
        let round = round.map(|(name, value)| (name.clone(), filled(value.clone(), arguments)));
        complete::<GetPromptResult>(round.collect()).map(GetPromptResponse::from)
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = json!({ "values": ["one", "two"], "total": 2, "hasMore": false });
        complete(Map::from_iter([("completion".to_owned(), values)]))
    }
}

/// Puts the arguments where their names stand in braces.
fn filled(value: Value, arguments: Option<&JsonObject>) -> Value {
    match value {
        Value::String(mut text) => {
            for (name, value) in arguments.into_iter().flatten() {
                text = text.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
            }
            Value::String(text)
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| filled(item, arguments))
            .collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, item)| (name, filled(item, arguments)))
            .collect(),
        other => other,
    }
}
