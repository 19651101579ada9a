//! The accounts of a service, for its operators: `/admin/operator/accounts`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;

use crate::{Email, Given};

/// An account.
// No `Debug`: the link in `invite_url` must not come into a log by a format string.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of the answer"
)]
pub struct Account {
    /// Its id, `acc_…`.
    pub id: String,
    /// Its e-mail address.
    pub email: Email,
    /// Whether it operates the service.
    pub operator: bool,
    /// Whether it cannot sign in.
    pub disabled: bool,
    /// Whether its deletion has begun and is not done: deleting it again goes on, and enabling it
    /// cancels the deletion.
    #[serde(default)]
    pub deletion_begun: bool,
    /// Whether the person has shown to have the address.
    pub proven: bool,
    /// Whether a password from an invitation of an earlier version of vault has ended: invite the
    /// account again.
    pub invite_again: bool,
    /// Time of its creation.
    #[serde(default)]
    pub created_at: Timestamp,
    /// Whether it signs in with a second factor.
    pub second_factor: bool,
    /// The link that sets a password, if the account cannot sign in yet; in the answer that makes
    /// it, and never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_url: Option<String>,
}

/// An address to invite.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// The address.
    pub email: Given<Email>,
}

/// An account that was deleted.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DeletedAccount {
    /// Its id.
    pub id: String,
    /// Its e-mail address.
    pub email: Email,
    /// Vaults that no owner is left in who can sign in and write.
    pub without_owner: Vec<String>,
}

/// A request to sign out all accounts of the service, confirmed by a person.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSignOut {
    /// `everybody`.
    // A word that a person types, since one stray request would end all sessions of the service.
    #[schemars(extend("const" = "everybody"))]
    pub confirm: String,
}
