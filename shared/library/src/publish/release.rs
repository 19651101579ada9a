//! The result of a plan: the caller's next step, or a signed release that is ready to upload.

use vault_format::catalog::{ProfileEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::{SkillName, Slug};
use vault_format::time::Timestamp;
use vault_store::objects::Class;

use super::current::acknowledge_release;
use super::error::PlanError;
use super::merge::TakeOver;
use super::state::{self, RecordedRelease};
use crate::admit::variants::RenderedVariant;
use crate::store::{self, Trusted};
use crate::vault::Vault;

/// The next step of a caller of [`super::plan_release`].
#[derive(Debug)]
pub enum Plan {
    /// Nothing: the current release already contains exactly this vault's skills.
    Unchanged(RecordedRelease),
    /// Show these own skills, whose signing key was revoked, to the owner. Then plan again with
    /// `PlanRequest::sign_again`.
    SignAgain(Vec<SkillName>),
    /// Show the owner the changes of other publishers, and pass them to [`super::adopt::take_over`]
    /// together with their objects. Then plan again.
    TakeOver(Box<TakeOver>),
    /// Fetch these profiles of the current catalog. Then plan again with
    /// `PlanRequest::current_profiles`.
    FetchProfiles(Vec<ProfileEntry>),
    /// Fetch these variants of the current release, then plan again with
    /// `PlanRequest::current_variants`. Each entry has the hash and size of the variant.
    FetchVariants(Vec<SkillEntry>),
    /// Upload the missing objects, and then the catalog.
    Publish(Box<ReleasePlan>),
    /// Upload the missing objects, and then propose the catalog, because other publishers must sign
    /// it too.
    Propose(Box<ReleasePlan>),
}

/// An object that must be at the service before the catalog is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedObject {
    /// Kind of object, which decides its address.
    pub class: Class,
    /// SHA-256 of the object's bytes, which is also its name at the service.
    pub sha256: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Whether the namespace has the object already, because the current catalog names it or the
    /// skill that it is a part of.
    pub known: bool,
    pub(super) source: Source,
}

/// The place of an object's bytes: in the store, or at this position among the built ones.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Skill(SkillName, Digest),
    Built(usize),
}

/// A signed release that is ready to upload.
#[derive(Clone, Debug)]
pub struct ReleasePlan {
    /// Number of the release.
    pub release: u64,
    /// Exact bytes of the signed catalog file, to be uploaded as they are.
    pub catalog: Vec<u8>,
    /// SHA-256 of `catalog`.
    pub file_sha256: Digest,
    /// SHA-256 of the payload that is signed in the catalog file. It stays the same when other
    /// publishers add signatures.
    pub payload_sha256: Digest,
    /// File hash of the catalog that it replaces, for `If-Match`; `None` means `If-None-Match: *`.
    pub follows: Option<Digest>,
    /// Time at which readers stop accepting the release.
    pub expires_at: Timestamp,
    /// All objects of the release, each once.
    pub objects: Vec<PlannedObject>,
    /// Skills that the current release does not contain.
    pub added: Vec<SkillName>,
    /// Skills that the current release contains with other content.
    pub changed: Vec<SkillName>,
    /// Skills that only the current release contains.
    pub removed: Vec<SkillName>,
    /// Number of skills in the release.
    pub skills: usize,
    /// Whether an earlier attempt signed these bytes.
    pub resumed: bool,
    /// Number of publishers that must sign the release, this machine included.
    pub needed: usize,
    /// Variants that were rendered for single agents and signed for this release.
    pub rendered: Vec<RenderedVariant>,
    pub(super) base: String,
    pub(super) slug: Slug,
    pub(super) built: Vec<Vec<u8>>,
    pub(super) trusted: Trusted,
}

impl ReleasePlan {
    /// Returns the exact bytes of an object. Fails with [`PlanError::Moved`] if the skill has
    /// changed since the plan was made.
    pub fn read_object(&self, vault: &Vault, object: &PlannedObject) -> Result<Vec<u8>, PlanError> {
        match &object.source {
            Source::Built(at) => Ok(self.built[*at].clone()),
            Source::Skill(name, bundle) => {
                let store = vault.store_folder();
                let (_, encoded) =
                    store::examine_and_encode(&store, bundle, Some(name), &self.trusted)
                        .map_err(|_| PlanError::Moved(name.clone()))?;
                // A large bundle is split, and each of its parts is an object with its own hash.
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

/// Records that the service acknowledged a planned release, which becomes the current one.
pub fn record_published(vault: &Vault, plan: &ReleasePlan) -> Result<RecordedRelease, PlanError> {
    let _change = vault.begin_change()?;
    let mut state = state::read_or_new(vault, &plan.base, &plan.slug)?;
    let pending = state
        .pending
        .clone()
        // Another process may have signed a newer release in between, whose record must stay.
        .filter(|pending| pending.payload_sha256 == plan.payload_sha256);
    let acknowledged = RecordedRelease {
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
    // Remove the file when the state no longer names it. If this process is killed before, the next
    // plan removes it.
    if state.pending.is_none() {
        state.drop_pending(vault)?;
    }
    Ok(acknowledged)
}
