//! The own skills of a vault as this machine installed them: `own-skills.json` in the trust folder.
//!
//! The links in the vault's folder say which bundle each name stands for. An attacker who can write
//! to that folder could bring back an older version or a removed skill, with the owner's own
//! signature, or take a skill away. This record reveals it. It is written after the links of a
//! change, but before them when skills are removed, so that a killed writer leaves no state that
//! looks like tampering.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::root::KeyStanding;

use super::{Vault, VaultError};

/// Name of the record.
const RECORD: &str = "own-skills.json";

/// The recorded state of the own skills, by name.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct OwnSkills {
    skills: BTreeMap<SkillName, OwnSkill>,
}

/// The recorded state of one own skill.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct OwnSkill {
    /// The highest version that this name has reached. The next one is higher.
    reached: u64,
    /// The installed version; `None` after a removal.
    installed: Option<InstalledVersion>,
    /// Whether a removal has begun. If it was killed, the skill's link may be there or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
    /// Whether the owner rolled the skill back to an earlier version and keeps it there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    /// The folder or archive on this machine that the owner added it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    local: Option<LocalSource>,
    /// Whether the installed bundle has another author: another publisher, or a member whose draft
    /// was accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_others: bool,
    /// Every bundle of this name by another author, the newest last. The list survives a
    /// replacement or removal of the skill, because a rollback brings the same files back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<Digest>,
    /// Earlier bundles that have the same files as the installed one: this machine signed these
    /// files again. The oldest comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signed_again: Vec<Digest>,
}

/// The folder or archive of this machine that a skill was added from. Its identifier names only the
/// last part of the path.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct LocalSource {
    /// The source that the manifest of the skill names.
    pub(crate) identifier: ProvenanceId,
    /// The absolute path.
    pub(crate) path: String,
    /// The links in it that its owner took as copies. Links of later versions are then taken as
    /// copies too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) copied_links: Vec<String>,
}

impl LocalSource {
    /// Returns whether this is the same folder or archive. Its links may be other ones by now.
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
    /// Returns the lowest acceptable version of an installed skill of this name. Returns `None` if
    /// the name is not recorded or a removal of the skill has begun.
    pub(crate) fn lowest_version(&self, name: &SkillName) -> Option<u64> {
        let skill = self.skills.get(name).filter(|skill| !skill.leaving)?;
        Some(match skill.installed {
            Some(installed) => installed.version,
            // The skill was removed, so only a later version is acceptable again.
            None => skill.reached + 1,
        })
    }

    /// The skills that must be installed, with their bundles.
    pub(crate) fn expected_skills(&self) -> impl Iterator<Item = (&SkillName, Digest)> {
        let skills = self.skills.iter().filter(|(_, skill)| !skill.leaving);
        skills.filter_map(|(name, skill)| Some((name, skill.installed?.bundle)))
    }

    /// The highest version that a name has reached; 0 if it was never used.
    pub(crate) fn reached_version(&self, name: &SkillName) -> u64 {
        self.skills.get(name).map_or(0, |skill| skill.reached)
    }

    /// Records that a skill is installed.
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

    /// Returns the skills that their owner rolled back and keeps at that version.
    pub(crate) fn held_skills(&self) -> impl Iterator<Item = &SkillName> {
        let held_skills = self.skills.iter().filter(|(_, skill)| skill.held);
        held_skills.map(|(name, _)| name)
    }

    /// Records whether a skill stays at its version until an update names it.
    pub(crate) fn set_held(&mut self, name: &SkillName, held: bool) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.held = held;
        }
    }

    /// The local source of an installed skill, if it is recorded.
    pub(crate) fn local_source(&self, name: &SkillName) -> Option<&LocalSource> {
        self.skills.get(name)?.local.as_ref()
    }

    /// Records the local source of a skill.
    pub(crate) fn note_local(&mut self, name: &SkillName, local: LocalSource) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.local = Some(local);
        }
    }

    /// Records whether an installed skill has another author.
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

    /// Returns whether an installed skill has another author, as far as that was recorded.
    pub(crate) fn is_by_others(&self, name: &SkillName) -> bool {
        self.skills.get(name).is_some_and(|skill| skill.by_others)
    }

    /// Returns whether this bundle, which is or was installed under the name, has another author.
    pub(crate) fn is_others_bundle(&self, name: &SkillName, bundle: &Digest) -> bool {
        self.skills.get(name).is_some_and(|skill| {
            let installed = skill.installed.map(|installed| installed.bundle);
            skill.others.contains(bundle) || (skill.by_others && installed == Some(*bundle))
        })
    }

    /// Records that a name has reached a version.
    pub(crate) fn note_reached(&mut self, name: &SkillName, version: u64) {
        let skill = self.skills.entry(name.clone()).or_default();
        if skill.installed.is_none() && skill.reached == 0 {
            // It is not recorded whether this skill is installed, so its absence must not look like
            // tampering.
            skill.leaving = true;
        }
        skill.reached = skill.reached.max(version);
    }

    /// Records that a skill is being removed.
    pub(crate) fn begin_removal(&mut self, name: &SkillName) {
        if let Some(skill) = self.skills.get_mut(name) {
            skill.leaving = true;
        }
    }

    /// Records that a skill is removed.
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
    /// The own skills as this machine installed them.
    pub(crate) fn own_skills(&self) -> Result<OwnSkills, VaultError> {
        let record: Option<OwnSkills> = self.trust_folder().read_record(RECORD)?;
        Ok(record.unwrap_or_default())
    }

    /// Returns whether an own skill is the work of this machine's owner: this machine has not
    /// recorded another author for it, and it is not signed by another publisher's key. What the
    /// manifest says about its author is ignored.
    pub(crate) fn is_own_work(
        &self,
        name: &SkillName,
        signer: &PublicKey,
    ) -> Result<bool, VaultError> {
        if self.own_skills()?.is_by_others(name) {
            return Ok(false);
        }
        // A skill that was taken over before this record existed can be recognised only by the
        // other publisher's key.
        Ok(!self.is_by_another_publisher(signer)?)
    }

    /// Returns whether a key is a publisher's and not on this machine. A retired key does not count
    /// as one, since it may have been this machine's.
    pub(crate) fn is_by_another_publisher(&self, signer: &PublicKey) -> Result<bool, VaultError> {
        let standing = self.trust()?.map(|trust| trust.roots().standing(signer));
        Ok(standing == Some(KeyStanding::Release) && !self.keys().list()?.contains(signer))
    }

    /// Changes the record of own skills. Call it under the writer lock.
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
