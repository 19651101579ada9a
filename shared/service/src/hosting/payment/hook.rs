//! `POST /hooks/payment`: receives events of the payment provider. The signature authenticates
//! them.
//!
//! Whatever is not signed comes from a stranger, whose network may send a few such bodies a minute.
//! Signed events are never counted and never refused, whatever else comes from their source.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use vault_api::PaymentOutcome;

use super::event::Event;
use super::process_event;
use super::signature::{BadSignature, verify_signature};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::{client_address, json_answer, read_body};
use crate::model::limits::{Source, Window, try_count};

/// Maximum size of an event, in bytes.
const MAX_EVENT_BYTES: usize = 256 * 1024;
/// The header with the signature.
const SIGNATURE: &str = "stripe-signature";

/// Receives an event. Where no secret is configured, the route does not exist. The body is verified
/// as the bytes that arrived, before anything parses it.
pub(crate) async fn receive_payment(app: App, request: Request) -> Result<Response, Refusal> {
    let secrets = &app.config.hosting.payment_secrets;
    if secrets.is_empty() {
        return Err(ErrorCode::NotFound.into());
    }
    let (parts, body) = request.into_parts();
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    // The signature is verified whatever the source has sent before: the provider may share it with
    // a stranger, for example behind a proxy whose addresses are not known.
    let body = match read_signed(&app, &parts.headers, body).await {
        Ok(body) => body,
        Err(refusal) => return Err(count_unsigned(&app, Source::of(source), refusal).await?),
    };
    let event = Event::parse(&body).ok_or(ErrorCode::JsonInvalid)?;
    let outcome = process_event(&app, &event).await?;
    Ok(json_answer(StatusCode::OK, &PaymentOutcome { outcome }))
}

/// Reads a body and verifies its signature.
async fn read_signed(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let body = read_body(body, MAX_EVENT_BYTES).await?;
    let mut headers = headers.get_all(SIGNATURE).iter();
    // With two headers it would be open which one counts. The empty text never verifies.
    let header = match (headers.next(), headers.next()) {
        (Some(header), None) => header.to_str().unwrap_or_default(),
        _ => "",
    };
    let secrets = &app.config.hosting.payment_secrets;
    match verify_signature(header, &body, secrets, app.clock.now()) {
        Ok(()) => Ok(body),
        Err(BadSignature::Forged) => Err(ErrorCode::PaymentSignatureInvalid.into()),
        Err(BadSignature::Old) => Err(ErrorCode::PaymentEventOld.into()),
    }
}

/// Counts a body without a good signature against its source. Returns the refusal to answer: the
/// given one, or 429 once the source has sent too many.
async fn count_unsigned(app: &App, source: Source, refusal: Refusal) -> Result<Refusal, Refusal> {
    let window = Window {
        name: "payment-unsigned",
        who: source.to_string(),
        limit: app.config.limits.payment_failures,
        seconds: 60,
    };
    let now = app.clock.now();
    let counted = window.read_count(app, now).await?;
    if window.limit > 0 && counted >= i64::from(window.limit) {
        return Ok(window.refusal(now));
    }
    // One line for each source and minute, or a stranger could fill the log.
    if counted == 0 {
        tracing::warn!(
            error = refusal.code().row().code,
            "payment: a body without a good signature was rejected; further ones of its source are not logged for up to a minute"
        );
    }
    try_count(app, &[window], now).await?;
    Ok(refusal)
}
