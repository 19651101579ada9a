//! Acts on a vault that a person must confirm first. [`do_act`] calls the function that the act's
//! own route calls. The page of the console uses it to do an act once it is confirmed, and a
//! request for several confirmations at once uses it as a rehearsal.

use vault_api::{EnrolmentCode, NewEnrolmentCode};

use super::delete::delete_vault;
use super::devices::{Decision, decide_device};
use super::enrolment::create_code;
use super::pin::reset_pin;
use super::principal::Principal;
use super::users::{NewMember, change_role, invite_user, remove_user};
use crate::error::{ErrorCode, Refusal};
use crate::model::permit::Act;
use crate::model::user::{Role, User};

/// What the confirmation page of the console shows after an act.
pub(crate) enum ActDone {
    VaultDeleted,
    PinReset,
    /// An invitation was sent, or an open one was changed.
    Invited,
    RoleChanged,
    /// The removed user, as it was before. A caller who removed themselves can no longer open the
    /// vault's pages.
    UserRemoved(Box<User>),
    /// The code that was created. Only this value contains its text, which the page shows once.
    CodeMade(Box<EnrolmentCode>),
    MachineAdmitted,
}

/// Does an act on the vault and uses the permit for it: the record that the person has confirmed
/// exactly this act. Fails with `ConfirmationNeeded` without a permit, with the errors of the act's
/// own route, and with `OperatorRequired` for an act of an operator.
pub(crate) async fn do_act(by: &Principal<'_>, act: &Act) -> Result<ActDone, Refusal> {
    Ok(match act {
        Act::DeleteVault {} => {
            delete_vault(by).await?;
            ActDone::VaultDeleted
        }
        Act::ResetPin {} => {
            reset_pin(by).await?;
            ActDone::PinReset
        }
        Act::InviteOwner { email, scopes } => {
            let newcomer = NewMember {
                email: email.clone(),
                role: Role::Owner,
                scopes: *scopes,
            };
            invite_user(by, &newcomer).await?;
            ActDone::Invited
        }
        Act::ChangeInvitation {
            email,
            role,
            scopes,
        } => {
            let newcomer = NewMember {
                email: email.clone(),
                role: *role,
                scopes: *scopes,
            };
            invite_user(by, &newcomer).await?;
            ActDone::Invited
        }
        Act::ChangeRole { user, role } => {
            change_role(by, user, *role).await?;
            ActDone::RoleChanged
        }
        Act::RemoveUser { user } => ActDone::UserRemoved(Box::new(remove_user(by, user).await?)),
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
            let made = create_code(by, new_code, None).await?;
            ActDone::CodeMade(Box::new(made.ok_or(ErrorCode::Unavailable)?))
        }
        Act::AdmitMachine { machine } => {
            decide_device(by.as_acting_user(), machine, Decision::Admit).await?;
            ActDone::MachineAdmitted
        }
        Act::DeleteAccount { .. }
        | Act::ResetAccount { .. }
        | Act::GrantOperator { .. }
        | Act::RevokeOperator { .. } => return Err(ErrorCode::OperatorRequired.into()),
    })
}
