//! The own skills of a vault as this machine installed them: `own-skills.json` in the trust folder.
//!
//! The links in the vault's folder say which bundle each name stands for. An attacker who can write
//! to that folder could bring back an older version or a removed skill, with the owner's own
//! signature, or remove a skill. This record reveals such changes. It is written after the links of
//! a change, but before them when skills are removed, so that a killed writer leaves no state that
//! looks like tampering.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::root::KeyStanding;

use super::{Vault, VaultError};

/// File in the trust folder that holds the [`OwnSkills`].
const RECORD: &str = "own-skills.json";

/// The record of this machine's own skills, by name.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct OwnSkills {
    skills: BTreeMap<SkillName, OwnSkill>,
}

/// The record of one name.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct OwnSkill {
    /// Highest version that this name has had. The next one must be higher.
    reached: u64,
    /// Version that is installed; `None` after a removal.
    installed: Option<InstalledVersion>,
    /// Whether a removal has begun and not ended. If it was killed, the skill's link may or may not
    /// exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
    /// Whether the owner rolled the skill back and holds it at that version: updates leave it out
    /// unless they name it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    /// Folder or archive on this machine from which the owner added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    local: Option<LocalSource>,
    /// Whether another person wrote the installed bundle: another publisher, or a member whose
    /// draft was accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_others: bool,
    /// Bundles of this name that another person wrote, the newest last. The list outlasts a
    /// replacement or removal of the skill, because a rollback may bring the same files back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<Digest>,
    /// Earlier bundles with the same files as the installed one, which this machine signed again.
    /// The oldest comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signed_again: Vec<Digest>,
}

/// The folder or archive of this machine from which a skill was added. The source identifier in the
/// manifest contains only the last part of the path.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct LocalSource {
    /// Source identifier in the skill's manifest.
    pub(crate) identifier: ProvenanceId,
    /// Absolute path of the folder or archive.
    pub(crate) path: String,
    /// Symbolic links in the folder that were replaced by copies. If there are any, updates also
    /// replace links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) copied_links: Vec<String>,
}

impl LocalSource {
    /// Returns whether this is the same folder or archive, whatever its links are.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.identifier == other.identifier && self.path == other.path
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct InstalledVersion {
    version: u64,
    bundle: Digest,
}

impl OwnSkills {
    /// Returns the lowest version of a skill that is accepted as installed. `None` if the name is
    /// not recorded, or if a removal has begun, which may have been killed at any point.
    pub(crate) fn lowest_accepted_version(&self, name: &SkillName) -> Option<u64> {
        let skill = self.skills.get(name).filter(|skill| !skill.leaving)?;
        Some(match skill.installed {
            Some(installed) => installed.version,
            // The skill was removed, so only a later version is acceptable again.
            None => skill.reached + 1,
        })
    }

    /// Returns the skills that must be installed, with their bundles. A missing one was removed by
    /// somebody else.
    pub(crate) fn expected_skills(&self) -> impl Iterator<Item = (&SkillName, Digest)> {
        let skills = self.skills.iter().filter(|(_, skill)| !skill.leaving);
        skills.filter_map(|(name, skill)| Some((name, skill.installed?.bundle)))
    }

    /// Returns the highest version that a name has had; 0 if it was never used.
    pub(crate) fn highest_recorded_version(&self, name: &SkillName) -> u64 {
        self.skills.get(name).map_or(0, |skill| skill.reached)
    }

    /// Records an installed version. Ends a removal that was begun.
    pub(crate) fn note_installed(&mut self, name: &SkillName, version: u64, bundle: Digest) {
        let skill = self.skills.entry(name.clone()).or_default();
        skill.installed = Some(InstalledVersion { version, bundle });
        // The list belongs to the bundle that was installed before.
        skill.signed_again.clear();
        skill.reached = skill.reached.max(version);
        skill.leaving = false;
    }

    /// Returns the earlier bundles with the same files as the installed bundle `installed`, which
    /// this machine signed again.
    pub(crate) fn signed_again(&self, name: &SkillName, installed: &Digest) -> &[Digest] {
        let is_installed = |skill: &&OwnSkill| {
            let version = skill.installed.as_ref();
            version.is_some_and(|version| version.bundle == *installed)
        };
        let skill = self.skills.get(name).filter(is_installed);
        skill.map_or(&[], |skill| &skill.signed_again)
    }

    /// Records the earlier bundles that have the same files as the installed skill.
    pub(crate) fn note_signed_again(&mut self, name: &SkillName, bundles: Vec<Digest>) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.signed_again = bundles;
        }
    }

    /// Returns the skills that their owner rolled back and holds at that version.
    pub(crate) fn held_skills(&self) -> impl Iterator<Item = &SkillName> {
        let held_skills = self.skills.iter().filter(|(_, skill)| skill.held);
        held_skills.map(|(name, _)| name)
    }

    /// Records whether the owner holds a skill: updates leave it out unless they name it.
    pub(crate) fn set_held(&mut self, name: &SkillName, held: bool) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.held = held;
        }
    }

    /// Returns the folder or archive from which a skill was added, if it is recorded.
    pub(crate) fn local_source(&self, name: &SkillName) -> Option<&LocalSource> {
        self.skills.get(name)?.local.as_ref()
    }

    /// Records the folder or archive from which a skill was added.
    pub(crate) fn note_local(&mut self, name: &SkillName, local: LocalSource) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.local = Some(local);
        }
    }

    /// Records whether another person wrote the installed bundle of a skill.
    pub(crate) fn note_author(&mut self, name: &SkillName, by_others: bool) {
        let Some(skill) = self.skills.get_mut(name) else {
            return;
        };
        skill.by_others = by_others;
        let Some(InstalledVersion { bundle, .. }) = skill.installed else {
            return;
        };
        // Each bundle is listed once, at the place of its latest installation.
        skill.others.retain(|other| *other != bundle);
        if by_others {
            skill.others.push(bundle);
        }
    }

    /// Returns whether another person wrote the installed bundle, as far as that was recorded.
    pub(crate) fn is_by_others(&self, name: &SkillName) -> bool {
        self.skills.get(name).is_some_and(|skill| skill.by_others)
    }

    /// Returns whether another person wrote this bundle, which is or was installed under the name.
    pub(crate) fn is_others_bundle(&self, name: &SkillName, bundle: &Digest) -> bool {
        self.skills.get(name).is_some_and(|skill| {
            let installed = skill.installed.map(|installed| installed.bundle);
            skill.others.contains(bundle) || (skill.by_others && installed == Some(*bundle))
        })
    }

    /// Records that a name has had this version, without saying that it is installed.
    pub(crate) fn note_reached(&mut self, name: &SkillName, version: u64) {
        let skill = self.skills.entry(name.clone()).or_default();
        if skill.installed.is_none() && skill.reached == 0 {
            // It is not recorded whether this skill is installed, so its absence must not look like
            // tampering.
            skill.leaving = true;
        }
        skill.reached = skill.reached.max(version);
    }

    /// Records that the removal of a skill begins, so that a missing link is no longer reported.
    pub(crate) fn begin_removal(&mut self, name: &SkillName) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.leaving = true;
        }
    }

    /// Records that the removal of a skill has ended, so that only a higher version is accepted.
    pub(crate) fn note_removed(&mut self, name: &SkillName) {
        if let Some(skill) = self.skills.get_mut(name) {
            // The reached version and the list of other authors' bundles stay: a new skill of this
            // name must get a higher version, and a rollback may bring old files back.
            skill.installed = None;
            skill.leaving = false;
            skill.held = false;
            skill.local = None;
            skill.by_others = false;
        }
    }
}

impl Vault {
    /// Reads the record of own skills; it is empty before the first one.
    pub(crate) fn own_skills(&self) -> Result<OwnSkills, VaultError> {
        let record: Option<OwnSkills> = self.trust_folder().read_record(RECORD)?;
        Ok(record.unwrap_or_default())
    }

    /// Returns whether the owner of this machine wrote an own skill: no other author is recorded
    /// for it, and no other publisher's key signed it. What the manifest says about its source is
    /// ignored.
    pub(crate) fn is_own_work(
        &self,
        name: &SkillName,
        signer: &PublicKey,
    ) -> Result<bool, VaultError> {
        if self.own_skills()?.is_by_others(name) {
            return Ok(false);
        }
        // A skill that was adopted before authors were recorded is recognised only by the other
        // publisher's key.
        Ok(!self.is_by_another_publisher(signer)?)
    }

    /// Returns whether a key is that of a current publisher and not on this machine. A retired key
    /// does not count, because it may have been this machine's.
    pub(crate) fn is_by_another_publisher(&self, signer: &PublicKey) -> Result<bool, VaultError> {
        let standing = self.trust()?.map(|trust| trust.roots().standing(signer));
        Ok(standing == Some(KeyStanding::Release) && !self.keys().list()?.contains(signer))
    }

    /// Changes the record of own skills and writes it if it differs. Call it under the writer lock.
    pub(crate) fn change_own_skills(
        &self,
        change: impl FnOnce(&mut OwnSkills),
    ) -> Result<(), VaultError> {
        let before = self.own_skills()?;
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            self.trust_folder().write_record(RECORD, &after)?;
        }
        Ok(())
    }
}
