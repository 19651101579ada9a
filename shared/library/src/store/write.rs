//! Writes to the store. Bundles are staged and flushed in a temporary folder first, and then moved
//! in, so that a reader never sees an incomplete one.

use std::collections::BTreeSet;
use std::path::PathBuf;

use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_gate as gate;

use super::{FILES, MANIFEST, Trusted, bundle_folder, disk_mode, examine_and_encode};
use crate::disk::{self, Batch, FileError, HeldPath, Location};

/// Writes a bundle's content to the temporary folder `aside`. [`admit_bundles`] moves it into the
/// store once the batch is flushed.
pub(crate) fn stage_bundle(
    batch: &mut Batch,
    aside: &HeldPath,
    hash: &Digest,
    manifest: &[u8],
    files: &[File],
) -> Result<(), FileError> {
    let root = bundle_folder(aside, hash);
    // Keep this folder writable: moving it changes its `..` entry, which needs write permission.
    batch.make_folder(&root, 0o755)?;
    batch.write_file(&root.join(MANIFEST), manifest, 0o444)?;
    let inside = root.join(FILES);
    batch.make_folder(&inside, 0o555)?;
    add_files(batch, &inside, files, 0o555, disk_mode)
}

/// Writes verified files to a private, writable folder that an action may run in.
pub(crate) fn copy_out(folder: &HeldPath, files: &[File]) -> Result<(), FileError> {
    let mut batch = Batch::default();
    batch.make_folder(folder, 0o700)?;
    add_files(&mut batch, folder, files, 0o700, |mode| match mode {
        Mode::Plain => 0o600,
        Mode::Executable => 0o700,
    })
}

/// Writes verified files with ordinary modes to a folder from which an agent reads. Used for
/// agents' folders that can't hold links.
pub(crate) fn copy_plain(
    batch: &mut Batch,
    folder: &HeldPath,
    files: &[File],
) -> Result<(), FileError> {
    batch.make_folder(folder, 0o755)?;
    add_files(batch, folder, files, 0o755, Mode::bits)
}

fn add_files(
    batch: &mut Batch,
    folder: &HeldPath,
    files: &[File],
    folder_mode: u32,
    file_mode: impl Fn(Mode) -> u32,
) -> Result<(), FileError> {
    let mut made = BTreeSet::new();
    for file in files {
        let path = file.path.as_str();
        // Go from the outermost folder inwards, because each one is created in its parent.
        for (at, _) in path.match_indices('/') {
            if made.insert(&path[..at]) {
                batch.make_folder(&folder.join(&path[..at]), folder_mode)?;
            }
        }
        batch.write_file(&folder.join(path), &file.bytes, file_mode(file.mode))?;
    }
    Ok(())
}

/// Moves staged and flushed bundles into the store. A bundle that is already there stays if it is
/// intact; a damaged one is moved to `aside`. Call it under the writer lock.
pub(crate) fn admit_bundles(
    store: &HeldPath,
    aside: &HeldPath,
    hashes: &[Digest],
    trusted: &Trusted,
) -> Result<(), FileError> {
    // List the bundles before moving them, so that the next writer removes them if this one is
    // killed before it links them.
    note_moved(store, aside, hashes)?;
    for hash in hashes {
        let place = bundle_folder(store, hash);
        if disk::kind_at(&place)?.is_some() {
            // Readers and links may be using the intact bundle, and its bytes are the same.
            if examine_and_encode(store, hash, None, trusted).is_ok() {
                continue;
            }
            disk::rename(&place, &aside.join(format!("damaged-{hash}")))?;
        }
        disk::rename(&bundle_folder(aside, hash), &place)?;
    }
    disk::sync_dir(store)
}

/// File in a staging folder that lists the bundles moved out of it. If the writer is killed before
/// it links these bundles, the next writer removes them. The file is not flushed, so after a power
/// failure such bundles stay until the next garbage collection.
const ADMITTED: &str = "admitted";

/// Lists the bundles that [`admit_bundles`] is about to add to the store.
fn note_moved(store: &HeldPath, aside: &HeldPath, hashes: &[Digest]) -> Result<(), FileError> {
    let mut text = String::new();
    for hash in hashes {
        // A bundle that is already in the store may be in use, so a later cleanup must not remove
        // it.
        if disk::kind_at(&bundle_folder(store, hash))?.is_none() {
            text.push_str(&hash.to_string());
            text.push('\n');
        }
    }
    disk::write_unflushed(&aside.join(ADMITTED), &text)
}

/// Lists bundles that are about to lose their last link. If this writer is killed before it removes
/// them, the next writer does.
pub(crate) fn note_unlinked(aside: &HeldPath, hashes: &[Digest]) -> Result<(), FileError> {
    let lines: Vec<String> = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    disk::write_unflushed(&aside.join(ADMITTED), &lines.concat())
}

/// Returns the bundles that the staging folder of a killed writer lists.
pub(crate) fn read_admitted_list(aside: &HeldPath) -> Result<Vec<Digest>, FileError> {
    let bytes = disk::read(&aside.join(ADMITTED), 16 << 20)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Removes metadata files of operating systems and editors from a stored skill's folder. Returns
/// their paths. The modes of the folders stay as they are.
pub(crate) fn remove_ignored(
    store: &HeldPath,
    hash: &Digest,
    ignored: &[String],
) -> Result<Vec<PathBuf>, FileError> {
    let root = bundle_folder(store, hash).join(FILES);
    let mut removed = Vec::new();
    // Do not rely on the caller's list, so that no signed file is ever removed.
    for inside in ignored.iter().filter(|path| gate::is_ignored(path)) {
        let path = root.join(inside);
        let Some(parent) = path.parent() else {
            continue;
        };
        if disk::kind_at(&path)?.is_none() {
            continue; // it lay in a folder that is gone already
        }
        disk::set_mode(&parent, 0o755)?;
        let removal = disk::remove_tree(&path);
        // Restore the mode before an error is returned: a writable folder would be reported as
        // damage.
        disk::set_mode(&parent, 0o555)?;
        removal?;
        removed.push(path.path());
    }
    Ok(removed)
}

/// Removes bundles from the store, and returns those that were there. Each one disappears for all
/// readers in one step. Call it under the writer lock.
pub(crate) fn drop_bundles(
    store: &HeldPath,
    aside: &HeldPath,
    hashes: impl IntoIterator<Item = Digest>,
) -> Result<Vec<Digest>, FileError> {
    let mut dropped = Vec::new();
    for hash in hashes {
        let place = bundle_folder(store, &hash);
        if disk::kind_at(&place)?.is_some() {
            // Deleting files in place would show readers an incomplete skill.
            disk::rename(&place, &aside.join(format!("dropped-{hash}")))?;
            dropped.push(hash);
        }
    }
    if !dropped.is_empty() {
        disk::sync_dir(store)?;
    }
    Ok(dropped)
}
