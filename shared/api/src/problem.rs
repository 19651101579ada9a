//! Answers that report errors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::words;

use crate::{Confirmation, DraftState};

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
    /// With `release_conflict`: the current release; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<CurrentReleaseRef>,
    /// With `objects_missing`: SHA-256 of each object to upload, or of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<Digest>>,
    /// With `confirmation_needed`: the confirmation that the person has to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// With `skill_blocked`: the findings of the service's security scan, the blocking ones first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Vec<Value>>,
    /// With `draft_base`: SHA-256 of the skill's present bundle; absent if the vault does not have
    /// the skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle_hash: Option<Digest>,
    /// With `draft_state`: the present state of the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DraftState>,
    /// With `skill_rolled_back`: skills that an earlier release had at a higher version, or the
    /// first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<ReturnedSkill>>,
    /// With `quota_exceeded` and `quota_full`: the limit that has no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<FullQuota>,
    /// With `rate_limited`: the name of the limit, as the fields `RateLimit` and `RateLimit-Policy`
    /// give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// The release that is current in a namespace.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct CurrentReleaseRef {
    /// Number of the release.
    pub release: u64,
    /// SHA-256 of the catalog's bytes.
    pub sha256: Digest,
    /// SHA-256 of the payload that the keys signed.
    pub payload_sha256: Digest,
}

/// A skill that an earlier release had, and that comes back below its version.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ReturnedSkill {
    /// Name of the skill.
    pub name: SkillName,
    /// The highest version that an earlier release had; the next one must be above it.
    pub reached: u64,
}

words! {
    /// A limit of a vault's quota.
    #[derive(JsonSchema)]
    pub enum QuotaName {
        /// Stored bytes.
        Bytes = "bytes",
        /// Stored objects.
        Objects = "objects",
        /// Stored bytes that no release names.
        UnnamedBytes = "unnamed_bytes",
        /// Stored objects that no release names.
        UnnamedObjects = "unnamed_objects",
        /// Admitted machines.
        Machines = "machines",
        /// Members and invited people.
        People = "people",
        /// Drafts about skills that wait for a decision.
        Drafts = "drafts",
    }
}

/// A limit of a vault's quota that has no room for a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct FullQuota {
    /// The limit.
    pub name: QuotaName,
    /// Amount that the vault uses.
    pub used: u64,
    /// Amount that the request needs.
    pub asked: u64,
    /// Maximum amount.
    pub limit: u64,
}
