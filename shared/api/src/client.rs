//! The apps that people connected to a vault: `/admin/clients`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;

/// An app that people of a vault connected.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Client {
    /// Its id, `cli_…`.
    pub id: String,
    /// What the app calls itself.
    pub name: Option<String>,
    /// Where its answers go: hosts, or the schemes of apps. Empty once its registration has
    /// expired.
    #[serde(default)]
    pub redirect_hosts: Vec<String>,
    /// When it registered; when it was connected, once the registration has expired.
    #[serde(default)]
    pub created_at: Timestamp,
    /// When it was connected.
    #[serde(default)]
    pub connected_at: Timestamp,
    /// When it got tokens the last time; null while no consent is valid.
    pub last_used_at: Option<Timestamp>,
    /// How many people's consent is valid.
    #[serde(default)]
    pub users: usize,
}

/// What ending an app did.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RevokedClient {
    /// Its id.
    pub client_id: String,
    /// How many tokens it had.
    pub revoked_tokens: usize,
}
