//! The writer of a vault: holds the writer lock and updates the generation number for watchers.

use std::io::Write;
use std::path::Path;

use super::{Vault, VaultError};
use crate::disk::archive::append_folder;
use crate::disk::lock::{self, WriterLock};
use crate::disk::{self, FileError, HeldPath};

/// A change in progress. It holds the writer lock until it is dropped. Every change to an existing
/// vault is made through one.
#[derive(Debug)]
pub(crate) struct Change<'v> {
    pub(super) vault: &'v Vault,
    pub(super) next: u64,
    pub(super) switched: bool,
    pub(super) _lock: WriterLock,
}

/// A lock on a vault: no other process changes its files until this is dropped.
#[derive(Debug)]
pub struct HeldVault {
    folder: HeldPath,
    _lock: WriterLock,
}

impl Vault {
    /// Keeps other processes from changing the vault, for a copy of all its files.
    pub fn lock_for_copy(&self) -> Result<HeldVault, VaultError> {
        let lock = lock::take_lock(&self.folder().join("lock"), self.wait)?;
        Ok(HeldVault {
            folder: self.folder(),
            _lock: lock,
        })
    }
}

impl HeldVault {
    /// Appends the files, folders and links of the vault's folder to an archive, below `name`.
    /// Leaves out entries whose names begin with one of `left_out`. Follows no link.
    pub fn append_to_archive<W: Write>(
        &self,
        archive: &mut tar::Builder<W>,
        name: &Path,
        left_out: &[&str],
    ) -> Result<(), FileError> {
        append_folder(archive, &self.folder, name, left_out)
    }
}

impl<'v> Change<'v> {
    /// The vault that changes.
    pub(crate) const fn vault(&self) -> &'v Vault {
        self.vault
    }

    /// Makes the generation number odd. Call it before the first change that readers can see.
    pub(crate) fn mark_changing(&mut self) -> Result<(), VaultError> {
        if !self.switched {
            self.write_generation(self.next - 1)?;
            self.switched = true;
        }
        Ok(())
    }

    /// Replaces a file of the vault.
    pub(crate) fn write_bytes(
        &mut self,
        path: &HeldPath,
        bytes: &[u8],
        mode: u32,
    ) -> Result<(), VaultError> {
        if let Some(folder) = path.parent() {
            disk::make_dirs(&folder, 0o700)?;
        }
        Ok(disk::replace(path, bytes, mode, &self.vault.tmp_folder())?)
    }

    fn write_generation(&self, number: u64) -> Result<(), VaultError> {
        let path = self.vault.folder().join("generation");
        // Fixed width, so that overwriting in place leaves no digits of the previous number.
        Ok(disk::overwrite_unflushed(
            &path,
            &format!("{number:020}\n"),
        )?)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // This writer changes nothing more, whether it succeeded or failed. If the number stays
        // odd, watchers read again until the next writer corrects it.
        if self.switched && self.write_generation(self.next).is_err() {
            tracing::warn!("the vault's generation number could not be written");
        }
    }
}
