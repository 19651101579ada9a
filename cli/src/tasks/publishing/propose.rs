//! Releases that need the signatures of several publishers. A publisher submits such a release as a
//! *proposal*, a kind of draft; others judge and sign it; the publisher whose signature completes
//! it publishes the release.

use std::collections::HashMap;

use bytes::Bytes;
use reqwest::Method;
use vault_api::Draft;
use vault_format::hash::Digest;
use vault_library::publish::{PlanRequest, Proposal, ReleaseRejection, SignedProposal};
use vault_service::error::ErrorCode as ServiceCode;

use super::{Publisher, fetch_object};
use crate::{
    errors::Failure,
    output::Warning,
    service::{
        Body, ceiling,
        connection::Connection,
        drafts::{DraftClient, drafts_path},
    },
};

impl Publisher<'_> {
    /// Returns the proposed releases that wait for signatures.
    pub(super) async fn list_proposals(&self) -> Result<Vec<Draft>, Failure> {
        let drafts = DraftClient::new(&self.client, self.connection);
        let mut waiting = drafts.list(false).await?;
        waiting.retain(|draft| draft.proposal.is_some());
        Ok(waiting)
    }

    /// Warns if another publisher has proposed other content under the same release number. A
    /// machine signs only one of them, so the publishers must agree.
    pub(super) async fn warn_of_rivals(&self, draft: &Draft) -> Result<(), Failure> {
        let Some(own) = &draft.proposal else {
            return Ok(());
        };
        for other in self.list_proposals().await? {
            let is_rival = other.proposal.as_ref().is_some_and(|other| {
                // Equal payloads are the same proposal, whoever submitted it.
                other.release == own.release && other.payload_sha256 != own.payload_sha256
            });
            if is_rival {
                let text = format!(
                    "another publisher proposes other content as release {}: {}",
                    own.release, other.id
                );
                let hint = format!(
                    "agree on one; to propose yours under a number that both may sign: vault drafts withdraw {}, then vault sync",
                    draft.id
                );
                let warning = Warning::new("rival_proposal", text);
                self.context.ui.warn(warning.hint(hint));
            }
        }
        Ok(())
    }

    /// Verifies a proposal against the service's current catalog, after applying newer root
    /// versions that the service shows. Returns the bytes of that catalog too.
    pub async fn judge_proposal(
        &self,
        bytes: &[u8],
    ) -> Result<(Proposal, Option<Vec<u8>>), Failure> {
        let current = self.apply_shown_keys().await?;
        let Connection { base, slug } = self.connection;
        let request = PlanRequest::new(base.as_str(), slug, current.as_deref());
        let proposal = Proposal::judge(self.vault, &request, bytes)?;
        Ok((proposal, current))
    }

    /// Publishes a proposal whose signatures are complete.
    pub async fn put_complete(&self, signed: &SignedProposal) -> Result<(), Failure> {
        let answer = self
            .put_catalog(&signed.bytes, signed.follows.as_ref())
            .await?;
        match answer.require_good() {
            Ok(_) => Ok(()),
            // The signatures cover the previous release too, so they do not fit the new one.
            Err(failure) if failure.code == ServiceCode::ReleaseConflict => Err(fail!(
                ProposalOutdated,
                "another release was published meanwhile"
            )
            .hint("its author proposes it again: vault sync")),
            Err(failure) => Err(failure),
        }
    }

    /// Fetches objects of the namespace, unverified. `class` is the path segment of their kind:
    /// `bundles` or `policies`.
    pub async fn fetch_objects(
        &self,
        class: &str,
        hashes: &[Digest],
    ) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
        let root = format!("{}/objects/{class}", self.root);
        let mut fetched = HashMap::new();
        for hash in hashes {
            fetched.insert(*hash, fetch_object(&self.client, &root, hash).await?);
        }
        Ok(fetched)
    }

    /// Submits a catalog that has too few signatures as a proposal.
    pub async fn post_proposal(&self, catalog: &[u8]) -> Result<Draft, ReleaseRejection<Failure>> {
        let path = format!("{}?kind=release", drafts_path(self.connection));
        let body = Body::Bytes("application/octet-stream", Bytes::copy_from_slice(catalog));
        let call = self
            .client
            .call(Method::POST, &path, &[], body, ceiling::LIST);
        Ok(self.judge_answer(call.await?)?.json()?)
    }
}
