//! The catalog that the service shows as current: judged as a device judges it, and compared with
//! the vault's own skills.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, CountedCatalog, FormerSkills,
    JudgedRelease, LastCatalog, ReaderKind, ReleaseRef, SignedCatalog, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::root::{RootChain, RootState, RootVersion};
use vault_format::time::Timestamp;

use super::change::former_signers;
use super::error::{Difference, PlanError};
use super::request::PlanRequest;
use super::state::{self, CloudState, RecordedRelease};
use crate::index::IndexRow;
use crate::installed::installations::{Installation, Origin};
use crate::installed::listing;
use crate::store::{self, Trusted};
use crate::vault::trust::{NamedKey, VaultTrust};
use crate::vault::{Vault, VaultError};

/// The catalog that the service shows. Enough publishers of the root version (signed list of keys)
/// that it names have signed it; its [`Standing`] says whether it is valid today.
pub(super) struct Current {
    pub(super) catalog: Catalog,
    pub(super) stored: ReleaseRef,
    pub(super) file_sha256: Digest,
    /// Signers that are publishers in the root version that the catalog names.
    pub(super) signers: Vec<PublicKey>,
    pub(super) standing: Standing,
}

/// The verdict of this machine on a catalog that the service shows.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// Accepted, because this machine published or took over exactly this payload, or because the
    /// owner named it as the last good one.
    Known,
    /// Accepted, because it is valid under the newest root version and follows the catalog that
    /// this machine accepted last.
    Counts,
    /// Not valid, so nothing is taken from it. Its number counts, so a new release needs a higher
    /// one.
    Refused(Arc<CatalogError>),
    /// Ignored, because a key that signed it is revoked or was never one of this vault's. Devices
    /// ignore its number too.
    Void,
}

impl Current {
    /// Reads a catalog and judges it. It must name a root version of this vault's chain, or of a
    /// chain that forked from it, and enough publishers of that version must have signed it. Fails
    /// if the catalog belongs to another vault or namespace, or if others signed it.
    pub(super) fn read(
        vault: &Vault,
        trust: &VaultTrust,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, PlanError> {
        let last = read_last_accepted(vault, trust, request)?;
        Self::read_after(vault, trust, request, bytes, last.as_ref())
    }

    /// Like [`Self::read`], for a release that is not the current one: it need not follow the
    /// release that was accepted last.
    pub(super) fn read_earlier(
        vault: &Vault,
        trust: &VaultTrust,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, PlanError> {
        Self::read_after(vault, trust, request, bytes, None)
    }

    fn read_after(
        vault: &Vault,
        trust: &VaultTrust,
        request: &PlanRequest<'_>,
        bytes: &[u8],
        counted: Option<&LastAccepted>,
    ) -> Result<Self, PlanError> {
        let mut current = Self::identify(trust, request, bytes)?;
        // Check for revoked keys first: that this machine published a release once does not make up
        // for a revoked key.
        if trust.roots.voids_release(&current.signers) {
            current.standing = Standing::Void;
        } else if !is_known(vault, request, current.stored)? {
            let reader =
                catalog_reader(vault, trust, request, counted.map(|counted| &counted.last));
            let former = counted.map(|counted| &counted.former);
            current.standing = judge_unknown_catalog(vault, bytes, &reader, former);
        }
        Ok(current)
    }

    /// Reads a catalog of this vault and checks its signatures, without judging it. The standing is
    /// `Known` until the caller judges the catalog.
    pub(super) fn identify(
        trust: &VaultTrust,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, PlanError> {
        let file = SignedCatalog::parse(bytes)?;
        let payload_sha256 = file.payload_sha256();
        let catalog = file.read_counted(&payload_sha256)?;
        if catalog.vault_id != trust.roots.vault_id() {
            return Err(PlanError::OtherVault);
        }
        let shown_chain = RootChain::verify(file.roots()).map_err(CatalogError::from)?;
        // Read a fork of the own chain too, so that the owner learns who signed under it.
        let fork =
            Some(&shown_chain).filter(|shown| shown.root1_sha256() == trust.chain().root1_sha256());
        let mut chains = [Some(trust.chain()), fork].into_iter().flatten();
        let version = chains.find_map(|chain| chain.find(&catalog.root_sha256));
        let version = version.ok_or(PlanError::NotOurs(
            "it names keys that this vault does not trust",
        ))?;
        let role = version.document().release();
        let signers = file.valid_signers(role.keys());
        if signers.len() < role.threshold() {
            return Err(PlanError::NotOurs(
                "it is not signed by keys that this vault trusts",
            ));
        }
        if catalog.slug != *request.slug {
            return Err(PlanError::NotOurs("it is for another namespace"));
        }
        Ok(Self {
            stored: ReleaseRef {
                release: catalog.release,
                payload_sha256,
            },
            file_sha256: Digest::of(bytes),
            signers,
            standing: Standing::Known,
            catalog,
        })
    }

    /// Returns whether the content is accepted: it may be shown as the vault's, taken over, or
    /// built on.
    pub(super) const fn counts(&self) -> bool {
        matches!(self.standing, Standing::Known | Standing::Counts)
    }

    /// Returns whether readers ignore the catalog and even its number.
    pub(super) const fn is_void(&self) -> bool {
        matches!(self.standing, Standing::Void)
    }

    /// Returns the error that explains why the content is not used.
    pub(super) fn refusal_error(&self, trust: &VaultTrust, is_empty_here: bool) -> PlanError {
        match &self.standing {
            Standing::Refused(reason) => PlanError::NotCounted {
                release: self.stored.release,
                payload_sha256: self.stored.payload_sha256,
                signers: named_keys(trust, &self.signers),
                former_signers: former_signers(&trust.roots, &self.signers),
                reason: Arc::clone(reason),
                is_empty_here,
            },
            Standing::Known | Standing::Counts | Standing::Void => PlanError::Voided {
                release: self.stored.release,
                payload_sha256: self.stored.payload_sha256,
                former_signers: former_signers(&trust.roots, &self.signers),
            },
        }
    }

    /// Returns the record of this release for the publishing state.
    pub(super) fn to_recorded(&self, at: Timestamp) -> RecordedRelease {
        RecordedRelease {
            release: self.stored.release,
            payload_sha256: self.stored.payload_sha256,
            file_sha256: self.file_sha256,
            expires_at: self.catalog.expires_at,
            skills: self.catalog.skills.len() as u64,
            at,
            inputs: None,
            follows: None,
        }
    }
}

/// Stores the exact bytes of a release as the current one of a namespace. The caller must write the
/// state afterwards.
pub(super) fn acknowledge_release(
    vault: &Vault,
    state: &mut CloudState,
    bytes: &[u8],
    known: RecordedRelease,
) -> Result<(), VaultError> {
    let (trust, store) = (vault.require_trust()?, vault.store_folder());
    state.store_acknowledged(vault, bytes, known, |entry| {
        store::read_signer(&store, &entry.bundle_hash, &trust.roots)
    })?;
    state.former.forget_revoked(&trust.roots);
    Ok(())
}

/// Returns the number of the release that the service shows, if that release is accepted and this
/// machine has neither published nor taken it over. `None` for a release that is not valid, so that
/// it never stops the caller.
pub fn unseen_release(vault: &Vault, request: &PlanRequest<'_>) -> Result<Option<u64>, PlanError> {
    let (trust, state) = (
        vault.require_trust()?,
        state::read_state(vault, request.base, request.slug)?,
    );
    let published = state.and_then(|state| state.published);
    let (Some(bytes), Some(published)) = (request.current, published) else {
        return Ok(None);
    };
    let Ok(current) = Current::read(vault, &trust, request, bytes) else {
        return Ok(None);
    };
    let is_unseen =
        matches!(current.standing, Standing::Counts) && current.stored.release > published.release;
    Ok(is_unseen.then_some(current.stored.release))
}

/// Returns whether this machine published or took over exactly this payload, at this address or an
/// earlier one of the namespace, or whether its owner named it as the last good release.
pub(super) fn is_known(
    vault: &Vault,
    request: &PlanRequest<'_>,
    shown: ReleaseRef,
) -> Result<bool, VaultError> {
    let holds = |state: &CloudState| {
        let pending = state.pending.as_ref();
        state.payload_of(shown.release) == Some(shown.payload_sha256)
            || pending.is_some_and(|pending| pending.payload_sha256 == shown.payload_sha256)
    };
    let states = state::list_states(vault)?;
    let mut states = states.iter().filter(|state| state.slug == *request.slug);
    Ok(request.last_good == Some(shown) || states.any(holds))
}

/// Judges a catalog that this machine does not know.
fn judge_unknown_catalog(
    vault: &Vault,
    bytes: &[u8],
    reader: &CatalogReader<'_>,
    former: Option<&FormerSkills>,
) -> Standing {
    let outcome = match judge_catalog(bytes, reader).outcome {
        Ok(CatalogOutcome::Release(release)) => {
            accept_release(vault, *release, reader.last, former).map(|_| ())
        }
        Ok(CatalogOutcome::Equal { .. } | CatalogOutcome::RootsOnly) => Ok(()),
        Err(reason) => Err(reason),
    };
    match outcome {
        Ok(()) => Standing::Counts,
        Err(reason) => Standing::Refused(Arc::new(reason)),
    }
}

/// Accepts a release, unless one of its skills is older than in the catalog that was accepted last,
/// or than it was when an earlier release removed it. Versions whose signing key was revoked since
/// are not compared.
pub(super) fn accept_release(
    vault: &Vault,
    release: JudgedRelease,
    last: Option<&LastCatalog>,
    former: Option<&FormerSkills>,
) -> Result<CountedCatalog, CatalogError> {
    let (store, state) = (vault.store_folder(), release.state().clone());
    let roots = Arc::new(state.clone());
    let counted = release.settle_versions(|entry| {
        let hash = entry.bundle_hash;
        let signer = store::read_signer(&store, &hash, &state);
        let was_released = signer.is_some_and(|key| state.chain().ever_released(&key));
        // Verify the whole bundle by its hash. An attacker could put a manifest of other content,
        // signed by a revoked key, in its place.
        let trusted = Trusted::for_listed(Arc::clone(&roots), [hash].into());
        let examined = store::examine_stored(&store, &hash, Some(&entry.name), &trusted);
        !(was_released && examined.is_err_and(|damage| damage.is_withheld()))
    })?;
    if let Some(former) = former {
        let has = |name: &SkillName| last.is_some_and(|last| last.catalog.skill(name).is_some());
        former.check_returned(has, &counted.catalog, &counted.state)?;
    }
    Ok(counted)
}

/// Returns the parameters with which this machine judges catalogs of its own vault.
pub(super) fn catalog_reader<'a>(
    vault: &Vault,
    trust: &'a VaultTrust,
    request: &PlanRequest<'a>,
    last: Option<&'a LastCatalog>,
) -> CatalogReader<'a> {
    CatalogReader {
        side: ReaderKind::Publisher,
        base: request.base,
        slug: request.slug,
        now: vault.clock().now(),
        latest_seen_at: trust.latest_seen_at,
        own: Some(&trust.roots),
        expected: None,
        last,
        accept_fork: false,
    }
}

/// The catalog that this machine published or took over last, and the skills that earlier releases
/// contained and this one does not.
#[derive(Clone)]
pub(super) struct LastAccepted {
    pub(super) last: LastCatalog,
    pub(super) former: FormerSkills,
}

impl LastAccepted {
    /// Returns whether a key that signed the catalog has been revoked since, so that readers ignore
    /// its number.
    pub(super) fn is_void(&self, trust: &VaultTrust) -> bool {
        trust.roots.voids_release(&self.last.signers)
    }

    /// Returns the former skills after `catalog`, a later and valid release.
    pub(super) fn former_as_of(
        &self,
        vault: &Vault,
        catalog: &Catalog,
        roots: &RootState,
    ) -> FormerSkills {
        let (mut former, store) = (self.former.clone(), vault.store_folder());
        former.record_removed(&self.last.catalog, catalog, |entry| {
            store::read_signer(&store, &entry.bundle_hash, roots)
        });
        former
    }
}

/// Reads the catalog that this machine published or took over last in the namespace; `None` if
/// there is none.
pub(super) fn read_last_accepted(
    vault: &Vault,
    trust: &VaultTrust,
    request: &PlanRequest<'_>,
) -> Result<Option<LastAccepted>, PlanError> {
    let Some(state) = state::read_state(vault, request.base, request.slug)? else {
        return Ok(None);
    };
    let (Some(published), Some(bytes)) = (&state.published, state.catalog_bytes(vault)?) else {
        return Ok(None);
    };
    let file = SignedCatalog::parse(&bytes)?;
    let payload_sha256 = file.payload_sha256();
    let pending = state.pending.as_ref();
    let recorded = pending.into_iter().chain([published]);
    // A killed process may have stored the next file without its record. Without a last release, a
    // review shows everything as new.
    if !recorded
        .into_iter()
        .any(|known| known.payload_sha256 == payload_sha256)
    {
        return Ok(None);
    }
    let catalog = file.read_counted(&payload_sha256)?;
    let root_version = trust.chain().find(&catalog.root_sha256);
    let keys = root_version.map(RootVersion::document);
    let keys = keys.map_or(&[][..], |document| document.release().keys());
    let signers = file.valid_signers(keys);
    let last = LastCatalog::read_stored(&bytes, &payload_sha256, signers)?;
    let former = state.former.clone();
    Ok(Some(LastAccepted { last, former }))
}

pub(super) fn named_keys(trust: &VaultTrust, keys: &[PublicKey]) -> Vec<NamedKey> {
    let named = |key| NamedKey::from_chain(trust.chain(), key);
    keys.iter().map(named).collect()
}

/// An own skill with its row of the index, from which the release lists it.
pub(super) struct ReleaseSkill {
    pub(super) place: Installation,
    pub(super) row: IndexRow,
}

/// Returns the installations of a release's skills.
pub(super) fn skill_places(skills: &[ReleaseSkill]) -> Vec<Installation> {
    skills.iter().map(|skill| skill.place.clone()).collect()
}

/// Returns the own skills, sorted by name. Fails if one is damaged.
pub(super) fn own_skills(vault: &Vault) -> Result<Vec<ReleaseSkill>, PlanError> {
    let mut skills = Vec::new();
    let mut damaged = Vec::new();
    for seen in listing::scan_installed(vault)? {
        if seen.place.origin != Origin::Local {
            continue;
        }
        match seen.state {
            Ok(row) => skills.push(ReleaseSkill {
                place: seen.place,
                row,
            }),
            Err(damage) => damaged.push((seen.place.name, damage)),
        }
    }
    // A release without the damaged skills would remove them from every device.
    if !damaged.is_empty() {
        return Err(PlanError::Damaged(damaged));
    }
    skills.sort_by(|a, b| a.place.name.cmp(&b.place.name));
    Ok(skills)
}

/// Compares the own skills with those of a catalog, by name and bundle.
pub(super) fn compare_with_catalog(places: &[Installation], catalog: &Catalog) -> Difference {
    let ours: BTreeMap<_, _> = places
        .iter()
        .map(|place| (&place.name, place.bundle))
        .collect();
    let mut difference = Difference {
        release: catalog.release,
        ..Difference::default()
    };
    for entry in &catalog.skills {
        match ours.get(&entry.name) {
            None => difference.theirs.push(entry.name.clone()),
            Some(bundle) if *bundle != entry.bundle_hash => {
                difference.differing.push(entry.name.clone());
            }
            Some(_) => {}
        }
    }
    difference.ours = ours
        .into_keys()
        .filter(|name| catalog.skill(name).is_none())
        .cloned()
        .collect();
    difference
}

/// Returns whether two releases have the same content, whatever their numbers and times are.
pub(super) fn same_content(new: &Catalog, current: &Current) -> bool {
    let old = &current.catalog;
    let withdrawn = |catalog: &Catalog| {
        catalog
            .withdrawn
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect::<BTreeSet<_>>()
    };
    new.skills == old.skills
        && new.index == old.index
        && new.policy == old.policy
        && new.profiles == old.profiles
        && new.audience == old.audience
        && new.root_sha256 == old.root_sha256
        // Compare withdrawn bundles by hash alone: an entry also contains the number of the first
        // release that listed it, which the new catalog does not have yet.
        && withdrawn(new) == withdrawn(old)
}
