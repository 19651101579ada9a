//! Copies of skills, for folders that can't hold links. A content hash tells an unchanged copy from
//! one that a user edited.

use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_gate as gate;

use crate::disk::source;
use crate::disk::{self, FileError, HeldPath};
use crate::store::LIMITS;

/// Prefix of temporary names in a folder of copies, used while a copy is created or removed.
pub(crate) const ASIDE: &str = ".vault-aside-";

/// Returns one hash over the paths, modes and bytes of a skill in a folder, without ignored files;
/// `None` if the folder can't be read.
pub(crate) fn hash_skill_folder(folder: &Path) -> Option<Digest> {
    hash_folder(folder, &gate::is_ignored)
}

/// Like [`hash_skill_folder`], for a copy that may be removed: a `.git` folder or an editor's draft
/// in it counts as an edit by the user. Only metadata that systems create by themselves is ignored.
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

/// Returns one hash over files, given as path, executable bit and bytes.
pub(crate) fn hash_files<'a>(files: impl Iterator<Item = (&'a str, bool, &'a [u8])>) -> Digest {
    let mut lines: Vec<String> = files
        .map(|(path, executable, bytes)| format!("{executable} {} {path}\n", Digest::of(bytes)))
        .collect();
    // Sort, so that the hash does not depend on the order in which the caller passes the files.
    lines.sort_unstable();
    Digest::of(lines.concat().as_bytes())
}

/// Removes a copy. A rename comes first, so that the copy disappears in one step.
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

/// Returns the temporary path for the entry `name` of a folder of copies.
pub(crate) fn aside_path(root: &HeldPath, name: &str, what: &str) -> HeldPath {
    root.join(format!("{ASIDE}{what}-{name}"))
}
