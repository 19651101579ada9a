//! The endpoints that programs call: discovery, registration, tokens, revocation. Errors are the JSON of RFC 6749, never a problem object.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use vault_store::StoreError;
use vault_store::records::Commit;

use super::cors;
use super::document::ClientName;
use super::form::Form;
use super::metadata;
use super::register::{self, Metadata, RegisterError};
use super::revoke::{self, Asker};
use super::throttle::source_name;
use super::token::{self, Terms, TokenError, TokenRequest};
use crate::App;
use crate::bearer;
use crate::error::{Code, Fault, Refusal};
use crate::http::{Logged, client_address, json_answer, read_body, read_json, require_media_type};
use crate::model::Seen;
use crate::model::client::{Client, ClientId, client_key};
use crate::model::limits::{Window, count};
use crate::retry::Retry;

/// Most bytes of a registration.
const MAX_REGISTER_BYTES: usize = 16 * 1024;
/// Most bytes of a token or revocation request.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// `GET /.well-known/oauth-authorization-server` and `/.well-known/openid-configuration`.
pub async fn authorization_server(State(app): State<App>) -> Response {
    let documents = app.documents.is_some();
    discovery(&metadata::authorization_server(
        &app.config.public_url,
        documents,
    ))
}

/// `GET /.well-known/oauth-protected-resource`: the whole service as a resource.
pub async fn protected_resource(State(app): State<App>) -> Response {
    discovery(&metadata::protected_resource(&app.config.public_url, ""))
}

/// `GET /.well-known/oauth-protected-resource/mcp`: `/mcp` as a resource.
pub async fn protected_mcp(State(app): State<App>) -> Response {
    discovery(&metadata::protected_resource(
        &app.config.public_url,
        "/mcp",
    ))
}

fn discovery(document: &Value) -> Response {
    cors::open(json_answer(StatusCode::OK, document))
}

/// `POST /oauth/register`
pub async fn register(State(app): State<App>, request: Request) -> Response {
    let headers = request.headers().clone();
    let answer = registered(&app, request).await;
    let response = answer.unwrap_or_else(|failure| failure.answer(&app));
    cors::limited(&app, &headers, response)
}

async fn registered(app: &App, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    let window = Window {
        name: "register",
        who: source_name(source),
        limit: app.config.limits.register_per_source,
        seconds: 3600,
    };
    let now = app.clock.now();
    count(&*app.records, &[window], now, &*app.random).await?;
    let metadata: Metadata = read_json(&parts.headers, body, MAX_REGISTER_BYTES)
        .await
        .map_err(|refusal| {
            // RFC 7591 has no code for a body that is no JSON; it is about the metadata all the same.
            if refusal.code() == Code::JsonInvalid {
                Failure::from(RegisterError::Metadata("the body must be a JSON object"))
            } else {
                refusal.into()
            }
        })?;
    let (answer, client) = register::decide(&metadata, now, &*app.random)?;
    match app
        .records
        .commit(vec![register::registration(&client, now)?])
        .await?
    {
        Commit::Done(_) => Ok(unstored(json_answer(StatusCode::CREATED, &answer))),
        Commit::Failed { .. } => Err(StoreError::Conflict.into()),
    }
}

/// `POST /oauth/token`
pub async fn token(State(app): State<App>, request: Request) -> Response {
    let headers = request.headers().clone();
    let answer = tokens(&app, request).await;
    let response = answer.unwrap_or_else(|failure| failure.answer(&app));
    cors::limited(&app, &headers, response)
}

async fn tokens(app: &App, request: Request) -> Result<Response, Failure> {
    let source = client_address(&app.config, request.headers(), request.extensions());
    let by_header = request.headers().contains_key(header::AUTHORIZATION);
    let form = form(request).await?;
    if by_header && form.sound("client_id") && form.value("client_id").is_none() {
        return Err(Failure::ByHeader);
    }
    let request = TokenRequest::read(&form)?;
    let terms = Terms {
        base: app.config.public_url.base(),
        access_seconds: app.config.token_ttl_seconds,
    };
    let mut counted = false;
    let mut retry = Retry::default();
    loop {
        let now = app.clock.now();
        let known = token::load(&*app.records, &request).await?;
        if !counted && known.client_is_known(&request) {
            let limit = app.config.limits.token_per_client;
            count(
                &*app.records,
                &[Window {
                    name: "token",
                    who: request.client.id().to_string(),
                    limit,
                    seconds: 60,
                }],
                now,
                &*app.random,
            )
            .await?;
            counted = true;
        }
        let decision = token::decide(&request, &known, terms, source, &*app.clock, &*app.random)?;
        if !decision.writes.is_empty() && !app.records.commit(decision.writes).await?.is_done() {
            // Somebody else was faster, with this token or another of its family: look again.
            if retry.again(&*app.random).await {
                continue;
            }
            return Err(StoreError::Conflict.into());
        }
        if decision.ended_family {
            tracing::warn!(client = %request.client.id(), "a used code or refresh token came again: its family of tokens was ended");
        }
        return Ok(unstored(json_answer(StatusCode::OK, &decision.answer?)));
    }
}

/// `POST /oauth/revoke`
pub async fn revoke(State(app): State<App>, request: Request) -> Response {
    let headers = request.headers().clone();
    let answer = revoked(&app, request).await;
    let response = answer.unwrap_or_else(|failure| failure.answer(&app));
    cors::limited(&app, &headers, response)
}

async fn revoked(app: &App, request: Request) -> Result<Response, Failure> {
    let headers = request.headers().clone();
    let source = client_address(&app.config, &headers, request.extensions());
    let form = form(request).await?;
    form.check()
        .map_err(|bad| TokenError::InvalidRequest(bad.to_string()))?;
    let asker = asker(app, &headers, &form).await?;
    let token = form
        .value("token")
        .ok_or_else(|| TokenError::InvalidRequest("token is required".to_owned()))?;
    let Some(hash) = revoke::hash(token) else {
        return Ok(unstored(StatusCode::OK.into_response()));
    };
    let mut retry = Retry::default();
    loop {
        let known = revoke::load(&*app.records, &hash).await?;
        let writes = revoke::decide(&hash, &known, &asker, source, &*app.clock, &*app.random)?;
        if writes.is_empty() || app.records.commit(writes).await?.is_done() {
            return Ok(unstored(StatusCode::OK.into_response()));
        }
        if !retry.again(&*app.random).await {
            return Err(StoreError::Conflict.into());
        }
    }
}

/// Who asks for a revocation. Fails with 401 when it is nobody.
async fn asker(app: &App, headers: &HeaderMap, form: &Form) -> Result<Asker, Failure> {
    let client = match form.value("client_id") {
        None => None,
        Some(id) => Some(registered_client(app, id).await?),
    };
    // Whoever may not use a suspended vault may end what was given there all the same.
    match bearer::identify(app, headers).await {
        Ok(caller) => Ok(Asker {
            client,
            bearer: Some((caller.client_id, caller.email)),
        }),
        Err(refusal) if refusal.code().row().fault == Fault::Service => Err(refusal.into()),
        Err(_) if client.is_some() => Ok(Asker {
            client,
            bearer: None,
        }),
        Err(refusal) => Err(Failure::Challenged(refusal)),
    }
}

async fn registered_client(app: &App, name: &str) -> Result<ClientId, Failure> {
    let name: ClientName = name.parse().map_err(|_| TokenError::InvalidClient)?;
    let found = Seen::<Client>::read(app.records.get(&client_key(&name.id())).await?)?;
    found
        .filter(|client| name.names(&client.value))
        .map(|client| client.value.id)
        .ok_or_else(|| TokenError::InvalidClient.into())
}

async fn form(request: Request) -> Result<Form, Failure> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, MAX_TOKEN_BYTES).await?;
    require_media_type(&parts.headers, "application/x-www-form-urlencoded")?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| TokenError::InvalidRequest("the body is not text".to_owned()))?;
    Ok(Form::parse(text))
}

/// Why an endpoint did not do what it was asked.
enum Failure {
    Token(TokenError),
    Register(RegisterError),
    /// A client that names itself by a header: it has a secret in mind, and there are none.
    ByHeader,
    /// 401 with the challenge of a bearer route.
    Challenged(Refusal),
    Refused(Refusal),
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Failure {
    fn answer(self, app: &App) -> Response {
        match self {
            Self::Token(error) => {
                let status = if error == TokenError::InvalidClient {
                    StatusCode::UNAUTHORIZED
                } else {
                    StatusCode::BAD_REQUEST
                };
                said(status, error.code(), &error.to_string())
            }
            Self::Register(error) => {
                said(StatusCode::BAD_REQUEST, error.code(), &error.to_string())
            }
            Self::ByHeader => {
                let error = TokenError::InvalidClient;
                let mut response = said(
                    StatusCode::UNAUTHORIZED,
                    error.code(),
                    "clients are public: name the client by client_id in the body",
                );
                // RFC 6749 section 5.2 wants the scheme that was tried.
                response.headers_mut().insert(
                    header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("Basic realm=\"vault\""),
                );
                response
            }
            Self::Challenged(refusal) => {
                let sent_one = refusal.code() == Code::TokenInvalid;
                let mut response = said(
                    refusal.status(),
                    if sent_one {
                        "invalid_token"
                    } else {
                        "invalid_client"
                    },
                    "name the client by client_id, or bear an access token",
                );
                let challenge =
                    bearer::challenge(&app.config.public_url, sent_one.then_some("invalid_token"));
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge);
                response
            }
            Self::Refused(refusal) => {
                let code = match refusal.code() {
                    Code::Unavailable | Code::RateLimited => "temporarily_unavailable",
                    _ if refusal.code().row().fault == Fault::Service => "server_error",
                    _ => "invalid_request",
                };
                // Headers such as Retry-After come from the refusal, the body is that of OAuth.
                let mut response = refusal.clone().into_response();
                response.extensions_mut().remove::<Refusal>();
                let body = said(refusal.status(), code, &refusal.to_string());
                response.headers_mut().extend(body.headers().clone());
                *response.body_mut() = body.into_body();
                response.extensions_mut().insert(Logged(refusal));
                response
            }
        }
    }
}

fn said(status: StatusCode, code: &str, description: &str) -> Response {
    unstored(json_answer(
        status,
        &json!({ "error": code, "error_description": description }),
    ))
}

fn unstored(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}
