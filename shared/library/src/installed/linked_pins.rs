//! Reads what is pinned and installed from linked vaults. [`crate::subscribe`] changes it.
//!
//! ```text
//! <vault>/links/<id>/current        -> sets/<n>: the one atomic switch
//! <vault>/links/<id>/sets/<n>/      skills/<name> -> the store, agents/<agent>/<name> -> the store,
//!                                   agents/<agent> -> ../skills: an agent that gets the plain skills
//! <vault>/links/<id>/skills         constant link through `current`, as is agents
//! <config>/links/<id>/pin.json      what is accepted and installed, in the trust folder
//! <config>/links/<id>/<sha256>.catalog.json   the accepted catalog, exact bytes
//! <config>/links/<id>/<sha256>.profile.json   a profile of it, exact bytes
//! <config>/links/<id>/device.key    this machine's key
//! <config>/links/<id>/device.next   a key that takes its place once a service has enrolled it
//! ```
//! The pin decides which skills a link installs, under which names and with which bytes. The
//! vault's folder holds their content, and links for agents to follow. An attacker who can write to
//! that folder can neither add nor rename a skill, and a link that is missing or changed is
//! noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::catalog::{Catalog, FormerSkills, LastCatalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{AgentId, SkillName, Slug};
use vault_format::root::{VaultFingerprint, VaultId};
use vault_format::time::Timestamp;

use super::link_id::LinkId;
use crate::disk::{self, HeldPath};
use crate::store::Trusted;
use crate::vault::folder::PrivateFolder;
use crate::vault::trust::VaultTrust;
use crate::vault::{Vault, VaultError};

/// The record of what this machine trusts about a linked vault and has installed from it. The
/// vault's keys are in [`VaultTrust`], which all links to the same vault share.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// Address of the service or static site, without a slash at its end.
    pub base: String,
    /// Name of the vault at that address.
    pub slug: Slug,
    /// Name of the vault on this machine, as in `<name>/<skill>`. No two links share a name.
    pub name: Slug,
    /// Action of a pull for skills that the gate blocks.
    pub gate: PullGate,
    /// Skills that this machine had from the vault and no longer has. None of them may be installed
    /// again below the version that it had.
    #[serde(default, skip_serializing_if = "FormerSkills::is_empty")]
    pub(crate) former: FormerSkills,
    /// Names of skills that were withdrawn since the last complete pull. The value says whether the
    /// skill had its bare name (the name without a vault), which no other link gets while a new
    /// version may follow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) withdrawn_names: BTreeMap<SkillName, bool>,
    /// Path of the vault's folder for which the link was last written.
    pub(crate) library: PathBuf,
    /// Id of the vault; `None` until the first catalog is accepted.
    pub vault_id: Option<VaultId>,
    /// The catalog in force, which decides what is installed; `None` until the first catalog is
    /// accepted.
    pub counted: Option<CountedFile>,
    /// The previous catalog, with the skills that were installed from it. Set only while a pull
    /// switches from its set of skills to the new one.
    pub(crate) replaced: Option<CountedFile>,
    /// Fingerprint that the vault's root versions (signed lists of its keys) must have, as given to
    /// [`crate::subscribe::expect_fingerprint`]. Removed once a vault is pinned.
    pub expected: Option<VaultFingerprint>,
    /// SHA-256 of the public key whose secret signs this machine's requests to the service.
    pub device_key_id: Digest,
    /// Time at which the link was created. Pulls of all links follow this order.
    pub linked_at: Timestamp,
}

impl Pin {
    /// Updates the former skills before the installed ones are replaced by `skills`: an installed
    /// skill that is missing there becomes a former one.
    pub(crate) fn note_former(&mut self, skills: &BTreeMap<SkillName, LinkedSkill>) {
        let has = |name: &SkillName| skills.values().any(|skill| skill.name == *name);
        let counted = self.counted.iter();
        for skill in counted.flat_map(|counted| counted.installed.values()) {
            if let Some(entry) = skill.entry.as_ref().filter(|entry| !has(&entry.name)) {
                self.former.insert(entry, Some(skill.signer));
            }
        }
        // An installed skill is compared with its installed version instead.
        self.former.skills.retain(|name, _| !has(name));
    }
}

/// The action of a pull for a skill that the gate of this machine rejects.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PullGate {
    /// The gate does not run, so every skill is installed.
    Off,
    /// The skill is installed and reported.
    #[default]
    Warn,
    /// The pull fails, and nothing is installed.
    Refuse,
}

/// A skill that a link installs, as the pin records it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct LinkedSkill {
    /// Name in the linked vault, which the manifest is signed for.
    pub(crate) name: SkillName,
    pub(crate) bundle: Digest,
    pub(crate) signer: PublicKey,
    /// Whether the bare name means this skill unless an own skill has that name. If not set, only
    /// `<vault>/<name>` means it.
    pub(crate) bare: bool,
    /// Catalog entry from which it was installed; `None` in records of earlier versions of vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<SkillEntry>,
}

/// A catalog that this machine has accepted, with what is installed from it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CountedFile {
    /// Number of the release.
    pub release: u64,
    /// SHA-256 of the signed payload.
    pub payload_sha256: Digest,
    /// SHA-256 of the whole catalog file, by which the file is named on the disk.
    pub file_sha256: Digest,
    /// The keys whose signatures were accepted.
    pub signers: Vec<PublicKey>,
    /// Profiles of the catalog that were read, with the variants that they name.
    pub(crate) variants: Vec<ProfileBundles>,
    /// Which of the vault's skills the pull selected.
    pub selection: Selection,
    /// Skills that are installed from the catalog, by the names under which they are installed.
    pub(crate) installed: BTreeMap<SkillName, LinkedSkill>,
    /// Agents for which the profiles of the release choose something else than the plain skills. An
    /// agent without an entry gets what [`AgentId::any`] gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<AgentId, AgentSkills>,
}

/// The changes that the release's profile for an agent makes to the plain skills. Names are those
/// under which the skills are installed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct AgentSkills {
    /// Bundles that replace the plain ones for this agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) variants: BTreeMap<SkillName, Digest>,
    /// Skills that this agent does not get.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) left_out: BTreeSet<SkillName>,
}

impl AgentSkills {
    /// Returns whether the agent gets exactly the plain skills.
    pub(crate) fn is_plain(&self) -> bool {
        self.variants.is_empty() && self.left_out.is_empty()
    }
}

/// The variants that one profile of a catalog names.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ProfileBundles {
    /// SHA-256 of the profile object.
    pub(crate) profile: Digest,
    pub(crate) bundles: BTreeSet<Digest>,
}

/// A selection of a linked vault's skills. A skill must meet all conditions; without any, all
/// skills are installed.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Selection {
    /// Skills that the vault publishes for this agent. If it publishes no such profile: skills that
    /// name this agent or no agent.
    pub agent: Option<AgentId>,
    /// Skills with this tag; `null` means any.
    pub tag: Option<String>,
    /// Skills with these names; empty means any name.
    pub skills: Vec<SkillName>,
    /// A different local name, if exactly one skill is named.
    pub install_as: Option<SkillName>,
}

/// A linked vault: its pin, and the folder of skills that is installed for it.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) id: LinkId,
    pub(crate) folder: HeldPath,
    pub(crate) set: HeldPath,
    pub(crate) pin: Pin,
}

/// File in the link's part of the trust folder that holds the [`Pin`].
pub(crate) const PIN: &str = "pin.json";

/// Lists all linked vaults in the order in which they were linked. A pull of all links follows this
/// order, so that of two links the earlier one gets a bare name that is free.
pub fn list_links(vault: &Vault) -> Result<Vec<Link>, VaultError> {
    let trusted = PrivateFolder::new(&vault.paths().config, "links");
    let mut ids = BTreeSet::new();
    // One of the two folders may have lost a link that the other still has.
    for folder in [links_folder(vault), HeldPath::new(trusted.path())] {
        for (name, _) in disk::list(&folder)? {
            ids.extend(name.to_string_lossy().parse::<LinkId>());
        }
    }
    let mut links = Vec::new();
    for id in ids {
        links.extend(find_link_by_id(vault, &id)?);
    }
    links.sort_by_key(|link| link.pin.linked_at);
    Ok(links)
}

/// Finds a linked vault by its id; `None` if it is not linked.
pub fn find_link_by_id(vault: &Vault, id: &LinkId) -> Result<Option<Link>, VaultError> {
    let folder = links_folder(vault).join(id.as_str());
    // A link that leads out of the folder is treated like a missing one.
    let stays = |set: &PathBuf| set.iter().all(|part| part != "..") && set.is_relative();
    let set = disk::link_target(&folder.join("current"))?.filter(stays);
    let Some(pin) = trust_folder(vault, id).read_record::<Pin>(PIN)? else {
        return Ok(None);
    };
    let set = match set {
        Some(set) => folder.join(set),
        // The `current` symlink was removed from this vault's folder by hand: the link's skills
        // still count as installed.
        None if pin.counted.is_some() && disk::is_same_place(&pin.library, &vault.paths().root) => {
            folder.join("current")
        }
        // Creating the link was interrupted, or the link belongs to another vault's folder.
        None => return Ok(None),
    };
    let id = id.clone();
    Ok(Some(Link {
        id,
        folder,
        set,
        pin,
    }))
}

/// Removes bare names from the links that have them, because own skills take these names. Call it
/// under the writer lock.
pub(crate) fn unset_bare_names(vault: &Vault, names: &[&SkillName]) -> Result<(), VaultError> {
    for mut link in list_links(vault)? {
        for name in names {
            if link.reserves_bare_name(name) {
                link.set_bare_name(vault, name, false)?;
            }
        }
    }
    Ok(())
}

/// Returns the folder of the vault in which links keep their sets of skills.
pub(crate) fn links_folder(vault: &Vault) -> HeldPath {
    vault.folder().join("links")
}

/// Returns the part of the trust folder that belongs to one link.
pub(crate) fn trust_folder(vault: &Vault, id: &LinkId) -> PrivateFolder {
    PrivateFolder::new(&vault.paths().config, Path::new("links").join(id.as_str()))
}

/// Returns the file name of an accepted catalog in the link's part of the trust folder.
pub(crate) fn catalog_file(file_sha256: &Digest) -> String {
    format!("{file_sha256}{CATALOG_ENDING}")
}

pub(crate) const CATALOG_ENDING: &str = ".catalog.json";

/// Returns the file name of a profile of an accepted catalog.
pub(crate) fn profile_file(sha256: &Digest) -> String {
    format!("{sha256}{PROFILE_ENDING}")
}

pub(crate) const PROFILE_ENDING: &str = ".profile.json";

impl Link {
    /// Returns the id, which names the link's folders on this machine.
    pub fn id(&self) -> &LinkId {
        &self.id
    }

    /// The record of what is trusted and installed.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// Returns the keys and state of the linked vault; `None` before the first catalog.
    pub fn trust(&self, vault: &Vault) -> Result<Option<VaultTrust>, VaultError> {
        match &self.pin.vault_id {
            Some(id) => vault.trust_of(id),
            None => Ok(None),
        }
    }

    /// Returns the exact bytes of the catalog in force; `None` before the first one.
    pub fn catalog_bytes(&self, vault: &Vault) -> Result<Option<Vec<u8>>, VaultError> {
        match &self.pin.counted {
            Some(counted) => self.bytes_of(vault, counted),
            None => Ok(None),
        }
    }

    /// Returns the stored bytes of an accepted catalog.
    fn bytes_of(&self, vault: &Vault, file: &CountedFile) -> Result<Option<Vec<u8>>, VaultError> {
        let folder = trust_folder(vault, &self.id);
        let bytes = folder.read_file(&catalog_file(&file.file_sha256))?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    /// Returns the catalog that was accepted last, with what its record says; `None` before the
    /// first one.
    pub(crate) fn last_catalog(&self, vault: &Vault) -> Result<Option<LastCatalog>, VaultError> {
        match &self.pin.counted {
            Some(counted) => self.read_counted(vault, counted).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a stored catalog and checks that it is the recorded one.
    fn read_counted(&self, vault: &Vault, file: &CountedFile) -> Result<LastCatalog, VaultError> {
        let damaged = |reason: String| VaultError::Damaged {
            path: trust_folder(vault, &self.id).path_of(&catalog_file(&file.file_sha256)),
            reason,
        };
        let bytes = self.bytes_of(vault, file)?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing".to_owned()))?;
        // The signers come from the pin: a key that was retired since still signed this catalog
        // validly.
        LastCatalog::read_stored(&bytes, &file.payload_sha256, file.signers.clone())
            .map_err(|error| damaged(error.to_string()))
    }

    /// Returns the catalog in force; `None` before the first one.
    pub fn catalog(&self, vault: &Vault) -> Result<Option<Catalog>, VaultError> {
        Ok(self.last_catalog(vault)?.map(|last| last.catalog))
    }

    /// Returns every bundle that the accepted catalogs list, with the variants that their profiles
    /// name.
    pub(crate) fn listed_bundles(&self, vault: &Vault) -> Result<BTreeSet<Digest>, VaultError> {
        let mut listed = BTreeSet::new();
        for file in self.pin.counted.iter().chain(&self.pin.replaced) {
            let catalog = self.read_counted(vault, file)?.catalog;
            listed.extend(catalog.skills.iter().map(|entry| entry.bundle_hash));
            for variants in &file.variants {
                listed.extend(&variants.bundles);
            }
            // An installed skill may come from an earlier catalog, which listed it.
            listed.extend(file.installed.values().map(|skill| skill.bundle));
        }
        Ok(listed)
    }

    /// Returns the trust for the installed skills; `None` before the first catalog. It covers
    /// exactly the bundles that the pin names.
    pub(crate) fn installed_trust(&self, vault: &Vault) -> Result<Option<Trusted>, VaultError> {
        let Some(vault_id) = self.pin.vault_id.filter(|_| self.pin.counted.is_some()) else {
            return Ok(None);
        };
        let counted = self.pin.counted.iter().chain(&self.pin.replaced);
        let installed = counted.flat_map(|counted| counted.installed.values());
        let bundles = installed.map(|skill| skill.bundle).collect();
        Ok(Some(match vault.trust_of(&vault_id)? {
            Some(trust) => Trusted::for_listed(Arc::new(trust.roots), bundles),
            None => Trusted::for_unknown_keys(vault_id),
        }))
    }

    /// Returns the installed skills, by the names under which they are installed.
    pub(crate) fn installed_skills(&self) -> impl Iterator<Item = (&SkillName, &LinkedSkill)> {
        let counted = self.pin.counted.iter();
        counted.flat_map(|counted| &counted.installed)
    }

    /// Returns what the pin records for a skill that the vault's folder shows under this name with
    /// this bundle. While a pull switches to a new set of skills, the previous set counts too.
    pub(crate) fn pinned_skill(&self, name: &SkillName, bundle: &Digest) -> Option<&LinkedSkill> {
        let counted = self.pin.counted.iter().chain(&self.pin.replaced);
        let mut named = counted.filter_map(|counted| counted.installed.get(name));
        // Prefer the entry for exactly this bundle. Another entry still tells the caller that the
        // name is known but its bundle was exchanged.
        let first = named.next();
        let is_same = |skill: &&LinkedSkill| skill.bundle == *bundle;
        first
            .filter(is_same)
            .or_else(|| named.find(is_same))
            .or(first)
    }

    /// Returns whether the bare name means a skill of this link, unless an own skill has it.
    pub(crate) fn holds_bare_name(&self, name: &SkillName) -> bool {
        self.installed_skills()
            .any(|(installed_as, skill)| installed_as == name && skill.bare)
    }

    /// Returns whether other links may not take the bare name, because this link has it or had it
    /// until the skill was withdrawn.
    pub(crate) fn reserves_bare_name(&self, name: &SkillName) -> bool {
        self.holds_bare_name(name) || self.pin.withdrawn_names.get(name) == Some(&true)
    }

    /// Gives this link the bare name of a skill, or takes it away. The caller ensures that no other
    /// link has it.
    pub(crate) fn set_bare_name(
        &mut self,
        vault: &Vault,
        name: &SkillName,
        bare: bool,
    ) -> Result<(), VaultError> {
        // Change both sets, so that a killed pull does not give the name back to the old holder.
        let counted = self.pin.counted.iter_mut().chain(&mut self.pin.replaced);
        for skill in counted.filter_map(|counted| counted.installed.get_mut(name)) {
            skill.bare = bare;
        }
        if let Some(had) = self.pin.withdrawn_names.get_mut(name) {
            *had = bare;
        }
        Ok(trust_folder(vault, &self.id).write_record(PIN, &self.pin)?)
    }

    /// Returns the names under which the link's skills are installed.
    pub fn installed_names(&self) -> Vec<SkillName> {
        self.installed_skills()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns which skills the last pull selected.
    pub fn selection(&self) -> Selection {
        let counted = self.pin.counted.as_ref();
        counted.map_or_else(Selection::default, |counted| counted.selection.clone())
    }
}
