//! The destinations of a vault's notices: `/admin/vaults/{slug}/notices`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::Given;

words! {
    /// An event that a notice reports. Owners choose for each webhook which events it gets.
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
    /// Whether a webhook gets notices, and whether they arrive.
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

/// A webhook: an https address to which the service sends notices about a vault.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Webhook {
    /// Id of the webhook, `whk_…`.
    pub id: String,
    /// The address that notices are sent to.
    pub address: String,
    /// Secret that signs its notices, `whsec_` and base64. Only the answer that adds the webhook
    /// contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Topics of the notices that it gets.
    pub events: Vec<NoticeTopic>,
    /// Whether notices are sent to it, and whether they arrive.
    pub state: WebhookState,
    /// Time of the first failure since a notice last arrived; null if none failed.
    pub failing_since: Option<Timestamp>,
    /// What an endpoint must meet for notices to arrive, if the last one did not; the same text for
    /// every cause.
    pub last_failure: Option<String>,
    /// Time at which it was switched off, because every notice failed for 7 days; null while it is
    /// on.
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
    /// Topics of the notices that it gets; all if absent or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Given<NoticeTopic>>,
}

/// The result of a test notice.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TestedWebhook {
    /// Id of the webhook, `whk_…`.
    pub id: String,
    /// Whether the endpoint accepted the test notice.
    pub arrived: bool,
    /// What an endpoint must meet for notices to arrive, if this one did not; null if it did.
    pub failure: Option<String>,
}

/// The setting that decides whether owners get notices by mail.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoticeMail {
    /// True if every owner gets every notice by mail.
    pub mail: bool,
}
