//! The accounts of a service, for its operators: `/admin/operator/accounts`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;

use crate::{Email, Given};

/// An account of the service, as operators see it.
// No `Debug`: the link in `invite_url` must not come into a log by a format string.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of the answer"
)]
pub struct Account {
    /// Id of the account, `acc_…`. It never changes.
    pub id: String,
    /// E-mail address of the account, in lower case.
    pub email: Email,
    /// Whether the account may use the routes for operators.
    pub operator: bool,
    /// Whether an operator has disabled the account: it cannot sign in, and its tokens are invalid.
    pub disabled: bool,
    /// Whether a deletion has begun and is not complete. Deleting the account again continues it;
    /// enabling the account cancels it.
    #[serde(default)]
    pub deletion_begun: bool,
    /// Whether the account has a password or a connection to the identity provider, by which the
    /// person has proven to own the address.
    pub proven: bool,
    /// Whether an earlier version of vault let another person set the password. That password is
    /// invalid, so the account must be invited again.
    pub invite_again: bool,
    /// Time at which the account was created, by the service's clock.
    #[serde(default)]
    pub created_at: Timestamp,
    /// Whether the account has a second factor: codes of an authenticator app.
    pub second_factor: bool,
    /// Link with which the person sets a password, if the account cannot sign in yet. Only the
    /// answer that creates the link contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_url: Option<String>,
}

/// An invitation to have an account of the service.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// E-mail address of the person to invite.
    pub email: Given<Email>,
}

/// The answer to the deletion of an account.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DeletedAccount {
    /// Id that the account had, `acc_…`.
    pub id: String,
    /// E-mail address that the account had.
    pub email: Email,
    /// Names of the vaults that have no owner left who can sign in and write.
    pub without_owner: Vec<String>,
}

/// A request to sign out all accounts of the service, confirmed by a person.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSignOut {
    /// Must be `everybody`, typed by the person.
    // A word that a person types, since one stray request would end all sessions of the service.
    #[schemars(extend("const" = "everybody"))]
    pub confirm: String,
}
