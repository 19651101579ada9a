//! Guard of the revocation endpoint. It makes the value that the handler takes, so that no request
//! reaches the handler without its check.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::HeaderMap;

use super::error_response::EndpointError;
use super::revoke::RevocationCaller;
use super::token::TokenError;
use crate::app::App;
use crate::bearer;
use crate::documents::ClientName;
use crate::error::Fault;
use crate::http::{client_address, require_media_type};
use crate::model::client::{Client, ClientId, client_key};
use crate::model::limits::Networks;
use crate::route::Audience;
use crate::web::form::Form;

/// Maximum size of a token or revocation request, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// A revocation request from a client that sends its `client_id`, or from the bearer of a valid
/// access token.
pub struct Revocation {
    /// Decoded fields of the form, none of which is repeated.
    pub form: Form,
    /// The client and the bearer, at least one of which is known.
    pub asker: RevocationCaller,
    /// IP address of the client; `None` if it is unknown.
    pub source: Option<IpAddr>,
    _proof: (),
}

/// Admits a client that sends its `client_id`, or the bearer of a valid access token.
pub async fn require_client_or_bearer(
    app: &App,
    request: Request,
) -> Result<Revocation, EndpointError> {
    let headers = request.headers().clone();
    let source = client_address(&app.config, &headers, request.extensions());
    let form = read_form(app, request).await?;
    form.check()
        .map_err(|bad| TokenError::InvalidRequest(bad.to_string()))?;
    let asker = identify_asker(app, &headers, &form).await?;
    Ok(Revocation {
        form,
        asker,
        source,
        _proof: (),
    })
}

/// Identifies the caller: a client, the bearer of a valid token, or both. Fails with 401 if it is
/// neither.
async fn identify_asker(
    app: &App,
    headers: &HeaderMap,
    form: &Form,
) -> Result<RevocationCaller, EndpointError> {
    let client = match form.value("client_id") {
        None => None,
        Some(id) => Some(registered_client(app, id).await?),
    };
    // Accepts tokens for any audience and does not check the namespace: tokens of a suspended vault
    // can still be revoked.
    match bearer::identify_bearer(app, headers, Audience::Any).await {
        Ok(bearer) => Ok(RevocationCaller {
            client,
            bearer: Some((bearer.client_id().clone(), bearer.account().clone())),
        }),
        // An outage must not look like an invalid token: a client that gets 401 would discard valid
        // tokens.
        Err(refusal) if refusal.code().row().fault == Fault::Service => Err(refusal.into()),
        Err(_) if client.is_some() => Ok(RevocationCaller {
            client,
            bearer: None,
        }),
        Err(refusal) => Err(EndpointError::Challenged(refusal)),
    }
}

async fn registered_client(app: &App, name: &str) -> Result<ClientId, EndpointError> {
    let name: ClientName = name.parse().map_err(|_| TokenError::InvalidClient)?;
    let stored_client = app.get::<Client>(&client_key(&name.id())).await?;
    stored_client
        .filter(|client| name.is_name_of(&client.value))
        .map(|client| client.value.id)
        .ok_or_else(|| TokenError::InvalidClient.into())
}

/// Reads the form of an endpoint for programs, within the maximum size.
pub async fn read_form(app: &App, request: Request) -> Result<Form, EndpointError> {
    let (parts, body) = request.into_parts();
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    let lane = Networks::of(source).lane();
    let body = app.bodies.read(lane, body, MAX_TOKEN_BYTES).await?;
    require_media_type(&parts.headers, "application/x-www-form-urlencoded")?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| TokenError::InvalidRequest("the body is not text".to_owned()))?;
    Ok(Form::parse(text))
}
