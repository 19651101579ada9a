//! Opens folders below one folder through handles, one path part at a time and without following
//! symbolic links, so that no link leads out of it. Used for folders with untrusted content, such
//! as a cloned repository. The calls are those of `rustix`: a folder of `cap-std` follows links that
//! stay inside it, and here none may be followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{FileError, unique_name};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Error of opening a folder below another one.
#[derive(Debug, thiserror::Error)]
pub enum BeneathError {
    /// A part of the path does not exist and was not to be created.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// A part of the path is a symbolic link or not a folder.
    #[error("{} is a symbolic link or not a folder", .0.display())]
    NotAFolder(PathBuf),
    /// The path has a part like `..` that could lead out of the folder.
    #[error("{} points out of the folder", .0.display())]
    Outside(PathBuf),
    /// The folder could not be opened for another reason, such as missing permission.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The kind of an entry of a folder, as far as it matters to callers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum HeldEntry {
    Link(PathBuf),
    /// A file, a folder or anything else.
    Other,
}

/// Permissions of a file that everybody may read and its owner may write.
pub(crate) const READABLE: Mode = Mode::from_raw_mode(0o644);

/// What stands under a name where a file is expected.
#[derive(Debug)]
pub(crate) enum HeldFile {
    Missing,
    Bytes {
        bytes: Vec<u8>,
        /// Permissions of the file.
        mode: Mode,
    },
    /// A symbolic link, a folder or a device, or a file that is too large.
    Refused,
}

/// An open folder, with its path for messages. Its entries are reached through the handle, so a
/// change of the path later has no effect.
#[derive(Debug)]
pub(crate) struct HeldFolder {
    fd: OwnedFd,
    path: PathBuf,
}

impl HeldFolder {
    /// Opens the top folder. Fails if its last part is a symbolic link, so the caller must resolve
    /// the path first.
    pub(crate) fn open(path: &Path) -> Result<Self, BeneathError> {
        let fd = rustix::fs::open(path, FOLDER, Mode::empty());
        Ok(Self {
            fd: fd.map_err(|cause| open_error("open", path, cause))?,
            path: path.to_owned(),
        })
    }

    /// Path of the folder, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Opens the folder at a relative path below this one. If `make` is set, creates the missing
    /// folders on the way.
    pub(crate) fn descend(self, below: &Path, make: bool) -> Result<Self, BeneathError> {
        let mut folder = self;
        for part in below.components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) => folder = folder.open_child(name, make)?,
                _ => return Err(BeneathError::Outside(below.to_owned())),
            }
        }
        Ok(folder)
    }

    fn open_child(&self, name: &OsStr, make: bool) -> Result<Self, BeneathError> {
        let path = self.path.join(name);
        let open = || rustix::fs::openat(&self.fd, name, FOLDER, Mode::empty());
        let fd = match open() {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
                    // Another process may have made the folder just now.
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(cause) => Err(cause),
                }
            }
            opened => opened,
        };
        Ok(Self {
            fd: fd.map_err(|cause| open_error("open", &path, cause))?,
            path,
        })
    }

    /// Returns the entry of this name; `None` if there is none.
    pub(crate) fn read_entry(&self, name: &OsStr) -> Result<Option<HeldEntry>, FileError> {
        let stat = match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(self.entry_error("look at", name, cause)),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(Some(HeldEntry::Other));
        }
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(target) => {
                let target = OsStr::from_bytes(target.as_bytes());
                Ok(Some(HeldEntry::Link(PathBuf::from(target))))
            }
            // The entry may be removed or exchanged between the two calls.
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::INVAL) => Ok(Some(HeldEntry::Other)),
            Err(cause) => Err(self.entry_error("read link", name, cause)),
        }
    }

    /// Returns the names of the folder's entries, sorted.
    pub(crate) fn list_names(&self) -> Result<Vec<OsString>, FileError> {
        let failed = |cause| FileError::new("list", &self.path, io::Error::from(cause));
        let mut names = Vec::new();
        for entry in Dir::read_from(self.fd.as_fd()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Creates a symbolic link under a name, or replaces the entry of that name, in one step.
    pub(crate) fn put_link(&self, name: &OsStr, target: &Path) -> Result<(), FileError> {
        let aside = format!(".vault-aside-{}", unique_name());
        let aside = OsStr::new(&aside);
        rustix::fs::symlinkat(target, &self.fd, aside)
            .map_err(|cause| self.entry_error("make link", aside, cause))?;
        self.replace_entry(aside, name)
    }

    /// Removes the symbolic link of this name. Returns whether there was one; any other entry
    /// stays.
    pub(crate) fn remove_link(&self, name: &OsStr) -> Result<bool, FileError> {
        if !matches!(self.read_entry(name)?, Some(HeldEntry::Link(_))) {
            return Ok(false);
        }
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(self.entry_error("remove", name, cause)),
        }
    }

    /// Reads the file of this name, if it has at most `max` bytes.
    pub(crate) fn read_file(&self, name: &OsStr, max: u64) -> Result<HeldFile, FileError> {
        use std::io::Read as _;
        // A FIFO must not keep the command waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(HeldFile::Missing),
            // Sockets and some devices cannot be opened.
            Err(Errno::LOOP | Errno::MLINK | Errno::NXIO | Errno::NODEV) => {
                return Ok(HeldFile::Refused);
            }
            Err(cause) => return Err(self.entry_error("read", name, cause)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|cause| self.entry_error("read", name, cause))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(HeldFile::Refused);
        }
        let mut bytes = Vec::new();
        let mut file = std::fs::File::from(fd).take(max + 1);
        let read = file.read_to_end(&mut bytes);
        read.map_err(|cause| FileError::new("read", &self.path.join(name), cause))?;
        if bytes.len() as u64 > max {
            return Ok(HeldFile::Refused);
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        Ok(HeldFile::Bytes { bytes, mode })
    }

    /// Removes the file of this name. A folder is an error.
    pub(crate) fn remove_file(&self, name: &OsStr) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(self.entry_error("remove", name, cause)),
        }
    }

    /// Writes a file with these permissions under a name, or replaces the entry of that name, in one
    /// step. Does not flush it.
    pub(crate) fn put_file(&self, name: &OsStr, bytes: &[u8], mode: Mode) -> Result<(), FileError> {
        use std::io::Write as _;
        let aside = format!(".vault-aside-{}", unique_name());
        let aside = OsStr::new(&aside);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, aside, flags, mode)
            .map_err(|cause| self.entry_error("write", aside, cause))?;
        let written = std::fs::File::from(fd).write_all(bytes);
        written.map_err(|cause| FileError::new("write", &self.path.join(name), cause))?;
        self.replace_entry(aside, name)
    }

    /// Renames a temporary entry to its final name, or removes it if that fails.
    fn replace_entry(&self, from: &OsStr, to: &OsStr) -> Result<(), FileError> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(|cause| {
            let _best_effort = rustix::fs::unlinkat(&self.fd, from, AtFlags::empty());
            self.entry_error("replace", to, cause)
        })
    }

    fn entry_error(&self, doing: &'static str, name: &OsStr, cause: Errno) -> FileError {
        FileError::new(doing, &self.path.join(name), io::Error::from(cause))
    }
}

/// Turns the system error of opening a folder into one that tells an absent folder from a link.
fn open_error(doing: &'static str, path: &Path, cause: Errno) -> BeneathError {
    match cause {
        Errno::NOENT => BeneathError::Missing(path.to_owned()),
        // Depending on the system, `open` gives one of these errors for a link in place of a
        // folder.
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => BeneathError::NotAFolder(path.to_owned()),
        cause => FileError::new(doing, path, io::Error::from(cause)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_below_leads_out() {
        let home = tempfile::tempdir().unwrap();
        let (top, outside) = (home.path().join("top"), home.path().join("outside"));
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::create_dir_all(outside.join("b")).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        std::fs::write(top.join("file"), "x").unwrap();
        let open = |below: &str, make| {
            let top = HeldFolder::open(&top).unwrap();
            top.descend(Path::new(below), make)
        };
        assert_eq!(open("a/./b", false).unwrap().path(), top.join("a/b"));
        assert!(matches!(open("c", false), Err(BeneathError::Missing(_))));
        for bad in ["link", "link/b", "file"] {
            assert!(
                matches!(open(bad, true), Err(BeneathError::NotAFolder(_))),
                "{bad}"
            );
        }
        for bad in ["..", "a/../../outside", "/etc"] {
            assert!(
                matches!(open(bad, true), Err(BeneathError::Outside(_))),
                "{bad}"
            );
        }
        let made = open("c/d", true).unwrap();
        made.put_link(OsStr::new("x"), Path::new("one")).unwrap();
        made.put_link(OsStr::new("x"), Path::new("two")).unwrap();
        let link = HeldEntry::Link(PathBuf::from("two"));
        assert_eq!(made.read_entry(OsStr::new("x")).unwrap(), Some(link));
        assert_eq!(made.list_names().unwrap(), ["x"]);
        assert!(made.remove_link(OsStr::new("x")).unwrap());
        made.put_file(OsStr::new("x"), b"text", Mode::RUSR | Mode::WUSR)
            .unwrap();
        assert!(!made.remove_link(OsStr::new("x")).unwrap());
        let read = |name: &str, max| made.read_file(OsStr::new(name), max).unwrap();
        assert!(matches!(
            read("x", 4),
            HeldFile::Bytes { bytes, mode } if bytes == b"text" && mode == Mode::RUSR | Mode::WUSR
        ));
        assert!(matches!(read("none", 4), HeldFile::Missing));
        made.put_link(OsStr::new("link"), Path::new("x")).unwrap();
        std::fs::create_dir(top.join("c/d/folder")).unwrap();
        let fifo = top.join("c/d/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for (name, max) in [("x", 3), ("link", 4), ("folder", 4), ("fifo", 4)] {
            assert!(matches!(read(name, max), HeldFile::Refused), "{name}");
        }
        made.remove_file(OsStr::new("x")).unwrap();
        assert!(matches!(read("x", 4), HeldFile::Missing));
    }
}
