//! `POST /hooks/payment`: receives events of the payment provider. The signature authenticates
//! them.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use vault_api::PaymentOutcome;

use super::event::Event;
use super::process_event;
use super::signature::{BadSignature, verify_signature};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, read_body};

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
    let body = read_body(body, MAX_EVENT_BYTES).await?;
    let mut headers = parts.headers.get_all(SIGNATURE).iter();
    // With two headers it would be open which one counts. The empty text never verifies.
    let header = match (headers.next(), headers.next()) {
        (Some(header), None) => header.to_str().unwrap_or_default(),
        _ => "",
    };
    verify_signature(header, &body, secrets, app.clock.now())?;
    let event = Event::parse(&body).ok_or(ErrorCode::JsonInvalid)?;
    let outcome = process_event(&app, &event).await?;
    Ok(json_answer(StatusCode::OK, &PaymentOutcome { outcome }))
}

impl From<BadSignature> for Refusal {
    fn from(bad: BadSignature) -> Self {
        tracing::warn!(error = %bad, "payment: an event was rejected");
        match bad {
            BadSignature::Forged => ErrorCode::PaymentSignatureInvalid,
            BadSignature::Old => ErrorCode::PaymentEventOld,
        }
        .into()
    }
}
