//! The client for drafts at a service. A draft is a proposed change of a vault that waits for the
//! decision of an owner or publisher.

use serde_json::json;
use vault_api::{Draft, DraftAcceptance, DraftKind, DraftRefusal};
use vault_format::{hash::Digest, name::DraftId};
use vault_service::error::ErrorCode as ServiceCode;

use super::{Answer, OwnerClient, connection::Connection};
use crate::errors::Failure;

/// Returns the kind of a draft in words, for lists.
pub const fn kind_words(kind: DraftKind) -> &'static str {
    match kind {
        DraftKind::Propose => "skill",
        DraftKind::Install => "install",
        DraftKind::Remove => "remove",
        DraftKind::KeyRequest => "publisher",
        DraftKind::Release => "release",
    }
}

pub fn drafts_path(connection: &Connection) -> String {
    format!("/admin/vaults/{}/drafts", connection.slug)
}

/// The client of an owner or publisher who decides on drafts.
pub struct DraftClient<'a> {
    client: &'a OwnerClient,
    path: String,
}

impl<'a> DraftClient<'a> {
    pub fn new(client: &'a OwnerClient, connection: &Connection) -> Self {
        Self {
            client,
            path: drafts_path(connection),
        }
    }

    /// Lists the drafts that the caller may see, oldest first: those that wait, or with `all` also
    /// the decided ones.
    pub async fn list(&self, all: bool) -> Result<Vec<Draft>, Failure> {
        let state = if all { "all" } else { "pending" };
        self.client
            .list(&format!("{}?state={state}", self.path))
            .await
    }

    /// Fetches the exact bytes of a draft. Fails if they are not those that the service recorded.
    pub async fn fetch_bytes(&self, draft: &Draft) -> Result<Vec<u8>, Failure> {
        let answer = self
            .client
            .read(&format!("{}/{}", self.path, draft.id))
            .await?;
        let body = answer.require_good()?.body;
        // A decision must be about the draft that was listed, so other bytes are rejected.
        if Digest::of(&body) == draft.sha256 {
            return Ok(body);
        }
        Err(fail!(
            BundleRefused,
            "the service sent other bytes than it recorded for the draft {}",
            draft.id
        ))
    }

    /// Reports to the service that the published `release` contains the draft's change. `left_out`
    /// tells the author which files were left out.
    pub async fn accept(
        &self,
        draft: &DraftId,
        release: u64,
        left_out: Option<&str>,
    ) -> Result<Draft, Failure> {
        let body = DraftAcceptance {
            release: Some(release),
            reason: left_out.map(str::to_owned),
            ..DraftAcceptance::default()
        };
        self.post_acceptance(draft, &body).await
    }

    /// Accepts a draft of a vault that its server signs: the server scans, signs and publishes it,
    /// if the files have the digest `reviewed`. `replaced` is the bundle to replace if it is not
    /// the one that the draft's author saw.
    pub async fn admit(
        &self,
        draft: &DraftId,
        reviewed: &Digest,
        replaced: Option<&Digest>,
    ) -> Result<Draft, Failure> {
        let body = DraftAcceptance {
            reviewed_sha256: Some(*reviewed),
            base_bundle_hash: replaced.copied(),
            ..DraftAcceptance::default()
        };
        self.post_acceptance(draft, &body).await
    }

    async fn post_acceptance(
        &self,
        draft: &DraftId,
        body: &DraftAcceptance,
    ) -> Result<Draft, Failure> {
        let path = format!("{}/{draft}/accepted", self.path);
        self.client.post(&path, json!(body)).await
    }

    /// Declines a draft. The author sees the reason.
    pub async fn decline(&self, draft: &DraftId, reason: &str) -> Result<Draft, Failure> {
        let reason = reason.to_owned();
        let body = json!(DraftRefusal { reason });
        self.client
            .post(&format!("{}/{draft}/declined", self.path), body)
            .await
    }

    /// Withdraws a draft. Only its author and owners may do this.
    pub async fn withdraw(&self, draft: &DraftId) -> Result<Draft, Failure> {
        let path = format!("{}/{draft}", self.path);
        self.client.send(reqwest::Method::DELETE, &path, None).await
    }

    /// Submits a signed request of this machine to become a publisher. It waits as a draft.
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
