//! Temporary folders, which exist no longer than the process that created them.
//!
//! A process locks its folder in the kernel while it uses it. Another process can therefore tell
//! the folder of a live process from a leftover, and needs no clock for that. The folders hold
//! staged bundles and the private copies that actions run from.

use std::fs::File;
use std::io;

use super::lock::is_still;
use super::removal::{remove_tree, remove_unlocked};
use super::{FileError, HeldPath, Kind, Location, list, mkdir, unique_name};

/// A temporary folder with mode 0700. It is removed on drop, or by a later sweep.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: HeldPath,
    _lock: File,
}

impl Scratch {
    /// Creates a folder in `tmp`, which must exist.
    pub(crate) fn new(tmp: &HeldPath) -> Result<Self, FileError> {
        loop {
            let path = tmp.join(unique_name());
            match mkdir(&path, 0o700) {
                Ok(()) => {}
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(cause) => return Err(FileError::new("create folder", &path, cause)),
            }
            // A sweep may remove the new folder before it is locked. Try another name in that case.
            if let Some(lock) = lock_folder(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &HeldPath {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Errors are ignored: the next sweep removes what is left.
        let _best_effort = remove_tree(&self.path);
    }
}

/// Lists the temporary folders in `tmp` that no live process uses. Call it under the writer lock
/// only.
pub(crate) fn list_abandoned(tmp: &HeldPath) -> Result<Vec<HeldPath>, FileError> {
    let mut abandoned = Vec::new();
    for (name, kind) in list(tmp)? {
        let path = tmp.join(name);
        if kind == Kind::Dir && lock_folder(&path)?.is_some() {
            abandoned.push(path);
        }
    }
    Ok(abandoned)
}

/// Takes over the temporary folders in `tmp` that no live process uses. Each is removed on drop.
pub(crate) fn take_abandoned(tmp: &HeldPath) -> Result<Vec<Scratch>, FileError> {
    let mut abandoned = Vec::new();
    for (name, kind) in list(tmp)? {
        let path = tmp.join(name);
        if kind == Kind::Dir
            && let Some(lock) = lock_folder(&path)?
        {
            abandoned.push(Scratch { path, _lock: lock });
        }
    }
    Ok(abandoned)
}

/// Removes leftovers in a folder of temporary folders: plain files, and folders that no live
/// process uses. For the vault's `tmp`, call it under the writer lock only, because a writer may be
/// using a plain file there.
pub(crate) fn sweep_unlocked(tmp: &HeldPath) -> Result<(), FileError> {
    remove_unlocked(tmp)
}

/// Locks a temporary folder; `None` if a live process uses it or it no longer exists.
fn lock_folder(path: &HeldPath) -> Result<Option<File>, FileError> {
    let folder = match path.open_folder() {
        Ok(folder) => File::from(folder),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(FileError::new("open", path, cause)),
    };
    match folder.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
        Err(std::fs::TryLockError::Error(cause)) => {
            return Err(FileError::new("lock", path, cause));
        }
    }
    // A sweep may have removed the folder between the open and the lock.
    Ok(is_still(&folder, path).then_some(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_keeps_what_is_in_use_and_removes_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let tmp = HeldPath::new(folder.path());
        let live = Scratch::new(&tmp).unwrap();
        std::fs::write(live.path().path().join("kept"), "x").unwrap();
        let dead = folder.path().join("dead");
        std::fs::create_dir_all(dead.join("a/b")).unwrap();
        std::fs::write(dead.join("a/b/c"), "x").unwrap();
        std::fs::write(folder.path().join("plain"), "x").unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        sweep_unlocked(&tmp).unwrap();
        assert!(live.path().path().join("kept").exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        drop(live);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
