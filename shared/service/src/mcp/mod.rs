//! `/mcp`: tools for agents over Streamable HTTP, without sessions, so that any process can answer
//! any request.
//!
//! Checks are made in this order: preflight, `Host`, `Origin`, method, token, size and form of the
//! body, then the tool. A refusal before the tool is a JSON-RPC error with the HTTP status of the
//! refusal; an unauthenticated request never reaches a tool. The protocol itself, with its
//! revisions and headers, is implemented by the library rmcp; this module never interprets a
//! method.

mod browsers;
mod message;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use vault_mcp::{Denied, Server, Session, ToolError};

use crate::app::App;
use crate::bearer::audience_challenge;
use crate::error::{ErrorCode, Refusal, method_not_allowed};
use crate::guard::{Call, RefusedAct, audit_refusal, guard_call};
use crate::http::{Logged, drop_body, require_media_type};
use crate::route::{Auth, Group, Route, mount_route};
use crate::shelf::{self, ChangeRule, Releases, SessionRules};
use message::Id;

pub use vault_mcp::{MAX_ANSWER_BYTES, Names, answer_bytes, escaped_bytes};

/// Maximum size of a message, in bytes; a larger one is answered with 413.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The only route of this group. Only `POST` is served; the handler also answers preflight requests
/// of browsers, and 405 to other methods.
const ROUTE: Route = Route::new(Group::Mcp, Auth::Bearer, "mcp.call", "POST", "/mcp");

pub(crate) fn routes() -> Vec<&'static Route> {
    vec![&ROUTE]
}

/// Builds the router of this group, below `prefix`. `protocol` replaces the vault's own tools, for
/// tests.
pub(crate) fn router(prefix: &str, protocol: Option<Protocol>) -> Router<App> {
    let memory = Arc::new(GroupState {
        protocol: protocol.map(OnceLock::from).unwrap_or_default(),
        releases: Releases::default(),
    });
    let serve_all = any(|State(app): State<App>, request: Request| async move {
        answer_request(app, memory, request).await
    });
    mount_route(Router::new(), prefix, &ROUTE, &serve_all)
}

struct GroupState {
    /// Created at the first request, since a process that serves another group never needs it.
    protocol: OnceLock<Protocol>,
    releases: Releases,
}

/// The protocol handler, which gets each message that has passed the checks of this module.
#[derive(Clone)]
pub struct Protocol(Arc<dyn ProtocolHandler>);

/// Hides the type of the handler that rmcp calls.
#[async_trait]
trait ProtocolHandler: Send + Sync {
    async fn answer(&self, request: Request) -> Response;
}

#[async_trait]
impl<H: ServerHandler> ProtocolHandler for StreamableHttpService<H, NeverSessionManager> {
    async fn answer(&self, request: Request) -> Response {
        self.handle(request).await.map(Body::new)
    }
}

impl Protocol {
    /// Creates the handler with the vault's own tools and resources.
    pub(crate) fn new() -> Self {
        Self::from_handler(Server::over_http())
    }

    /// Creates a protocol handler with other tools, for test scenarios that the vault's own tools
    /// cannot produce.
    pub fn from_handler<H: ServerHandler + Clone>(handler: H) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(None)
            // `Host` and `Origin` are checked in `browsers`, against the public URL and the exact
            // origins of the settings.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
        Self(Arc::new(StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        )))
    }
}

async fn answer_request(app: App, memory: Arc<GroupState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let origin = match browsers::check_request(&app, &parts) {
        browsers::BrowserCheck::Answered(response) => {
            // An unread body would make the server close the connection, and the client might see a
            // reset instead of the answer.
            drop_body(&parts.headers, body).await;
            return response;
        }
        browsers::BrowserCheck::Passed(origin) => origin,
        browsers::BrowserCheck::Refused(refusal) => {
            drop_body(&parts.headers, body).await;
            return refuse_unread(refusal);
        }
    };
    let mut response = if parts.method == Method::POST {
        let request = Request::from_parts(parts, body);
        guard_call(app, &ROUTE, request, refuse_unread, |call| {
            answer_post(memory, call)
        })
        .await
    } else {
        drop_body(&parts.headers, body).await;
        refuse_unread(method_not_allowed("POST"))
    };
    if let Some(origin) = origin {
        browsers::allow_origin(response.headers_mut(), origin);
    }
    response
}

async fn answer_post(memory: Arc<GroupState>, mut call: Call) -> Result<Response, Refusal> {
    let session = open_session(&memory, &call);
    // The tools find their session here: rmcp hands the request's extensions on to its handlers.
    call.parts.extensions.insert(session.clone());
    let (mut response, id) = dispatch_message(&memory, &mut call).await;
    if let Some(denied) = session.denied() {
        // A request that the protocol itself refused never reached a tool, so its answer stays.
        if response.status().is_success() {
            response = deny_call(&call, denied, &id).await;
        }
    }
    Ok(response)
}

/// Opens the session of this caller, which the tools use for one request.
fn open_session(memory: &GroupState, call: &Call) -> Session {
    let app = &call.app;
    // Some clients accept no dots in tool names. The query of the address chooses the spelling, so
    // that users can set it in the client.
    let names_parameter = call.parts.uri.query().and_then(|query| {
        url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "names")
    });
    let names = match names_parameter.as_ref().map(|(_, value)| &**value) {
        Some("dotted") => Names::Dotted,
        Some("plain") => Names::Plain,
        _ => app.config.tool_names,
    };
    let rules = SessionRules {
        names,
        changes: ChangeRule::ByRole,
    };
    shelf::open_session(app, &call.caller, &call.actor, &memory.releases, rules)
}

/// Reads the message and passes it to the protocol. Returns the answer, and the id of the request.
async fn dispatch_message(memory: &GroupState, call: &mut Call) -> (Response, Id) {
    let read = async {
        let bytes = call.read_body(MAX_MESSAGE_BYTES).await?;
        require_media_type(&call.parts.headers, "application/json").map(|()| bytes)
    };
    let bytes = match read.await {
        Ok(bytes) => bytes,
        Err(refusal) => return (refuse_unread(refusal), Id::NONE),
    };
    let id = match message::read_id(&bytes) {
        Ok(id) => id,
        Err((code, why)) => {
            let refusal = Refusal::new(if code == message::NOT_JSON {
                ErrorCode::JsonInvalid
            } else {
                ErrorCode::RequestInvalid
            });
            return (json_rpc(refusal.detail(why), code, &Id::NONE), Id::NONE);
        }
    };
    // rmcp would drop such parameters and answer as if there were none.
    if let Some(body) = vault_mcp::refuse_dropped_params(&bytes) {
        let mut response = Response::new(Body::from(body));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        return (response, id);
    }
    accept_json(&mut call.parts.headers);
    let request = Request::from_parts(call.parts.clone(), Body::from(bytes));
    let protocol = memory.protocol.get_or_init(Protocol::new);
    let (parts, body) = protocol.0.answer(request).await.into_parts();
    // A message has exactly one answer, so the body is bounded and complete.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    (complete_answer(parts, bytes, &id), id)
}

/// Accepts clients that accept JSON or send no `Accept`. rmcp would require that they list event
/// streams too, which are never sent here.
fn accept_json(headers: &mut HeaderMap) {
    let takes = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| {
            text.split(',').any(|range| {
                let range = range.split(';').next().unwrap_or_default().trim();
                ["*/*", "application/*", "application/json"]
                    .iter()
                    .any(|known| range.eq_ignore_ascii_case(known))
            })
        })
    };
    let mut accept_values = headers.get_all(header::ACCEPT).iter().peekable();
    if accept_values.peek().is_none() || accept_values.any(takes) {
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
    }
}

/// Completes the answer of rmcp: makes every error a JSON-RPC error, and replaces an answer that is
/// too large for a transport.
fn complete_answer(mut parts: axum::http::response::Parts, bytes: Bytes, id: &Id) -> Response {
    let is_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if parts.status.is_server_error() {
        // The text goes to the log only: it may describe the inside of the service.
        let why = String::from_utf8_lossy(&bytes).into_owned();
        let refusal = Refusal::new(ErrorCode::Internal).cause(std::io::Error::other(why));
        return json_rpc(refusal, message::INTERNAL, id);
    }
    if parts.status.is_client_error() && !is_json {
        // rmcp reports in plain text that it cannot read a message. The message is known to be
        // JSON, so its shape is wrong.
        let status = match parts.status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::BAD_REQUEST,
            status => status,
        };
        let why = String::from_utf8_lossy(&bytes).into_owned();
        parts.headers.remove(header::CONTENT_LENGTH);
        let refusal = Refusal::new(ErrorCode::RequestInvalid).detail(why);
        let mut response = json_rpc(refusal, message::INVALID, id);
        *response.status_mut() = status;
        return response;
    }
    if bytes.len() > MAX_ANSWER_BYTES / 2 && answer_bytes(&bytes) > MAX_ANSWER_BYTES {
        let body = message::error_body(
            message::INVALID_PARAMS,
            "The answer would be too large for every transport.",
            "resource_too_large",
            id,
        );
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::from(body));
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// Creates the answer to a call that a tool refused to carry out, with the HTTP status for the
/// refusal. The tool's own error stays in the body.
async fn deny_call(call: &Call, denied: &Denied, id: &Id) -> Response {
    let app = &call.app;
    match denied {
        Denied::Scope {
            scope,
            action,
            consentable,
        } => {
            let (namespace, code) = (call.caller.namespace.to_ref(), ErrorCode::InsufficientScope);
            // The target in the audit record is the name of the tool or method, from the service's
            // own table.
            let refused = RefusedAct {
                action: ROUTE.name,
                target: Some(action),
                is_named_by_service: true,
                code,
            };
            audit_refusal(app, Some(&namespace), &call.actor, refused).await;
            let mut refusal = Refusal::new(ErrorCode::InsufficientScope)
                .detail(format!("This needs the scope `{scope}`."));
            // If the user does not have the scope, a challenge would send the client to the consent
            // page in vain.
            if *consentable {
                let value = audience_challenge(
                    &app.config.public_url,
                    ROUTE.audience(),
                    Some("insufficient_scope"),
                );
                refusal = refusal.header(header::WWW_AUTHENTICATE, value);
            }
            json_rpc(refusal, message::PROTOCOL, id)
        }
        Denied::Unavailable { code, cause } => {
            let refusal = Refusal::new(ErrorCode::Unavailable).caused_by(Arc::clone(cause));
            let status = match code {
                ToolError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            let (words, word) = (refusal.to_string(), code.as_str());
            let body = message::error_body(message::INTERNAL, &words, word, id);
            let mut response = json_rpc(refusal, message::INTERNAL, id);
            *response.status_mut() = status;
            *response.body_mut() = Body::from(body);
            response
        }
    }
}

/// Creates a JSON-RPC error for a request whose message was not read.
fn refuse_unread(refusal: Refusal) -> Response {
    json_rpc(refusal, message::PROTOCOL, &Id::NONE)
}

fn json_rpc(refusal: Refusal, code: i32, id: &Id) -> Response {
    let word = refusal.code().row().code;
    let code = if refusal.status().is_server_error() {
        message::INTERNAL
    } else {
        code
    };
    let body = message::error_body(code, &refusal.to_string(), word, id);
    let mut response = refusal.into_response();
    // Without this, the edge would replace the body by a problem document. With `Logged` the
    // refusal is only logged.
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        response.extensions_mut().insert(Logged(refusal));
    }
    *response.body_mut() = Body::from(body);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
