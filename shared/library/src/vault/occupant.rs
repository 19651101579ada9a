//! Records which vault a folder contains, in `folders/<hash of its path>/vault.json` of the trust
//! folder.
//!
//! The folder's own `vault.json` names the vault too, but it lies where others may write. Without
//! this record, an attacker who empties the folder, or puts another vault of the same user there,
//! would make all its skills disappear unnoticed, and the next command would create another vault.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::root::VaultId;

use super::folder::{PrivateFolder, vault_folder};
use super::{VaultError, VaultPaths, read_format};
use crate::disk::{self, HeldPath};

/// File in the trust folder that holds the [`Occupants`].
const RECORD: &str = "vault.json";

/// The record of one folder.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Occupants {
    /// Path of the folder, for people.
    path: PathBuf,
    /// Vault in the folder. There are two ids while the vault is getting another id.
    vaults: BTreeSet<VaultId>,
}

/// Error for a folder that contained another vault before, although no command of vault replaced
/// it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} held the vault {known} and {} now, and no command of vault changed that",
    path.display(),
    found.map_or_else(|| "holds none".to_owned(), |id| format!("names the vault {id}"))
)]
pub struct SwappedVault {
    /// Folder of the vault.
    pub path: PathBuf,
    /// Vault that was recorded for the folder.
    pub known: VaultId,
    /// Vault that the folder names now; `None` if it contains none.
    pub found: Option<VaultId>,
    /// Record in the trust folder. The owner removes it if they want another vault there.
    pub record: PathBuf,
}

/// Returns the vault that `vault.json` names; `None` if there is no vault. Fails if the folder is
/// recorded to contain another vault, or any vault and now contains none.
pub(super) fn find_occupant(paths: &VaultPaths) -> Result<Option<VaultId>, VaultError> {
    let folder = trust_folder(paths);
    let mut recorded = read_occupants(&folder)?.vaults;
    loop {
        let current_id = read_format(&paths.folder())?;
        // A new vault has no record yet, and one of an earlier version of this program has none
        // either. The first change writes it.
        let Some(first) = recorded.first() else {
            return Ok(current_id);
        };
        if current_id.is_some_and(|id| recorded.contains(&id)) {
            return Ok(current_id);
        }
        // No lock is held, so another command may have put a vault into the folder between the two
        // reads.
        let recorded_now = self::read_occupants(&folder)?.vaults;
        if recorded_now == recorded {
            return Err(VaultError::Swapped(Box::new(SwappedVault {
                path: paths.root.clone(),
                known: *first,
                found: current_id,
                record: folder.path(),
            })));
        }
        recorded = recorded_now;
    }
}

/// Returns whether a vault is recorded for the folder.
pub(super) fn is_known(paths: &VaultPaths) -> Result<bool, VaultError> {
    Ok(!read_occupants(&trust_folder(paths))?.vaults.is_empty())
}

/// Records that the folder contains the vault `named`. With `next`, the folder may also contain
/// that vault from now on, because the vault is getting this id. Call it while `vault.json` still
/// names `named`: the temporary file goes to that vault's part of the trust folder, where its next
/// writer removes it if this process is killed.
pub(super) fn record_vault(
    paths: &VaultPaths,
    named: &VaultId,
    next: Option<&VaultId>,
) -> Result<(), VaultError> {
    let folder = trust_folder(paths);
    let occupants = Occupants {
        path: real_path(&paths.root),
        vaults: std::iter::once(named).chain(next).copied().collect(),
    };
    if read_occupants(&folder)? != occupants {
        let aside = vault_folder(&paths.config, named);
        aside.ensure_exists()?;
        aside.sweep_leftovers()?;
        folder.replace_by(&aside, RECORD, &json::to_bytes(&occupants))?;
    }
    Ok(())
}

/// Records for a folder the vault that lies in `restored` and is about to be moved to the folder.
/// The trust folder must know that vault.
pub fn record_restored(paths: &VaultPaths, restored: &Path) -> Result<(), VaultError> {
    match read_format(&HeldPath::new(restored))? {
        Some(id) => record_vault(paths, &id, None),
        None => Ok(()),
    }
}

fn read_occupants(folder: &PrivateFolder) -> Result<Occupants, VaultError> {
    let record: Option<Occupants> = folder.read_record(RECORD)?;
    Ok(record.unwrap_or_default())
}

fn trust_folder(paths: &VaultPaths) -> PrivateFolder {
    let path = real_path(&paths.root);
    // A path can be longer than a file name and contain any bytes, so the folder is named by its
    // hash.
    let name = Digest::of(path.as_os_str().as_encoded_bytes()).to_string();
    PrivateFolder::new(&paths.config, Path::new("folders").join(name))
}

/// Returns the path without symbolic links, so that all paths to a folder share one record.
fn real_path(root: &Path) -> PathBuf {
    disk::resolve(root).unwrap_or_else(|_| {
        // A folder that does not exist yet can't be resolved, but its parent can.
        let parent = root.parent().and_then(|parent| disk::resolve(parent).ok());
        let named = parent.zip(root.file_name());
        named.map_or_else(|| root.to_owned(), |(parent, name)| parent.join(name))
    })
}
