//! A change of a vault: holds the writer lock, and updates the generation number by which other
//! processes notice changes.

use std::io::Write;
use std::path::Path;

use super::{Vault, VaultError};
use crate::disk::archive::append_folder;
use crate::disk::lock::{self, WriterLock};
use crate::disk::{self, FileError, HeldPath};

/// A change of the vault in progress. It holds the writer lock until it is dropped. Every change of
/// an existing vault has one.
#[derive(Debug)]
pub(crate) struct Change<'v> {
    pub(super) vault: &'v Vault,
    /// Generation number after this change, an even number.
    pub(super) next: u64,
    /// Whether the generation number is odd now, because this change has begun to show.
    pub(super) switched: bool,
    pub(super) _lock: WriterLock,
}

/// A lock on a vault. No other process changes the vault's files until this is dropped.
#[derive(Debug)]
pub struct HeldVault {
    folder: HeldPath,
    _lock: WriterLock,
}

impl Vault {
    /// Keeps other processes from changing the vault while all its files are copied.
    pub fn lock_for_copy(&self) -> Result<HeldVault, VaultError> {
        let lock = lock::take_lock(&self.folder().join("lock"), self.wait)?;
        Ok(HeldVault {
            folder: self.folder(),
            _lock: lock,
        })
    }
}

impl HeldVault {
    /// Appends the files, folders and links of the vault's folder to a tar archive, below `name`.
    /// Leaves out entries whose names begin with one of `left_out`. Links are stored as links, not
    /// followed.
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
    pub(crate) const fn vault(&self) -> &'v Vault {
        self.vault
    }

    /// Makes the generation number odd, which says that a change is in progress. Call it before the
    /// first change that readers can see; dropping this value makes the number even again.
    pub(crate) fn mark_changing(&mut self) -> Result<(), VaultError> {
        if !self.switched {
            self.write_generation(self.next - 1)?;
            self.switched = true;
        }
        Ok(())
    }

    /// Replaces a file of the vault's folder atomically.
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
        // Whether this writer succeeded or failed, it changes nothing more. If the number stays
        // odd, watchers read again until the next writer corrects it.
        if self.switched && self.write_generation(self.next).is_err() {
            tracing::warn!("the vault's generation number could not be written");
        }
    }
}
