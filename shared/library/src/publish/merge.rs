//! Merges the work of several publishers of one vault.
//!
//! Three states are compared: the last release that this machine published or took over (*base*),
//! the service's current release (*theirs*), and the skills on this machine (*ours*). What only
//! they changed is taken over with their signatures; what only this machine changed is published.
//! If both changed the same thing, that is a conflict: nothing is taken over or published, and each
//! conflict is reported.

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
use crate::installed::installations::Installation;
use crate::vault::authored::AuthoredFile;
use crate::vault::policy::POLICY_FILE;
use crate::vault::{Vault, VaultError};

/// The changes of other publishers since the last release that this machine published or took over.
/// Nothing is taken over unseen: the caller shows the whole change to the owner, and then calls
/// [`super::adopt::take_over`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TakeOver {
    /// Number of the release from which the changes come.
    pub release: u64,
    /// Publishers whose signatures on the release are valid.
    pub publishers: Vec<PublicKey>,
    /// Skills to install with their signatures, in place of skills of the same names.
    pub skills: Vec<SkillEntry>,
    /// Own skills to remove, because the release no longer contains them.
    pub removed: Vec<SkillName>,
    /// Whether `policy.toml` is kept, replaced or removed.
    pub policy: PolicyChange,
    /// SHA-256 of the release's payload.
    pub payload_sha256: Digest,
    /// Whether this machine has signed exactly this payload, so that its owner has seen the
    /// content.
    pub signed_here: bool,
    /// The release, compared with the one that this machine published or took over last.
    pub change: ReleaseChange,
    /// Address, namespace and exact catalog bytes of the release, which a take-over records as
    /// known.
    pub(super) base: String,
    pub(super) slug: Slug,
    pub(super) catalog: Vec<u8>,
}

/// The effect of a take-over on `policy.toml`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PolicyChange {
    /// The policy stays as it is.
    None,
    /// The policy becomes this object of the release.
    Take(PolicyEntry),
    /// `policy.toml` is removed, because the release has no policy.
    Remove,
}

impl TakeOver {
    /// Returns whether nothing of the release changes this vault or its next release.
    fn is_empty(&self) -> bool {
        let changes = &self.change.changes;
        self.skills.is_empty()
            && self.removed.is_empty()
            && self.policy == PolicyChange::None
            && changes.withdrawn.is_empty()
            && changes.lifted.is_empty()
    }
}

/// The inputs of a merge, except the change of the release.
pub(super) struct ReleaseMerge<'a> {
    pub(super) vault: &'a Vault,
    pub(super) current: &'a Current,
    /// Own skills that are installed on this machine (*ours*).
    pub(super) places: &'a [Installation],
    /// Whether this machine has signed the current release.
    pub(super) signed_here: bool,
    pub(super) request: &'a PlanRequest<'a>,
}

impl ReleaseMerge<'_> {
    /// Compares the three states. Returns `None` if there is nothing to take over. Fails with
    /// [`PlanError::Conflicts`] if both sides changed the same thing, unless `on_divergence` lets
    /// their side win.
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

    /// Decides for each skill which side wins, and collects what to take over and the conflicts.
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
            // Files that this machine only signed again after a revocation count as unchanged on
            // this side.
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

    /// Decides which side's policy wins.
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
            // Taking theirs would overwrite an edit that the owner has not approved or dropped.
            MergeSide::Theirs if ours.is_pending => conflicts.policy = true,
            MergeSide::Theirs => {
                taken.policy = theirs.map_or(PolicyChange::Remove, |it| PolicyChange::Take(*it));
            }
            MergeSide::Conflict => conflicts.policy = true,
        }
        Ok(())
    }
}

/// Returns the skills of a catalog with their bundles; empty without a catalog.
fn bundles_of(catalog: Option<&Catalog>) -> BTreeMap<SkillName, Digest> {
    let skills = catalog.into_iter().flat_map(|catalog| &catalog.skills);
    skills
        .map(|skill| (skill.name.clone(), skill.bundle_hash))
        .collect()
}

/// The side whose version of a skill or of the policy wins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MergeSide {
    Ours,
    Theirs,
    Conflict,
}

/// Decides between three versions of one thing; `None` means that it is absent there.
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

struct OwnPolicy {
    /// SHA-256 of the policy object that the approved version gives; `None` without a policy.
    approved: Option<Digest>,
    /// Whether the file has changes that are not approved.
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

/// Returns the profiles of the current release, as name and agent, that a release of this machine
/// would drop or change. They come from a `profiles.toml` or from transforms that only another
/// publisher has.
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
    // A changed skill changes profiles by itself. The skills that both sides have alike show
    // whether a rule or a transform is missing here.
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
