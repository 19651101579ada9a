//! Plans a release: decides whether anything changed, builds the content, and signs the catalog.
//!
//! A release is a signed catalog of exactly the own skills. [`plan_release`] starts from the
//! service's current catalog. It stops if this machine does not recognise that catalog, or if the
//! catalog is older than the last published one. Each signed catalog is recorded before it can be
//! uploaded, so that no two catalogs get one number. An interrupted push continues with the same
//! bytes.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::catalog::{Catalog, CatalogError, MAX_RELEASE_JUMP, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{SkillName, Slug};
use vault_format::root;
use vault_format::root::{KeyStanding, RootChain, RootError, RootList, RootState};

use super::build::ReleaseBuilder;
use super::change::{ReleaseChange, former_signers};
use super::current::{
    Current, ReleaseSkill, acknowledge_release, compare_with_catalog, own_skills,
    read_last_accepted, same_content, skill_places,
};
use super::error::{Difference, PlanError};
use super::merge::{ReleaseMerge, TakeOver};
use super::release::Plan;
use super::request::{OnDivergence, PlanRequest};
use super::state::{self, CatalogFile, CloudState, RecordedRelease, SignedPayload};
use super::variants::render_for_release;
use crate::admit::{list_unsigned, remove, sign_again, sign_waiting};
use crate::installed::installations::{self, Installation};
use crate::installed::root_versions;
use crate::vault::authored::{AuthoredFile, PROFILES_FILE};
use crate::vault::policy::POLICY_FILE;
use crate::vault::trust::{RootChanges, VaultTrust};
use crate::vault::{Change, Vault};

/// Plans a release that follows the service's current catalog. Takes the writer lock. Signs only if
/// something changed.
pub fn plan_release(vault: &Vault, request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    let mut change = vault.begin_change()?;
    let mut trust = store_shown_roots(vault, &mut change, request)?;
    let current = match request.current {
        Some(bytes) => match Current::read(vault, &trust, request, bytes) {
            Err(error) if request.replaces_unread(&error) => None,
            read => Some(read?),
        },
        None => None,
    };
    let mut state = state::read_or_new(vault, request.base, request.slug)?;
    settle_pending(vault, &mut state, current.as_ref().zip(request.current))?;
    let judge = ReleaseJudge {
        vault,
        trust: &trust,
        state: &state,
        request,
    };
    let to_sign_again = list_unsigned(vault)?;
    if !to_sign_again.is_empty() {
        // Take over releases of other publishers first. They may have removed a thief's skills,
        // which are then not signed again.
        let verdict =
            judge.judge_divergence(current.as_ref(), &installations::own_skill_places(vault)?);
        if let Ok(ReleaseRelation::TakeOver(taken)) = verdict {
            return Ok(Plan::TakeOver(taken));
        }
        if !request.sign_again {
            return Ok(Plan::SignAgain(to_sign_again));
        }
    }
    // Sign before the skills are listed, so that this release contains the new signatures.
    sign_waiting(vault, &mut change)?;
    let mut skills = own_skills(vault)?;
    let places = skill_places(&skills);
    let mut behind = match judge.judge_divergence(current.as_ref(), &places)? {
        ReleaseRelation::Follow => BTreeMap::new(),
        ReleaseRelation::TakeOver(taken) => return Ok(Plan::TakeOver(taken)),
        ReleaseRelation::Outnumber(catalog) => find_skills_behind(&skills, catalog),
    };
    behind.extend(returned_skills(request, &state, current.as_ref(), &skills));
    if !behind.is_empty() {
        raise_versions(vault, &mut change, &behind)?;
        skills = own_skills(vault)?;
    }
    let profiles = read_text(vault, &AuthoredFile::Profiles, PROFILES_FILE)?;
    let compared = compared_release(vault, request, current.as_ref())?;
    if let Some(current) = compared
        && let (None, [_, ..]) = (request.current_profiles, &current.catalog.profiles[..])
    {
        return Ok(Plan::FetchProfiles(current.catalog.profiles.clone()));
    }
    let mut variants = render_for_release(vault, &mut change, &skills, profiles.as_deref())?;
    if let Some(current) = compared {
        let missing = variants.use_equal(vault, &mut change, request, &current.catalog, &skills)?;
        if !missing.is_empty() {
            return Ok(Plan::FetchVariants(missing));
        }
        trust = vault.require_trust()?;
    }
    let builder = ReleaseBuilder {
        vault,
        request,
        rules: variants.rules,
        transforms: variants.transforms,
        rendered: variants.rendered,
        current: current.as_ref(),
        skills: &skills,
        key: release_key(vault, &trust, current.as_ref())?,
        trust: &trust,
        policy: read_text(vault, &AuthoredFile::Policy, POLICY_FILE)?,
        profiles,
        withdrawn: remove::list_withdrawn(vault)?,
        now: vault.clock().now(),
    };
    if let Some(current) = compared {
        builder.check_profiles(request.current_profiles.unwrap_or_default(), current)?;
    }
    build_plan(&builder, state)
}

/// Stores root versions (signed lists of the vault's keys) from the service's catalog that
/// supersede the known ones. Returns the changes of the keys, for the owner to read; `None` if
/// there are none.
pub fn take_roots(
    vault: &Vault,
    request: &PlanRequest<'_>,
) -> Result<Option<RootChanges>, PlanError> {
    let mut change = vault.begin_change()?;
    let before = vault.require_trust()?;
    let after = store_shown_roots(vault, &mut change, request)?;
    Ok(RootChanges::between(Some(&before.roots), &after.roots))
}

/// Like [`take_roots`], for a caller that holds the writer lock. Returns the trusted state
/// afterwards.
fn store_shown_roots(
    vault: &Vault,
    change: &mut Change<'_>,
    request: &PlanRequest<'_>,
) -> Result<VaultTrust, PlanError> {
    let before = vault.require_trust()?;
    let Some(bytes) = request.current else {
        return Ok(before);
    };
    let file = match SignedCatalog::parse(bytes).map_err(PlanError::from) {
        Err(error) if request.replaces_unread(&error) => return Ok(before),
        file => file?,
    };
    let judged = match root::judge_roots(Some(&before.roots), file.roots(), None) {
        Ok(judged) => judged,
        Err(RootError::VaultChanged) if request.pin_is_reset => return Ok(before),
        Err(RootError::VaultChanged) => return Err(PlanError::OtherVault),
        // The owner has healed a fork. The service gets this vault's versions with the next
        // release.
        Err(RootError::Forked { .. }) if supersedes_shown(&before, file.roots()) => {
            return Ok(before);
        }
        Err(error) => return Err(CatalogError::from(error).into()),
    };
    if !judged.taken {
        return Ok(before);
    }
    // The bundles that the catalog lists stay valid even if their signer has been retired since.
    let after = VaultTrust {
        roots: judged.state,
        ..before
    };
    let listed = match Current::read(vault, &after, request, bytes) {
        Ok(current) if current.counts() => {
            let skills = current.catalog.skills.iter();
            skills.map(|entry| entry.bundle_hash).collect()
        }
        _ => BTreeSet::new(),
    };
    Ok(root_versions::store_accepted_roots(
        change,
        vault.id(),
        file.roots(),
        &listed,
        None,
    )?)
}

/// Returns whether a reader that knows the shown root versions would accept this vault's in their
/// place.
fn supersedes_shown(trust: &VaultTrust, shown: &RootList) -> bool {
    let shown = RootChain::verify(shown).map(|chain| RootState::new(chain, [].into()));
    let own = trust.chain().to_list();
    shown.is_ok_and(|shown| {
        root::judge_roots(Some(&shown), &own, None).is_ok_and(|judged| judged.taken)
    })
}

/// Adds this vault's root versions to the service's current catalog, so that readers learn them
/// before a release can be made. `None` if the catalog has them already.
pub fn append_missing_roots(vault: &Vault, current: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
    let trust = vault.require_trust()?;
    let file = SignedCatalog::parse(current)?;
    let longer = file.with_roots(trust.chain())?;
    if longer.roots().len() <= file.roots().len() {
        return Ok(None);
    }
    vault.note_roots_exported()?;
    Ok(Some(longer.to_bytes()))
}

/// Returns the key that signs the release: the key that the current catalog names, if it is on this
/// machine and may publish, or else another one.
fn release_key(
    vault: &Vault,
    trust: &VaultTrust,
    current: Option<&Current>,
) -> Result<PublicKey, PlanError> {
    let named = current.map(|current| current.catalog.public_key);
    // The key is an input of the release. With several keys on this machine, a changing choice
    // would make a new release each time.
    let keys = vault.keys().list()?;
    let named =
        named.filter(|key| keys.contains(key) && trust.roots.standing(key) == KeyStanding::Release);
    match named {
        Some(key) => Ok(key),
        None => Ok(vault.release_key()?),
    }
}

/// Records a pending release as published if the service shows its catalog: the push succeeded, but
/// its response was lost.
fn settle_pending(
    vault: &Vault,
    state: &mut CloudState,
    current: Option<(&Current, &[u8])>,
) -> Result<(), PlanError> {
    if let (Some(pending), Some((current, bytes))) = (&state.pending, current)
        && pending.payload_sha256 == current.stored.payload_sha256
    {
        let arrived = RecordedRelease {
            file_sha256: current.file_sha256,
            ..pending.clone()
        };
        // The catalog may have got signatures of other publishers, so record the service's bytes.
        acknowledge_release(vault, state, bytes, arrived)?;
        state.pending = None;
        state.write_state(vault)?;
    }
    if state.pending.is_none() {
        // An earlier run may have been killed before it removed the file.
        state.drop_pending(vault)?;
    }
    Ok(())
}

/// The relation of the new release to the service's current catalog.
enum ReleaseRelation<'a> {
    /// The new release follows the last one that this machine knows, or is the first one.
    Follow,
    /// These changes of the current catalog must be taken over first.
    TakeOver(Box<TakeOver>),
    /// The new release replaces a catalog that another machine published. Each skill that differs
    /// needs a higher version than in that catalog.
    Outnumber(&'a Catalog),
}

/// Compares the service's current catalog with what this machine knows and has.
struct ReleaseJudge<'a> {
    vault: &'a Vault,
    trust: &'a VaultTrust,
    state: &'a CloudState,
    request: &'a PlanRequest<'a>,
}

impl ReleaseJudge<'_> {
    /// Decides how a new release may follow the current catalog. Fails if it must not.
    fn judge_divergence<'c>(
        &self,
        current: Option<&'c Current>,
        places: &[Installation],
    ) -> Result<ReleaseRelation<'c>, PlanError> {
        let (trust, state) = (self.trust, self.state);
        let on_divergence = self.request.on_divergence;
        let Some(current) = current else {
            return match &state.published {
                Some(published) if on_divergence != OnDivergence::Replace => {
                    Err(PlanError::RolledBack {
                        current: 0,
                        published: published.release,
                    })
                }
                _ => Ok(ReleaseRelation::Follow),
            };
        };
        if !self.has_diverged(current, places)? {
            return Ok(ReleaseRelation::Follow);
        }
        // A release that is not valid may be replaced, but nothing of it is taken over.
        let is_void = current.is_void();
        // In a vault with one publisher, only a copy of its key can have signed a release
        // elsewhere, so merging it needs the owner's consent.
        let is_shared = trust.chain().document().release().keys().len() > 1;
        match on_divergence {
            // Readers ignore the number and the versions of a void release, so nothing has to
            // exceed them.
            OnDivergence::Replace if is_void => Ok(ReleaseRelation::Follow),
            OnDivergence::Replace => Ok(ReleaseRelation::Outnumber(&current.catalog)),
            OnDivergence::Stop if is_void => Err(PlanError::Diverged(Difference {
                former_signers: former_signers(&trust.roots, &current.signers),
                ..compare_with_catalog(places, &current.catalog)
            })),
            OnDivergence::Stop | OnDivergence::Adopt if !current.counts() => {
                Err(current.refusal_error(trust, places.is_empty()))
            }
            OnDivergence::Stop if !is_shared => Err(PlanError::Diverged(compare_with_catalog(
                places,
                &current.catalog,
            ))),
            OnDivergence::Stop | OnDivergence::Adopt => {
                let base = read_last_accepted(self.vault, trust, self.request)?
                    .map(|counted| counted.last.catalog);
                let change = ReleaseChange::between(
                    trust,
                    base,
                    (current.catalog.clone(), &current.signers),
                );
                let (version, release) = (current.catalog.root_version, current.stored.release);
                let signed = state.signed_payload(version, release);
                let signed_here = signed == Some(current.stored.payload_sha256);
                let merge = ReleaseMerge {
                    vault: self.vault,
                    current,
                    places,
                    signed_here,
                    request: self.request,
                };
                let taken = merge.merge_releases(change)?;
                Ok(taken.map_or(ReleaseRelation::Follow, |taken| {
                    ReleaseRelation::TakeOver(Box::new(taken))
                }))
            }
        }
    }

    /// Returns whether the current catalog is one that this machine neither published nor took
    /// over. Fails if it is older than the last published release, or differs from it with the same
    /// number, unless it is to be replaced.
    fn has_diverged(&self, current: &Current, places: &[Installation]) -> Result<bool, PlanError> {
        let Some(published) = &self.state.published else {
            // Nothing is recorded here. If the skills are the same, the vault was moved to this
            // machine.
            let same = Difference {
                release: current.stored.release,
                ..Difference::default()
            };
            let own: BTreeSet<_> = remove::list_withdrawn(self.vault)?
                .into_iter()
                .map(|entry| entry.bundle_hash)
                .collect();
            let withdrawn = &current.catalog.withdrawn;
            let is_own = withdrawn.iter().all(|it| own.contains(&it.bundle_hash));
            return Ok(!is_own || compare_with_catalog(places, &current.catalog) != same);
        };
        if current.stored.payload_sha256 == published.payload_sha256 {
            return Ok(false);
        }
        // Readers ignore a release by a revoked key, so its number can be used again.
        let counted = read_last_accepted(self.vault, self.trust, self.request)?;
        let is_void = counted.is_some_and(|counted| counted.is_void(self.trust));
        // With `Replace`, the owner confirms that the service was restored from a backup on
        // purpose.
        let is_replaced = self.request.on_divergence == OnDivergence::Replace;
        if current.stored.release > published.release || is_replaced || is_void {
            Ok(true)
        } else if current.stored.release < published.release {
            Err(PlanError::RolledBack {
                current: current.stored.release,
                published: published.release,
            })
        } else {
            Err(PlanError::TwoCatalogs(published.release))
        }
    }
}

/// Returns the current release if the new one could lose profiles of it.
fn compared_release<'a>(
    vault: &Vault,
    request: &PlanRequest<'_>,
    current: Option<&'a Current>,
) -> Result<Option<&'a Current>, PlanError> {
    match current {
        Some(current)
            if request.on_divergence != OnDivergence::Replace
                && !is_signed_here(vault, current)? =>
        {
            Ok(Some(current))
        }
        _ => Ok(None),
    }
}

/// Returns whether the profiles of the current release need no check, because a key of this machine
/// signed it or because it is not valid.
fn is_signed_here(vault: &Vault, current: &Current) -> Result<bool, PlanError> {
    let here = vault.keys().list()?;
    Ok(!current.counts() || current.signers.iter().any(|key| here.contains(key)))
}

/// Builds and signs the release. Does not sign if the current release has the same content, or if
/// an earlier attempt has signed the same release.
fn build_plan(builder: &ReleaseBuilder<'_>, mut state: CloudState) -> Result<Plan, PlanError> {
    let vault = builder.vault;
    let inputs = builder.inputs_digest();
    let not_due = builder.current.filter(|current| !builder.is_due(current));
    // Equal inputs give equal content, so nothing has to be built.
    if let (Some(current), Some(published)) = (not_due, &state.published)
        && published.payload_sha256 == current.stored.payload_sha256
        && published.inputs == Some(inputs)
    {
        return Ok(Plan::Unchanged(published.clone()));
    }
    let mut release = builder.build_unsigned()?;
    if let Some(current) = not_due
        // A release that was taken over has no recorded inputs, and different inputs may give the
        // same content.
        && same_content(&release.catalog, current)
    {
        let acknowledged = RecordedRelease {
            inputs: Some(inputs),
            ..current.to_recorded(builder.now)
        };
        if let Some(bytes) = builder.request.current {
            acknowledge_release(vault, &mut state, bytes, acknowledged.clone())?;
            state.write_state(vault)?;
        }
        return Ok(Plan::Unchanged(acknowledged));
    }
    let follows = builder.request.current.map(Digest::of);
    if let Some(bytes) = builder.resumable_catalog(&state, inputs, follows)? {
        return builder.choose_plan(release, bytes, true);
    }
    (release.catalog.release, release.catalog.previous) = builder.next_number(&state);
    // Fill the list again: a new entry contains the number of this release, which is known only
    // now.
    builder.fill_withdrawn(&mut release.catalog)?;
    let signer = vault.keys().signer(&builder.key)?;
    let bytes =
        SignedCatalog::sign(&release.catalog, builder.trust.chain(), &[&*signer])?.to_bytes();
    // Record the release before its bytes can leave this machine, because the number is used up
    // even if the push fails.
    vault.note_roots_exported()?;
    state.write_catalog_file(vault, CatalogFile::Pending, &bytes)?;
    let payload_sha256 = SignedCatalog::parse(&bytes)?.payload_sha256();
    state.note_signed(SignedPayload {
        root_version: release.catalog.root_version,
        release: release.catalog.release,
        payload_sha256,
    });
    state.pending = Some(RecordedRelease {
        release: release.catalog.release,
        payload_sha256,
        file_sha256: Digest::of(&bytes),
        expires_at: release.catalog.expires_at,
        skills: release.catalog.skills.len() as u64,
        at: builder.now,
        inputs: Some(inputs),
        follows,
    });
    state.write_state(vault)?;
    builder.choose_plan(release, bytes, false)
}

/// Returns the own skills whose version would decrease compared with the current catalog, or stay
/// the same with other content. The value is the version there.
fn find_skills_behind(skills: &[ReleaseSkill], catalog: &Catalog) -> BTreeMap<SkillName, u64> {
    let behind = skills.iter().filter_map(|skill| {
        let entry = catalog.skill(&skill.place.name)?;
        let is_behind =
            entry.bundle_hash != skill.place.bundle && entry.version >= skill.row.version;
        is_behind.then(|| (skill.place.name.clone(), entry.version))
    });
    behind.collect()
}

/// Returns the own skills that an earlier release removed and that would come back with a version
/// that machines may have had already. The value is that version. Leaves out a version that is too
/// far above the own one for a release; the service rejects such a release.
fn returned_skills(
    request: &PlanRequest<'_>,
    state: &CloudState,
    current: Option<&Current>,
    skills: &[ReleaseSkill],
) -> BTreeMap<SkillName, u64> {
    let current = current.filter(|current| current.counts());
    let behind = skills.iter().filter_map(|skill| {
        let (name, version) = (&skill.place.name, skill.row.version);
        if current.is_some_and(|current| current.catalog.skill(name).is_some()) {
            return None;
        }
        let former = state.former.skills.get(name);
        let former = former.filter(|former| former.bundle_hash != skill.place.bundle);
        let shown = request.reached.and_then(|reached| reached.get(name));
        let reached = former.map(|former| former.version).max(shown.copied())?;
        let is_behind = reached >= version && reached - version < MAX_RELEASE_JUMP;
        is_behind.then(|| (name.clone(), reached))
    });
    behind.collect()
}

/// Signs own skills again, each with a version above the given one.
fn raise_versions(
    vault: &Vault,
    change: &mut Change<'_>,
    behind: &BTreeMap<SkillName, u64>,
) -> Result<(), PlanError> {
    vault.change_own_skills(|known| {
        for (name, version) in behind {
            // Signing again takes the next version above the highest recorded one.
            known.note_reached(name, *version);
        }
    })?;
    let trusted = vault.trusted()?;
    let resigned = sign_again(vault, change, &trusted, |place| {
        behind.contains_key(&place.name)
    })?;
    match resigned.refused.into_iter().next() {
        // Without a new signature the version in the release would decrease or stay the same.
        Some((name, reason)) => Err(PlanError::Refused { name, reason }),
        None => Ok(()),
    }
}

/// Returns the approved version of a text file of the owner; `None` if there is none.
fn read_text(
    vault: &Vault,
    file: &AuthoredFile,
    name: &'static str,
) -> Result<Option<String>, PlanError> {
    let text = file.read_approved(vault)?.map(String::from_utf8);
    text.transpose()
        .map_err(|_| PlanError::NotText { file: name })
}

/// Records the service's current catalog as known, after the owner has reviewed its payload and the
/// skills were adopted. The next plan starts from it.
pub(super) fn record_reviewed(
    vault: &Vault,
    base: &str,
    slug: &Slug,
    current: &[u8],
    reviewed: ReleaseRef,
) -> Result<RecordedRelease, PlanError> {
    let mut change = vault.begin_change()?;
    let request = PlanRequest {
        // The owner reviewed exactly this payload. The service may show another one by now.
        last_good: Some(reviewed),
        ..PlanRequest::new(base, slug, Some(current))
    };
    let trust = store_shown_roots(vault, &mut change, &request)?;
    let read = Current::read(vault, &trust, &request, current)?;
    if !read.counts() {
        return Err(read.refusal_error(&trust, false));
    }
    let mut state = state::read_or_new(vault, base, slug)?;
    let acknowledged = read.to_recorded(vault.clock().now());
    acknowledge_release(vault, &mut state, current, acknowledged.clone())?;
    state.write_state(vault)?;
    Ok(acknowledged)
}
