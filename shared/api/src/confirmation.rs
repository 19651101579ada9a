//! Confirmations of a person, which dangerous acts need: `/admin/confirmations`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::{Email, Given, Role, Scope};

/// Maximum number of acts that one confirmation is about.
pub const MAX_ACTS: usize = 20;

words! {
    /// Whether the person has decided on a confirmation, and how.
    #[derive(JsonSchema)]
    pub enum ConfirmationState {
        /// The person has not decided yet.
        Asked = "asked",
        /// The person confirmed; the app may send its request again.
        Confirmed = "confirmed",
        /// The person declined.
        Declined = "declined",
    }
}

/// A confirmation that an app waits for.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Confirmation {
    /// Id of the confirmation, `cnf_…`. It need not be kept secret.
    pub id: String,
    /// The page on which the person decides, in any browser. Nobody else can open it.
    pub url: String,
    /// Whether the person has decided, and how.
    pub state: ConfirmationState,
    /// Time at which it ends: ten minutes after it was asked for, or five minutes after the person
    /// confirmed.
    pub expires_at: Timestamp,
}

// Two types, each with a route: a request cannot mix acts of a vault with those of an operator, and
// the guard of its route checks the rights over all of them.
/// Acts of one command in a vault, which the person confirms together.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VaultActs {
    /// The acts, in the order in which the page lists them; each one once.
    #[schemars(length(min = 1, max = 20))]
    pub acts: Vec<VaultAct>,
}

// `Given`, so that a wrong word gets the error code that the request of the act gets.
/// An act in a vault that a person confirms. The request that does it has the same values.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "act", deny_unknown_fields)]
pub enum VaultAct {
    /// Deletes the vault and everything in it. Its name is not given out again.
    DeleteVault {},
    /// Removes the pin, so that the next release may be of another vault.
    ResetPin {},
    /// Invites an address as an owner.
    InviteOwner {
        /// E-mail address of the person to invite.
        email: Given<Email>,
        /// The scopes to grant; `read` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<Given<Scope>>>,
    },
    /// Invites an address anew, with another role than that of its invitation.
    ChangeInvitation {
        /// E-mail address that was invited.
        email: Given<Email>,
        /// Role that the person would have.
        role: Given<Role>,
        /// The scopes to grant; `read` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<Given<Scope>>>,
    },
    /// Changes the role of a user.
    ChangeRole {
        /// Id of the user, `usr_…`.
        user: String,
        /// Role that the user gets.
        role: Given<Role>,
    },
    /// Ends the membership of a user, whose tokens for the vault become invalid at once.
    RemoveUser {
        /// Id of the user, `usr_…`.
        user: String,
    },
    /// Makes a code that admits machines.
    CreateCode {
        /// Number of machines that it admits.
        #[schemars(range(min = 1, max = 10_000))]
        uses: u32,
        /// Seconds for which it is valid, from a minute to 90 days; a day if absent.
        #[schemars(range(min = 60, max = 7_776_000))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_in: Option<i64>,
        /// Required name of the machines, in which `*` stands for any characters; any name if
        /// absent.
        #[schemars(length(min = 1, max = 64))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Admits a machine that waits.
    AdmitMachine {
        /// Id of the machine, `dev_…`.
        machine: String,
    },
}

/// Acts of one command of an operator, who confirms them together.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorActs {
    /// The acts, in the order in which the page lists them; each one once.
    #[schemars(length(min = 1, max = 20))]
    pub acts: Vec<OperatorAct>,
}

/// An act of an operator about the account with an address.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "act", deny_unknown_fields)]
pub enum OperatorAct {
    /// Deletes the account and removes its person from every vault.
    DeleteAccount {
        /// E-mail address of the account.
        email: Given<Email>,
    },
    /// Removes the credentials of the account and makes a link that sets new ones.
    ResetAccount {
        /// E-mail address of the account.
        email: Given<Email>,
    },
    /// Makes the account an operator.
    GrantOperator {
        /// E-mail address of the account.
        email: Given<Email>,
    },
    /// Takes the rights of an operator from the account.
    RevokeOperator {
        /// E-mail address of the account.
        email: Given<Email>,
    },
}
