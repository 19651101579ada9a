//! `GET /healthz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

words! {
    /// The state of the service or of a part of it.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum HealthStatus {
        /// The database answers.
        Ok = "ok",
        /// The database does not answer within a second.
        Error = "error",
    }
}

/// Whether the service works.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Health {
    /// `ok` while the database answers; otherwise the answer has the status 503.
    pub status: HealthStatus,
    /// Version of vault that this process runs.
    pub version: String,
    /// Time at which this process started.
    pub boot_time: Timestamp,
    /// Whether and how fast the database answers.
    pub database: DatabaseHealth,
    /// Background work of all processes together. It does not decide about `status`.
    pub background: BackgroundHealth,
}

/// State of the background work, which runs every five minutes and removes what is no longer
/// needed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct BackgroundHealth {
    /// Time at which a run last ended without a failure; null before the first, or if it cannot be
    /// read.
    pub succeeded_at: Option<Timestamp>,
    /// Time of the first failure since then; null if there was none.
    pub failing_since: Option<Timestamp>,
    /// Whether the garbage collection of a vault has taken longer than three days. The log names the
    /// vault.
    #[serde(default)]
    pub late: bool,
}

/// Whether the database answers within a second.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DatabaseHealth {
    /// Whether it answered within a second.
    pub status: HealthStatus,
    /// Time until it answered, in milliseconds.
    pub latency_ms: u64,
}
