//! The apps that people connected to a vault: `/admin/clients`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

/// An app that people of a vault connected.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Client {
    /// Its id, `cli_…`.
    pub id: String,
    /// The name that the app gives itself.
    pub name: Option<String>,
    /// The hosts of its redirect addresses, or the schemes of apps. Empty once its registration has
    /// expired.
    #[serde(default)]
    pub redirect_hosts: Vec<String>,
    /// Time of its registration; time of its connection once the registration has expired.
    #[serde(default)]
    pub created_at: Timestamp,
    /// Time of its connection.
    #[serde(default)]
    pub connected_at: Timestamp,
    /// Time at which it last got tokens; null while no consent is valid.
    pub last_used_at: Option<Timestamp>,
    /// Number of people with a valid consent.
    #[serde(default)]
    pub users: usize,
}

/// What an app made in a vault, by ids: at most 100 of each kind.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct MadeByClient {
    /// Enrolment codes that it made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// Machines that it admitted, or that its codes admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Invitations that it made and nobody has accepted, by the ids of the users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invitations: Vec<String>,
    /// Users who accepted an invitation of it. They end only by their own route, since the person
    /// confirms each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Webhooks that it added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    /// True if there is more than is listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

impl MadeByClient {
    /// Whether the lists are empty and complete.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

words! {
    /// What an app made and can end with it.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum EndedKind {
        /// Machines that it admitted are revoked.
        Machines = "machines",
        /// Invitations that nobody has accepted are withdrawn.
        Invitations = "invitations",
        /// Webhooks are removed.
        Webhooks = "webhooks",
    }
}

/// The result of disconnecting an app.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RevokedClient {
    /// Its id.
    pub client_id: String,
    /// Number of its revoked tokens.
    pub revoked_tokens: usize,
    /// What it had made in the vault and has ended now. Absent if nothing has.
    #[serde(default, skip_serializing_if = "MadeByClient::is_empty")]
    pub ended: MadeByClient,
    /// What it had made in the vault and goes on. Absent if nothing does.
    #[serde(default, skip_serializing_if = "MadeByClient::is_empty")]
    pub left: MadeByClient,
}
