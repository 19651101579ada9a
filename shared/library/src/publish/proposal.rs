//! Releases that several publishers sign.
//!
//! Where the release role's threshold is above one, a sync signs the release with one key and
//! proposes it. Another publisher's machine judges the exact bytes as a device would, but for the
//! threshold, runs the gate on every bundle that is new, shows the differences, and adds its
//! signature. Whoever reaches the threshold publishes the complete file. A machine signs at most
//! one payload under a namespace, root version and release number.

use std::collections::BTreeMap;

use vault_format::bundle::File;
use vault_format::catalog::{
    Catalog, CatalogChanges, CatalogError, CatalogOutcome, CatalogReader, LastCatalog, ObjectEntry,
    Side, SignedCatalog, SkillEntry, judge_proposal,
};
use vault_format::hash::Digest;
use vault_format::name::{SkillName, Slug};
use vault_format::root::{RootState, RootVersion};
use vault_gate::finding::Finding;
use vault_policy::profile::Profile;

use super::adopt::{self, AdoptError, Fetched};
use super::current::Current;
use super::error::PlanError;
use super::request::PlanRequest;
use super::state::{self, SignedPayload};
use crate::admit::{Neighbours, Options, Purpose};
use crate::vault::Vault;
use crate::vault::trust::{NamedKey, RootChanges};

/// Why a proposal is not signed. Nothing has been signed.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    /// The service's current release can't be read, or this machine may not publish.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The proposal does not count.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its list of keys is newer than the one that is published.
    #[error("the proposal names newer keys than the service has published")]
    NewKeys,
    /// A bundle is missing, is not signed by a publisher, or the gate refuses it.
    #[error(transparent)]
    Bundle(Box<AdoptError>),
    /// A profile or policy of the proposal is missing or can't be read.
    #[error("the {0} of the proposal is not usable")]
    Object(&'static str),
}

impl From<AdoptError> for ProposalError {
    fn from(error: AdoptError) -> Self {
        Self::Bundle(Box::new(error))
    }
}

/// A proposed release that counts, but for the number of its signatures.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Its catalog.
    pub catalog: Catalog,
    /// SHA-256 of its payload.
    pub payload_sha256: Digest,
    /// Who has signed it.
    pub signers: Vec<NamedKey>,
    /// How many signatures it needs.
    pub needed: usize,
    /// Whether this machine has signed it.
    pub signed_here: bool,
    /// How it differs from the service's current release.
    pub changes: CatalogChanges,
    /// How the keys differ from those that the current release names.
    pub roots: Option<RootChanges>,
    file: SignedCatalog,
    base: String,
    slug: Slug,
}

/// A bundle that passed the gate.
#[derive(Clone, Debug)]
pub struct CheckedSkill {
    /// The skill.
    pub name: SkillName,
    /// The agent for which it was rendered; `None` for the plain skill.
    pub rendered_for: Option<String>,
    /// Its files as they would be installed.
    pub files: Vec<File>,
    /// The files of the former version; empty for a new skill or variant.
    pub before: Vec<File>,
    /// What the gate found. None of it blocks.
    pub findings: Vec<Finding>,
}

/// A proposal with one more signature.
#[derive(Clone, Debug)]
pub struct SignedProposal {
    /// The exact bytes of the file.
    pub bytes: Vec<u8>,
    /// The release.
    pub release: u64,
    /// How many signatures of publishers it has.
    pub signatures: usize,
    /// Whether these are enough, so that the file can be published.
    pub is_complete: bool,
    /// The file hash of the release that it follows, for `If-Match`; `None` for the first release.
    pub follows: Option<Digest>,
}

impl Proposal {
    /// Judges the exact bytes of a proposal against the service's current catalog, which `request`
    /// holds. Call [`super::take_roots`] for that catalog before.
    pub fn judge(
        vault: &Vault,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, ProposalError> {
        let trust = vault.require_trust().map_err(PlanError::from)?;
        let last = match request.current {
            Some(current) => Some(last_catalog(vault, request, current)?),
            None => None,
        };
        let state =
            state::read_or_new(vault, request.base, request.slug).map_err(PlanError::from)?;
        let signed_before = |root_version, release| state.signed_payload(root_version, release);
        let reader = CatalogReader {
            side: Side::Device,
            base: request.base,
            slug: request.slug,
            now: vault.clock().now(),
            latest_seen_at: trust.latest_seen_at,
            own: Some(&trust.roots),
            expected: None,
            last: last.as_ref(),
            accept_fork: false,
        };
        let judged = judge_proposal(bytes, &reader, &signed_before);
        let CatalogOutcome::Release(release) = judged.outcome? else {
            return Err(CatalogError::ProposalOutdated("it is the current release already").into());
        };
        if release.state() != &trust.roots {
            return Err(ProposalError::NewKeys);
        }
        let signed = signed_before(release.catalog().root_version, release.catalog().release);
        // The current release counts here, so its skills are by keys that count, too.
        let counted = release.settle(|_| true)?;
        let chain = trust.chain();
        let before = last.as_ref().map(|last| &last.catalog);
        Ok(Self {
            payload_sha256: counted.stored.payload_sha256,
            signers: counted
                .signers
                .iter()
                .map(|key| NamedKey::of(chain, key))
                .collect(),
            needed: chain.document().release().threshold(),
            signed_here: signed.is_some(),
            changes: CatalogChanges::between(before, &counted.catalog),
            roots: before.and_then(|before| root_changes(&trust.roots, before)),
            catalog: counted.catalog,
            file: SignedCatalog::parse(bytes)?,
            base: request.base.to_owned(),
            slug: request.slug.clone(),
        })
    }

    /// The skills of which this machine has to fetch the bundles, and the profiles. The former
    /// versions of changed skills are [`CatalogChanges::changed`]; fetch them, too, to show
    /// differences.
    pub fn to_fetch(&self) -> (Vec<SkillEntry>, Vec<ObjectEntry>) {
        let changed = self.changes.changed.iter().map(|(_, new)| new);
        let skills = self.changes.added.iter().chain(changed).cloned();
        let profiles = self.changes.profiles.iter().map(|entry| ObjectEntry {
            bundle_hash: entry.bundle_hash,
            size: entry.size,
        });
        (skills.collect(), profiles.collect())
    }

    /// The rendered variants that the fetched profiles name and the catalog does not list.
    pub fn variants(&self, fetched: Fetched<'_>) -> Result<Vec<SkillEntry>, ProposalError> {
        let mut variants = BTreeMap::new();
        for entry in &self.changes.profiles {
            let profile =
                fetched(&entry.bundle_hash).filter(|bytes| Digest::of(bytes) == entry.bundle_hash);
            let profile = profile.and_then(|bytes| Profile::parse(&bytes).ok());
            for skill in profile.ok_or(ProposalError::Object("profile"))?.skills {
                let plain = self.catalog.skill(&skill.name);
                let plain = plain.ok_or(ProposalError::Object("profile"))?;
                if plain.bundle_hash != skill.bundle_hash {
                    let variant = SkillEntry {
                        name: skill.name,
                        version: plain.version,
                        bundle_hash: skill.bundle_hash,
                        size: skill.size,
                    };
                    variants.insert(skill.bundle_hash, variant);
                }
            }
        }
        Ok(variants.into_values().collect())
    }

    /// Verifies every new bundle and runs the gate on it, as if it were taken over. One refusal
    /// refuses the proposal.
    pub fn check(
        &self,
        vault: &Vault,
        fetched: Fetched<'_>,
    ) -> Result<Vec<CheckedSkill>, ProposalError> {
        let trusted = vault.trusted().map_err(AdoptError::from)?;
        let variants = self.variants(fetched)?;
        let (skills, _) = self.to_fetch();
        let mut neighbours = Neighbours::of(vault);
        let mut checked = Vec::new();
        let plain = skills.iter().map(|entry| (entry, trusted.clone()));
        let rendered = variants.iter().map(|entry| (entry, trusted.on_variants()));
        for (entry, trusted) in plain.chain(rendered) {
            let opened = adopt::open(vault, entry, fetched, &trusted)?;
            let rendered_for = opened.manifest.rendered_from.as_ref();
            let rendered_for = rendered_for.map(|from| from.agent.to_string());
            let files = opened.files.clone();
            let former = self.changes.changed.iter();
            let former = former
                .filter(|(_, new)| new.bundle_hash == entry.bundle_hash)
                .map(|(old, _)| adopt::open(vault, old, fetched, &trusted));
            let before = former.flatten().next();
            let purpose = Purpose::Adopt(opened.signed.clone());
            let options = Options::as_recorded();
            let candidate = adopt::candidate(entry, opened, purpose, &options, &mut neighbours)?;
            checked.push(CheckedSkill {
                name: entry.name.clone(),
                rendered_for,
                files,
                before: before.map_or_else(Vec::new, |before| before.files),
                findings: candidate.package.findings,
            });
        }
        Ok(checked)
    }

    /// Adds this machine's signature. Records the payload before the bytes can leave the machine.
    pub fn sign(
        mut self,
        vault: &Vault,
        current: Option<&[u8]>,
    ) -> Result<SignedProposal, ProposalError> {
        let _change = vault.change().map_err(PlanError::from)?;
        let trust = vault.require_trust().map_err(PlanError::from)?;
        let key = vault.release_key().map_err(PlanError::from)?;
        let Catalog {
            release,
            root_version,
            ..
        } = self.catalog;
        let mut state =
            state::read_or_new(vault, &self.base, &self.slug).map_err(PlanError::from)?;
        let before = state.signed_payload(root_version, release);
        if before.is_some_and(|signed| signed != self.payload_sha256) {
            let reason = "this machine has signed another payload under its number";
            return Err(CatalogError::ProposalOutdated(reason).into());
        }
        let signer = vault.keys().signer(&key).map_err(PlanError::from)?;
        self.file.add_signature(&*signer).map_err(PlanError::from)?;
        state.note_signed(SignedPayload {
            root_version,
            release,
            payload_sha256: self.payload_sha256,
        });
        state.write(vault).map_err(PlanError::from)?;
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

/// The service's current release as the one that counted last. Fails if it is older than this
/// library knows it.
fn last_catalog(
    vault: &Vault,
    request: &PlanRequest<'_>,
    bytes: &[u8],
) -> Result<LastCatalog, ProposalError> {
    let trust = vault.require_trust().map_err(PlanError::from)?;
    let current = Current::read(&trust, request, bytes)?;
    let state = state::read(vault, request.base, request.slug).map_err(PlanError::from)?;
    if let Some(published) = state.and_then(|state| state.published) {
        if current.stored.release < published.release {
            return Err(PlanError::RolledBack {
                current: current.stored.release,
                published: published.release,
            }
            .into());
        }
        let is_same = current.stored.payload_sha256 == published.payload_sha256;
        if current.stored.release == published.release && !is_same {
            return Err(PlanError::TwoCatalogs(published.release).into());
        }
    }
    let payload = current.stored.payload_sha256;
    Ok(LastCatalog::read(bytes, &payload, current.signers)?)
}

/// How the keys differ from those that the former release names.
fn root_changes(roots: &RootState, before: &Catalog) -> Option<RootChanges> {
    let former = roots
        .chain()
        .find(&before.root_sha256)
        .map(RootVersion::document)?;
    let former = roots.chain().until(former.version())?;
    let former = RootState::new(former, roots.revoked_elsewhere().clone());
    RootChanges::between(Some(&former), roots)
}
