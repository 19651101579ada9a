//! Confirmations: the service executes a dangerous request only after a person has confirmed it on
//! a page in the browser.
//!
//! On a terminal, the command opens the page, or prints its address, and waits. Without a terminal,
//! the command fails with exit 4 and the address. Run again within five minutes after the
//! confirmation, it succeeds.

use std::time::Duration;

use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use vault_api::{Confirmation, ConfirmationState};
use vault_service::error::ErrorCode as ServiceCode;
use vault_store::clock::{Clock as _, SystemClock};

use super::{
    Body, OwnerClient,
    browser::{self, Page},
    ceiling,
};
use crate::{
    context::Context,
    errors::{Exit, Failure, FailureCode},
    output::{Report, clean, count},
};

/// Interval between two requests for the decision.
const INTERVAL: Duration = Duration::from_secs(2);
/// Interval after a request that failed: the service may be busy, or the network down.
const LONG_INTERVAL: Duration = Duration::from_secs(10);

/// Sends a request that a person may have to confirm, waits for the confirmation, and parses the
/// JSON response. Fails with exit 4 if the person declines or does not answer, or if there is no
/// terminal to wait on.
pub async fn send_confirmed<T: DeserializeOwned>(
    context: &Context,
    client: &OwnerClient,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<T, Failure> {
    let sent = body.clone().map_or(Body::Empty, Body::Json);
    let answer = client.call(method.clone(), path, &[], sent, ceiling::LIST);
    let answer = answer.await?;
    let Some(confirmation) = answer.wanted_confirmation() else {
        return answer.json();
    };
    await_confirmation(context, client, &confirmation).await?;
    client.send(method, path, body).await
}

/// Opens the page of the confirmation and waits for the decision. Succeeds if the person confirms.
async fn await_confirmation(
    context: &Context,
    client: &OwnerClient,
    confirmation: &Confirmation,
) -> Result<(), Failure> {
    // The address comes from the untrusted service, and this program opens it, so accept only a
    // page on the service's own host.
    if !client.base().is_origin_of(&confirmation.url) {
        let url = clean(&confirmation.url, 120);
        return Err(fail!(
            IssuerMismatch,
            "{} sends the confirmation to another host: {url}",
            client.base()
        ));
    }
    if !context.ui.may_ask() {
        return Err(no_terminal_to_confirm(&confirmation.url));
    }
    let page = Page {
        address: &confirmation.url,
        opened: "Confirm this in",
        verb: "confirm",
    };
    browser::show_page(context, &page, false);
    // Only for the message, because the service decides when the confirmation ends. The clamp keeps
    // the number sensible if this machine's clock is wrong.
    let left = confirmation.expires_at.unix() - SystemClock.now().unix();
    let minutes = (left + 59).div_euclid(60).clamp(1, 10).cast_unsigned();
    context.ui.note(format!(
        "Waiting for up to {}. Ctrl-C stops; nothing is changed then.",
        count(minutes, "minute")
    ));
    match await_decision(client, confirmation).await? {
        ConfirmationState::Confirmed => Ok(()),
        ConfirmationState::Asked | ConfirmationState::Declined => Err(refusal(
            ServiceCode::ConfirmationDeclined,
            "you declined this on the page, so the service did not do it".to_owned(),
        )),
    }
}

/// Polls the service until the person has decided. Fails when the confirmation has expired.
async fn await_decision(
    client: &OwnerClient,
    confirmation: &Confirmation,
) -> Result<ConfirmationState, Failure> {
    let path = format!("/admin/confirmations/{}", clean(&confirmation.id, 64));
    let (mut interval, mut ends_at) = (INTERVAL, confirmation.expires_at);
    loop {
        tokio::time::sleep(interval).await;
        interval = INTERVAL;
        match client.get::<Confirmation>(&path).await {
            // A repeated request for the same confirmation extends it, so the newest expiry counts.
            Ok(found) if found.state == ConfirmationState::Asked => ends_at = found.expires_at,
            Ok(found) => return Ok(found.state),
            // The service deletes a confirmation that has expired or was used.
            Err(failure) if failure.code == ServiceCode::NotFound => {
                return Err(confirmation_gone(SystemClock.now() < ends_at));
            }
            // The person may still be reading the page. The clock of this machine decides only
            // while the service does not answer.
            Err(failure) if failure.exit() == Exit::Network && SystemClock.now() < ends_at => {
                interval = LONG_INTERVAL;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Asks for one confirmation of all requests that a command is about to send. `path` and `body` are
/// the request that creates this confirmation.
pub async fn confirm_together(
    context: &Context,
    client: &OwnerClient,
    path: &str,
    body: Value,
) -> Result<(), Failure> {
    let confirmation: Confirmation = client.send(Method::POST, path, Some(body)).await?;
    match confirmation.state {
        // The command is run again after the person confirmed.
        ConfirmationState::Confirmed => Ok(()),
        ConfirmationState::Asked | ConfirmationState::Declined => {
            await_confirmation(context, client, &confirmation).await
        }
    }
}

/// Calls `change` for each target, and reports the results: in JSON a single object for one target,
/// a list for several. If one fails, prints the lines of those before it and returns the failure.
pub async fn change_each<T, R: Serialize>(
    context: &Context,
    targets: &[T],
    change: impl AsyncFn(&T) -> Result<(R, String), Failure>,
) -> Result<Report, Failure> {
    let (mut answers, mut lines) = (Vec::new(), Vec::new());
    for target in targets {
        match change(target).await {
            Ok((answer, line)) => {
                answers.push(answer);
                lines.push(line);
            }
            Err(failure) => {
                if !lines.is_empty() {
                    context.ui.must_see(lines.join("\n"));
                }
                return Err(failure);
            }
        }
    }
    let text = lines.join("\n");
    Ok(match answers.as_slice() {
        [answer] => Report::new(answer, text),
        answers => Report::new(answers, text),
    })
}

fn refusal(code: ServiceCode, message: String) -> Failure {
    let row = code.row();
    let code = FailureCode::Remote {
        word: row.code.to_owned(),
        status: row.status.as_u16(),
        exit: Exit::NotAllowed,
    };
    Failure::new(code, message)
}

fn no_terminal_to_confirm(url: &str) -> Failure {
    let url = clean(url, 300);
    let message = format!("this needs your confirmation at {url}");
    refusal(ServiceCode::ConfirmationNeeded, message).hint(
        "open the address in any browser within ten minutes and confirm; then run the command again within five minutes",
    )
}

/// Creates the failure for a confirmation that the service no longer has. `early` means that it has
/// not expired by this machine's clock: another run of the same command must have used it.
fn confirmation_gone(early: bool) -> Failure {
    let (message, hint) = if early {
        (
            "the confirmation was used by another run of this command",
            "see whether it is done; if not, run the command again",
        )
    } else {
        (
            "this was not confirmed within ten minutes, so the service did not do it",
            "run the command again",
        )
    };
    refusal(ServiceCode::ConfirmationNeeded, message.to_owned()).hint(hint)
}
