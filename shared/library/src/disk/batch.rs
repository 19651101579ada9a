//! Creates many files and folders and makes them durable together.

use std::fs::File;

use super::{FileError, HeldPath, Location, file_error, make_dir, set_mode, sync_dir, write_new};
#[cfg(not(target_os = "linux"))]
use super::{Kind, OFlags, list, open};

/// A set of new files and folders that are flushed together, before one rename makes them visible.
///
/// A few files are flushed one by one. On Linux, more are flushed with one `syncfs` of the whole
/// file system: each flush of a file costs a journal commit, and 30,000 of those take minutes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Files that are flushed one by one, as long as there are few.
    open: Vec<(HeldPath, File)>,
    /// Created folders, outermost first, with their final modes.
    folders: Vec<(HeldPath, u32)>,
    files: usize,
}

impl Batch {
    /// Largest number of files that are flushed one by one.
    const FEW: usize = 12;

    /// Creates a folder. Until [`Self::flush`] sets `mode`, only the owner has access.
    pub(crate) fn make_folder(&mut self, path: &HeldPath, mode: u32) -> Result<(), FileError> {
        // The final mode may not allow adding entries, so it is set after the last one.
        make_dir(path, 0o700)?;
        self.folders.push((path.clone(), mode));
        Ok(())
    }

    /// Writes a new file, which is not durable before [`Self::flush`].
    pub(crate) fn write_file(
        &mut self,
        path: &HeldPath,
        bytes: &[u8],
        mode: u32,
    ) -> Result<(), FileError> {
        let file = write_new(path, bytes, mode).map_err(file_error("write", path))?;
        self.files += 1;
        if self.files <= Self::FEW {
            self.open.push((path.clone(), file));
        } else {
            // The bulk flush covers these files too, so their handles are no longer needed.
            self.open.clear();
        }
        Ok(())
    }

    /// Sets the modes of the folders and makes everything durable. `within` is any folder on the
    /// same file system, by which all of it can be flushed at once.
    pub(crate) fn flush(self, within: &HeldPath) -> Result<(), FileError> {
        let one_by_one = self.files <= Self::FEW;
        for (path, file) in &self.open {
            file.sync_all().map_err(file_error("flush", path))?;
        }
        // Children first: a parent without search permission would make them unreachable.
        for (path, mode) in self.folders.iter().rev() {
            set_mode(path, *mode)?;
            if one_by_one || !CAN_FLUSH_ALL {
                sync_dir(path)?;
            }
        }
        if !one_by_one {
            flush_all(within, &self.folders)?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
const CAN_FLUSH_ALL: bool = true;
#[cfg(not(target_os = "linux"))]
const CAN_FLUSH_ALL: bool = false;

#[cfg(target_os = "linux")]
/// Flushes the whole file system that contains `within`.
fn flush_all(within: &HeldPath, _folders: &[(HeldPath, u32)]) -> Result<(), FileError> {
    within
        .open_folder()
        .and_then(|folder| Ok(rustix::fs::syncfs(&folder)?))
        .map_err(file_error("flush", within))
}

#[cfg(not(target_os = "linux"))]
/// Flushes the files in the created folders, where a whole file system can't be flushed.
fn flush_all(_within: &HeldPath, folders: &[(HeldPath, u32)]) -> Result<(), FileError> {
    for (folder, _) in folders {
        for (name, kind) in list(folder)? {
            if kind == Kind::File {
                let path = folder.join(name);
                open(&path, OFlags::RDONLY, 0)
                    .and_then(|file| file.sync_all())
                    .map_err(file_error("flush", &path))?;
            }
        }
    }
    Ok(())
}
