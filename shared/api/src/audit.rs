//! The log of a vault and of the service: `/admin/audit` and `/admin/operator/audit`.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::time::Timestamp;

/// An action that was done or refused, in the form in which the service stores it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AuditEntry {
    /// ULID of the entry. Ids sort by time.
    pub id: String,
    /// Time of the action, by the service's clock.
    pub at: Timestamp,
    /// The user's id; the account's id of an operator, or where no vault is concerned; or `server`.
    pub actor: String,
    /// Id of the app whose token sent the request; null for the console and the service itself.
    pub client: Option<String>,
    /// IP address that the request came from; null if it is unknown.
    pub source: Option<IpAddr>,
    /// Name of the requested action, such as `vault.delete`.
    pub action: String,
    /// The subject of the action: a machine's id, a release, a name.
    pub target: Option<String>,
    /// Values of the target before the action, as far as they matter; null if the action has none.
    // JSON without a type: each action has a state of another form.
    pub before: Option<Value>,
    /// Values of the target after the action, as far as they matter; null if the action has none.
    pub after: Option<Value>,
    /// `done`, or the code of the refusal.
    pub outcome: String,
    /// Number of equal refusals of this actor within the minute; absent for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Time of the last of these refusals; absent for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
}

/// The answer to a deletion of old entries.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DeletedEntries {
    /// Number of entries that were deleted.
    pub deleted: usize,
    /// Whether the log may have more entries from before the time; then the request is sent again.
    pub more: bool,
}
