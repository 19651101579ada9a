//! Moves an original folder out of the way and removes from it what the vault has stored.
//!
//! The folder is moved in one step, then each file is compared with its stored bytes before it is
//! removed. Everything else stays where the folder was moved to, so a crash at any point loses
//! nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use vault_format::bundle::File;
use vault_format::manifest::SKILL_MD;

use crate::admit::AdmitReport;
use crate::disk::{self, FileError, HeldPath, Kind, Location as _};
use crate::store::{self, Damage};
use crate::vault::{Vault, VaultError};

/// Fails unless originals can be moved to `<root>.bak`: nothing may be there, or a folder that is
/// not a symbolic link.
pub(crate) fn check_backups(root: &Path) -> Result<(), FileError> {
    let backups = backups_of(root);
    match disk::kind_at(&backups)? {
        None | Some(Kind::Dir) => Ok(()),
        Some(_) => {
            let cause = io::Error::new(io::ErrorKind::NotADirectory, "it is not a plain folder");
            Err(FileError::new("keep originals in", &backups, cause))
        }
    }
}

/// Returns the folder `<root>.bak`.
pub(crate) fn backups_of(root: &Path) -> PathBuf {
    let mut backups = root.as_os_str().to_owned();
    backups.push(".bak");
    PathBuf::from(backups)
}

/// Moves a folder to `<root>.bak/<name>`, or to the next free `<name>-<number>`. Never replaces an
/// existing entry.
pub(crate) fn move_aside(root: &Path, folder: &Path) -> Result<PathBuf, FileError> {
    check_backups(root)?;
    let backups = backups_of(root);
    disk::make_dirs(&backups, 0o755)?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let place = disk::free_path(&backups, &name)?;
    disk::rename(folder, &place)?;
    disk::sync_dir(&backups)?;
    disk::sync_dir(root)?;
    Ok(place.path())
}

/// Like [`move_aside`], but if `<root>.bak` is on another file system, where a rename can't move
/// the folder, the folder becomes `<root>/.bak-<name>`.
pub(crate) fn move_aside_anywhere(root: &Path, folder: &Path) -> Result<PathBuf, FileError> {
    match move_aside(root, folder) {
        Err(failed) if failed.cause.kind() == io::ErrorKind::CrossesDevices => {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let place = disk::free_path(root, &format!(".bak-{name}"))?;
            disk::rename(folder, &place)?;
            disk::sync_dir(root)?;
            Ok(place.path())
        }
        moved => moved,
    }
}

/// Returns the stored files of a skill that was just added, verified from their bytes.
pub(crate) fn read_stored(vault: &Vault, report: &AdmitReport) -> Result<Vec<File>, VaultError> {
    let (store, trusted) = (vault.store_folder(), vault.trusted()?);
    // Read the files back from the store: only bytes that are really there may be removed
    // elsewhere.
    let examined = store::examine_stored(&store, &report.bundle, Some(&report.name), &trusted);
    let damaged = |damage: Damage| VaultError::Damaged {
        path: vault.skills_folder().join(report.name.as_str()).path(),
        reason: damage.to_string(),
    };
    Ok(examined.map_err(damaged)?.files)
}

/// Removes each file whose bytes equal the stored file of the same path, then the folders that
/// became empty. Returns the paths that remain, where a folder without any stored file is one path
/// that ends with `/`; none remain if the folder itself was removed. A file that can't be removed
/// remains.
pub(crate) fn remove_stored(folder: &HeldPath, stored: &[File]) -> Result<Vec<String>, FileError> {
    // Paths below the folder; the empty one is the folder itself.
    let mut parents = BTreeSet::new();
    for file in stored {
        let path = actual_path(folder, file.path.as_str())?;
        let above = Path::new(file.path.as_str()).ancestors().skip(1);
        let above: Vec<PathBuf> = above.map(Path::to_owned).collect();
        // If one of the folders is a link, the file behind it does not belong to the original.
        let is_plain = |part: &PathBuf| {
            matches!(
                disk::kind_at(&join_below(folder, part)),
                Ok(Some(Kind::Dir))
            )
        };
        if !above.iter().all(is_plain) || !has_bytes(&path, &file.bytes) {
            continue;
        }
        if let Some(parent) = above.first() {
            make_writable(&join_below(folder, parent));
        }
        if let Err(failed) = disk::remove_file(&path) {
            tracing::warn!(%failed, "a file that the vault has stored was not removed");
        }
        parents.extend(above);
    }
    // Go backwards, because a folder sorts before its content and must be empty when it is removed.
    for parent in parents.iter().rev() {
        disk::remove_empty(&join_below(folder, parent))?;
    }
    let mut remaining = Vec::new();
    if matches!(disk::kind_at(folder)?, Some(Kind::Dir)) {
        list_left(folder, Path::new(""), &parents, &mut remaining)?;
    }
    remaining.sort();
    Ok(remaining)
}

/// Joins a path to a folder. An empty path would add a slash.
fn join_below(folder: &HeldPath, path: &Path) -> HeldPath {
    if path.as_os_str().is_empty() {
        folder.clone()
    } else {
        folder.join(path)
    }
}

/// Returns the path of a stored file in the original folder, where SKILL.md may be written in
/// another letter case.
fn actual_path(folder: &HeldPath, stored: &str) -> Result<HeldPath, FileError> {
    let path = folder.join(stored);
    if stored != SKILL_MD || disk::kind_at(&path)?.is_some() {
        return Ok(path);
    }
    let mut entries = disk::list(folder)?.into_iter().map(|(name, _)| name);
    let document = entries.find(|name| name.eq_ignore_ascii_case(SKILL_MD));
    Ok(document.map_or(path, |name| folder.join(name)))
}

/// Returns whether the file has exactly these bytes. An unreadable file does not.
fn has_bytes(path: &HeldPath, stored: &[u8]) -> bool {
    // `read` fails for a longer file, so such a file counts as different and is never read whole.
    let actual = disk::read(path, stored.len() as u64);
    matches!(actual, Ok(Some(found)) if found == stored)
}

/// Gives the owner the right to remove entries of a folder. A failure is ignored, because the
/// removal that follows then fails and is logged.
fn make_writable(folder: &HeldPath) {
    if let Ok(Some((mode, _))) = disk::folder_mode_and_owner(&folder.path())
        && mode & 0o200 == 0
    {
        let _shows_later = disk::set_mode(folder, mode & 0o7777 | 0o700);
    }
}

/// Adds the paths that remain below a folder to `left`. `parents` are the folders that contained
/// stored files; only these are listed entry by entry.
fn list_left(
    folder: &HeldPath,
    path: &Path,
    parents: &BTreeSet<PathBuf>,
    left: &mut Vec<String>,
) -> Result<(), FileError> {
    for (name, kind) in disk::list(&join_below(folder, path))? {
        let entry = path.join(&name);
        let path_text = entry.to_string_lossy().into_owned();
        match kind {
            Kind::Dir if parents.contains(&entry) => list_left(folder, &entry, parents, left)?,
            // A folder without any stored file is one line: it may be a `.git` with thousands of
            // files.
            Kind::Dir => left.push(format!("{path_text}/")),
            Kind::File | Kind::Link | Kind::Other => left.push(path_text),
        }
    }
    Ok(())
}
