//! The apps that people connected to a vault: `/admin/clients`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;

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

/// The result of disconnecting an app.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RevokedClient {
    /// Its id.
    pub client_id: String,
    /// Number of its revoked tokens.
    pub revoked_tokens: usize,
}
