//! Copies of skills, for folders that hold no links: made aside from verified bytes, shown in one rename, and told
//! apart from what somebody edited by what they hold.

use std::path::{Path, PathBuf};

use vault_skill::gate;
use vault_skill::hash::Digest;
use vault_skill::manifest::Mode;

use super::wanted::Shown;
use crate::add::LIMITS;
use crate::files::source;
use crate::files::{self, Batch, FileError};
use crate::store::{self, Want};
use crate::vault::Vault;

/// Names of ours in a folder of copies, while one is being made or removed.
pub(super) const ASIDE: &str = ".vault-aside-";

/// What a folder holds, as one hash over paths, modes and bytes; `None` when that can't be told.
pub(super) fn content(folder: &Path) -> Option<Digest> {
    let read = source::read(folder, LIMITS, &gate::is_ignored).ok()?;
    let lines = read.files.iter().map(|file| {
        (
            file.path.as_str(),
            file.mode == Mode::Executable,
            &file.bytes[..],
        )
    });
    Some(content_of(lines))
}

fn content_of<'a>(files: impl Iterator<Item = (&'a str, bool, &'a [u8])>) -> Digest {
    let mut lines: Vec<String> = files
        .map(|(path, executable, bytes)| format!("{executable} {} {path}\n", Digest::of(bytes)))
        .collect();
    lines.sort_unstable();
    Digest::of(lines.concat().as_bytes())
}

/// Verified bytes, ready to be copied.
#[derive(Debug)]
pub(super) struct Ready {
    files: Vec<vault_skill::bundle::File>,
    /// What the copy will hold.
    pub(super) content: Digest,
}

/// Reads and verifies a skill; `None` when it is not as it was signed.
pub(super) fn ready(vault: &Vault, shown: &Shown) -> Option<Ready> {
    let mut buffer = Vec::new();
    let examined = store::examine(
        &vault.store(),
        &shown.bundle,
        Some(&shown.signed_name),
        &shown.trusted,
        Want::Bytes,
        &mut buffer,
    )
    .ok()?;
    let content = content_of(examined.files.iter().map(|file| {
        (
            file.path.as_str(),
            file.mode == Mode::Executable,
            &file.bytes[..],
        )
    }));
    Some(Ready {
        files: examined.files,
        content,
    })
}

/// Puts a copy under its name, in place of `before` where one of ours stands there.
pub(super) fn put(root: &Path, name: &str, ready: &Ready) -> Result<(), FileError> {
    let staged = aside(root, name, "new");
    files::remove_tree(&staged)?;
    let mut batch = Batch::default();
    store::copy_plain(&mut batch, &staged, &ready.files)?;
    batch.flush(root)?;
    let place = root.join(name);
    let old = aside(root, name, "old");
    files::remove_tree(&old)?;
    if files::kind(&place)?.is_some() {
        files::rename(&place, &old)?;
    }
    files::rename(&staged, &place)?;
    files::sync_dir(root)?;
    files::remove_tree(&old)
}

/// Removes a copy of ours: out of the way in one step, then away.
pub(super) fn remove(root: &Path, name: &str) -> Result<(), FileError> {
    let old = aside(root, name, "old");
    files::remove_tree(&old)?;
    files::rename(&root.join(name), &old)?;
    files::sync_dir(root)?;
    files::remove_tree(&old)
}

fn aside(root: &Path, name: &str, what: &str) -> PathBuf {
    root.join(format!("{ASIDE}{what}-{name}"))
}
