//! Answers that report errors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Confirmation;

/// An error as a problem document (RFC 9457).
// Every member has a default: a gateway in front of the service reports its own errors in other
// forms.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct Problem {
    /// Always `about:blank`. The member `code` tells errors apart.
    #[serde(rename = "type")]
    pub kind: String,
    /// Standard phrase for the HTTP status.
    pub title: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// One sentence for people; may change.
    pub detail: String,
    /// Error code, to match on, such as `release_conflict`.
    pub code: String,
    /// Id of the request in the service's log.
    pub request_id: String,
    /// With `release_conflict`: the current release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Value>,
    /// With `objects_missing`: the objects to upload, or the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Value>,
    /// With `confirmation_needed`: the confirmation that the person has to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
}
