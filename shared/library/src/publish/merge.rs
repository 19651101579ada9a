//! Merges the work of several publishers of one vault.
//!
//! Three states are compared: the last release that this library published or took over (the base),
//! the service's current release (theirs) and this library (ours). Changes of theirs are taken over
//! with their signatures, and changes of this library alone are published. If both changed the same
//! thing, that is a conflict: nothing is taken over or published, and each conflict is reported.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::catalog::{Catalog, PolicyEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{SkillName, Slug};
use vault_policy::Policy;
use vault_policy::profile::Profile;

use super::change::ReleaseChange;
use super::current::{Current, ReleaseSkill};
use super::error::{Conflicts, PlanError};
use super::request::{OnDivergence, PlanRequest};
use crate::installed::place::Place;
use crate::vault::authored::AuthoredFile;
use crate::vault::policy::POLICY_FILE;
use crate::vault::{Vault, VaultError};

/// The changes of other publishers since this library's last release. Nothing is taken over unseen:
/// show the whole change to the owner, then call [`super::adopt::take_over`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TakeOver {
    /// The number of the release that it is taken from.
    pub release: u64,
    /// The signers of that release.
    pub publishers: Vec<PublicKey>,
    /// Skills to install with their signatures, in place of those of the same names.
    pub skills: Vec<SkillEntry>,
    /// Skills to remove.
    pub removed: Vec<SkillName>,
    /// The change of the policy.
    pub policy: PolicyChange,
    /// SHA-256 of the release's payload.
    pub payload_sha256: Digest,
    /// Whether this machine has signed exactly this payload, so that its owner has seen it.
    pub signed_here: bool,
    /// The release, compared with the one that this library published or took over last.
    pub change: ReleaseChange,
    /// The base address, the namespace and the exact bytes of the release's catalog.
    pub(super) base: String,
    pub(super) slug: Slug,
    pub(super) catalog: Vec<u8>,
}

/// The change of `policy.toml`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PolicyChange {
    /// It stays.
    None,
    /// It becomes this object of the release.
    Take(PolicyEntry),
    /// It is removed.
    Remove,
}

impl TakeOver {
    /// Returns whether nothing of it goes into this library or its next release.
    fn is_empty(&self) -> bool {
        let changes = &self.change.changes;
        self.skills.is_empty()
            && self.removed.is_empty()
            && self.policy == PolicyChange::None
            && changes.withdrawn.is_empty()
            && changes.lifted.is_empty()
    }
}

/// The inputs of a merge, apart from the change of the release.
pub(super) struct ReleaseMerge<'a> {
    pub(super) vault: &'a Vault,
    pub(super) current: &'a Current,
    /// The skills of this library.
    pub(super) places: &'a [Place],
    /// Whether this machine has signed the current release.
    pub(super) signed_here: bool,
    pub(super) request: &'a PlanRequest<'a>,
}

impl ReleaseMerge<'_> {
    /// Compares the three states. `None` if there is nothing to take over. Fails with
    /// [`PlanError::Conflicts`] if both sides changed the same thing, unless `on_divergence`
    /// accepts theirs.
    pub(super) fn merge_releases(
        &self,
        change: ReleaseChange,
    ) -> Result<Option<TakeOver>, PlanError> {
        let stored = &self.current.stored;
        let base = change.before.clone();
        let mut take_over = TakeOver {
            release: stored.release,
            publishers: self.current.signers.clone(),
            skills: Vec::new(),
            removed: Vec::new(),
            policy: PolicyChange::None,
            payload_sha256: stored.payload_sha256,
            signed_here: self.signed_here,
            change,
            base: self.request.base.to_owned(),
            slug: self.request.slug.clone(),
            catalog: self.request.current.unwrap_or_default().to_vec(),
        };
        let mut conflicts = Conflicts::for_release(stored.release);
        self.merge_skills(base.as_ref(), &mut take_over, &mut conflicts)?;
        self.merge_policy(base.as_ref(), &mut take_over, &mut conflicts)?;
        if conflicts != Conflicts::for_release(stored.release) {
            return Err(PlanError::Conflicts(conflicts));
        }
        Ok(Some(take_over).filter(|taken| !taken.is_empty()))
    }

    fn merge_skills(
        &self,
        base: Option<&Catalog>,
        taken: &mut TakeOver,
        conflicts: &mut Conflicts,
    ) -> Result<(), PlanError> {
        let theirs = &self.current.catalog;
        let (base_bundles, their_bundles) = (bundles_of(base), bundles_of(Some(theirs)));
        let places = self.places.iter();
        let ours: BTreeMap<SkillName, Digest> = places
            .map(|place| (place.name.clone(), place.bundle))
            .collect();
        let names: BTreeSet<_> = their_bundles.keys().chain(ours.keys()).collect();
        let own = self.vault.own_skills()?;
        for name in names {
            let of = |side: &BTreeMap<SkillName, Digest>| side.get(name).copied();
            let (before, there, here) = (of(&base_bundles), of(&their_bundles), of(&ours));
            // Files that this machine only signed again, after a revocation, count as unchanged
            // here.
            let is_untouched = |here: Digest| {
                let mut bundles = own.signed_again(name, &here).iter();
                bundles.any(|bundle| Some(*bundle) == before)
            };
            let here = if here.is_some_and(is_untouched) {
                before
            } else {
                here
            };
            match choose_side(before, there, here, self.request.on_divergence) {
                MergeSide::Ours => {}
                MergeSide::Conflict => match (there, here) {
                    (Some(_), Some(_)) => conflicts.changed.push(name.clone()),
                    (Some(_), None) => conflicts.removed_here.push(name.clone()),
                    (None, _) => conflicts.removed_there.push(name.clone()),
                },
                MergeSide::Theirs => match theirs.skill(name) {
                    Some(entry) => taken.skills.push(entry.clone()),
                    None => taken.removed.push(name.clone()),
                },
            }
        }
        Ok(())
    }

    fn merge_policy(
        &self,
        base: Option<&Catalog>,
        taken: &mut TakeOver,
        conflicts: &mut Conflicts,
    ) -> Result<(), PlanError> {
        let ours = own_policy(self.vault)?;
        let base = base.and_then(|base| base.policy.as_ref());
        let theirs = self.current.catalog.policy.as_ref();
        let (before, there) = (base.map(|it| it.sha256), theirs.map(|it| it.sha256));
        match choose_side(before, there, ours.approved, self.request.on_divergence) {
            MergeSide::Ours => {}
            // Taking theirs would overwrite an edit that the owner has not decided on.
            MergeSide::Theirs if ours.is_pending => conflicts.policy = true,
            MergeSide::Theirs => {
                taken.policy = theirs.map_or(PolicyChange::Remove, |it| PolicyChange::Take(*it));
            }
            MergeSide::Conflict => conflicts.policy = true,
        }
        Ok(())
    }
}

fn bundles_of(catalog: Option<&Catalog>) -> BTreeMap<SkillName, Digest> {
    let skills = catalog.into_iter().flat_map(|catalog| &catalog.skills);
    skills
        .map(|skill| (skill.name.clone(), skill.bundle_hash))
        .collect()
}

/// The side whose version of an item continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MergeSide {
    Ours,
    Theirs,
    Conflict,
}

fn choose_side<T: Copy + PartialEq>(
    base: Option<T>,
    theirs: Option<T>,
    ours: Option<T>,
    on_divergence: OnDivergence,
) -> MergeSide {
    if theirs == ours || theirs == base {
        MergeSide::Ours
    } else if ours == base || on_divergence == OnDivergence::Adopt {
        MergeSide::Theirs
    } else {
        MergeSide::Conflict
    }
}

/// The policy of this library.
struct OwnPolicy {
    /// The hash of the object that the approved version makes.
    approved: Option<Digest>,
    /// Whether the file has unapproved changes.
    is_pending: bool,
}

fn own_policy(vault: &Vault) -> Result<OwnPolicy, PlanError> {
    let file = AuthoredFile::Policy;
    let approved = file.read_approved(vault)?;
    let found = file.read_written(vault).map_err(VaultError::from)?;
    let is_pending = found != approved;
    let text = approved.map(String::from_utf8).transpose();
    let text = text.map_err(|_| PlanError::NotText { file: POLICY_FILE })?;
    let policy = text.map(|text| Policy::from_toml(&text)).transpose()?;
    Ok(OwnPolicy {
        approved: policy.map(|policy| Digest::of(&policy.to_object())),
        is_pending,
    })
}

/// The profiles of the current release that this library's release would lose or change, by name
/// and agent: they come from a `profiles.toml` or from transforms that only another publisher has.
pub(super) fn lost_profiles(
    theirs: &[Profile],
    current: &Catalog,
    ours: &[Profile],
    skills: &[ReleaseSkill],
) -> Vec<String> {
    let is_unchanged = |name: &SkillName| {
        let there = current.skill(name).map(|entry| entry.bundle_hash);
        let mut here = skills.iter().filter(|skill| skill.place.name == *name);
        there.is_some() && here.next().map(|skill| skill.place.bundle) == there
    };
    // A changed skill changes profiles by itself. The unchanged skills show whether a rule or a
    // transform is missing here.
    let content = |profile: &Profile| -> BTreeMap<SkillName, Digest> {
        let skills = profile.skills.iter();
        let unchanged = skills.filter(|skill| is_unchanged(&skill.name));
        unchanged
            .map(|skill| (skill.name.clone(), skill.bundle_hash))
            .collect()
    };
    let lost = theirs.iter().filter(|profile| {
        let mut same = ours
            .iter()
            .filter(|own| own.name == profile.name && own.agent == profile.agent);
        same.next().map(content) != Some(content(profile))
    });
    lost.map(|profile| format!("{} ({})", profile.name, profile.agent))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_changed_goes_on_and_what_both_changed_is_a_conflict() {
        let (a, b, c) = (Some('a'), Some('b'), Some('c'));
        for (base, theirs, ours, stop, adopt) in [
            (a, a, a, MergeSide::Ours, MergeSide::Ours),
            (a, b, a, MergeSide::Theirs, MergeSide::Theirs),
            (a, a, b, MergeSide::Ours, MergeSide::Ours),
            (a, b, b, MergeSide::Ours, MergeSide::Ours),
            (a, b, c, MergeSide::Conflict, MergeSide::Theirs),
            (a, None, a, MergeSide::Theirs, MergeSide::Theirs),
            (a, a, None, MergeSide::Ours, MergeSide::Ours),
            (a, None, b, MergeSide::Conflict, MergeSide::Theirs),
            (a, b, None, MergeSide::Conflict, MergeSide::Theirs),
            (None, a, None, MergeSide::Theirs, MergeSide::Theirs),
            (None, None, a, MergeSide::Ours, MergeSide::Ours),
            (None, a, b, MergeSide::Conflict, MergeSide::Theirs),
        ] {
            let case = format!("{base:?} {theirs:?} {ours:?}");
            assert_eq!(
                choose_side(base, theirs, ours, OnDivergence::Stop),
                stop,
                "{case}"
            );
            assert_eq!(
                choose_side(base, theirs, ours, OnDivergence::Adopt),
                adopt,
                "{case}"
            );
        }
    }
}
