//! The release that an export contains. If a vault needs several publishers to release a skill, the
//! signature of one publisher on an exported skill is not enough either, so the release goes along.

use std::collections::BTreeSet;
use std::path::Path;

use vault_format::catalog::{MAX_OBJECT_BYTES, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::path::FilePath;
use vault_format::root::RootState;

use crate::disk::{self, FileError};
use crate::installed::installations::Origin;
use crate::installed::linked_pins;
use crate::run::VerifiedSkill;
use crate::vault::{Vault, VaultError, releases};

/// The release that lies beside an exported skill and its manifest.
pub(super) enum Release {
    /// One publisher may release alone, so the signature on the manifest suffices.
    NotNeeded,
    /// Exact bytes of a catalog that lists the skill and that enough publishers have signed.
    Listed(Vec<u8>),
    /// Several publishers must sign a release, and this machine knows none that lists the skill.
    /// Other machines do not accept the export until there is one.
    Awaited,
}

impl Release {
    /// Returns the release for a skill, from the releases of its vault that this machine accepted
    /// last.
    pub(super) fn for_skill(vault: &Vault, skill: &VerifiedSkill) -> Result<Self, VaultError> {
        let Some(state) = &skill.roots else {
            return Ok(Self::NotNeeded);
        };
        // One publisher may release alone, so the signature on the manifest is enough.
        if state.document().release().threshold() == 1 {
            return Ok(Self::NotNeeded);
        }
        let catalogs = match &skill.origin {
            Origin::Local | Origin::Project(_) => releases::list_states(vault)?
                .iter()
                .map(|namespace| namespace.catalog_bytes(vault))
                .collect::<Result<Vec<_>, _>>()?,
            Origin::Linked(id) => {
                let link = linked_pins::find_link_by_id(vault, id)?;
                let bytes = link.map(|link| link.catalog_bytes(vault));
                vec![bytes.transpose()?.flatten()]
            }
        };
        let lists = |bytes: &Vec<u8>| listed_bundles(bytes, state).contains(&skill.bundle);
        let listing_catalog = catalogs.into_iter().flatten().find(lists);
        Ok(listing_catalog.map_or(Self::Awaited, Self::Listed))
    }

    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Listed(bytes) => Some(bytes),
            Self::NotNeeded | Self::Awaited => None,
        }
    }
}

/// Returns the bundles in a release file. `name` is the name of that file beside `manifest`. Empty
/// if the file is missing or not valid under these root versions.
pub(super) fn carried_bundles(
    manifest: &Path,
    name: &str,
    state: &RootState,
) -> Result<BTreeSet<Digest>, FileError> {
    let path = name.parse::<FilePath>();
    // The name is not covered by the signature, so it must not lead to another folder.
    let is_beside = path.is_ok_and(|path| path.directory().is_none());
    if !is_beside {
        return Ok(BTreeSet::new());
    }
    let bytes = disk::read(&manifest.with_file_name(name), MAX_OBJECT_BYTES as u64)?;
    Ok(bytes.map_or_else(BTreeSet::new, |bytes| listed_bundles(&bytes, state)))
}

fn listed_bundles(bytes: &[u8], state: &RootState) -> BTreeSet<Digest> {
    let catalog = SignedCatalog::parse(bytes).and_then(|file| file.read_carried(state));
    let skills = catalog.map(|catalog| catalog.skills).unwrap_or_default();
    skills.iter().map(|entry| entry.bundle_hash).collect()
}
