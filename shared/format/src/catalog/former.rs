//! Remembers the skills that earlier releases had and the last one no longer has, so that no skill
//! comes back with a lower version than before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Catalog, CatalogError, SkillEntry};
use crate::hash::Digest;
use crate::keys::PublicKey;
use crate::name::SkillName;
use crate::root::RootState;

/// The largest number of remembered skills. Skills that are removed after that are not remembered,
/// so a publisher that removes many cannot push out earlier ones.
pub const MAX_FORMER_SKILLS: usize = 20_000;

/// The last known version of a skill that is no longer released.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FormerSkill {
    /// Version number of the skill in the last release that had it.
    pub version: u64,
    /// SHA-256 of the bundle of that version.
    pub bundle_hash: Digest,
    /// The key that signed it; `None` if the reader did not have its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<PublicKey>,
}

/// The skills that earlier releases of a vault had and the last one does not have.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct FormerSkills {
    /// The remembered skills by name; at most [`MAX_FORMER_SKILLS`].
    pub skills: BTreeMap<SkillName, FormerSkill>,
}

impl FormerSkills {
    /// Tells whether no skill is remembered.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Updates the memory after a release: adds the skills that `before` has and `after` does not
    /// have, removes those that `after` has. `signer` returns the key that signed a skill of
    /// `before`.
    pub fn record_removed(
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

    /// Adds one skill. If `signer` is `None`, a signer that is already known for the same bundle is
    /// kept.
    pub fn insert(&mut self, entry: &SkillEntry, signer: Option<PublicKey>) {
        let before = self.skills.get(&entry.name);
        let is_same = |it: &&FormerSkill| it.bundle_hash == entry.bundle_hash;
        let known_signer = before.filter(is_same).and_then(|it| it.signer);
        // Without a bound, a publisher could fill every device's disk with names of removed skills.
        if before.is_none() && self.skills.len() >= MAX_FORMER_SKILLS {
            return;
        }
        let former = FormerSkill {
            version: entry.version,
            bundle_hash: entry.bundle_hash,
            signer: signer.or(known_signer),
        };
        self.skills.insert(entry.name.clone(), former);
    }

    /// Removes the skills whose signer is revoked in, or unknown to, the reader's chain: a version
    /// by such a key must not bind the owner.
    pub fn forget_revoked(&mut self, state: &RootState) {
        self.skills.retain(|_, former| {
            let counts = |key: PublicKey| state.was_publisher(&key);
            former.signer.is_none_or(counts)
        });
    }

    /// Returns the skills of `catalog` that come back with a lower version than remembered, or with
    /// other bytes under that version; each with the remembered version. `has` tells which skills
    /// the reader has stored; those are compared elsewhere. A remembered version is ignored if its
    /// signer is revoked in, or unknown to, the reader's chain.
    pub fn find_rolled_back(
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
            .filter_map(|entry| Some((entry.clone(), self.version_to_exceed(entry, state)?)))
            .collect()
    }

    /// Fails for the first skill that [`Self::find_rolled_back`] returns.
    pub fn check_returned(
        &self,
        has: impl Fn(&SkillName) -> bool,
        catalog: &Catalog,
        state: &RootState,
    ) -> Result<(), CatalogError> {
        match self
            .find_rolled_back(has, catalog, state)
            .into_iter()
            .next()
        {
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

    /// Returns the remembered version of a skill that comes back too low; `None` if its version is
    /// fine.
    fn version_to_exceed(&self, entry: &SkillEntry, state: &RootState) -> Option<u64> {
        let former = self.skills.get(&entry.name)?;
        let counts = |key: PublicKey| state.was_publisher(&key);
        // The same version with the same bundle is fine: a skill that was removed by mistake comes
        // back as it was.
        let is_good = entry.version > former.version
            || (entry.version == former.version && entry.bundle_hash == former.bundle_hash);
        // A thief's key could have raised the version to the maximum. After its revocation the
        // owner must be able to publish the skill with a low version again.
        (!is_good && former.signer.is_none_or(counts)).then_some(former.version)
    }
}
