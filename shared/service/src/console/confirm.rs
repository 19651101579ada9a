//! `/console/{slug}/confirm/{id}`: the page that confirms a dangerous act of a form of the console,
//! and then does it.

use axum::response::Response;
use vault_api::{EnrolmentCode, NewEnrolmentCode};

use super::codes::show_new_code;
use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::{Outcome, Unchanged};
use super::people::show_removal;
use crate::accounts::confirm_page::{
    ConfirmForm, Decision, ended_page, parse_decision, render_confirmation, require_waiting,
    sign_in_if_stale,
};
use crate::accounts::permits::{FoundPermit, decide, find_permit};
use crate::admin::delete::delete_vault;
use crate::admin::enrolment::create_code;
use crate::admin::pin::reset_pin;
use crate::admin::principal::Principal;
use crate::admin::users::{NewMember, change_role, invite_user, remove_user};
use crate::error::{ErrorCode, Refusal};
use crate::model::permit::Act;
use crate::model::user::Role;
use crate::web::browser::ReturnTo;
use crate::web::error_page::ErrorPage;

/// Shows the page.
pub(super) async fn show_confirmation(page: ConsolePage) -> Result<Response, ErrorPage> {
    let found = find_own(&page).await?;
    // The person asked here a moment ago, so nothing is lost by asking for credentials at once.
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
        unticked,
    };
    let visitor = &page.visitor;
    render_confirmation(&visitor.app, &visitor.signed_in, found, form).await
}

/// Finds the permit of the address, if the console asked for it about this vault and it waits.
async fn find_own(page: &ConsolePage) -> Result<FoundPermit, ErrorPage> {
    let (visitor, id) = (&page.visitor, page.param("id"));
    let account = &visitor.signed_in.account.id;
    let found = find_permit(&visitor.app, account, id).await?;
    let is_own = |found: &FoundPermit| {
        let home = found.permit.namespace.as_ref();
        found.client.is_none() && home.is_some_and(|home| home.id == page.namespace.id)
    };
    require_waiting(found.filter(is_own), &visitor.signed_in)
}

fn ask_for_credentials(page: &ConsolePage) -> Option<Response> {
    let visitor = &page.visitor;
    let onward = ReturnTo::Console(&page.path);
    sign_in_if_stale(&visitor.app, &visitor.browser, &visitor.signed_in, onward)
}

/// Confirms and does the act, or declines it.
pub(super) async fn decide_confirmation(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let decision = parse_decision(&form.form)?;
    let confirmed = decision != Decision::Decline;
    let page = &form.page;
    let found = find_own(page).await?;
    if confirmed && let Some(stale) = ask_for_credentials(page) {
        return Ok(stale);
    }
    if decision == Decision::ConfirmUnticked {
        return render_page(page, &found, true).await;
    }
    let acting = page.as_acting_user();
    let source = acting.actor.source;
    let decided = decide(page.app(), acting.account, &found, confirmed, source).await?;
    let permit = decided.ok_or_else(ended_page)?;
    // A form of the console asks for one act.
    let act = permit.acts.into_iter().next().ok_or_else(ended_page)?.act;
    let below = page_of_act(&act);
    if !confirmed {
        return Ok(form.redirect_unchanged(&below, Unchanged::Declined));
    }
    match carry_out(&form, &act).await {
        Ok(ActDone::Shown(response)) => Ok(response),
        Ok(ActDone::CodeMade(made)) => {
            let mut page = form.page;
            // The answer is the page of the codes, and its forms are sent there.
            page.path = page.path_of(&below);
            show_new_code(&page, *made).await
        }
        Err(refusal) => form.refuse_act(&below, &act, refusal).await,
    }
}

/// The answer after an act.
enum ActDone {
    /// A redirect.
    Shown(Response),
    /// A code, whose text is shown once.
    CodeMade(Box<EnrolmentCode>),
}

/// Does an act whose permit was just confirmed.
async fn carry_out(form: &ConsoleForm, act: &Act) -> Result<ActDone, Refusal> {
    let acting = form.page.as_acting_user();
    let by = Principal::from_user(acting, &form.page.user);
    let below = page_of_act(act);
    Ok(ActDone::Shown(match act {
        Act::DeleteVault {} => {
            delete_vault(&by).await?;
            form.to_choice(Outcome::VaultDeleted)
        }
        Act::ResetPin {} => {
            reset_pin(&by).await?;
            form.redirect_to(&below, Outcome::PinReset)
        }
        Act::InviteOwner { email, scopes } => {
            let newcomer = NewMember {
                email: email.clone(),
                role: Role::Owner,
                scopes: *scopes,
            };
            invite_user(&by, &newcomer).await?;
            form.redirect_to(&below, Outcome::PersonInvited)
        }
        Act::ChangeRole { user, role } => {
            change_role(&by, user, *role).await?;
            form.redirect_to(&below, Outcome::RoleChanged)
        }
        Act::RemoveUser { user } => {
            let removed = remove_user(&by, user).await?;
            show_removal(form, &removed)
        }
        Act::CreateCode {
            uses,
            seconds,
            name,
        } => {
            let new_code = NewEnrolmentCode {
                uses: Some(*uses),
                expires_in: Some(*seconds),
                name: name.clone(),
            };
            let made = create_code(acting, new_code, None).await?;
            let made = made.ok_or(ErrorCode::Unavailable)?;
            return Ok(ActDone::CodeMade(Box::new(made)));
        }
        // No form of the console asks for an act of an operator.
        Act::DeleteAccount { .. }
        | Act::ResetAccount { .. }
        | Act::GrantOperator { .. }
        | Act::RevokeOperator { .. } => return Err(ErrorCode::OperatorRequired.into()),
    }))
}

/// Returns the page of an act, below that of the vault.
fn page_of_act(act: &Act) -> String {
    match act {
        Act::InviteOwner { .. } => "/people".to_owned(),
        Act::ChangeRole { user, .. } | Act::RemoveUser { user } => format!("/people/{user}"),
        Act::CreateCode { .. } => "/machines/codes".to_owned(),
        Act::DeleteVault {}
        | Act::ResetPin {}
        | Act::DeleteAccount { .. }
        | Act::ResetAccount { .. }
        | Act::GrantOperator { .. }
        | Act::RevokeOperator { .. } => "/namespace".to_owned(),
    }
}
