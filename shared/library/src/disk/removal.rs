//! Removes folders with their content, through handles. If a symbolic link takes the place of a
//! folder during the removal, it is not followed.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::location::FOLDER;
use super::{FileError, HeldPath, Kind, Location, file_error, kind_at, remove_file};

/// Removes a file, a link, or a folder with its content, even if it is read-only. Links are not
/// followed. Does nothing if the path is absent.
pub(crate) fn remove_tree(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    match kind_at(path)? {
        None => return Ok(()),
        Some(Kind::Dir) => {}
        Some(_) => return remove_file(path).map(|_| ()),
    }
    let at = path.open_parent().map_err(file_error("open", path))?;
    let full_path = path.path();
    if let Some(fd) = open_folder_at(at.parent_folder(), at.name, &full_path)? {
        Folder {
            fd,
            path: full_path,
        }
        .remove_content()?;
    }
    match rustix::fs::unlinkat(at.parent_folder(), at.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(FileError::new("remove", path, cause)),
    }
}

/// Removes the entries of a folder, except folders that a live process has locked.
pub(super) fn remove_unlocked(path: &HeldPath) -> Result<(), FileError> {
    let at = path.open_parent().map_err(file_error("open", path))?;
    let full_path = path.path();
    let Some(fd) = open_folder_at(at.parent_folder(), at.name, &full_path)? else {
        return Ok(());
    };
    let folder = Folder {
        fd,
        path: full_path,
    };
    for name in folder.list_names()? {
        if !folder.is_folder(&name)? {
            folder.remove_entry(&name, AtFlags::empty())?;
        } else if let Some(child) = folder.open_child(&name)?
            && child.try_lock()?
            && folder.is_child(&name, &child)
        {
            // The lock and the name belong to the same folder, so no live process uses it.
            child.remove_content()?;
            folder.remove_entry(&name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

/// An open folder, with its path for messages.
struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Opens a folder, even if its mode denies access to its owner; `None` if it is absent. Fails if it
/// is a link.
fn open_folder_at(
    parent: impl AsFd,
    name: impl Arg + Copy,
    shown: &Path,
) -> Result<Option<OwnedFd>, FileError> {
    let flags = FOLDER | OFlags::NOFOLLOW;
    let open = || rustix::fs::openat(&parent, name, flags, Mode::empty());
    let opened = match open() {
        Err(Errno::ACCESS) => grant_owner_access(&parent, name).and_then(|()| open()),
        opened => opened,
    };
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(cause) => Err(FileError::new("open", shown, cause)),
    }
}

/// Gives the owner of a folder all access to it, so that its entries can be removed.
#[cfg(target_os = "linux")]
fn grant_owner_access(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    // On Linux, `chmod` always follows a symbolic link. `O_PATH` opens the folder itself without
    // needing access to it. The handle's name under `/proc` then leads to this folder and nowhere
    // else.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)
}

/// Gives the owner of a folder all access to it, so that its entries can be removed.
#[cfg(not(target_os = "linux"))]
fn grant_owner_access(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

impl Folder {
    /// Removes everything in the folder, but not the folder itself.
    fn remove_content(&self) -> Result<(), FileError> {
        // Make the folder writable: entries of a read-only folder, as in the store, can't be
        // removed.
        let opened = rustix::fs::fchmod(&self.fd, Mode::RWXU);
        opened.map_err(|cause| FileError::new("open up", &self.path, cause))?;
        for name in self.list_names()? {
            // Try to unlink each entry as a file: this saves a `stat`, and for a folder it gives an
            // error.
            match rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // The entry is a folder. Which error that gives differs between systems.
                Err(Errno::ISDIR | Errno::PERM) => {
                    if let Some(child) = self.open_child(&name)? {
                        child.remove_content()?;
                    }
                    self.remove_entry(&name, AtFlags::REMOVEDIR)?;
                }
                Err(cause) => return Err(self.entry_error("remove", &name, cause)),
            }
        }
        Ok(())
    }

    fn list_names(&self) -> Result<Vec<CString>, FileError> {
        let failed = |cause| FileError::new("list", &self.path, cause);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_owned();
            if ![&b"."[..], b".."].contains(&name.as_bytes()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open_child(&self, name: &CString) -> Result<Option<Self>, FileError> {
        let path = self.path.join(OsStr::from_bytes(name.as_bytes()));
        let fd = open_folder_at(&self.fd, name, &path)?;
        Ok(fd.map(|fd| Self { fd, path }))
    }

    fn is_folder(&self, name: &CString) -> Result<bool, FileError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(self.entry_error("look at", name, cause)),
        }
    }

    /// Locks the folder; returns false if a live process holds the lock.
    fn try_lock(&self) -> Result<bool, FileError> {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(cause) => Err(FileError::new("lock", &self.path, cause)),
        }
    }

    /// Returns whether the name still leads to the open folder.
    fn is_child(&self, name: &CString, child: &Self) -> bool {
        let named = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let held = rustix::fs::fstat(&child.fd);
        matches!((named, held), (Ok(named), Ok(held))
            if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
    }

    fn remove_entry(&self, name: &CString, flags: AtFlags) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(self.entry_error("remove", name, cause)),
        }
    }

    fn entry_error(&self, doing: &'static str, name: &CString, cause: Errno) -> FileError {
        let path = self.path.join(OsStr::from_bytes(name.as_bytes()));
        FileError::new(doing, &path, cause)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn read_only_folders_go_and_what_links_lead_to_stays() {
        let home = tempfile::tempdir().unwrap();
        let (folder, kept) = (home.path().join("folder"), home.path().join("kept"));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir(&kept).unwrap();
        for file in [folder.join("a/b/c"), folder.join("d"), kept.join("theirs")] {
            fs::write(file, "x").unwrap();
        }
        symlink(&kept, folder.join("a/link")).unwrap();
        for path in [folder.join("a/b"), folder.join("a")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
        }
        remove_tree(&folder).unwrap();
        assert!(!folder.exists());
        let link = home.path().join("link");
        symlink(&kept, &link).unwrap();
        let held = HeldPath::new(home.path()).join("link");
        assert!(remove_unlocked(&held).is_err());
        remove_tree(&link).unwrap();
        assert!(!link.exists() && kept.join("theirs").exists());
        remove_tree(&link).unwrap();
    }
}
