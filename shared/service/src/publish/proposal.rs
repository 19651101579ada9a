//! Verification of a proposal, a release that lacks signatures. It makes all checks of a publish
//! except for the number of signatures.

use bytes::Bytes;
use vault_format::catalog::{Catalog, MAX_OBJECT_BYTES};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;

use super::current::PublishBase;
use super::judge::{accept_release, verify_proposal};
use super::objects::collect_closure;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::namespace::Namespace;
use crate::model::release::Closure;

/// A proposed release that lacks nothing but signatures; all its objects are stored.
pub(crate) struct Proposal {
    pub(crate) catalog: Catalog,
    /// SHA-256 of the payload of the catalog.
    pub(crate) payload_sha256: Digest,
    /// The keys of the release role that have signed it.
    pub(crate) signers: Vec<PublicKey>,
    /// The objects that it needs and the current release does not.
    pub(crate) added: Closure,
}

/// Verifies the file of a proposed catalog, exactly these `bytes`, against the current release of
/// the namespace. Changes nothing.
pub(crate) async fn verify_proposed_release(
    app: &App,
    namespace: &Namespace,
    bytes: &Bytes,
) -> Result<Proposal, Refusal> {
    if bytes.len() > MAX_OBJECT_BYTES {
        return Err(ErrorCode::BodyTooLarge.into());
    }
    if !namespace.subscription.is_live(app.clock.now()) {
        return Err(ErrorCode::SubscriptionLapsed.into());
    }
    let base = PublishBase::read_base(app, namespace).await?;
    let release = verify_proposal(app, namespace, bytes, &base)?;
    let older = base.read_closure(app, namespace).await?;
    let counted = accept_release(release, (base.last_catalog(), &older))?;
    // A release with enough signatures needs no proposal: its publisher can make it current.
    if counted.signers.len() >= counted.state.document().release().threshold() {
        return Err(ErrorCode::ProposalComplete.into());
    }
    let closure =
        collect_closure(app, namespace, &counted, (base.replaced_catalog(), &older)).await?;
    Ok(Proposal {
        payload_sha256: counted.stored.payload_sha256,
        signers: counted.signers,
        catalog: counted.catalog,
        added: closure.difference_from(&older),
    })
}
