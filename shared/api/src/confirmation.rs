//! Confirmations of a person, which dangerous acts need: `/admin/confirmations`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

words! {
    /// The state of a confirmation.
    #[derive(JsonSchema)]
    pub enum ConfirmationState {
        /// The person has not decided yet.
        Asked = "asked",
        /// The person confirmed; the app may send its request again.
        Confirmed = "confirmed",
        /// The person declined.
        Declined = "declined",
    }
}

/// A confirmation that an app waits for.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Confirmation {
    /// Its id, `cnf_…`.
    pub id: String,
    /// The page on which the person decides, in any browser. Nobody else can open it.
    pub url: String,
    /// Its state.
    pub state: ConfirmationState,
    /// Time at which it ends: ten minutes after it was asked for, or five minutes after the person
    /// confirmed.
    pub expires_at: Timestamp,
}
