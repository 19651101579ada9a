//! Reads what is pinned and installed from linked vaults. [`crate::subscribe`] changes it.
//!
//! ```text
//! <vault>/links/<id>/current        -> sets/<n>: the one atomic switch
//! <vault>/links/<id>/sets/<n>/      set.json, skills/<name> -> the store
//! <vault>/links/<id>/skills         constant link through `current`
//! <config>/links/<id>/pin.json      what counts, in the trust folder
//! <config>/links/<id>/<sha256>.catalog.json   the counted catalog, exact bytes
//! <config>/links/<id>/device.key    this machine's key
//! ```
//! A link exists where both folders have it. A vault folder alone adds no trust.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vault_skill::catalog::{Catalog, LastCatalog};
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::name::{AgentId, SkillName, Slug};
use vault_skill::root::{VaultFingerprint, VaultId};
use vault_skill::time::Timestamp;

use super::link_id::LinkId;
use crate::disk;
use crate::store::Trusted;
use crate::vault::folder::PrivateFolder;
use crate::vault::trust::VaultTrust;
use crate::vault::{Vault, VaultError};

/// What this machine has verified about a linked vault and trusts from now on. The vault's keys are
/// in [`VaultTrust`], which all links to it share.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// The base address, without a slash at its end.
    pub base: String,
    /// The vault's name there.
    pub slug: Slug,
    /// The vault's id; `None` until the first catalog is accepted.
    pub vault_id: Option<VaultId>,
    /// The catalog that counts; `None` until the first one is accepted.
    pub counted: Option<CountedFile>,
    /// The catalog that lists the installed skills, where the one that counts does not list them
    /// all: while the set is being switched, and while the service does not serve this device the
    /// skills of the one that counts.
    pub(crate) replaced: Option<CountedFile>,
    /// The fingerprint that the vault must have, as given to [`crate::subscribe::expect`]. Removed
    /// once a vault is pinned.
    pub expected: Option<VaultFingerprint>,
    /// Hash of this machine's device key for the link.
    pub device_key_id: Digest,
    /// When the link was created.
    pub linked_at: Timestamp,
}

/// A catalog that counted.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CountedFile {
    /// The number of the release.
    pub release: u64,
    /// Hash of the signed payload.
    pub payload_sha256: Digest,
    /// Hash of the whole file.
    pub file_sha256: Digest,
    /// The keys whose signatures counted.
    pub signers: Vec<PublicKey>,
    /// The bundles that profiles of the catalog name, as far as they were read.
    pub(crate) variants: Vec<ProfileBundles>,
}

impl CountedFile {
    /// Whether a profile of the catalog names the bundle, as far as profiles were read.
    pub(crate) fn names_variant(&self, bundle: &Digest) -> bool {
        let mut variants = self.variants.iter();
        variants.any(|variants| variants.bundles.contains(bundle))
    }
}

/// The bundles that one profile of a catalog names.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ProfileBundles {
    /// Hash of the profile object.
    pub(crate) profile: Digest,
    pub(crate) bundles: BTreeSet<Digest>,
}

/// Which skills of a linked vault to install. A skill must meet all conditions; without any, all
/// skills are installed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Selection {
    /// Skills that the vault publishes for this agent. If it publishes no such profile: skills that
    /// name this agent or no agent.
    pub agent: Option<AgentId>,
    /// Skills with this tag.
    pub tag: Option<String>,
    /// Skills with these names; empty means any name.
    pub skills: Vec<SkillName>,
    /// A different local name, if exactly one skill is named.
    pub install_as: Option<SkillName>,
}

/// The content of `set.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SetRecord {
    pub(crate) selection: Selection,
    pub(crate) aliases: Vec<Alias>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Alias {
    pub(crate) installed_as: SkillName,
    pub(crate) name: SkillName,
}

/// A linked vault, with its pin and the set that is installed.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) id: LinkId,
    pub(crate) folder: PathBuf,
    pub(crate) set: PathBuf,
    pub(crate) pin: Pin,
}

/// Name of the pin's file.
pub(crate) const PIN: &str = "pin.json";

/// All linked vaults, sorted by id.
pub fn all(vault: &Vault) -> Result<Vec<Link>, VaultError> {
    let mut links = Vec::new();
    for (name, _) in disk::list(&links_folder(vault))? {
        let Ok(id) = name.to_string_lossy().parse::<LinkId>() else {
            continue;
        };
        links.extend(find(vault, &id)?);
    }
    Ok(links)
}

/// A linked vault by its id; `None` if it is not linked.
pub fn find(vault: &Vault, id: &LinkId) -> Result<Option<Link>, VaultError> {
    let folder = links_folder(vault).join(id.as_str());
    let Some(set) = disk::link_target(&folder.join("current"))? else {
        return Ok(None); // a link whose making was cut short
    };
    let pin = trust_folder(vault, id).read_record(PIN)?;
    Ok(pin.map(|pin| Link {
        id: id.clone(),
        set: folder.join(set),
        folder,
        pin,
    }))
}

pub(crate) fn links_folder(vault: &Vault) -> PathBuf {
    vault.paths().root.join("links")
}

/// The part of the trust folder that belongs to one link.
pub(crate) fn trust_folder(vault: &Vault, id: &LinkId) -> PrivateFolder {
    PrivateFolder::new(&vault.paths().config, Path::new("links").join(id.as_str()))
}

/// The name of a counted catalog in the link's part of the trust folder.
pub(crate) fn catalog_file(file_sha256: &Digest) -> String {
    format!("{file_sha256}{CATALOG_ENDING}")
}

/// How the names of counted catalogs end.
pub(crate) const CATALOG_ENDING: &str = ".catalog.json";

impl Link {
    /// The link's id.
    pub fn id(&self) -> &LinkId {
        &self.id
    }

    /// The pin.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// What counts for the linked vault; `None` before the first catalog.
    pub fn trust(&self, vault: &Vault) -> Result<Option<VaultTrust>, VaultError> {
        match &self.pin.vault_id {
            Some(id) => vault.trust_of(id),
            None => Ok(None),
        }
    }

    /// The exact bytes of the current catalog; `None` before the first one.
    pub fn catalog_bytes(&self, vault: &Vault) -> Result<Option<Vec<u8>>, VaultError> {
        match &self.pin.counted {
            Some(counted) => self.bytes_of(vault, counted),
            None => Ok(None),
        }
    }

    fn bytes_of(&self, vault: &Vault, file: &CountedFile) -> Result<Option<Vec<u8>>, VaultError> {
        let folder = trust_folder(vault, &self.id);
        let bytes = folder.read(&catalog_file(&file.file_sha256))?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    /// The catalog that counted last; `None` before the first one.
    pub(crate) fn last(&self, vault: &Vault) -> Result<Option<LastCatalog>, VaultError> {
        match &self.pin.counted {
            Some(counted) => self.read_counted(vault, counted).map(Some),
            None => Ok(None),
        }
    }

    fn read_counted(&self, vault: &Vault, file: &CountedFile) -> Result<LastCatalog, VaultError> {
        let damaged = |reason: String| VaultError::Damaged {
            path: trust_folder(vault, &self.id).path_of(&catalog_file(&file.file_sha256)),
            reason,
        };
        let bytes = self.bytes_of(vault, file)?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing".to_owned()))?;
        LastCatalog::read(&bytes, &file.payload_sha256, file.signers.clone())
            .map_err(|error| damaged(error.to_string()))
    }

    /// The current catalog; `None` before the first one.
    pub fn catalog(&self, vault: &Vault) -> Result<Option<Catalog>, VaultError> {
        Ok(self.last(vault)?.map(|last| last.catalog))
    }

    /// The bundles that counted catalogs list, variants that their profiles name included.
    pub(crate) fn listed(&self, vault: &Vault) -> Result<BTreeSet<Digest>, VaultError> {
        let mut listed = BTreeSet::new();
        for file in self.pin.counted.iter().chain(&self.pin.replaced) {
            listed.extend(self.listed_by(vault, file)?);
        }
        Ok(listed)
    }

    /// The bundles that one counted catalog lists, variants included.
    pub(crate) fn listed_by(
        &self,
        vault: &Vault,
        file: &CountedFile,
    ) -> Result<BTreeSet<Digest>, VaultError> {
        let catalog = self.read_counted(vault, file)?.catalog;
        let skills = catalog.skills.iter().map(|entry| entry.bundle_hash);
        let variants = file.variants.iter().flat_map(|variants| &variants.bundles);
        Ok(skills.chain(variants.copied()).collect())
    }

    /// Whose signatures count on the installed skills; `None` before the first catalog.
    pub(crate) fn trusted(&self, vault: &Vault) -> Result<Option<Trusted>, VaultError> {
        let Some(vault_id) = self.pin.vault_id.filter(|_| self.pin.counted.is_some()) else {
            return Ok(None);
        };
        Ok(Some(match vault.trust_of(&vault_id)? {
            Some(trust) => Trusted::listed(Arc::new(trust.roots), self.listed(vault)?),
            None => Trusted::nothing(vault_id),
        }))
    }

    /// The selection of the last pull.
    pub fn selection(&self) -> Result<Selection, VaultError> {
        Ok(self.record()?.selection)
    }

    pub(crate) fn record(&self) -> Result<SetRecord, VaultError> {
        let record = crate::vault::read_record(&self.set.join("set.json"))?;
        Ok(record.unwrap_or_default())
    }
}
