//! Writing to the store: staged and flushed elsewhere, then moved in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vault_skill::bundle::File;
use vault_skill::gate;
use vault_skill::hash::Digest;
use vault_skill::manifest::Mode;

use super::{FILES, MANIFEST, Trusted, Want, disk_mode, encode, examine, folder};
use crate::disk::{self, Batch, FileError};

/// Writes a bundle's content below `aside`, ready to be moved into the store by [`admit`] once the batch is flushed.
pub(crate) fn stage(
    batch: &mut Batch,
    aside: &Path,
    hash: &Digest,
    manifest: &[u8],
    files: &[File],
) -> Result<(), FileError> {
    let root = folder(aside, hash);
    // Stays writable: a folder that is moved must be, since its `..` changes.
    batch.folder(&root, 0o755)?;
    batch.file(&root.join(MANIFEST), manifest, 0o444)?;
    let inside = root.join(FILES);
    batch.folder(&inside, 0o555)?;
    let mut made = BTreeSet::new();
    for file in files {
        let path = file.path.as_str();
        for (at, _) in path.match_indices('/') {
            if made.insert(&path[..at]) {
                batch.folder(&inside.join(&path[..at]), 0o555)?;
            }
        }
        batch.file(&inside.join(path), &file.bytes, disk_mode(file.mode))?;
    }
    Ok(())
}

/// Writes verified files as a folder of their own that an action may run in: the owner's alone, writable.
pub(crate) fn copy_out(folder: &Path, files: &[File]) -> Result<(), FileError> {
    let mut batch = Batch::default();
    let mut made = BTreeSet::new();
    batch.folder(folder, 0o700)?;
    for file in files {
        let path = file.path.as_str();
        for (at, _) in path.match_indices('/') {
            if made.insert(&path[..at]) {
                batch.folder(&folder.join(&path[..at]), 0o700)?;
            }
        }
        let mode = match file.mode {
            Mode::Plain => 0o600,
            Mode::Executable => 0o700,
        };
        batch.file(&folder.join(path), &file.bytes, mode)?;
    }
    Ok(())
}

/// Writes verified files as a folder for an agent to read: ordinary modes, for folders that hold no links.
pub(crate) fn copy_plain(
    batch: &mut Batch,
    folder: &Path,
    files: &[File],
) -> Result<(), FileError> {
    let mut made = BTreeSet::new();
    batch.folder(folder, 0o755)?;
    for file in files {
        let path = file.path.as_str();
        for (at, _) in path.match_indices('/') {
            if made.insert(&path[..at]) {
                batch.folder(&folder.join(&path[..at]), 0o755)?;
            }
        }
        batch.file(&folder.join(path), &file.bytes, file.mode.bits())?;
    }
    Ok(())
}

/// Moves staged and flushed bundles into the store. One that is there already in good shape stays; a damaged one is
/// put out of the way. Under the writer lock.
pub(crate) fn admit(
    store: &Path,
    aside: &Path,
    hashes: &[Digest],
    trusted: &Trusted,
) -> Result<(), FileError> {
    let mut buffer = Vec::new();
    note_admitted(store, aside, hashes)?;
    for hash in hashes {
        let place = folder(store, hash);
        if disk::kind(&place)?.is_some() {
            let good = examine(store, hash, None, trusted, Want::Bytes, &mut buffer)
                .and_then(|examined| encode(hash, &examined));
            if good.is_ok() {
                continue;
            }
            disk::rename(&place, &aside.join(format!("damaged-{hash}")))?;
        }
        disk::rename(&folder(aside, hash), &place)?;
    }
    disk::sync_dir(store)
}

/// What a staging folder notes of the bundles that were moved out of it: a writer that is killed before it links them
/// leaves them to nobody. Not flushed: after a power cut they stay until [`crate::admit::remove::collect`].
const ADMITTED: &str = "admitted";

fn note_admitted(store: &Path, aside: &Path, hashes: &[Digest]) -> Result<(), FileError> {
    let mut text = String::new();
    for hash in hashes {
        // What was there before was somebody's.
        if disk::kind(&folder(store, hash))?.is_none() {
            text.push_str(&hash.to_string());
            text.push('\n');
        }
    }
    disk::note(&aside.join(ADMITTED), &text)
}

/// Notes in a staging folder bundles that are about to be nobody's: a writer that is killed before it removes them
/// leaves that to the next.
pub(crate) fn note_doomed(aside: &Path, hashes: &[Digest]) -> Result<(), FileError> {
    let lines: Vec<String> = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    disk::note(&aside.join(ADMITTED), &lines.concat())
}

/// The bundles that a dead writer's staging folder says were moved out of it.
pub(crate) fn noted_admitted(aside: &Path) -> Result<Vec<Digest>, FileError> {
    let bytes = disk::read(&aside.join(ADMITTED), 16 << 20)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Removes metadata of systems and editors from a stored skill's folder; the modes of its folders stay.
pub(crate) fn remove_ignored(
    store: &Path,
    hash: &Digest,
    ignored: &[String],
) -> Result<Vec<PathBuf>, FileError> {
    let root = folder(store, hash).join(FILES);
    let mut removed = Vec::new();
    for inside in ignored.iter().filter(|path| gate::is_ignored(path)) {
        let path = root.join(inside);
        let Some(parent) = path.parent() else {
            continue;
        };
        if disk::kind(&path)?.is_none() {
            continue; // it lay in a folder that is gone already
        }
        disk::set_mode(parent, 0o755)?;
        let gone = disk::remove_tree(&path);
        disk::set_mode(parent, 0o555)?;
        gone?;
        removed.push(path);
    }
    Ok(removed)
}

/// Removes bundles from the store, at once for every reader. Under the writer lock.
pub(crate) fn drop_bundles(
    store: &Path,
    aside: &Path,
    hashes: impl IntoIterator<Item = Digest>,
) -> Result<Vec<Digest>, FileError> {
    let mut dropped = Vec::new();
    for hash in hashes {
        let place = folder(store, &hash);
        if disk::kind(&place)?.is_some() {
            disk::rename(&place, &aside.join(format!("dropped-{hash}")))?;
            dropped.push(hash);
        }
    }
    if !dropped.is_empty() {
        disk::sync_dir(store)?;
    }
    Ok(dropped)
}
