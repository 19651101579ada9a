//! Publishes a vault to a namespace (the vault's place at a service): plans a release, asks the
//! owner, uploads missing objects, and submits the catalog.
//!
//! Every step can be repeated, so an interrupted run continues where it stopped. No two catalogs
//! are ever signed with the same release number.

use std::collections::{BTreeMap, HashMap};

use vault_format::catalog::{ProfileEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_policy::profile::Profile;

use super::error::PlanError;
use super::merge::TakeOver;
use super::plan::{plan_release, take_roots};
use super::release::{Plan, ReleasePlan, record_published};
use super::request::PlanRequest;
use super::state::RecordedRelease;
use crate::vault::Vault;
use crate::vault::trust::RootChanges;

/// A namespace of a service, to which releases are published. Implemented by the client of the
/// service.
#[expect(async_fn_in_trait, reason = "a driver runs on one thread")]
pub trait Namespace {
    /// Error of a request to the namespace, or of planning the release.
    type Error: From<PlanError>;
    /// A release that waits in the namespace for the signatures of other publishers.
    type Proposal;

    /// Returns the exact bytes of the current catalog; `None` before the first release.
    async fn current_catalog_bytes(&self) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Returns whether the release that this machine signed last may be submitted again unchanged.
    /// If its proposal was withdrawn or has expired, another publisher may have signed other
    /// content with its number, so the next release needs a new one.
    async fn may_resubmit_signed(&self) -> Result<bool, Self::Error>;

    /// Returns whether an owner has made the service forget which vault publishes here. Called only
    /// if the current catalog belongs to another vault. Fails if no client can publish here at all.
    async fn pin_is_reset(&self) -> Result<bool, Self::Error>;

    /// Uploads the objects of a release that the namespace lacks. Unless `all` is set, objects of
    /// the current release may be assumed to be present.
    async fn upload_objects(&self, plan: &ReleasePlan, all: bool) -> Result<Uploaded, Self::Error>;

    /// Makes a release current, if the release that it follows still is. If other publishers must
    /// sign it too, proposes it to them and returns the proposal.
    async fn put_release(
        &self,
        plan: &ReleasePlan,
    ) -> Result<Option<Self::Proposal>, ReleaseRejection<Self::Error>>;
}

/// The person who publishes. Each method shows them something or asks them to decide; an error
/// means that they decline.
#[expect(async_fn_in_trait, reason = "a driver runs on one thread")]
pub trait Owner<E> {
    /// Shows that a release is being planned, until the returned value is dropped.
    fn show_planning(&self) -> impl Sized {}

    /// Shows how the vault's keys have changed at the service.
    fn keys_changed(&mut self, _changes: &RootChanges) {}

    /// Asks whether skills that a revoked key had signed are signed again.
    fn sign_again(&mut self, skills: &[SkillName]) -> Result<(), E>;

    /// Shows the changes of other publishers, asks the owner, and takes the changes over with
    /// [`adopt::take_over`](super::adopt::take_over).
    async fn take_over(&mut self, changes: &TakeOver) -> Result<(), E>;

    /// Fetches profiles of the current catalog, which are compared with those of the new release.
    async fn fetch_current_profiles(&mut self, entries: &[ProfileEntry])
    -> Result<Vec<Profile>, E>;

    /// Fetches variants of the current release with their parts, with which this library compares
    /// its own variants.
    async fn fetch_current_variants(
        &mut self,
        entries: &[SkillEntry],
    ) -> Result<HashMap<Digest, Vec<u8>>, E>;

    /// Asks about a signed release, before anything is uploaded.
    fn confirm(&mut self, plan: &ReleasePlan) -> Result<(), E>;

    /// Asks whether to plan again, after somebody else published a release in between.
    fn confirm_retry(&mut self, conflict: E) -> Result<(), E> {
        Err(conflict)
    }
}

/// The reason for which a namespace rejects a release. It decides the next step.
#[derive(Debug)]
pub enum ReleaseRejection<E> {
    /// Objects that were assumed to be present are missing. The client must check all of them.
    ObjectsMissing(E),
    /// Somebody else published a release in between. A new plan may follow that one.
    Conflict(E),
    /// The release brings back skills that an earlier one removed. They need versions above these.
    Returned(BTreeMap<SkillName, u64>, E),
    /// Anything else. It ends the attempt.
    Other(E),
}

impl<E> From<E> for ReleaseRejection<E> {
    fn from(error: E) -> Self {
        Self::Other(error)
    }
}

impl<E> ReleaseRejection<E> {
    /// Returns the error, for a caller that does not react to the reason.
    pub fn into_error(self) -> E {
        match self {
            Self::ObjectsMissing(error)
            | Self::Conflict(error)
            | Self::Returned(_, error)
            | Self::Other(error) => error,
        }
    }
}

/// Number of uploaded objects, and their size in bytes.
pub type Uploaded = (usize, u64);

/// The state of the namespace after [`publish_library`]. `P` is a [`Namespace::Proposal`].
#[derive(Debug)]
pub enum PublishOutcome<P> {
    /// Nothing has changed, and the current release stays.
    Unchanged(RecordedRelease),
    /// The new release is current. Holds what was uploaded for it.
    Release(Box<ReleasePlan>, Uploaded),
    /// The new release waits for the signatures of other publishers.
    Proposed(Box<ReleasePlan>, P),
}

/// Publishes a vault to a namespace. `request` contains the owner's choices; the fields that depend
/// on the namespace are filled in here.
pub async fn publish_library<N: Namespace>(
    vault: &Vault,
    request: &PlanRequest<'_>,
    namespace: &N,
    owner: &mut impl Owner<N::Error>,
) -> Result<PublishOutcome<N::Proposal>, N::Error> {
    let mut request = request.clone();
    let mut profiles = None;
    let mut variants = None;
    let mut reached = BTreeMap::new();
    let mut may_plan_again = true;
    loop {
        let planning = owner.show_planning();
        // Read the catalog again in each round, because it changes with a take-over or a conflict.
        let current = namespace.current_catalog_bytes().await?;
        let next = PlanRequest {
            current: current.as_deref(),
            resubmit_signed: namespace.may_resubmit_signed().await?,
            reached: Some(&reached),
            current_profiles: profiles.as_deref(),
            current_variants: variants.as_ref(),
            ..request.clone()
        };
        let changes = take_roots(vault, &next);
        let planned = changes.map(|changes| (changes, plan_release(vault, &next)));
        drop(planning);
        let planned = planned.and_then(|(changes, planned)| {
            if let Some(changes) = changes {
                owner.keys_changed(&changes);
            }
            planned
        });
        match planned {
            Ok(Plan::Unchanged(current)) => return Ok(PublishOutcome::Unchanged(current)),
            Ok(Plan::TakeOver(changes)) => owner.take_over(&changes).await?,
            Ok(Plan::FetchProfiles(entries)) => {
                profiles = Some(owner.fetch_current_profiles(&entries).await?);
            }
            Ok(Plan::FetchVariants(entries)) => {
                variants = Some(owner.fetch_current_variants(&entries).await?);
            }
            Ok(Plan::SignAgain(skills)) => {
                owner.sign_again(&skills)?;
                request.sign_again = true;
            }
            Ok(Plan::Publish(plan) | Plan::Propose(plan)) => {
                owner.confirm(&plan)?;
                if let Some(done) = submit(vault, namespace, owner, plan, &mut reached).await? {
                    return Ok(done);
                }
                // Another release may be current by now.
                (profiles, variants) = (None, None);
            }
            // Another process of this machine may have published after the catalog was read.
            Err(PlanError::RolledBack { .. } | PlanError::TwoCatalogs(_)) if may_plan_again => {
                may_plan_again = false;
            }
            // If an owner has reset the pin, this vault may replace the catalog of another vault.
            Err(error) if error.is_another_vaults() && !request.pin_is_reset => {
                request.pin_is_reset = namespace.pin_is_reset().await?;
                if !request.pin_is_reset {
                    return Err(error.into());
                }
            }
            Err(error) => {
                if matches!(error, PlanError::NotOurs(_)) {
                    // This call fails with an error that explains more than that of the catalog.
                    namespace.pin_is_reset().await?;
                }
                return Err(error.into());
            }
        }
    }
}

/// Uploads a release and makes it current or proposes it. Returns `None` if another plan may
/// succeed: another release was published meanwhile, or skills need versions above those that are
/// added to `reached`.
async fn submit<N: Namespace>(
    vault: &Vault,
    namespace: &N,
    owner: &mut impl Owner<N::Error>,
    plan: Box<ReleasePlan>,
    reached: &mut BTreeMap<SkillName, u64>,
) -> Result<Option<PublishOutcome<N::Proposal>>, N::Error> {
    match upload_and_submit(vault, namespace, plan).await {
        Ok(published) => Ok(Some(published)),
        Err(ReleaseRejection::Conflict(error)) => {
            owner.confirm_retry(error)?;
            Ok(None)
        }
        Err(ReleaseRejection::Returned(versions, error)) => {
            let known_count = reached.len();
            reached.extend(versions);
            // The service named no further skill, so it would reject the same release again.
            if reached.len() == known_count {
                return Err(error);
            }
            Ok(None)
        }
        Err(refused) => Err(refused.into_error()),
    }
}

/// Uploads the missing objects of a release, then submits or proposes its catalog.
async fn upload_and_submit<N: Namespace>(
    vault: &Vault,
    namespace: &N,
    plan: Box<ReleasePlan>,
) -> Result<PublishOutcome<N::Proposal>, ReleaseRejection<N::Error>> {
    let mut uploaded = namespace.upload_objects(&plan, false).await?;
    let mut put = namespace.put_release(&plan).await;
    // The first upload skips objects of the current release, but the service may have deleted some
    // in between.
    if let Err(ReleaseRejection::ObjectsMissing(_)) = put {
        let more = namespace.upload_objects(&plan, true).await?;
        uploaded = (uploaded.0 + more.0, uploaded.1 + more.1);
        put = namespace.put_release(&plan).await;
    }
    if let Some(proposal) = put? {
        return Ok(PublishOutcome::Proposed(plan, proposal));
    }
    record_published(vault, &plan).map_err(N::Error::from)?;
    Ok(PublishOutcome::Release(plan, uploaded))
}
