//! Acts of a vault that a person confirms, each with the function of its route: for the page of the
//! console that confirms and does one, and for a request that asks for several at once.

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

/// What an act has done.
pub(crate) enum ActDone {
    /// The vault is deleted.
    VaultDeleted,
    /// The pin is reset.
    PinReset,
    /// Somebody is invited, or invited anew.
    Invited,
    /// A user has another role.
    RoleChanged,
    /// A user is removed.
    UserRemoved(Box<User>),
    /// A code is made, whose text is in this value alone.
    CodeMade(Box<EnrolmentCode>),
    /// A machine is admitted.
    MachineAdmitted,
}

/// Does an act of the vault, with the permit for it. Fails with `ConfirmationNeeded` without one,
/// with the errors of the route of the act, and with `OperatorRequired` for an act of an operator.
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
