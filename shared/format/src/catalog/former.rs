//! The skills that earlier releases had and the last one has not, so that none of them comes back
//! below the version that it had.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Catalog, CatalogError, SkillEntry};
use crate::hash::Digest;
use crate::keys::PublicKey;
use crate::name::SkillName;
use crate::root::RootState;

/// The most removed skills that are remembered. Skills that are removed after that are not
/// remembered: a publisher who removes many pushes no earlier one out.
pub const MAX_FORMER_SKILLS: usize = 20_000;

/// A skill of an earlier release.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FormerSkill {
    /// The version that it had last.
    pub version: u64,
    /// SHA-256 of its bundle.
    pub bundle_hash: Digest,
    /// The key that signed it; `None` where the reader did not hold its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<PublicKey>,
}

/// The skills that earlier releases of a vault had, and that the last one has not.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct FormerSkills {
    /// By name; at most [`MAX_FORMER_SKILLS`].
    pub skills: BTreeMap<SkillName, FormerSkill>,
}

impl FormerSkills {
    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Adds the skills that `before` has and `after` has not, and forgets those that `after` has.
    /// `signer` says who signed a skill of `before`.
    pub fn follow(
        &mut self,
        before: &Catalog,
        after: &Catalog,
        signer: impl Fn(&SkillEntry) -> Option<PublicKey>,
    ) {
        for entry in &before.skills {
            if after.skill(&entry.name).is_none() {
                self.insert(entry, signer(entry));
            }
        }
        for entry in &after.skills {
            self.skills.remove(&entry.name);
        }
    }

    /// Adds one skill. What is known of the signer of this very bundle stays known.
    pub fn insert(&mut self, entry: &SkillEntry, signer: Option<PublicKey>) {
        let before = self.skills.get(&entry.name);
        let is_same = |it: &&FormerSkill| it.bundle_hash == entry.bundle_hash;
        let known = before.filter(is_same).and_then(|it| it.signer);
        if before.is_none() && self.skills.len() >= MAX_FORMER_SKILLS {
            return;
        }
        let former = FormerSkill {
            version: entry.version,
            bundle_hash: entry.bundle_hash,
            signer: signer.or(known),
        };
        self.skills.insert(entry.name.clone(), former);
    }

    /// Forgets what keys signed that are revoked in, or unknown to, the reader's chain: it is
    /// compared with nothing.
    pub fn forget_revoked(&mut self, state: &RootState) {
        self.skills.retain(|_, former| {
            let counts = |key: PublicKey| state.was_publisher(&key);
            former.signer.is_none_or(counts)
        });
    }

    /// The skills of `catalog` that come back below the version that they had, or with other bytes
    /// under it, each with that version. `has` says which names the reader has now: it compares
    /// those with what it has. A version is not compared if a key that is revoked in, or unknown
    /// to, the reader's chain signed it.
    pub fn rolled_back(
        &self,
        has: impl Fn(&SkillName) -> bool,
        catalog: &Catalog,
        state: &RootState,
    ) -> Vec<(SkillEntry, u64)> {
        if self.is_empty() {
            return Vec::new();
        }
        let returned = catalog.skills.iter().filter(|entry| !has(&entry.name));
        returned
            .filter_map(|entry| Some((entry.clone(), self.above(entry, state)?)))
            .collect()
    }

    /// Fails for the first of [`Self::rolled_back`].
    pub fn check(
        &self,
        has: impl Fn(&SkillName) -> bool,
        catalog: &Catalog,
        state: &RootState,
    ) -> Result<(), CatalogError> {
        match self.rolled_back(has, catalog, state).into_iter().next() {
            None => Ok(()),
            Some((SkillEntry { name, version, .. }, stored)) if version < stored => {
                Err(CatalogError::SkillRolledBack {
                    name,
                    version,
                    stored,
                })
            }
            Some((SkillEntry { name, version, .. }, _)) => {
                Err(CatalogError::SkillTwice { name, version })
            }
        }
    }

    /// The version above which a skill has to come back, if it does not.
    fn above(&self, entry: &SkillEntry, state: &RootState) -> Option<u64> {
        let former = self.skills.get(&entry.name)?;
        let counts = |key: PublicKey| state.was_publisher(&key);
        let is_good = entry.version > former.version
            || (entry.version == former.version && entry.bundle_hash == former.bundle_hash);
        (!is_good && former.signer.is_none_or(counts)).then_some(former.version)
    }
}
