//! Drafts: changes that people and apps request from owners and publishers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{DraftId, SkillName};
use vault_format::root::{KeyFingerprint, KeyName};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::Email;

words! {
    /// The kind of change that a draft asks for.
    #[derive(JsonSchema)]
    pub enum DraftKind {
        /// Add or replace a skill with these files.
        Propose = "propose",
        /// Add a skill from its source.
        Install = "install",
        /// Remove a skill.
        Remove = "remove",
        /// Make a key a publisher's.
        KeyRequest = "key_request",
        /// Add the signatures that a release lacks.
        Release = "release",
    }
}

words! {
    /// Whether a draft waits for a decision, or how it ended.
    #[derive(JsonSchema)]
    pub enum DraftState {
        /// It waits for a decision.
        Pending = "pending",
        /// A release contains the requested change.
        Accepted = "accepted",
        /// An owner or a publisher declined it.
        Declined = "declined",
        /// Its author withdrew it, or replaced it.
        Withdrawn = "withdrawn",
        /// Another release or root version came before the proposed release, or 14 days have passed.
        Outdated = "outdated",
    }
}

/// A draft without its content.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Draft {
    /// Id of the draft. Ids sort by the time of the submission.
    pub id: DraftId,
    /// The kind of change that it asks for.
    pub kind: DraftKind,
    /// Skill that the draft adds, replaces or removes; null for other kinds.
    pub name: Option<SkillName>,
    /// SHA-256 of the skill's bundle that the author saw; null for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// SHA-256 of the draft's bytes.
    pub sha256: Digest,
    /// Length of the draft in bytes.
    pub size: u64,
    /// Time at which the draft was submitted, by the service's clock.
    pub submitted_at: Timestamp,
    /// The user who submitted the draft, with the app.
    pub submitted_by: DraftAuthor,
    /// Number of findings of the service's security scan that do not block the draft.
    pub flags: u64,
    /// Whether the draft waits, or how it ended.
    pub state: DraftState,
    /// Time at which the state last changed; that of the submission while the draft waits.
    pub changed_at: Timestamp,
    /// Time from which a proposed release is outdated; null for other kinds.
    pub expires_at: Option<Timestamp>,
    /// Number of the release that contains the requested change; null if there is none.
    pub release: Option<u64>,
    /// The reason for which it was declined; or the files that the release lacks, because they look
    /// like secrets.
    pub reason: Option<String>,
    /// The proposed release, for the kind `release`.
    pub proposal: Option<ProposedRelease>,
    /// The key that asks to publish, for the kind `key_request`.
    pub key: Option<RequestedKey>,
}

/// The user who submitted a draft, and the app through which it came.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DraftAuthor {
    /// Id of the user, `usr_…`.
    pub user_id: String,
    /// The user's address: for owners and publishers, while the author is a user of the vault.
    pub email: Option<Email>,
    /// Id of the app that submitted the draft, if one did.
    pub client_id: Option<String>,
}

impl DraftAuthor {
    /// The address, or the id where the address is not shown.
    pub fn display_name(&self) -> &str {
        self.email
            .as_ref()
            .map_or(self.user_id.as_str(), Email::as_str)
    }
}

/// A release that waits for signatures.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ProposedRelease {
    /// Number that the release will have.
    pub release: u64,
    /// Number of the root version (document with the vault's keys) that it names.
    pub root_version: u64,
    /// SHA-256 of the payload that the keys sign.
    pub payload_sha256: Digest,
    /// Keys of the release role whose valid signatures the service has.
    pub signers: Vec<PublicKey>,
}

/// A key whose owner asks to become a publisher.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RequestedKey {
    /// The key, which has signed the request.
    pub public_key: PublicKey,
    /// The fingerprint of the key, for people to compare.
    pub fingerprint: KeyFingerprint,
    /// Name that the key is to have in the vault.
    pub name: KeyName,
}

/// The acceptance of a draft: the release that has it, or the content that was reviewed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DraftAcceptance {
    /// The release that contains the requested change. Absent in a self-signed vault, whose server
    /// makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<u64>,
    /// Self-signed vaults: the skill's bundle now, if it is not the one that the author saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_bundle_hash: Option<Digest>,
    /// Self-signed vaults, required there: SHA-256 over the files that were reviewed, as
    /// `vault drafts show` prints it; of a draft that removes a skill, SHA-256 of the draft. Other
    /// files are refused.
    // The server signs with its own key: it must sign the files that a person has seen, and no
    // others that a draft has by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed_sha256: Option<Digest>,
    /// Other vaults: which files the release lacks, because they look like secrets.
    #[schemars(length(min = 1, max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request to decline a draft.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DraftRefusal {
    /// 1 to 500 visible characters, which its author reads.
    #[schemars(length(min = 1, max = 500))]
    pub reason: String,
}
