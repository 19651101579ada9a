//! The endpoints that programs call: discovery, registration, tokens, revocation. Errors are the JSON of RFC 6749, never a problem object.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use vault_store::StoreError;
use vault_store::records::Commit;

use super::failure::{Failure, unstored};
use super::guard::{Revocation, read_form};
use super::metadata;
use super::register::{self, Metadata, RegisterError};
use super::revoke;
use super::token::{self, Terms, TokenAnswer, TokenError, TokenRequest};
use crate::app::App;
use crate::error::Code;
use crate::http::{client_address, json_answer, read_json};
use crate::model::limits::{Window, count, source_name};
use crate::retry::retry;

/// Most bytes of a registration.
const MAX_REGISTER_BYTES: usize = 16 * 1024;

/// `GET /.well-known/oauth-authorization-server` and `/.well-known/openid-configuration`.
pub fn authorization_server(app: &App) -> Value {
    metadata::authorization_server(&app.config.public_url, app.documents.is_some())
}

/// `GET /.well-known/oauth-protected-resource`: the whole service as a resource.
pub fn protected_resource(app: &App) -> Value {
    metadata::protected_resource(&app.config.public_url, "")
}

/// `GET /.well-known/oauth-protected-resource/mcp`: `/mcp` as a resource.
pub fn protected_mcp(app: &App) -> Value {
    metadata::protected_resource(&app.config.public_url, "/mcp")
}

/// `POST /oauth/register`
pub async fn register(app: &App, request: Request) -> Result<Response, Failure> {
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
pub async fn token(app: &App, request: Request) -> Result<Response, Failure> {
    let source = client_address(&app.config, request.headers(), request.extensions());
    let by_header = request.headers().contains_key(header::AUTHORIZATION);
    let form = read_form(request).await?;
    if by_header && form.sound("client_id") && form.value("client_id").is_none() {
        return Err(Failure::ByHeader);
    }
    let request = TokenRequest::read(&form)?;
    let terms = Terms {
        base: app.config.public_url.base(),
        access_seconds: app.config.token_ttl_seconds,
    };
    let known = token::load(&*app.records, &request).await?;
    if known.client_is_known(&request) {
        let window = Window {
            name: "token",
            who: request.client.id().to_string(),
            limit: app.config.limits.token_per_client,
            seconds: 60,
        };
        count(&*app.records, &[window], app.clock.now(), &*app.random).await?;
    }
    let mut loaded = Some(known);
    let exchange = || exchange(app, &request, loaded.take(), terms, source);
    let answer = retry(&*app.random, exchange).await?;
    Ok(unstored(json_answer(StatusCode::OK, &answer)))
}

/// One attempt; `None` if another request changed this token or its family first.
async fn exchange(
    app: &App,
    request: &TokenRequest,
    loaded: Option<token::Known>,
    terms: Terms<'_>,
    source: Option<IpAddr>,
) -> Result<Option<TokenAnswer>, Failure> {
    let known = match loaded {
        Some(known) => known,
        None => token::load(&*app.records, request).await?,
    };
    let decision = token::decide(request, &known, terms, source, &*app.clock, &*app.random)?;
    if !decision.writes.is_empty() && !app.try_commit(decision.writes).await? {
        return Ok(None);
    }
    if decision.ended_family {
        tracing::warn!(client = %request.client.id(), "a used code or refresh token was presented again: its token family was revoked");
    }
    Ok(Some(decision.answer?))
}

/// `POST /oauth/revoke`
pub async fn revoke(app: &App, request: Revocation) -> Result<Response, Failure> {
    let Revocation {
        form,
        asker,
        source,
        ..
    } = request;
    let token = form
        .value("token")
        .ok_or_else(|| TokenError::InvalidRequest("token is required".to_owned()))?;
    let Some(hash) = revoke::hash(token) else {
        return Ok(unstored(StatusCode::OK.into_response()));
    };
    retry(&*app.random, async || {
        let known = revoke::load(&*app.records, &hash).await?;
        let writes = revoke::decide(&hash, &known, &asker, source, &*app.clock, &*app.random)?;
        let done = writes.is_empty() || app.try_commit(writes).await?;
        Ok::<_, Failure>(done.then_some(()))
    })
    .await?;
    Ok(unstored(StatusCode::OK.into_response()))
}
