//! `/console/{slug}/confirm/{id}`: the page on which a person confirms a dangerous act that a form
//! of the console asked for. On confirmation it performs the act.

use axum::response::Response;

use super::codes::show_new_code;
use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::{Outcome, Unchanged};
use super::people::show_removal;
use crate::accounts::confirm_page::{
    ConfirmForm, Decision, ended_page, parse_decision, render_confirmation, require_waiting,
    sign_in_if_stale, sign_out_button,
};
use crate::accounts::permits::{FoundPermit, decide, find_permit};
use crate::admin::acts::{ActDone, do_act};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::model::permit::Act;
use crate::web::browser::ReturnTo;
use crate::web::error_page::ErrorPage;
use crate::web::layout::SignOut;

/// `GET /console/{slug}/confirm/{id}`: shows the page, or asks for credentials first.
pub(super) async fn show_confirmation(page: ConsolePage) -> Result<Response, ErrorPage> {
    let found = find_console_permit(&page).await?;
    // The person sent the form a moment ago, so the credentials are asked for at once and not only
    // after the decision.
    if let Some(stale) = ask_for_credentials(&page) {
        return Ok(stale);
    }
    render_page(&page, &found, false).await
}

async fn render_page(
    page: &ConsolePage,
    found: &FoundPermit,
    unticked: bool,
) -> Result<Response, ErrorPage> {
    let here = page.address(&format!("/confirm/{}", found.permit.id));
    let form = ConfirmForm {
        action: here.clone(),
        csrf: page.form_token(),
        return_to: here,
        sign_out: sign_out(page),
        unticked,
    };
    let visitor = &page.visitor;
    render_confirmation(&visitor.app, &visitor.signed_in, found, form).await
}

/// Finds the permit that the address names, if the console asked for it, about this vault, and it
/// still waits.
async fn find_console_permit(page: &ConsolePage) -> Result<FoundPermit, ErrorPage> {
    let (visitor, id) = (&page.visitor, page.param("id"));
    let account = &visitor.signed_in.account.id;
    let found = find_permit(&visitor.app, account, id).await?;
    let is_own = |found: &FoundPermit| {
        let home = found.permit.namespace.as_ref();
        found.client.is_none() && home.is_some_and(|home| home.id == page.namespace.id)
    };
    require_waiting(found.filter(is_own), &visitor.signed_in, || sign_out(page))
}

fn sign_out(page: &ConsolePage) -> SignOut {
    let visitor = &page.visitor;
    sign_out_button(
        &visitor.app,
        &visitor.browser,
        ReturnTo::Console(&page.path),
    )
}

fn ask_for_credentials(page: &ConsolePage) -> Option<Response> {
    let visitor = &page.visitor;
    let onward = ReturnTo::Console(&page.path);
    sign_in_if_stale(&visitor.app, &visitor.browser, &visitor.signed_in, onward)
}

/// `POST /console/{slug}/confirm/{id}`: confirms and performs the act, or declines it.
pub(super) async fn decide_confirmation(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let decision = parse_decision(&form.form)?;
    let confirmed = decision != Decision::Decline;
    let page = &form.page;
    let found = find_console_permit(page).await?;
    if confirmed && let Some(stale) = ask_for_credentials(page) {
        return Ok(stale);
    }
    if decision == Decision::ConfirmUnticked {
        return render_page(page, &found, true).await;
    }
    // A permit of the console has one act.
    let act = found.permit.acts.first().ok_or_else(ended_page)?;
    let act = act.act.clone();
    let below = page_of_act(&act);
    if !confirmed {
        let acting = page.as_acting_user();
        let source = acting.actor.source;
        let declined = decide(page.app(), acting.account, &found, false, source).await?;
        declined.ok_or_else(ended_page)?;
        return Ok(form.redirect_unchanged(&below, Unchanged::Declined));
    }
    let page = &form.page;
    let by = Principal {
        // The decision and the act are one commit, so that an interrupted request leaves no
        // confirmed permit.
        confirms: Some(&found.permit.id),
        ..Principal::from_user(page.as_acting_user(), &page.user)
    };
    match do_act(&by, &act).await {
        Ok(done) => show_done(form, &below, done).await,
        // The person decided in another window meanwhile.
        Err(refusal) if refusal.code() == ErrorCode::ConfirmationNeeded => Err(ended_page()),
        Err(refusal) => form.refuse_act(&below, &act, refusal).await,
    }
}

/// Shows the result of an act on the page `below`, the path of its page under that of the vault.
async fn show_done(form: ConsoleForm, below: &str, done: ActDone) -> Result<Response, ErrorPage> {
    Ok(match done {
        ActDone::VaultDeleted => form.redirect_to_choice(Outcome::VaultDeleted),
        ActDone::PinReset => form.redirect_to(below, Outcome::PinReset),
        ActDone::Invited => form.redirect_to(below, Outcome::PersonInvited),
        ActDone::RoleChanged => form.redirect_to(below, Outcome::RoleChanged),
        ActDone::UserRemoved(removed) => show_removal(&form, &removed),
        ActDone::CodeMade(made) => {
            let mut page = form.page;
            // The answer is the page of the codes, so its forms must be bound to that path.
            page.path = page.path_of(below);
            return show_new_code(&page, *made).await;
        }
        ActDone::MachineAdmitted => form.redirect_to(below, Outcome::MachineAdmitted),
    })
}

/// Returns the path of the page of an act, under that of the vault.
fn page_of_act(act: &Act) -> String {
    match act {
        Act::InviteOwner { .. } | Act::ChangeInvitation { .. } => "/people".to_owned(),
        Act::ChangeRole { user, .. } | Act::RemoveUser { user } => format!("/people/{user}"),
        Act::CreateCode { .. } => "/machines/codes".to_owned(),
        Act::AdmitMachine { .. } => "/machines".to_owned(),
        Act::DeleteVault {}
        | Act::ResetPin {}
        | Act::DeleteAccount { .. }
        | Act::ResetAccount { .. }
        | Act::GrantOperator { .. }
        | Act::RevokeOperator { .. } => "/namespace".to_owned(),
    }
}
