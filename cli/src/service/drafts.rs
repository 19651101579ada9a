//! Drafts at a service: what its namespaces wait for, with a decision of an owner or publisher.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::{
    hash::Digest,
    keys::PublicKey,
    name::{DraftId, SkillName},
    root::{KeyFingerprint, KeyName},
    time::Timestamp,
};
use vault_service::error::ErrorCode as ServiceCode;

use super::{Answer, OwnerClient, connection::Connection};
use crate::errors::Failure;

/// What a draft asks for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftKind {
    /// Add or replace a skill with these files.
    Propose,
    /// Add a skill from its source.
    Install,
    /// Remove a skill.
    Remove,
    /// Make a key a publisher.
    KeyRequest,
    /// Sign a release.
    Release,
}

impl DraftKind {
    /// The kind in words, for lists.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Propose => "skill",
            Self::Install => "install",
            Self::Remove => "remove",
            Self::KeyRequest => "publisher",
            Self::Release => "release",
        }
    }
}

/// What became of a draft.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftState {
    /// It waits.
    Pending,
    /// A release has it.
    Accepted,
    /// An owner or publisher declined it.
    Declined,
    /// Its author withdrew it.
    Withdrawn,
    /// Another release came before the proposed one.
    Outdated,
}

/// Who sent a draft.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DraftAuthor {
    /// The user's id at the service.
    pub user_id: String,
    /// The user's address, where the caller may see it.
    pub email: Option<String>,
    /// The app, if one was involved.
    pub client_id: Option<String>,
}

/// A release that waits for signatures, as the service lists it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProposedRelease {
    /// Its number.
    pub release: u64,
    /// The version of the keys that it names.
    pub root_version: u64,
    /// SHA-256 of its payload.
    pub payload_sha256: Digest,
    /// Whose signatures the service has seen.
    pub signers: Vec<PublicKey>,
}

/// A key that asks to publish, as the service lists it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RequestedKey {
    /// The key.
    pub public_key: PublicKey,
    /// What people compare.
    pub fingerprint: KeyFingerprint,
    /// The name that it would like.
    pub name: KeyName,
}

/// A draft without its content, as the service lists it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Draft {
    /// Its id.
    pub id: DraftId,
    /// What it asks for.
    pub kind: DraftKind,
    /// The skill, if it is about one.
    pub name: Option<SkillName>,
    /// The bundle that its author saw; `None` for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Their number.
    pub size: u64,
    /// When it came in.
    pub submitted_at: Timestamp,
    /// Who sent it.
    pub submitted_by: DraftAuthor,
    /// How many flags the service's gate raised.
    pub flags: u64,
    /// What became of it.
    pub state: DraftState,
    /// When that changed.
    pub changed_at: Timestamp,
    /// When it ends by itself, if it does.
    pub expires_at: Option<Timestamp>,
    /// The release that has it.
    pub release: Option<u64>,
    /// Why it was declined; or which files it lacks, because they look like secrets.
    pub reason: Option<String>,
    /// For a release: what is proposed.
    pub proposal: Option<ProposedRelease>,
    /// For a publisher: the key.
    pub key: Option<RequestedKey>,
}

/// Where the drafts of a namespace are.
pub fn drafts_path(connection: &Connection) -> String {
    format!("/admin/vaults/{}/drafts", connection.slug)
}

/// The client of somebody who decides on drafts.
pub struct DraftClient<'a> {
    client: &'a OwnerClient,
    path: String,
}

impl<'a> DraftClient<'a> {
    /// Creates the client of a namespace's drafts.
    pub fn new(client: &'a OwnerClient, connection: &Connection) -> Self {
        Self {
            client,
            path: drafts_path(connection),
        }
    }

    /// Lists the drafts that the caller may see, oldest first: those that wait, or all.
    pub async fn list(&self, all: bool) -> Result<Vec<Draft>, Failure> {
        let state = if all { "all" } else { "pending" };
        self.client
            .list(&format!("{}?state={state}", self.path))
            .await
    }

    /// Fetches the exact bytes of a draft. Fails if they are not those that the service recorded.
    pub async fn bytes(&self, draft: &Draft) -> Result<Vec<u8>, Failure> {
        let answer = self
            .client
            .read(&format!("{}/{}", self.path, draft.id))
            .await?;
        let body = answer.good()?.body;
        if Digest::of(&body) == draft.sha256 {
            return Ok(body);
        }
        Err(fail!(
            BundleRefused,
            "the service sent other bytes than it recorded for the draft {}",
            draft.id
        ))
    }

    /// Reports that a release has the draft. `left_out` says what it lacks; the author reads it.
    pub async fn accept(
        &self,
        draft: &DraftId,
        release: u64,
        left_out: Option<&str>,
    ) -> Result<Draft, Failure> {
        let mut body = json!({ "release": release });
        if let Some(left_out) = left_out {
            body["reason"] = json!(left_out);
        }
        self.accepted(draft, body).await
    }

    /// Makes a server that signs the vault take in what was reviewed, and publish it; in place of
    /// this bundle where that is not the one that the draft's author saw.
    pub async fn admit(
        &self,
        draft: &DraftId,
        reviewed: &Digest,
        replaced: Option<&Digest>,
    ) -> Result<Draft, Failure> {
        let body = json!({ "reviewed_sha256": reviewed, "base_bundle_hash": replaced });
        self.accepted(draft, body).await
    }

    async fn accepted(&self, draft: &DraftId, body: Value) -> Result<Draft, Failure> {
        let path = format!("{}/{draft}/accepted", self.path);
        self.client.post(&path, body).await
    }

    /// Declines a draft.
    pub async fn decline(&self, draft: &DraftId, reason: &str) -> Result<Draft, Failure> {
        let body = json!({ "reason": reason });
        self.client
            .post(&format!("{}/{draft}/declined", self.path), body)
            .await
    }

    /// Withdraws a draft: by its author, or by an owner.
    pub async fn withdraw(&self, draft: &DraftId) -> Result<Draft, Failure> {
        let path = format!("{}/{draft}", self.path);
        self.client.send(reqwest::Method::DELETE, &path, None).await
    }

    /// Hands in a request to become a publisher.
    pub async fn request_key(&self, bytes: Vec<u8>) -> Result<Draft, Failure> {
        let path = format!("{}?kind=key_request", self.path);
        let body = super::Body::Bytes("application/octet-stream", bytes.into());
        let answer: Answer = self
            .client
            .call(
                reqwest::Method::POST,
                &path,
                &[],
                body,
                super::ceiling::LIST,
            )
            .await?;
        if answer.is_refusal(ServiceCode::CatalogNotPublished) {
            return Err(
                fail!(ReleaseNotFound, "nothing is published in this vault yet")
                    .hint("its owner publishes the first release: vault sync; then ask again"),
            );
        }
        answer.json()
    }
}
