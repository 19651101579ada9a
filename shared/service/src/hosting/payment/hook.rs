//! `POST /hooks/payment`: receives events of the payment provider, which their signature
//! authenticates.
//!
//! Each network may send a limited number of bodies without a valid signature a minute, and each
//! wider network four times as many as the one inside it. Signed events are not counted, and are
//! not refused because of what else their network sends.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use vault_api::PaymentOutcome;
use vault_store::StoreError;

use super::event::Event;
use super::process_event;
use super::signature::{BadSignature, verify_signature};
use crate::app::App;
use crate::bodies::{ReceivedBody, SMALL_BYTES};
use crate::error::{ErrorCode, Refusal};
use crate::http::{client_address, json_answer};
use crate::model::limits::{NetworkLimit, Networks, Window, try_count};

/// Maximum size of an event, in bytes; real ones have a few KiB. Since anybody may send a body
/// here, it must fit into the memory that is set aside for small bodies.
const MAX_EVENT_BYTES: usize = SMALL_BYTES;
/// Length of the windows in which bodies without a valid signature are counted, in seconds.
const WINDOW_SECONDS: i64 = 60;
/// Header in which the provider sends the signature of an event.
const SIGNATURE: &str = "stripe-signature";

/// Receives an event. Without a configured secret, the route does not exist (404). The signature is
/// verified over the bytes that arrived, before anything parses them.
pub(crate) async fn receive_payment(app: App, request: Request) -> Result<Response, Refusal> {
    let secrets = &app.config.hosting.payment_secrets;
    if secrets.is_empty() {
        return Err(ErrorCode::NotFound.into());
    }
    let (parts, body) = request.into_parts();
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    // The signature is verified no matter what the client's network has sent before: the provider
    // may share the network with other callers, for example behind a proxy that is not configured
    // as trusted.
    let body = match read_signed(&app, source, &parts.headers, body).await {
        Ok(body) => body,
        Err(refusal) => return Err(refuse_unsigned(&app, source, refusal).await?),
    };
    let event = Event::parse(&body).ok_or(ErrorCode::JsonInvalid)?;
    let outcome = process_event(&app, &event).await?;
    Ok(json_answer(StatusCode::OK, &PaymentOutcome { outcome }))
}

/// Reads a body and verifies its signature.
async fn read_signed(
    app: &App,
    address: Option<IpAddr>,
    headers: &HeaderMap,
    body: Body,
) -> Result<ReceivedBody, Refusal> {
    let lane = Networks::of(address).lane();
    let body = app.bodies.read(lane, body, MAX_EVENT_BYTES).await?;
    let mut headers = headers.get_all(SIGNATURE).iter();
    // With two headers it is undefined which one counts, so they are replaced by the empty text,
    // which never verifies.
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

/// Counts a body without a valid signature against the client's networks. Returns the refusal to
/// answer: the given one, or 429 once one of the networks has sent too many.
async fn refuse_unsigned(
    app: &App,
    address: Option<IpAddr>,
    refusal: Refusal,
) -> Result<Refusal, StoreError> {
    let now = app.clock.now();
    let networks = Networks::of(address);
    // An event that is only too old was signed by the provider, so its number is not limited.
    let is_forged = refusal.code() != ErrorCode::PaymentEventOld;
    let limit = NetworkLimit {
        name: "payment-unsigned",
        about: None,
        limit: app.config.limits.payment_failures,
        seconds: WINDOW_SECONDS,
    };
    let counted = if is_forged {
        limit.windows(&networks)
    } else {
        Vec::new()
    };
    // The windows are read first, so that a flood causes no writes once one of them is full.
    for full in &counted {
        if full.is_full(app, now).await? {
            return Ok(full.refusal(now));
        }
    }
    if let Some(full) = try_count(app, &counted, now).await? {
        return Ok(counted[full].refusal(now));
    }
    // Log one line a minute for each of the widest networks, also without a limit on the bodies:
    // otherwise an unauthenticated caller could fill the log.
    // An event of the provider that is too large has a line of its own, which forged ones of the same
    // network do not displace: the operator has to look it up there.
    let name = match refusal.code() {
        ErrorCode::PaymentEventOld => "payment-old-log",
        ErrorCode::BodyTooLarge => "payment-large-log",
        _ => "payment-unsigned-log",
    };
    let widest = networks.widest().to_owned();
    let logged = Window::about_subject(name, widest, 1, WINDOW_SECONDS);
    if !logged.is_full(app, now).await? && try_count(app, &[logged], now).await?.is_none() {
        tracing::warn!(
            error = refusal.code().row().code,
            limit = MAX_EVENT_BYTES,
            "payment: a body that is too large, or has no good signature, was rejected; further ones of its network are not logged for up to a minute"
        );
    }
    Ok(refusal)
}
