//! `/admin/confirmations`: shows an app the state of a confirmation that it waits for after the
//! answer `confirmation_needed`, and lets it request one confirmation for several acts.
//!
//! Rule: an app may request a confirmation only for acts that it may do. So each act is rehearsed
//! before the person is asked: the function of its own route runs over ports that discard all
//! writes.

use axum::http::StatusCode;
use vault_api::{
    Email, Given, MAX_ACTS, NewEnrolmentCode, OperatorAct, OperatorActs, VaultAct, VaultActs,
};

use super::accounts::begin_act;
use super::acts::do_act;
use super::call::{Answer, Call, OperatorCall};
use super::devices::admission_act;
use super::enrolment::code_act;
use super::principal::Principal;
use super::users::{NewMember, removal_act, role_act, scopes_or_default};
use crate::accounts::permits::{find_permit, to_api_confirmation};
use crate::app::App;
use crate::bearer::Bearer;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::permit::Act;

/// Shows a confirmation that this app has requested. An app polls this route instead of repeating
/// its request, because refusals are logged.
pub(super) async fn show_confirmation(call: Call<Bearer>) -> Answer {
    let id = call.param("id");
    let found = find_permit(&call.app, call.caller.account(), id).await?;
    // A confirmation of another app is not found: an app learns nothing about the person's other
    // apps.
    let own = found.filter(|found| found.client.as_ref() == Some(call.caller.client_id()));
    let permit = own.ok_or(ErrorCode::NotFound)?.permit;
    let confirmation = to_api_confirmation(&call.app, &permit);
    Ok(json_answer(StatusCode::OK, &confirmation))
}

/// Asks the owner to confirm several acts on the vault at once.
pub(super) async fn ask_owner(call: Call) -> Answer {
    let asked: VaultActs = call.json_body().await?;
    let acts = parse_acts(&asked.acts, parse_vault_act)?;
    let rehearsal = with_discarded_writes(&call.app);
    let by = call.to_principal();
    let rehearsed = Principal {
        app: &rehearsal,
        ..by
    };
    for (place, act) in acts.iter().enumerate() {
        check_rehearsed_act(place, act, do_act(&rehearsed, act).await)?;
    }
    let home = call.caller.namespace.to_ref();
    let permit = by.as_requester(&home).ask(&call.app, &acts).await?;
    let confirmation = to_api_confirmation(&call.app, &permit);
    Ok(json_answer(StatusCode::CREATED, &confirmation))
}

/// Asks an operator to confirm several acts about accounts at once.
pub(super) async fn ask_operator(mut call: OperatorCall) -> Answer {
    let asked: OperatorActs = call.json_body().await?;
    let acts = parse_acts(&asked.acts, parse_operator_act)?;
    let rehearsal = with_discarded_writes(&call.app);
    let app = std::mem::replace(&mut call.app, rehearsal);
    for (place, act) in acts.iter().enumerate() {
        check_rehearsed_act(place, act, begin_act(&call, act).await)?;
    }
    let permit = call.as_requester().ask(&app, &acts).await?;
    let confirmation = to_api_confirmation(&app, &permit);
    Ok(json_answer(StatusCode::CREATED, &confirmation))
}

/// Returns a copy of the app whose ports discard all writes.
fn with_discarded_writes(app: &App) -> App {
    let mut rehearsal = app.clone();
    rehearsal.ports = app.ports.discarding_writes();
    rehearsal
}

/// Judges the outcome of a rehearsed act: succeeds if nothing but the permit is missing. `place` is
/// the position of the act in the request, for the error text.
fn check_rehearsed_act<T>(
    place: usize,
    act: &Act,
    outcome: Result<T, Refusal>,
) -> Result<(), Refusal> {
    match outcome {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code() == ErrorCode::ConfirmationNeeded => Ok(()),
        Err(refusal) => {
            let target = act.target_text();
            let target = target.map_or_else(String::new, |target| format!(", {target}"));
            let reason = lower_first(&refusal.to_string());
            let detail = format!("Act {}{target}: {reason}", place + 1);
            Err(refusal.detail(detail))
        }
    }
}

/// Returns a sentence with a lower-case first letter, for use after a colon.
fn lower_first(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first = chars.next().into_iter().flat_map(char::to_lowercase);
    first.chain(chars).collect()
}

/// Parses the acts of a request. Fails unless there are 1 to [`MAX_ACTS`], all different: a
/// confirmation of the same act twice would do it once more than the person expects.
fn parse_acts<T>(
    asked: &[T],
    parse: impl Fn(&T) -> Result<Act, Refusal>,
) -> Result<Vec<Act>, Refusal> {
    if !(1..=MAX_ACTS).contains(&asked.len()) {
        return Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("One confirmation is about 1 to 20 acts."));
    }
    let mut acts = Vec::new();
    for act in asked {
        let act = parse(act)?;
        if acts.contains(&act) {
            return Err(
                Refusal::new(ErrorCode::ParameterInvalid).detail("The same act is listed twice.")
            );
        }
        acts.push(act);
    }
    Ok(acts)
}

fn parse_vault_act(asked: &VaultAct) -> Result<Act, Refusal> {
    Ok(match asked {
        VaultAct::DeleteVault {} => Act::DeleteVault {},
        VaultAct::ResetPin {} => Act::ResetPin {},
        VaultAct::InviteOwner { email, scopes } => Act::InviteOwner {
            email: email.parse_or(ErrorCode::EmailInvalid)?,
            scopes: scopes_or_default(scopes.as_deref())?,
        },
        VaultAct::ChangeInvitation {
            email,
            role,
            scopes,
        } => {
            let newcomer = NewMember {
                email: email.parse_or(ErrorCode::EmailInvalid)?,
                role: role.parse_or(ErrorCode::RoleUnknown)?,
                scopes: scopes_or_default(scopes.as_deref())?,
            };
            newcomer.act()
        }
        VaultAct::AdmitMachine { machine } => admission_act(machine),
        VaultAct::ChangeRole { user, role } => {
            role_act(user, role.parse_or(ErrorCode::RoleUnknown)?)
        }
        VaultAct::RemoveUser { user } => removal_act(user),
        VaultAct::CreateCode {
            uses,
            expires_in,
            name,
        } => {
            let code = NewEnrolmentCode {
                uses: Some(*uses),
                expires_in: *expires_in,
                name: name.clone(),
            };
            let act = code_act(&code);
            // A name that no machine can have must not become a code for every machine.
            if name.is_some() && matches!(act, Act::CreateCode { name: None, .. }) {
                return Err(ErrorCode::HostnameInvalid.into());
            }
            act
        }
    })
}

fn parse_operator_act(asked: &OperatorAct) -> Result<Act, Refusal> {
    // An address that cannot exist is refused like one without an account.
    let parse = |email: &Given<Email>| email.parse_or(ErrorCode::AccountNotFound);
    Ok(match asked {
        OperatorAct::DeleteAccount { email } => Act::DeleteAccount {
            email: parse(email)?,
        },
        OperatorAct::ResetAccount { email } => Act::ResetAccount {
            email: parse(email)?,
        },
        OperatorAct::GrantOperator { email } => Act::GrantOperator {
            email: parse(email)?,
        },
        OperatorAct::RevokeOperator { email } => Act::RevokeOperator {
            email: parse(email)?,
        },
    })
}
