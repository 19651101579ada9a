//! `/admin/confirmations`: what an app waits for after the answer `confirmation_needed`.

use axum::http::StatusCode;

use super::call::{Answer, Call};
use crate::accounts::permits::{find_permit, to_api_confirmation};
use crate::bearer::Bearer;
use crate::error::ErrorCode;
use crate::http::json_answer;

/// Shows a confirmation that this app asked for. An app that waits reads this instead of repeating
/// its request, whose refusals are logged.
pub(super) async fn show_confirmation(call: Call<Bearer>) -> Answer {
    let id = call.param("id");
    let found = find_permit(&call.app, call.caller.account(), id).await?;
    // One of another app of the person is not found: an app learns nothing about other apps.
    let own = found.filter(|found| found.client.as_ref() == Some(call.caller.client_id()));
    let permit = own.ok_or(ErrorCode::NotFound)?.permit;
    let confirmation = to_api_confirmation(&call.app, &permit);
    Ok(json_answer(StatusCode::OK, &confirmation))
}
