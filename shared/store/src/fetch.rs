//! The port `Fetch`: how a shelf gets a skill from elsewhere, and how it asks whether the place has something else now.
//!
//! The library knows no network: it is handed somebody who does, and admits what comes back like anything else.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use vault_skill::draft::Source;
use vault_skill::gate::RawFile;
use vault_skill::name::SkillName;
use vault_skill::policy::Policy;
use vault_skill::provenance::ProvenanceId;

use crate::shelf::DriftState;

/// What is remembered of the place a skill was fetched from, beside its signed provenance: enough to ask there again. Not signed, so it
/// decides nothing about trust; what comes back is gated and signed like anything else.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Upstream {
    /// The place, as the manifest names it.
    pub identifier: ProvenanceId,
    /// The address that was asked, where the identifier does not say it all (another user, another scheme).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The skill's folder inside the repository; empty for its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Branch, tag, commit or version that was asked for; `None` follows the default.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ref")]
    pub reference: Option<String>,
    /// What was there: a commit, a version, or `sha256:` with the digest of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The id of the skill's folder in that commit: equal as long as the folder is, whatever else the repository does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
}

/// A skill as it was fetched; nothing about it has been checked but its digests.
#[derive(Clone, Debug)]
pub struct FetchedSkill {
    /// Its files.
    pub files: Vec<RawFile>,
    /// The name of its folder there, for a skill whose own name leaves nothing usable.
    pub folder: Option<String>,
    /// Where it came from.
    pub upstream: Upstream,
}

/// Why nothing was fetched, in words for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// The policy, or a rule that holds for everybody, keeps that place out.
    #[error("{0}")]
    Refused(String),
    /// The place, the reference or the skill is not there, or there are several and none was named.
    #[error("{0}")]
    NotFound(String),
    /// The place did not answer as it should, or not in time.
    #[error("{0}")]
    Unreachable(String),
}

/// Somebody who fetches.
#[async_trait]
pub trait Fetch: Send + Sync + std::fmt::Debug {
    /// Fetches one skill. The policy is asked before anything goes over the network; `skill` says which one where the source has several.
    async fn fetch(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Fetches a skill again from where it came.
    async fn fetch_again(
        &self,
        upstream: &Upstream,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Says how the place stands to what is remembered of it; never fails, the failure is part of the answer.
    async fn compare(&self, upstream: &Upstream, policy: Option<&Policy>) -> DriftState;
}
