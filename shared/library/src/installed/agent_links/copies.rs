//! Recognises and removes copies of skills in agents' folders that can't hold links. A content hash
//! tells an unchanged copy from one that the user edited.

use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_gate as gate;

use crate::disk::source;
use crate::disk::{self, FileError, HeldPath};
use crate::store::LIMITS;

/// Start of the names of temporary entries in a folder of copies, used while a copy is created or
/// removed.
pub(crate) const ASIDE: &str = ".vault-aside-";

/// Returns the content hash of a skill in a folder, over paths, executable bits and bytes; `None`
/// if the folder can't be read. Files that are never part of a skill do not count.
pub(crate) fn hash_skill_folder(folder: &Path) -> Option<Digest> {
    hash_folder(folder, &gate::is_ignored)
}

/// Like [`hash_skill_folder`], but a `.git` folder or an editor's draft counts as an edit by the
/// user, because the copy may be removed. Only metadata that operating systems create by themselves
/// does not count.
pub(crate) fn hash_copy_folder(folder: &Path) -> Option<Digest> {
    hash_folder(folder, &gate::is_system_metadata)
}

fn hash_folder(folder: &Path, ignored: &dyn Fn(&str) -> bool) -> Option<Digest> {
    let read = source::read_skill_folder(folder, LIMITS, ignored).ok()?;
    let lines = read.files.iter().map(|file| {
        (
            file.path.as_str(),
            file.mode == Mode::Executable,
            &file.bytes[..],
        )
    });
    Some(hash_files(lines))
}

/// Returns the content hash over files, each given as path, executable bit and bytes.
pub(crate) fn hash_files<'a>(files: impl Iterator<Item = (&'a str, bool, &'a [u8])>) -> Digest {
    let mut lines: Vec<String> = files
        .map(|(path, executable, bytes)| format!("{executable} {} {path}\n", Digest::of(bytes)))
        .collect();
    // Sort, so that the hash does not depend on the order in which the caller passes the files.
    lines.sort_unstable();
    Digest::of(lines.concat().as_bytes())
}

/// Removes a copy. It is renamed first, so that agents see it disappear in one step.
pub(crate) fn remove_copy(root: &Path, name: &str) -> Result<(), FileError> {
    let root = HeldPath::new(root);
    let old = aside_path(&root, name, "old");
    // A killed removal may have left a copy under this name, and a rename onto a folder with
    // content fails.
    disk::remove_tree(&old)?;
    disk::rename(&root.join(name), &old)?;
    disk::sync_dir(&root)?;
    disk::remove_tree(&old)
}

/// Returns the temporary path for the copy `name`. `what` is `new` for a staged copy and `old` for
/// one that is being removed.
pub(crate) fn aside_path(root: &HeldPath, name: &str, what: &str) -> HeldPath {
    root.join(format!("{ASIDE}{what}-{name}"))
}
