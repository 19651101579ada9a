//! Which vault a folder holds, as this machine knows it: `folders/<hash of its path>/vault.json` in
//! the trust folder.
//!
//! The folder's own `vault.json` names the vault as well, and lies where others may write. Whoever
//! empties the folder, or puts another vault of the same user into it, would make all its skills
//! disappear without a word, and the next command would begin another vault.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::root::VaultId;

use super::folder::PrivateFolder;
use super::{VaultError, VaultPaths, read_format, trust};
use crate::disk::{self, HeldPath};

/// Name of the record.
const RECORD: &str = "vault.json";

/// The content of the record.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Occupants {
    /// The folder, for people.
    path: PathBuf,
    /// The vault that the folder holds; two while it is getting another id.
    vaults: BTreeSet<VaultId>,
}

/// A folder that held another vault, and no command of vault replaced it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} held the vault {known} and {} now, and no command of vault changed that",
    path.display(),
    found.map_or_else(|| "holds none".to_owned(), |id| format!("names the vault {id}"))
)]
pub struct SwappedVault {
    /// The folder.
    pub path: PathBuf,
    /// The vault that it held.
    pub known: VaultId,
    /// The vault that it names now.
    pub found: Option<VaultId>,
    /// The record in the trust folder, to be removed if the owner wants another vault there.
    pub record: PathBuf,
}

/// The vault that `vault.json` names; `None` if there is no vault. Fails if the folder held another
/// one, or holds none any more.
pub(super) fn find(paths: &VaultPaths) -> Result<Option<VaultId>, VaultError> {
    let folder = trust_folder(paths);
    let mut known = known(&folder)?.vaults;
    loop {
        let found = read_format(&paths.folder())?;
        let Some(first) = known.first() else {
            return Ok(found);
        };
        if found.is_some_and(|id| known.contains(&id)) {
            return Ok(found);
        }
        // No lock is held: another command may have given the folder its vault between the two
        // reads.
        let now = self::known(&folder)?.vaults;
        if now == known {
            return Err(VaultError::Swapped(Box::new(SwappedVault {
                path: paths.root.clone(),
                known: *first,
                found,
                record: folder.path(),
            })));
        }
        known = now;
    }
}

/// Whether the vault that a folder holds is recorded.
pub(super) fn is_known(paths: &VaultPaths) -> Result<bool, VaultError> {
    Ok(!known(&trust_folder(paths))?.vaults.is_empty())
}

/// Records which vault the folder holds: the first one, or the second from now on. Call it while
/// `vault.json` names `named`: its next writer removes what a killed one left.
pub(super) fn record(
    paths: &VaultPaths,
    named: &VaultId,
    next: Option<&VaultId>,
) -> Result<(), VaultError> {
    let folder = trust_folder(paths);
    let now = Occupants {
        path: real_path(&paths.root),
        vaults: std::iter::once(named).chain(next).copied().collect(),
    };
    if known(&folder)? != now {
        let aside = trust::folder(&paths.config, named);
        aside.ensure()?;
        aside.sweep()?;
        folder.replace_by(&aside, RECORD, &json::to_bytes(&now))?;
    }
    Ok(())
}

/// Records that the folder holds the vault that lies in `restored` and is moved there now. The
/// trust folder must know that vault.
pub fn record_restored(paths: &VaultPaths, restored: &Path) -> Result<(), VaultError> {
    match read_format(&HeldPath::new(restored))? {
        Some(id) => record(paths, &id, None),
        None => Ok(()),
    }
}

fn known(folder: &PrivateFolder) -> Result<Occupants, VaultError> {
    let record: Option<Occupants> = folder.read_record(RECORD)?;
    Ok(record.unwrap_or_default())
}

fn trust_folder(paths: &VaultPaths) -> PrivateFolder {
    let path = real_path(&paths.root);
    let name = Digest::of(path.as_os_str().as_encoded_bytes()).to_string();
    PrivateFolder::new(&paths.config, Path::new("folders").join(name))
}

/// The path without symbolic links, so that all paths to a folder have one record.
fn real_path(root: &Path) -> PathBuf {
    disk::resolve(root).unwrap_or_else(|_| {
        let parent = root.parent().and_then(|parent| disk::resolve(parent).ok());
        let named = parent.zip(root.file_name());
        named.map_or_else(|| root.to_owned(), |(parent, name)| parent.join(name))
    })
}
