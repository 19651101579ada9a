//! Dangerous acts: the service does them after a person has confirmed them in the browser.
//!
//! On a terminal the command opens the page, or prints its address, and waits. Otherwise it ends
//! with exit 4 and the address; run again within five minutes after the confirmation, it goes on.

use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vault_api::{Confirmation, ConfirmationState};
use vault_service::error::ErrorCode as ServiceCode;

use super::{Body, OwnerClient, browser, ceiling};
use crate::{
    context::Context,
    errors::{Exit, Failure, FailureCode},
    output::{HINT, clean, paint},
};

/// Time for which a command waits for the person: as long as the service keeps the page.
const PATIENCE: Duration = Duration::from_mins(10);
/// Interval between two requests for the decision.
const INTERVAL: Duration = Duration::from_secs(2);
/// Interval after a request that failed: the service may be busy, or the network down.
const LONG_INTERVAL: Duration = Duration::from_secs(10);

/// Sends a request that a person may have to confirm, and parses the JSON response. Fails with exit
/// 4 if the person declines or does not answer, or if there is no terminal to wait on.
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

/// Shows the page to the person and waits for the decision.
async fn await_confirmation(
    context: &Context,
    client: &OwnerClient,
    confirmation: &Confirmation,
) -> Result<(), Failure> {
    // The address comes from the service, and this program opens it: only a page of the service.
    if !client.base().is_origin_of(&confirmation.url) {
        let url = clean(&confirmation.url, 120);
        return Err(fail!(
            IssuerMismatch,
            "{} sends the confirmation to another host: {url}",
            client.base()
        ));
    }
    if !context.ui.may_ask() {
        return Err(nobody_there(&confirmation.url));
    }
    show_address(context, &confirmation.url);
    let path = format!("/admin/confirmations/{}", clean(&confirmation.id, 64));
    let decided = async {
        let mut interval = INTERVAL;
        loop {
            tokio::time::sleep(interval).await;
            interval = INTERVAL;
            match client.get::<Confirmation>(&path).await {
                Ok(found) if found.state == ConfirmationState::Asked => {}
                Ok(found) => return Ok(found.state),
                // A confirmation that has ended is not found any more.
                Err(failure) if failure.code == ServiceCode::NotFound => return Err(too_late()),
                // The person may still be reading the page. A failure that lasts ends with the
                // patience.
                Err(failure) if failure.exit() == Exit::Network => interval = LONG_INTERVAL,
                Err(failure) => return Err(failure),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, decided).await {
        Ok(Ok(ConfirmationState::Confirmed)) => Ok(()),
        Ok(Ok(_)) => Err(refusal(
            ServiceCode::ConfirmationDeclined,
            "you declined this on the page, so the service did not do it".to_owned(),
        )),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(too_late()),
    }
}

fn show_address(context: &Context, url: &str) {
    let ui = &context.ui;
    let opened = browser::open_page(&context.process, url);
    let address_line = format!("\n\n  {}\n", paint(HINT, clean(url, 300)));
    if opened && !ui.is_json() {
        ui.note(
            "Confirm this in your browser. If it does not open, use this address:".to_owned()
                + &address_line,
        );
    } else {
        ui.must_see("Open this address in a browser and confirm:".to_owned() + &address_line);
    }
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

fn nobody_there(url: &str) -> Failure {
    let url = clean(url, 300);
    let message = format!("this needs your confirmation at {url}");
    refusal(ServiceCode::ConfirmationNeeded, message).hint(
        "open the address in any browser within ten minutes and confirm; then run the command again within five minutes",
    )
}

fn too_late() -> Failure {
    refusal(
        ServiceCode::ConfirmationNeeded,
        "this was not confirmed within ten minutes, so the service did not do it".to_owned(),
    )
    .hint("run the command again")
}
