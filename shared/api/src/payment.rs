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
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the event, in seconds since 1970.
    pub created: i64,
    /// The subject of the event.
    pub data: PaymentData,
}

/// The subject of an event.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentData {
    /// The provider's object.
    // JSON without a type: its form depends on the type of the event.
    pub object: Value,
}

words! {
    /// The effect of an event.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum PaymentOutcomeWord {
        /// The event has taken effect.
        Taken = "taken",
        /// The event had taken effect before.
        Repeated = "repeated",
        /// The event concerns nothing of this service.
        Ignored = "ignored",
    }
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentOutcome {
    /// The effect in one word.
    pub outcome: PaymentOutcomeWord,
}
