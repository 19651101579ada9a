//! Releases that several publishers sign.
//!
//! If more than one publisher must sign a release, a sync signs it with one key and proposes it. On
//! the machine of another publisher, the exact bytes are judged as a device would judge them,
//! except for the number of signatures; a person reviews the change ([`ReleaseChange`]); and the
//! machine adds its signature. The machine whose signature completes the release publishes it. A
//! machine signs only one payload for each namespace, root version (list of the vault's keys) and
//! release number.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, LastCatalog, OutdatedProposal,
    ReaderKind, ReleaseRef, SignedCatalog, judge_proposal,
};
use vault_format::hash::Digest;
use vault_format::name::Slug;

use super::adopt::AdoptError;
use super::change::ReleaseChange;
use super::current::{self, Current, accept_release, read_last_accepted};
use super::error::PlanError;
use super::request::PlanRequest;
use super::state::{self, SignedPayload};
use crate::vault::Vault;
use crate::vault::trust::{NamedKey, VaultTrust};

/// Error of judging or signing a proposal. Nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    /// The service's current release can't be read, or this machine may not publish.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The proposal is not valid as a release.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The proposal was made under newer root versions than the service has published.
    #[error("the proposal names newer keys than the service has published")]
    NewKeys,
    /// An object is missing, not signed by a publisher or inconsistent with the skills' files, or
    /// the gate blocks a skill.
    #[error(transparent)]
    Bundle(Box<AdoptError>),
}

impl From<AdoptError> for ProposalError {
    fn from(error: AdoptError) -> Self {
        Self::Bundle(Box::new(error))
    }
}

/// A proposed release that would count if it had enough signatures.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Proposal {
    /// The release, compared with the one that counted last on this machine.
    #[serde(skip)]
    pub change: ReleaseChange,
    /// SHA-256 of the payload that each publisher signs.
    pub payload_sha256: Digest,
    /// Publishers that have signed the proposal so far.
    pub signers: Vec<NamedKey>,
    /// Number of publishers that must sign before the release can be published.
    #[serde(rename = "signatures_needed")]
    pub needed: usize,
    /// Whether a key of this machine has signed the proposal.
    pub signed_here: bool,
    #[serde(skip)]
    file: SignedCatalog,
    #[serde(skip)]
    base: String,
    #[serde(skip)]
    slug: Slug,
}

/// A proposal after this machine has added its signature.
#[derive(Clone, Debug)]
pub struct SignedProposal {
    /// Catalog file with the added signature, to be uploaded or passed on byte for byte.
    pub bytes: Vec<u8>,
    /// Number of the proposed release.
    pub release: u64,
    /// Number of valid signatures by publishers.
    pub signatures: usize,
    /// Whether the release has enough signatures, so that `bytes` can be published.
    pub is_complete: bool,
    /// SHA-256 of the catalog file of the release that the proposal follows, for `If-Match`; `None`
    /// for the first release.
    pub follows: Option<Digest>,
}

impl Proposal {
    /// Judges the exact bytes of a proposal. It must follow the service's current release
    /// (`request.current`), unless a revoked key signed that one. The review compares it with the
    /// release that this machine published or took over last. Call [`super::take_roots`] first, so
    /// that the newest keys are known.
    pub fn judge(
        vault: &Vault,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, ProposalError> {
        let trust = vault.require_trust().map_err(PlanError::from)?;
        let counted_here = read_last_accepted(vault, &trust, request)?;
        let state =
            state::read_or_new(vault, request.base, request.slug).map_err(PlanError::from)?;
        // Readers ignore a release by a revoked key, so its number can be used again.
        let is_void = counted_here.as_ref().is_some_and(|it| it.is_void(&trust));
        let published = state.published.as_ref().filter(|_| !is_void);
        let published = published.map(|published| ReleaseRef {
            release: published.release,
            payload_sha256: published.payload_sha256,
        });
        let current_release = read_shown_release(vault, &trust, request, published)?;
        let follows = current_release
            .as_ref()
            .filter(|current| !current.is_void());
        let follows = follows.map(|current| current.stored);
        let last = match (&current_release, request.current) {
            (Some(current), Some(bytes)) if current.counts() => {
                let payload = current.stored.payload_sha256;
                let signers = current.signers.clone();
                Some(LastCatalog::read_stored(bytes, &payload, signers)?)
            }
            // Devices ignore a release that is not valid, so the proposal is not compared with it.
            _ => counted_here.as_ref().map(|counted| counted.last.clone()),
        };
        let signed_before = |root_version, release| state.signed_payload(root_version, release);
        let reader = CatalogReader {
            // A reader of the kind `Publisher` tolerates an expired catalog. But with the signature
            // this catalog goes to devices, so judge it as they do.
            side: ReaderKind::Device,
            ..current::catalog_reader(vault, &trust, request, last.as_ref())
        };
        let judged = judge_proposal(bytes, &reader, follows, &signed_before);
        let CatalogOutcome::Release(release) = judged.outcome? else {
            return Err(CatalogError::ProposalOutdated(OutdatedProposal::Published).into());
        };
        if release.state() != &trust.roots {
            return Err(ProposalError::NewKeys);
        }
        let own_keys = vault.keys().list().map_err(PlanError::from)?;
        // Compare versions with the last valid release. Skills that a release in
        // between has removed must also come back with a higher version.
        let former = match (&counted_here, &last) {
            (Some(counted), Some(last)) => counted.former_as_of(vault, &last.catalog, &trust.roots),
            _ => state.former.clone(),
        };
        let counted = accept_release(vault, *release, last.as_ref(), Some(&former))?;
        let before = counted_here.map(|counted| counted.last.catalog);
        Ok(Self {
            payload_sha256: counted.stored.payload_sha256,
            signers: current::named_keys(&trust, &counted.signers),
            needed: trust.chain().document().release().threshold(),
            signed_here: counted.signers.iter().any(|key| own_keys.contains(key)),
            change: ReleaseChange::between(&trust, before, (counted.catalog, &counted.signers)),
            file: SignedCatalog::parse(bytes)?,
            base: request.base.to_owned(),
            slug: request.slug.clone(),
        })
    }

    /// Adds this machine's signature. Records the payload before its bytes can leave the machine.
    pub fn sign(
        mut self,
        vault: &Vault,
        current: Option<&[u8]>,
    ) -> Result<SignedProposal, ProposalError> {
        let _change = vault.begin_change().map_err(PlanError::from)?;
        let trust = vault.require_trust().map_err(PlanError::from)?;
        let key = vault.release_key().map_err(PlanError::from)?;
        let Catalog {
            release,
            root_version,
            ..
        } = self.change.catalog;
        // Read again under the lock, because another process may have signed something with the
        // same number since the proposal was judged.
        let mut state =
            state::read_or_new(vault, &self.base, &self.slug).map_err(PlanError::from)?;
        let before = state.signed_payload(root_version, release);
        // With two signed payloads of one number, a service could show different releases to
        // different devices.
        if before.is_some_and(|signed| signed != self.payload_sha256) {
            return Err(CatalogError::ProposalOutdated(OutdatedProposal::OtherSigned).into());
        }
        let signer = vault.keys().signer(&key).map_err(PlanError::from)?;
        self.file.add_signature(&*signer).map_err(PlanError::from)?;
        state.note_signed(SignedPayload {
            root_version,
            release,
            payload_sha256: self.payload_sha256,
        });
        state.write_state(vault).map_err(PlanError::from)?;
        let signatures = self.file.valid_signers(&trust.roots.release_keys()).len();
        Ok(SignedProposal {
            bytes: self.file.to_bytes(),
            release,
            signatures,
            is_complete: signatures >= self.needed,
            follows: current.map(Digest::of),
        })
    }
}

/// Returns the service's current release. Fails if it is older than the last one that this machine
/// published or took over, or differs from it with the same number.
fn read_shown_release(
    vault: &Vault,
    trust: &VaultTrust,
    request: &PlanRequest<'_>,
    published: Option<ReleaseRef>,
) -> Result<Option<Current>, PlanError> {
    let rolled_back = |current, published: ReleaseRef| PlanError::RolledBack {
        current,
        published: published.release,
    };
    let Some(bytes) = request.current else {
        // A service that hides the current release would make every proposal look like the first
        // release.
        return published.map_or(Ok(None), |published| Err(rolled_back(0, published)));
    };
    let current = Current::read(vault, trust, request, bytes)?;
    if let Some(published) = published.filter(|_| !current.is_void()) {
        let ReleaseRef { release, .. } = current.stored;
        if release < published.release {
            return Err(rolled_back(release, published));
        }
        if release == published.release && current.stored != published {
            return Err(PlanError::TwoCatalogs(release));
        }
    }
    Ok(Some(current))
}
