//! Walks a folder of the store: reads every entry once, through open handles, without following
//! links.
//!
//! The walk also returns the metadata (size, times, inode, mode) of each entry. If the metadata is
//! equal later, nobody wrote to the entry in between, so an unchanged skill need not be read again.
//! The exception is a write within one tick of the file system's clock: see
//! [`super::settled_time`].

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::location::FOLDER;
use super::{FileError, HeldPath, Location, file_error};

/// Limit on the entries of one folder with its subfolders. A skill has at most 1,024 files.
const MAX_ENTRIES: usize = 20_000;
/// Limit on the number of levels of folders.
const MAX_DEPTH: usize = 20;

/// Metadata of an entry. If it is equal at two moments, nobody wrote to the entry in between,
/// provided that its change time lies before [`super::settled_time`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileStat {
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// Time of the last write, in seconds and nanoseconds.
    modified: (i64, u64),
    /// Time of the last change of content or metadata, in seconds and nanoseconds.
    pub(crate) changed: (i64, u64),
    inode: u64,
}

impl FileStat {
    #[cfg_attr(
        target_os = "linux",
        expect(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "the types of these fields differ between systems"
        )
    )]
    fn from_stat(stat: &rustix::fs::Stat) -> Self {
        Self {
            mode: u32::from(stat.st_mode),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            inode: stat.st_ino as u64,
        }
    }

    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Appends the metadata in a fixed number of bytes, to be hashed.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        for (seconds, nanoseconds) in [self.modified, self.changed] {
            out.extend_from_slice(&seconds.to_le_bytes());
            out.extend_from_slice(&nanoseconds.to_le_bytes());
        }
        out.extend_from_slice(&self.inode.to_le_bytes());
    }
}

/// An entry that [`walk_tree`] visits.
#[derive(Debug)]
pub(crate) enum StoreEntry {
    /// A folder. The walk visits its entries later.
    Dir,
    /// A regular file with its bytes.
    File(Vec<u8>),
    /// A regular file above the size limit, which was not read.
    TooLarge,
    /// A regular file whose length changed between `stat` and the read.
    Changing,
    /// A link, device, FIFO or socket, which was neither followed nor read.
    Foreign,
}

/// Visits everything below `root`, with paths relative to it, joined by `/`. A folder is visited
/// before its entries, and the files of a folder before those of its subfolders. Files of more than
/// `max_file` bytes are not read. Fails on the first system error, and on names that are not UTF-8.
pub(crate) fn walk_tree(
    root: &HeldPath,
    max_file: u64,
    visit: &mut dyn FnMut(&str, FileStat, StoreEntry),
) -> Result<(), FileError> {
    let mut walker = Walker {
        root,
        max_file,
        visit,
        entries: 0,
        path: String::new(),
    };
    let folder = root.open_folder().map_err(file_error("open", root))?;
    walker.visit_folder(folder, 0)
}

/// Flags for opening an entry: no link is followed, and a FIFO does not block.
pub(super) const ENTRY: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

struct Walker<'a> {
    root: &'a HeldPath,
    max_file: u64,
    visit: &'a mut dyn FnMut(&str, FileStat, StoreEntry),
    entries: usize,
    path: String,
}

impl Walker<'_> {
    fn visit_folder(&mut self, fd: OwnedFd, depth: usize) -> Result<(), FileError> {
        let mut folders = Vec::new();
        let start = self.path.len();
        let mut listing = Dir::new(fd).map_err(|cause| self.walk_error("list", cause))?;
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(|cause| self.walk_error("list", cause))?;
            let fd = listing
                .fd()
                .map_err(|cause| self.walk_error("list", cause))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            let Ok(text) = name.to_str() else {
                return Err(self.rejected_error("a file name is not UTF-8"));
            };
            if self.entries > MAX_ENTRIES || depth > MAX_DEPTH {
                return Err(self.rejected_error("too many files for a skill"));
            }
            let is_folder = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems omit the type from a listing.
                FileType::Unknown => {
                    let stat = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_err(|cause| self.walk_error("look at", cause))?;
                    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                }
                _ => false,
            };
            if is_folder {
                // Visit folders after the listing, so that the files of a folder come before its
                // subfolders.
                folders.push(text.to_owned());
            } else {
                self.push_name(text);
                self.visit_file(fd, name)?;
                self.path.truncate(start);
            }
        }
        let fd = listing
            .fd()
            .map_err(|cause| self.walk_error("list", cause))?;
        for name in folders {
            self.push_name(&name);
            let inner = openat(fd, &name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
                .map_err(|cause| self.walk_error("open", cause))?;
            // Take the metadata from the handle, so that it belongs to the folder that is listed
            // next.
            let stat = FileStat::from_stat(
                &fstat(&inner).map_err(|cause| self.walk_error("look at", cause))?,
            );
            (self.visit)(&self.path, stat, StoreEntry::Dir);
            self.visit_folder(inner, depth + 1)?;
            self.path.truncate(start);
        }
        Ok(())
    }

    fn push_name(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(name);
    }

    fn visit_file(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), FileError> {
        let fd = match openat(parent, name, ENTRY, Mode::empty()) {
            Ok(fd) => fd,
            // `open` rejects a link (ELOOP or EMLINK) and a socket (ENXIO); `stat` still describes
            // it.
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO | rustix::io::Errno::MLINK) => {
                let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|cause| self.walk_error("look at", cause))?;
                let stat = FileStat::from_stat(&stat);
                (self.visit)(&self.path, stat, StoreEntry::Foreign);
                return Ok(());
            }
            Err(cause) => return Err(self.walk_error("open", cause)),
        };
        let stat = fstat(&fd).map_err(|cause| self.walk_error("look at", cause))?;
        let stat = FileStat::from_stat(&stat);
        let entry = if FileType::from_raw_mode(stat.mode) != FileType::RegularFile {
            StoreEntry::Foreign
        } else if stat.size > self.max_file {
            StoreEntry::TooLarge
        } else {
            read_exactly(fd.as_fd(), stat.size)
                .map_err(|cause| self.walk_error("read", cause))?
                .map_or(StoreEntry::Changing, StoreEntry::File)
        };
        (self.visit)(&self.path, stat, entry);
        Ok(())
    }

    fn walk_error(&self, doing: &'static str, cause: rustix::io::Errno) -> FileError {
        FileError::new(doing, &self.root.join(&self.path), cause)
    }

    fn rejected_error(&self, why: &'static str) -> FileError {
        let cause = io::Error::new(io::ErrorKind::InvalidData, why);
        FileError::new("read", &self.root.join(&self.path), cause)
    }
}

/// Reads a file that should have `size` bytes; `None` if it is longer or shorter.
pub(super) fn read_exactly(fd: BorrowedFd<'_>, size: u64) -> rustix::io::Result<Option<Vec<u8>>> {
    let size = usize::try_from(size).map_err(|_| rustix::io::Errno::FBIG)?;
    // Ask for one byte more than expected, so that the same call detects a file that grew.
    let mut bytes = vec![0; size + 1];
    let mut filled = 0;
    while filled <= size {
        match rustix::io::read(fd, &mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => {
                filled += count;
                if filled == size {
                    break;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
    bytes.truncate(size);
    Ok((filled == size).then_some(bytes))
}

/// Returns the metadata of one entry, links not followed; `None` if it can't be read.
pub(crate) fn file_stat(path: &(impl Location + ?Sized)) -> Option<FileStat> {
    super::stat(path)
        .ok()
        .map(|stat| FileStat::from_stat(&stat))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn visited(root: &Path) -> Vec<String> {
        let mut seen = Vec::new();
        walk_tree(&HeldPath::new(root), 10, &mut |path, stat, entry| {
            let what = match entry {
                StoreEntry::Dir => "dir".to_owned(),
                StoreEntry::File(bytes) => String::from_utf8(bytes).unwrap(),
                other => format!("{other:?}"),
            };
            seen.push(format!("{path} {:o} {what}", stat.permissions()));
        })
        .unwrap();
        seen.sort();
        seen
    }

    #[test]
    fn every_entry_is_seen_once_and_nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/deep"), "deep").unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        std::fs::write(root.join("large"), "12345678901").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        for (path, mode) in [("a/b/deep", 0o444), ("empty", 0o555), ("large", 0o644)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(root.join(path), permissions).unwrap();
        }
        let mut seen = visited(root);
        let socket = seen.pop().unwrap();
        assert!(
            socket.starts_with("socket") && socket.ends_with("Foreign"),
            "{socket}"
        );
        let rest = [
            "a 755 dir",
            "a/b 755 dir",
            "a/b/deep 444 deep",
            "empty 555 ",
            "large 644 TooLarge",
            "link 777 Foreign",
        ];
        assert_eq!(seen, rest);
    }

    #[test]
    fn metadata_shows_a_write_of_the_same_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let before = file_stat(&path).unwrap();
        assert_eq!(file_stat(&path), Some(before));
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "two").unwrap();
        assert_ne!(file_stat(&path), Some(before));
        assert_eq!(file_stat(&folder.path().join("missing")), None);
    }
}
