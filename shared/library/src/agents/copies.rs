//! Copies of skills, for agents' folders that hold no symlinks. A copy is staged from verified
//! bytes and moved into place with a rename. Its content is recorded, so that a later sync can tell
//! it from one that the user edited.

use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::Mode;

use super::profiles::ShownSkill;
use crate::disk::{self, Batch, FileError, HeldPath};
use crate::installed::agent_links::copies::{aside_path, hash_files};
use crate::store;
use crate::vault::Vault;

/// The verified files of a skill, ready to be copied into an agent's folder.
#[derive(Debug)]
pub(super) struct VerifiedCopy {
    files: Vec<vault_format::bundle::File>,
    /// Hash of the copy's paths, executable bits and bytes, as the record of copies stores it.
    pub(super) content: Digest,
}

/// Reads a skill that a profile shows and verifies it; `None` if verification fails.
pub(super) fn read_verified(vault: &Vault, shown: &ShownSkill) -> Option<VerifiedCopy> {
    let examined = store::examine_stored(
        &vault.store_folder(),
        &shown.bundle,
        Some(&shown.signed_name),
        &shown.trusted,
    )
    .ok()?;
    let content = hash_files(examined.files.iter().map(|file| {
        (
            file.path.as_str(),
            file.mode == Mode::Executable,
            &file.bytes[..],
        )
    }));
    Some(VerifiedCopy {
        files: examined.files,
        content,
    })
}

/// Moves a copy into place under its name, replacing an earlier copy.
pub(super) fn place_copy(root: &Path, name: &str, ready: &VerifiedCopy) -> Result<(), FileError> {
    let root = HeldPath::new(root);
    let staged = aside_path(&root, name, "new");
    // A killed sync may have left a staged copy under this name.
    disk::remove_tree(&staged)?;
    let mut batch = Batch::default();
    store::copy_plain(&mut batch, &staged, &ready.files)?;
    // Flush before the rename, so that a power failure leaves no copy with empty files.
    batch.flush(&root)?;
    let place = root.join(name);
    // A kill between the two renames leaves both copies under temporary names. The next sync
    // removes them and copies the skill again.
    let old = aside_path(&root, name, "old");
    disk::remove_tree(&old)?;
    if disk::kind_at(&place)?.is_some() {
        disk::rename(&place, &old)?;
    }
    disk::rename(&staged, &place)?;
    disk::sync_dir(&root)?;
    disk::remove_tree(&old)
}
