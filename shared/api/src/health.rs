//! `GET /healthz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

words! {
    /// Whether something works.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum HealthStatus {
        /// It does.
        Ok = "ok",
        /// It does not.
        Error = "error",
    }
}

/// Whether the service works.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Health {
    /// Whether it does.
    pub status: HealthStatus,
    /// Its version.
    pub version: String,
    /// Time at which this process started.
    pub boot_time: Timestamp,
    /// The database.
    pub database: DatabaseHealth,
}

/// Whether the database answers within a second.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DatabaseHealth {
    /// Whether it does.
    pub status: HealthStatus,
    /// Milliseconds.
    pub latency_ms: u64,
}
