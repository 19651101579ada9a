//! Endpoints that programs call: discovery, registration, tokens and revocation. Their errors have
//! the JSON format of RFC 6749, while other routes of the service answer with problem details (RFC
//! 9457).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::error_response::{EndpointError, forbid_caching};
use super::guard::{Revocation, read_form};
use super::metadata;
use super::register::{self, ClientMetadata, RegisterError};
use super::revoke;
use super::token::{self, TokenAnswer, TokenError, TokenRequest, TokenTerms};
use crate::app::App;
use crate::documents::MAX_DOCUMENT_BYTES;
use crate::error::{ErrorCode, Refusal};
use crate::http::{client_address, json_answer};
use crate::model::audit::log_unwritten;
use crate::model::client::{Client, unused_limit};
use crate::model::limits::{NetworkLimit, Networks, Window, count_or_refuse};
use crate::transaction::Transaction;

const MAX_REGISTER_BYTES: usize = MAX_DOCUMENT_BYTES;

/// `GET /.well-known/oauth-authorization-server` and `/.well-known/openid-configuration`: returns
/// the metadata of the authorization server.
pub fn authorization_server(app: &App) -> Value {
    let documents = app.documents.is_some();
    json!(metadata::authorization_server(
        &app.config.public_url,
        documents
    ))
}

/// `GET /.well-known/oauth-protected-resource`: returns the metadata of the whole service.
pub fn protected_resource(app: &App) -> Value {
    json!(metadata::protected_resource(&app.config.public_url, ""))
}

/// `GET /.well-known/oauth-protected-resource/mcp`: returns the metadata of `/mcp`.
pub fn protected_mcp(app: &App) -> Value {
    json!(metadata::protected_resource(&app.config.public_url, "/mcp"))
}

/// `POST /oauth/register`: registers a client.
pub async fn register_client(app: &App, request: Request) -> Result<Response, EndpointError> {
    let (parts, body) = request.into_parts();
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    let networks = Networks::of(source);
    let limit = NetworkLimit {
        name: "register",
        about: None,
        limit: app.config.limits.register_per_source,
        seconds: 3600,
    };
    let now = app.clock.now();
    // Counted before the body is read, since anyone may register.
    count_or_refuse(app, &limit.windows(&networks), now).await?;
    let reading = app
        .bodies
        .read_json(networks.lane(), &parts.headers, body, MAX_REGISTER_BYTES);
    let metadata: ClientMetadata = reading.await.map_err(|refusal| {
        // RFC 7591 has no code for a body that is not JSON, so it counts as invalid metadata.
        if refusal.code() == ErrorCode::JsonInvalid {
            EndpointError::from(RegisterError::Metadata("the body must be a JSON object"))
        } else {
            refusal.into()
        }
    })?;
    let (answer, client) = register::decide_registration(&metadata, now, &app.random)?;
    let store = async |tx| register_in(&tx, app, &client, &networks).await;
    app.change(store).await?;
    Ok(forbid_caching(json_answer(StatusCode::CREATED, &answer)))
}

/// Stores a registration. Fails with 429 if the client's address, or a network around it, already
/// has the maximum number of unused registrations.
async fn register_in(
    tx: &Transaction<'_>,
    app: &App,
    client: &Client,
    networks: &Networks,
) -> Result<(), EndpointError> {
    let limit = app.config.limits.unused_per_source;
    let windows = unused_limit(limit).windows(networks);
    let counted = windows
        .iter()
        .filter_map(|window| window.counting_write(client.created_at));
    let counted: Vec<_> = counted.collect();
    let mut client = client.clone();
    client.unused_of = (limit > 0).then(|| networks.clone());
    let bounds = counted.len();
    tx.write_all(counted);
    tx.write(register::registration_write(&client)?);
    match tx.commit_with_limits(bounds).await? {
        None => Ok(()),
        Some(full) => Err(windows[full].refusal(client.created_at).into()),
    }
}

/// `POST /oauth/token`: exchanges a code or a refresh token for tokens.
pub async fn issue_tokens(app: &App, request: Request) -> Result<Response, EndpointError> {
    let source = client_address(&app.config, request.headers(), request.extensions());
    let by_header = request.headers().contains_key(header::AUTHORIZATION);
    let form = read_form(app, request).await?;
    // This is more than a missing `client_id`: the client tried to authenticate by a secret, and
    // must learn that clients have none.
    if by_header && form.is_sound("client_id") && form.value("client_id").is_none() {
        return Err(EndpointError::HeaderCredentials);
    }
    let request = TokenRequest::from_form(&form)?;
    let lifetimes = TokenTerms {
        base: app.config.public_url.base(),
        access_seconds: app.config.token_ttl_seconds,
    };
    let exchange = async |tx| exchange_token(&tx, app, &request, lifetimes, source).await;
    let answer = app.change(exchange).await?;
    Ok(forbid_caching(json_answer(StatusCode::OK, &answer)))
}

/// Counts a refused request by client and network, or only by network if the client is unknown.
/// Successful requests are not counted, so that one user's failures do not keep other users of the
/// client from a token.
async fn count_failure(
    app: &App,
    request: &TokenRequest,
    known: bool,
    source: Option<IpAddr>,
) -> Result<(), Refusal> {
    let limit = NetworkLimit {
        name: "token",
        about: known.then(|| request.client.id().to_string()),
        limit: app.config.limits.token_failures,
        seconds: 60,
    };
    let windows = limit.windows(&Networks::of(source));
    count_or_refuse(app, &windows, app.clock.now()).await
}

async fn exchange_token(
    tx: &Transaction<'_>,
    app: &App,
    request: &TokenRequest,
    terms: TokenTerms<'_>,
    source: Option<IpAddr>,
) -> Result<TokenAnswer, EndpointError> {
    let known = token::load_records(tx, request).await?;
    let mut decision = token::decide_token(tx, request, &known, terms, source)?;
    if decision.answer.is_err() && !decision.ended_family {
        // Counted before the audit entry is written, so that requests over the limit cannot fill
        // the log.
        count_failure(app, request, known.client_is_known(request), source).await?;
    }
    if let Some(refused) = decision.refused.take() {
        log_unwritten(app.refusals.record(app, &refused).await);
    }
    let now = tx.now();
    let most = app.config.limits.tokens_per_grant;
    let window = decision.grant.take();
    let window = window.map(|grant| Window::about_subject("token-grant", grant, most, 60));
    let counted = window
        .as_ref()
        .and_then(|window| window.counting_write(now));
    // The counting write must be first: by this position `commit_with_limits` distinguishes a full
    // window from a write that another request overtook.
    decision.writes.splice(..0, counted.clone());
    if !decision.writes.is_empty() {
        tx.write_all(decision.writes);
        if tx
            .commit_with_limits(usize::from(counted.is_some()))
            .await?
            .is_some()
        {
            let full = window.map(|window| window.refusal(now));
            return Err(full.unwrap_or_else(|| ErrorCode::RateLimited.into()).into());
        }
    }
    if decision.ended_family {
        tracing::warn!(client = %request.client.id(), "a used code or refresh token was presented again: its token family was revoked");
    }
    Ok(decision.answer?)
}

/// `POST /oauth/revoke`: ends the token in the form; a refresh token ends with its whole family.
pub async fn revoke_token(app: &App, request: Revocation) -> Result<Response, EndpointError> {
    let Revocation {
        form,
        asker,
        source,
        ..
    } = request;
    let token = form
        .value("token")
        .ok_or_else(|| TokenError::InvalidRequest("token is required".to_owned()))?;
    // Text that is no token of this service is answered like a token that has ended (RFC 7009
    // section 2.2).
    let Some(hash) = revoke::hash_token(token) else {
        return Ok(forbid_caching(StatusCode::OK.into_response()));
    };
    let revoke = async |tx: Transaction<'_>| {
        let known = revoke::load_token(&tx, &hash).await?;
        tx.write_all(revoke::decide_revocation(
            &tx, &hash, &known, &asker, source,
        )?);
        Ok::<_, EndpointError>(())
    };
    app.change(revoke).await?;
    Ok(forbid_caching(StatusCode::OK.into_response()))
}
