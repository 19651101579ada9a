//! `POST /hooks/payment`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::words;

/// An event of the payment provider.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentEvent {
    /// Its id.
    pub id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// When, in seconds since 1970.
    pub created: i64,
    /// What it is about.
    pub data: PaymentData,
}

/// What an event is about.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentData {
    /// The provider's object.
    pub object: Value,
}

words! {
    /// What became of an event.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum PaymentOutcomeWord {
        /// It counts.
        Taken = "taken",
        /// It counted before.
        Repeated = "repeated",
        /// It is about nothing here.
        Ignored = "ignored",
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentOutcome {
    /// In one word.
    pub outcome: PaymentOutcomeWord,
}
