//! The handler of the MCP server, which every transport shares.

use std::sync::{Arc, LazyLock};

use http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, ErrorCode, GetSkillRequestParams, GetSkillResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult, ReadResourceRequestParams, ReadResourceResponse, ResourceTemplate,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::params::explain_request;
use crate::session::Session;
use crate::tools::{self, Call};
use crate::visible::SnapshotCache;
use crate::{resources, skills, uri};

/// The time for which clients may cache a list of tools, in milliseconds. The list changes only
/// with the version of the program.
const TOOLS_TTL_MS: u64 = 300_000;
/// The time for which clients may cache content of the vault, in milliseconds.
const CONTENT_TTL_MS: u64 = 60_000;

const INSTRUCTIONS: &str = "This vault keeps agent skills that its owner scanned and signed. Before a task, call `get_skill` with a \
    `query` that says what you are about to do; if a skill fits, call `get_skill` with its `name` and follow its SKILL.md. Skills are also \
    resources under skill://. The content of a skill is instructions from the vault's owner, not from the user.";

/// The MCP server: the state that all connections and requests share. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    snapshot_cache: Arc<SnapshotCache>,
    /// The session of a connection over standard input and output; `None` over HTTP, where each
    /// request carries its own.
    session: Option<Session>,
}

impl Server {
    /// Creates a server whose requests carry their [`Session`] in the extensions of their HTTP
    /// parts.
    pub fn over_http() -> Self {
        Self {
            snapshot_cache: Arc::default(),
            session: None,
        }
    }

    /// Creates a server with one session for all requests.
    pub fn with_session(session: Session) -> Self {
        Self {
            snapshot_cache: Arc::default(),
            session: Some(session),
        }
    }

    /// Returns the session of a request. A request without one is rejected and is never treated as
    /// the owner's.
    fn session(&self, context: &RequestContext<RoleServer>) -> Result<Session, ErrorData> {
        let given = || {
            let parts = context.extensions.get::<Parts>()?;
            parts.extensions.get::<Session>().cloned()
        };
        self.session
            .clone()
            // There is no default caller, so a request that lost its session on the way cannot act
            // as the owner.
            .or_else(given)
            .ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
    }
}

/// Tells whether the request's protocol revision has caching times.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        // Revisions are dates, so the order of their texts is the order of time.
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Sets the caching time of an answer if the protocol revision has one. Shared caches may not keep
/// it: an answer shows what one caller may see.
macro_rules! with_ttl {
    ($context:expr, $result:expr, $ttl:expr) => {{
        let result = $result;
        if is_modern($context) {
            result
                .with_ttl_ms($ttl)
                .with_cache_scope(CacheScope::Private)
        } else {
            result
        }
    }};
}

/// Runs a method about resources with the request's session.
macro_rules! ask {
    ($self:ident, $context:ident, $action:literal, |$call:ident| $work:expr) => {{
        let session = $self.session(&$context)?;
        let $call = Call {
            snapshot_cache: &$self.snapshot_cache,
            session: &session,
        };
        $work
            .await
            .map_err(|fault| fault.into_error(&session, $action))?
    }};
}

static INFO: LazyLock<ServerConfig> = LazyLock::new(|| {
    let capabilities = ServerCapabilities::builder()
        .enable_tools()
        .enable_resources()
        .enable_skills_with_directory_read()
        .build();
    ServerConfig::new(capabilities)
        .with_server_info(
            Implementation::new("vault", env!("CARGO_PKG_VERSION"))
                .with_title("Vault of signed agent skills"),
        )
        .with_instructions(INSTRUCTIONS)
});

fn page_cursor(request: Option<PaginatedRequestParams>) -> Option<String> {
    request.and_then(|request| request.cursor)
}

/// Fails with -32602 if the request has a cursor although the list has a single page: such a list
/// never returns one.
fn check_single_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match page_cursor(request) {
        None => Ok(()),
        Some(_) => Err(resources::foreign_cursor()),
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        INFO.clone()
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {}

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        let result =
            tools::call_tool(&self.snapshot_cache, &session, &request.name, arguments).await;
        result.map(CallToolResponse::from)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        check_single_page(request)?;
        let names = self.session(&context)?.names();
        let result = ListToolsResult::with_all_items(tools::list_tools(names));
        Ok(with_ttl!(&context, result, TOOLS_TTL_MS))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find_tool(name)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let result = ask!(self, context, "resources/list", |call| {
            resources::list_resources(&call, page_cursor(request))
        });
        Ok(with_ttl!(&context, result, CONTENT_TTL_MS))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = ask!(self, context, "resources/read", |call| {
            resources::read_resource(&call, &request.uri)
        });
        Ok(with_ttl!(&context, result, CONTENT_TTL_MS).into())
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let result = ask!(self, context, "resources/directory/read", |call| {
            resources::list_directory(&call, &request.uri, request.cursor)
        });
        Ok(with_ttl!(&context, result, CONTENT_TTL_MS))
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let result = ask!(self, context, "skills/list", |call| skills::list_skills(
            &call,
            page_cursor(request)
        ));
        Ok(with_ttl!(&context, result, CONTENT_TTL_MS))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let result = ask!(self, context, "skills/get", |call| skills::get_skill(
            &call,
            &request.uri
        ));
        Ok(with_ttl!(&context, result, CONTENT_TTL_MS))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        check_single_page(request)?;
        let file = ResourceTemplate::new(uri::TEMPLATE, "file-of-a-skill")
            .with_title("A file of a skill")
            .with_description("The lists of resources and skills name the owner and the skills.");
        let result = ListResourceTemplatesResult::with_all_items(vec![file]);
        Ok(with_ttl!(&context, result, TOOLS_TTL_MS))
    }

    /// Answers a request that fits no method: its method does not exist, or its parameters are
    /// wrong.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.as_ref();
        Err(explain_request(&request.method, params, &context.meta))
    }

    // The server declares neither prompts nor completion, and an empty answer would contradict
    // that.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(method_not_found("prompts"))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(method_not_found("completion"))
    }
}

/// Creates the error for a method that this server does not declare.
fn method_not_found(what: &str) -> ErrorData {
    let message = format!("this server has no {what}");
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}
