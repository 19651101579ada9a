//! The destinations of a vault's notices: `/admin/vaults/{slug}/notices`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::Given;

words! {
    /// The subject of a notice, as owners choose them for a webhook.
    #[derive(JsonSchema)]
    pub enum NoticeTopic {
        /// Machines wait for an owner.
        MachineWaiting = "machine_waiting",
        /// A draft waits for an owner or a publisher.
        DraftWaiting = "draft_waiting",
        /// The current release ends soon.
        ReleaseEnds = "release_ends",
        /// A key of the vault was replaced.
        KeyReplaced = "key_replaced",
        /// A payment failed.
        PaymentFailed = "payment_failed",
        /// The vault stores 80 % of its quota.
        QuotaNear = "quota_near",
    }
}

words! {
    /// The state of a webhook.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum WebhookState {
        /// It gets notices.
        On = "on",
        /// It gets notices, and the last ones did not arrive.
        Failing = "failing",
        /// It gets no notices, because all failed for 7 days.
        Off = "off",
    }
}

/// The destinations of a vault's notices.
// No `Debug`, here and below: a webhook's secret would let others forge notices.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct NoticeDestinations {
    /// Endpoints, at most three.
    pub webhooks: Vec<Webhook>,
    /// Whether every owner gets notices by mail.
    pub mail: bool,
    /// Whether the operator has configured a mail server.
    #[serde(default)]
    pub mail_available: bool,
}

/// A webhook.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Webhook {
    /// Its id, `whk_…`.
    pub id: String,
    /// The address that notices are sent to.
    pub address: String,
    /// The secret that signs them, `whsec_` and base64; in the answer that adds the webhook, and
    /// never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The subjects of its notices.
    pub events: Vec<NoticeTopic>,
    /// Whether it gets notices.
    pub state: WebhookState,
    /// Time since which everything fails.
    pub failing_since: Option<Timestamp>,
    /// The last failure.
    pub last_failure: Option<String>,
    /// Time since which it gets nothing.
    pub off_since: Option<Timestamp>,
    /// The id of the user who added it.
    pub created_by: String,
    /// The id of the app that added it. Absent for a webhook of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Time at which it was added.
    pub created_at: Timestamp,
}

/// A webhook to add.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// An https address on a public host.
    #[schemars(length(max = 1024))]
    pub address: String,
    /// The subjects of its notices; absent or empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Given<NoticeTopic>>,
}

/// The result of a test notice.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TestedWebhook {
    /// The webhook's id.
    pub id: String,
    /// Whether the endpoint accepted it.
    pub arrived: bool,
    /// The failure.
    pub failure: Option<String>,
}

/// Whether every owner gets notices by mail.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoticeMail {
    /// True if they do.
    pub mail: bool,
}
