//! The outcome of planning: the caller's next step, or a signed release that is ready to upload.

use vault_format::catalog::ProfileEntry;
use vault_format::hash::Digest;
use vault_format::name::{SkillName, Slug};
use vault_format::time::Timestamp;
use vault_store::objects::Class;

use super::current::acknowledge_release;
use super::error::PlanError;
use super::merge::TakeOver;
use super::state::{self, AcknowledgedRelease};
use crate::admit::variants::RenderedVariant;
use crate::store::{self, Trusted};
use crate::vault::Vault;

/// The next step of the caller.
#[derive(Debug)]
pub enum Plan {
    /// The current release already matches this library.
    Unchanged(AcknowledgedRelease),
    /// A key that signed these own skills was revoked. Show them to the owner, then plan again with
    /// `PlanRequest::sign_again`.
    SignAgain(Vec<SkillName>),
    /// Show the owner the changes of other publishers, pass them to [`super::adopt::take_over`]
    /// with their objects, then plan again.
    TakeOver(Box<TakeOver>),
    /// Fetch these profiles of the current catalog, then plan again with
    /// `PlanRequest::current_profiles`.
    FetchProfiles(Vec<ProfileEntry>),
    /// Upload the missing objects, then the catalog.
    Publish(Box<ReleasePlan>),
    /// Upload the missing objects, then propose the catalog: other publishers must sign it, too.
    Propose(Box<ReleasePlan>),
}

/// An object that must be uploaded before the catalog.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedObject {
    /// The object class: bundles or policies.
    pub class: Class,
    /// SHA-256 of the object.
    pub sha256: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Whether the namespace already has the object, because the current catalog names it or the
    /// skill it is a part of.
    pub known: bool,
    pub(super) source: Source,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Skill(SkillName, Digest),
    Built(usize),
}

/// A signed release, ready to upload.
#[derive(Clone, Debug)]
pub struct ReleasePlan {
    /// The release number.
    pub release: u64,
    /// The catalog's exact bytes.
    pub catalog: Vec<u8>,
    /// SHA-256 of those bytes.
    pub file_sha256: Digest,
    /// SHA-256 of the signed payload.
    pub payload_sha256: Digest,
    /// File hash of the catalog it replaces, for `If-Match`; `None` means `If-None-Match: *`.
    pub follows: Option<Digest>,
    /// Its expiry time.
    pub expires_at: Timestamp,
    /// All objects of the release, without duplicates.
    pub objects: Vec<PlannedObject>,
    /// Skills that are not in the current release.
    pub added: Vec<SkillName>,
    /// Skills whose content differs from the current release.
    pub changed: Vec<SkillName>,
    /// Skills that only the current release contains.
    pub removed: Vec<SkillName>,
    /// The number of skills in the release.
    pub skills: usize,
    /// Whether an earlier attempt already signed these bytes.
    pub resumed: bool,
    /// The number of publishers that must sign it, including this machine.
    pub needed: usize,
    /// Skills that were rendered for one agent and signed for this release.
    pub rendered: Vec<RenderedVariant>,
    pub(super) base: String,
    pub(super) slug: Slug,
    pub(super) built: Vec<Vec<u8>>,
    pub(super) trusted: Trusted,
}

impl ReleasePlan {
    /// Reads the exact bytes of an object. Fails with [`PlanError::Moved`] if the skill changed
    /// since the plan was made.
    pub fn read_object(&self, vault: &Vault, object: &PlannedObject) -> Result<Vec<u8>, PlanError> {
        match &object.source {
            Source::Built(at) => Ok(self.built[*at].clone()),
            Source::Skill(name, bundle) => {
                let store = vault.store_folder();
                let (_, encoded) =
                    store::examine_and_encode(&store, bundle, Some(name), &self.trusted)
                        .map_err(|_| PlanError::Moved(name.clone()))?;
                // A large bundle is split: each of its parts is an object of its own, under its own
                // hash.
                if object.sha256 == *bundle {
                    return Ok(encoded.bytes);
                }
                encoded
                    .parts
                    .into_iter()
                    .find(|part| part.hash == object.sha256)
                    .map(|part| part.bytes)
                    .ok_or_else(|| PlanError::Moved(name.clone()))
            }
        }
    }
}

/// Records that the service acknowledged a planned release.
pub fn record_published(
    vault: &Vault,
    plan: &ReleasePlan,
) -> Result<AcknowledgedRelease, PlanError> {
    let _change = vault.begin_change()?;
    let mut state = state::read_or_new(vault, &plan.base, &plan.slug)?;
    let pending = state
        .pending
        .clone()
        // Another run may have signed a newer release in the meantime, whose record must stay.
        .filter(|pending| pending.payload_sha256 == plan.payload_sha256);
    let acknowledged = AcknowledgedRelease {
        release: plan.release,
        payload_sha256: plan.payload_sha256,
        file_sha256: plan.file_sha256,
        expires_at: plan.expires_at,
        skills: plan.skills as u64,
        at: vault.clock().now(),
        inputs: pending.as_ref().and_then(|pending| pending.inputs),
        follows: plan.follows,
    };
    acknowledge_release(vault, &mut state, &plan.catalog, acknowledged.clone())?;
    if pending.is_some() {
        state.pending = None;
    }
    state.write_state(vault)?;
    // Remove the file only after the state no longer names it. The next plan removes a file that a
    // killed process left.
    if state.pending.is_none() {
        state.drop_pending(vault)?;
    }
    Ok(acknowledged)
}
