//! The apps that people connected to a vault: `/admin/clients`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

/// An app that people of a vault connected.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Client {
    /// Id of the app, `cli_…`.
    pub id: String,
    /// Name that the app chose, which nobody has verified; null if it chose none.
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
    /// Ids of enrolment codes that the app made, `enc_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// Ids of machines that the app or its codes admitted, `dev_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Ids of users whom the app invited and who have not accepted, `usr_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invitations: Vec<String>,
    /// Ids of users who accepted an invitation of the app, `usr_…`. Ending the app does not remove
    /// them: a person confirms the removal of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Ids of webhooks that the app added, `whk_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    /// True if the app made, or may have made, more than is listed.
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
    /// Things that an app made and that a request to disconnect it can end as well.
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
    /// Id of the app, `cli_…`.
    pub client_id: String,
    /// Number of valid tokens of the app that ended.
    pub revoked_tokens: usize,
    /// Things that the app had made in the vault and that ended with it. Absent if there are none.
    #[serde(default, skip_serializing_if = "MadeByClient::is_empty")]
    pub ended: MadeByClient,
    /// Things that the app had made in the vault and that still work. Absent if there are none.
    #[serde(default, skip_serializing_if = "MadeByClient::is_empty")]
    pub left: MadeByClient,
}
