//! Snapshots of folders, to check what a command has changed and what it has not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// One entry of a folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Entry {
    /// A folder and its mode bits.
    Folder(u32),
    /// A regular file: mode bits, length, SHA-256 in hex.
    File(u32, u64, String),
    /// A symbolic link and its target.
    Link(String),
    /// Anything else (a FIFO, a socket).
    Other,
}

/// Reads every entry below `root`, by its path relative to `root`; empty if `root` does not exist.
/// Entries whose paths begin with a text of `leave_out` are skipped.
pub fn snapshot(root: &Path, leave_out: &[&str]) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    walk(root, root, leave_out, &mut entries);
    entries
}

fn walk(root: &Path, folder: &Path, leave_out: &[&str], entries: &mut BTreeMap<String, Entry>) {
    let Ok(listing) = fs::read_dir(folder) else {
        return;
    };
    for entry in listing.flatten() {
        let path = entry.path();
        let relative = path
            .strip_prefix(root)
            .expect("a path below its root")
            .to_string_lossy()
            .into_owned();
        if leave_out.iter().any(|prefix| relative.starts_with(prefix)) {
            continue;
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        let mode = metadata.permissions().mode() & 0o7777;
        let kind = metadata.file_type();
        if kind.is_dir() {
            entries.insert(relative, Entry::Folder(mode));
            walk(root, &path, leave_out, entries);
        } else if kind.is_symlink() {
            let target = fs::read_link(&path)
                .map(|target| target.to_string_lossy().into_owned())
                .unwrap_or_default();
            entries.insert(relative, Entry::Link(target));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            entries.insert(
                relative,
                Entry::File(mode, metadata.len(), hex(&Sha256::digest(&bytes))),
            );
        } else {
            entries.insert(relative, Entry::Other);
        }
    }
}

/// Reads the regular files below `root`, by relative path: whether the owner may execute the file,
/// and its bytes. Symbolic links below `root` are left out.
pub fn files(root: &Path) -> BTreeMap<String, (bool, Vec<u8>)> {
    let root = fs::canonicalize(root).expect("a folder that exists");
    snapshot(&root, &[])
        .into_iter()
        .filter_map(|(path, entry)| match entry {
            Entry::File(mode, ..) => {
                let bytes = fs::read(root.join(&path)).expect("a file just listed");
                Some((path, (mode & 0o100 != 0, bytes)))
            }
            _ => None,
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
