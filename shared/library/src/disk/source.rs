//! Reads a skill folder that may be hostile or may change during the read.
//!
//! Each entry below the folder is checked with `lstat`, opened relative to its parent's handle with
//! `O_NOFOLLOW`, and compared with what was checked. Its content is read only through that handle.
//! Links, FIFOs, devices, sockets and hard links to another user's file are rejected, as is a file
//! or folder that changes during the read.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode as Bits, OFlags, Stat};
use rustix::io::Errno;

use vault_format::manifest::Mode;
use vault_gate::links::{BadLink, SkillLink, copy_links};
use vault_gate::{RawFile, is_document_name};

use super::beneath::{BeneathError, HeldFolder};
use super::tree::{ENTRY, read_exactly};
use super::{FileError, Kind, effective_user, file_error, kind_at, resolve};

/// Limits on the content of a skill folder.
#[derive(Clone, Copy, Debug)]
pub struct SourceLimits {
    /// Maximum number of files.
    pub files: usize,
    /// Maximum size of one file, in bytes.
    pub file_bytes: u64,
    /// Maximum size of all files together, in bytes.
    pub total_bytes: u64,
    /// Maximum number of levels of folders.
    pub depth: usize,
}

/// Error of reading a skill folder. Paths are relative to the folder, except the path of the folder
/// itself.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nothing is at the path of the skill folder.
    #[error("{} does not exist", super::displayable_path(.0))]
    Missing(PathBuf),
    /// The path names neither a folder nor a file `SKILL.md`.
    #[error("{} is neither a skill folder nor a file named SKILL.md", super::displayable_path(.0))]
    NotASkill(PathBuf),
    /// The entry is a symbolic link, whose target may lie outside the requested folder.
    #[error("{} is a symbolic link; a skill holds regular files only", super::displayable_path(.0))]
    Link(PathBuf),
    /// The symbolic link can't be replaced by a copy of its target, for this reason.
    #[error("{} is a symbolic link that cannot be copied: {}", super::displayable_path(.0), .1)]
    NotCopied(PathBuf, BadLink),
    /// The path leads out of the folder to which it is relative, or could do so.
    #[error("{} points out of its folder", super::displayable_path(.0))]
    Outside(PathBuf),
    /// The entry is a FIFO, device or socket.
    #[error(
        "{} is a {what}; a skill holds regular files only",
        super::displayable_path(path)
    )]
    Special {
        /// Path of the entry.
        path: PathBuf,
        /// Kind of the entry, as a noun for the message.
        what: &'static str,
    },
    /// The file is a hard link to a file of another user, which may be private.
    #[error("{} is a hard link to another user's file", super::displayable_path(.0))]
    HardLink(PathBuf),
    /// The file or folder was written to, replaced or removed during the read.
    #[error("{} changed while it was read; try again when nothing writes to it", super::displayable_path(.0))]
    Changed(PathBuf),
    /// The file name is not UTF-8.
    #[error("the file name {0:?} is not UTF-8")]
    Name(PathBuf),
    /// The skill has more files, bytes or levels than it may have.
    #[error("{} exceeds {limit} {unit}", super::displayable_path(path))]
    TooLarge {
        /// File or folder at which the limit was exceeded.
        path: PathBuf,
        /// Limit that was exceeded.
        limit: u64,
        /// Unit of the limit, for the message.
        unit: &'static str,
    },
    /// An entry could not be opened or read, for example without permission.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The content of a skill folder.
#[derive(Debug)]
pub(crate) struct SourceFolder {
    /// The folder's own name; `None` for the root of the file system or a name that is not UTF-8.
    pub(crate) name: Option<String>,
    /// Absolute path, without symbolic links.
    pub(crate) path: PathBuf,
    /// Files, sorted by their paths relative to the folder. The mode says whether the owner may
    /// execute the file.
    pub(crate) files: Vec<RawFile>,
}

/// Reads a skill folder, given by its own path or that of its SKILL.md. Skips entries whose names
/// `ignored` accepts.
pub(crate) fn read_skill_folder(
    path: &Path,
    limits: SourceLimits,
    ignored: &dyn Fn(&str) -> bool,
) -> Result<SourceFolder, SourceError> {
    read_folder(
        path,
        ReadOptions {
            limits,
            ignored,
            passed: None,
        },
    )
    .map(|(folder, _)| folder)
}

/// Like [`read_skill_folder`], for the folder at the relative path `below` in `top`. No symbolic
/// link on the way is followed, so the path can't lead out of `top`. The path of `top` itself must
/// be resolved.
pub(crate) fn read_beneath(
    top: &Path,
    below: &Path,
    limits: SourceLimits,
    ignored: &dyn Fn(&str) -> bool,
) -> Result<SourceFolder, SourceError> {
    let options = ReadOptions {
        limits,
        ignored,
        passed: None,
    };
    read_folder_beneath(top, below, options).map(|(read, _)| read)
}

/// Like [`read_beneath`], but returns the symbolic links below the folder instead of failing.
pub(crate) fn read_beneath_with_links(
    top: &Path,
    below: &Path,
    limits: SourceLimits,
    ignored: &dyn Fn(&str) -> bool,
) -> Result<(SourceFolder, Vec<SkillLink>), SourceError> {
    let options = ReadOptions {
        limits,
        ignored,
        passed: Some(Vec::new()),
    };
    let (folder, faults) = read_folder_beneath(top, below, options)?;
    read_targets(folder, faults)
}

fn read_folder_beneath(
    top: &Path,
    below: &Path,
    options: ReadOptions<'_>,
) -> Result<(SourceFolder, Vec<Fault>), SourceError> {
    let opened = HeldFolder::open(top).and_then(|top| top.descend(below, false));
    let folder = opened.map_err(|error| match error {
        BeneathError::Missing(path) => SourceError::Missing(path),
        BeneathError::NotAFolder(path) => SourceError::Link(path),
        BeneathError::Outside(path) => SourceError::Outside(path),
        BeneathError::File(error) => error.into(),
    })?;
    let path = folder.path().to_owned();
    read_open(&path, &path, &folder.into_fd(), options)
}

/// Like [`read_skill_folder`], but returns the symbolic links below the folder instead of failing.
pub(crate) fn read_with_links(
    path: &Path,
    limits: SourceLimits,
    ignored: &dyn Fn(&str) -> bool,
) -> Result<(SourceFolder, Vec<SkillLink>), SourceError> {
    let (folder, faults) = read_leniently(path, limits, ignored)?;
    read_targets(folder, faults)
}

/// Reads the targets of the skipped symbolic links. Fails if an entry was skipped for another
/// reason.
fn read_targets(
    folder: SourceFolder,
    faults: Vec<Fault>,
) -> Result<(SourceFolder, Vec<SkillLink>), SourceError> {
    let mut links = Vec::new();
    for (path, error) in faults {
        let SourceError::Link(_) = error else {
            return Err(error);
        };
        // The target of a link only selects one of the files that were read above. It is not
        // opened.
        let target = rustix::fs::readlink(folder.path.join(&path), Vec::new())
            .map_err(|cause| FileError::new("read the link", &folder.path.join(&path), cause))?;
        let target = target.to_string_lossy().into_owned();
        links.push(SkillLink { path, target });
    }
    Ok((folder, links))
}

/// Replaces the symbolic links of a folder by copies of the files to which they lead, and returns
/// the paths of the links. Fails if a link does not lead to a file of the folder.
pub(crate) fn replace_links_by_copies(
    (mut folder, links): (SourceFolder, Vec<SkillLink>),
) -> Result<(SourceFolder, Vec<String>), SourceError> {
    copy_links(&mut folder.files, &links)
        .map_err(|(link, bad)| SourceError::NotCopied(link.path.clone().into(), bad))?;
    Ok((folder, links.into_iter().map(|link| link.path).collect()))
}

/// Like [`read_skill_folder`], but skips entries that can't be admitted, and returns them with the
/// reasons. Fails only if the folder itself can't be read. Reading stops when the limit on files or
/// on total bytes is exceeded; SKILL.md is read before the other files of its folder.
pub(crate) fn read_leniently(
    path: &Path,
    limits: SourceLimits,
    ignored: &dyn Fn(&str) -> bool,
) -> Result<(SourceFolder, Vec<Fault>), SourceError> {
    read_folder(
        path,
        ReadOptions {
            limits,
            ignored,
            passed: Some(Vec::new()),
        },
    )
}

/// A skipped entry: its path in the folder, and why it can't be admitted.
pub(crate) type Fault = (String, SourceError);

/// Limit on the number of skipped entries that are reported. Symbolic links do not count, because
/// the caller may follow them, and no number of links may hide another entry. The first entry that
/// could not be read is reported even beyond the limit.
const MAX_REPORTED_FAULTS: usize = 20;

fn read_folder(
    path: &Path,
    options: ReadOptions<'_>,
) -> Result<(SourceFolder, Vec<Fault>), SourceError> {
    // Drop a trailing slash: the check below would follow a link whose path ends with one.
    let path: PathBuf = path.components().collect();
    let folder = match kind_at(&path)? {
        None => return Err(SourceError::Missing(path)),
        Some(Kind::Link) => return Err(SourceError::Link(path)),
        Some(Kind::Dir) => path,
        Some(Kind::File)
            if path
                .file_name()
                .and_then(OsStr::to_str)
                .is_some_and(is_document_name) =>
        {
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            }
        }
        Some(Kind::File | Kind::Other) => return Err(SourceError::NotASkill(path)),
    };
    let fd = match rustix::fs::open(&folder, ENTRY | OFlags::DIRECTORY, Bits::empty()) {
        Ok(fd) => fd,
        // Something else has taken the place of the folder since the check above.
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(SourceError::Link(folder)),
        Err(cause) => return Err(FileError::new("open", &folder, cause).into()),
    };
    let absolute = resolve(&folder)?;
    read_open(&folder, &absolute, &fd, options)
}

struct ReadOptions<'a> {
    limits: SourceLimits,
    /// Returns whether entries of this name are skipped without a report.
    ignored: &'a dyn Fn(&str) -> bool,
    /// List for the entries that can't be admitted; `None` makes the first of them an error.
    passed: Option<Vec<Fault>>,
}

/// Reads an open folder. `folder` is its path for messages; its own name comes from `absolute`.
fn read_open(
    folder: &Path,
    absolute: &Path,
    fd: &OwnedFd,
    options: ReadOptions<'_>,
) -> Result<(SourceFolder, Vec<Fault>), SourceError> {
    let mut reader = SourceReader {
        root: folder,
        left: options.limits.total_bytes,
        options,
        user: effective_user(),
        files: Vec::new(),
        is_full: false,
    };
    reader.visit_folder(fd, "", 0)?;
    let mut files = reader.files;
    let mut passed = reader.options.passed.unwrap_or_default();
    passed.sort_by(|a, b| a.0.cmp(&b.0));
    files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    let folder = SourceFolder {
        // The path as given may end with `.` or `..`, so take the name from the resolved one.
        name: absolute
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned),
        path: absolute.to_owned(),
        files,
    };
    Ok((folder, passed))
}

struct SourceReader<'a> {
    root: &'a Path,
    options: ReadOptions<'a>,
    user: u32,
    /// Bytes that the skill may still have.
    left: u64,
    files: Vec<RawFile>,
    /// Whether a limit was exceeded, so that the rest is not read.
    is_full: bool,
}

impl SourceReader<'_> {
    fn visit_folder(&mut self, fd: &OwnedFd, path: &str, depth: usize) -> Result<(), SourceError> {
        if depth > self.options.limits.depth {
            return Err(SourceError::TooLarge {
                path: path.into(),
                limit: self.options.limits.depth as u64,
                unit: "levels of folders",
            });
        }
        let before = self.stat(fd, path)?;
        for name in self.list_names(fd.as_fd(), path)? {
            if self.is_full {
                return Ok(());
            }
            let Ok(text) = name.to_str() else {
                let shown = Path::new(path).join(name.to_string_lossy().as_ref());
                let child = shown.to_string_lossy().into_owned();
                self.record_fault(child, SourceError::Name(shown))?;
                continue;
            };
            if (self.options.ignored)(text) {
                continue;
            }
            let child = if path.is_empty() {
                text.to_owned()
            } else {
                format!("{path}/{text}")
            };
            if let Err(error) = self.visit_entry(fd.as_fd(), &name, child.clone(), depth) {
                self.record_fault(child, error)?;
            }
        }
        // If entries were added, removed or renamed during the read, the folder's times differ.
        let after = self.stat(fd, path)?;
        if !same_content(&before, &after) {
            return Err(SourceError::Changed(self.shown_path(path)));
        }
        Ok(())
    }

    /// Records a skipped entry and lets the read continue. If skipped entries are not collected,
    /// returns the error instead.
    fn record_fault(&mut self, path: String, error: SourceError) -> Result<(), SourceError> {
        let Some(passed) = &mut self.options.passed else {
            return Err(error);
        };
        self.is_full |= matches!(&error, SourceError::TooLarge { unit, .. } if matches!(*unit, "files" | "bytes in one skill"));
        let unread =
            |error: &SourceError| matches!(error, SourceError::File(_) | SourceError::Changed(_));
        let is_link = |error: &SourceError| matches!(error, SourceError::Link(_));
        let links = passed.iter().filter(|(_, other)| is_link(other)).count();
        // Links do not count for the limit on reported entries, so a folder full of links needs a
        // limit of its own.
        if is_link(&error) && links >= self.options.limits.files {
            let too_many = self.too_many(&path);
            return self.record_fault(path, too_many);
        }
        // The report must show that it is incomplete, even beyond the limit.
        if is_link(&error)
            || passed.len() - links < MAX_REPORTED_FAULTS
            || (unread(&error) && !passed.iter().any(|(_, other)| unread(other)))
        {
            passed.push((path, error));
        }
        Ok(())
    }

    fn list_names(&self, fd: BorrowedFd<'_>, path: &str) -> Result<Vec<CString>, SourceError> {
        let failed =
            |cause| SourceError::from(FileError::new("list", &self.root.join(path), cause));
        let mut names = Vec::new();
        for entry in Dir::read_from(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // Folders and ignored names count here too, so allow for more than the limit on files.
            if names.len() >= self.options.limits.files.saturating_mul(4) {
                return Err(self.too_many(path));
            }
            names.push(name.to_owned());
        }
        // Sort, so that the result does not depend on the order of the listing. SKILL.md comes
        // first.
        names.sort_unstable_by(|a, b| {
            (a.as_bytes() != b"SKILL.md", a).cmp(&(b.as_bytes() != b"SKILL.md", b))
        });
        Ok(names)
    }

    /// Checks one entry, opens it and reads it or the entries in it.
    fn visit_entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        depth: usize,
    ) -> Result<(), SourceError> {
        // Check the kind before the open, because opening a device can have effects.
        let seen = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(seen) => seen,
            Err(Errno::NOENT) => return Err(SourceError::Changed(path.into())),
            Err(cause) => return Err(self.file_fault("look at", &path, cause)),
        };
        let kind = FileType::from_raw_mode(seen.st_mode);
        match kind {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(SourceError::Link(path.into())),
            other => {
                return Err(SourceError::Special {
                    path: path.into(),
                    what: kind_name(other),
                });
            }
        }
        // A hard link could bring a private file of another user into the skill, if this process
        // may read it.
        if kind == FileType::RegularFile && seen.st_nlink > 1 && seen.st_uid != self.user {
            return Err(SourceError::HardLink(path.into()));
        }
        let flags = if kind == FileType::Directory {
            ENTRY | OFlags::DIRECTORY
        } else {
            ENTRY
        };
        let fd = match rustix::fs::openat(parent, name, flags, Bits::empty()) {
            Ok(fd) => fd,
            // It was a regular file or folder when it was checked, so it has been replaced since.
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT | Errno::NXIO) => {
                return Err(SourceError::Changed(path.into()));
            }
            Err(cause) => return Err(self.file_fault("open", &path, cause)),
        };
        let opened = self.stat(&fd, &path)?;
        // Checking and opening are two calls. This comparison shows whether both met the same
        // entry.
        if (opened.st_dev, opened.st_ino, opened.st_mode)
            != (seen.st_dev, seen.st_ino, seen.st_mode)
        {
            return Err(SourceError::Changed(path.into()));
        }
        if kind == FileType::Directory {
            self.visit_folder(&fd, &path, depth + 1)
        } else {
            self.read_file(&fd, &opened, path)
        }
    }

    fn read_file(&mut self, fd: &OwnedFd, opened: &Stat, path: String) -> Result<(), SourceError> {
        if self.files.len() >= self.options.limits.files {
            return Err(self.too_many(&path));
        }
        let size = u64::try_from(opened.st_size).unwrap_or(u64::MAX);
        if size > self.options.limits.file_bytes {
            return Err(SourceError::TooLarge {
                path: path.into(),
                limit: self.options.limits.file_bytes,
                unit: "bytes in one file",
            });
        }
        self.left = self
            .left
            .checked_sub(size)
            .ok_or_else(|| SourceError::TooLarge {
                path: PathBuf::from(&path),
                limit: self.options.limits.total_bytes,
                unit: "bytes in one skill",
            })?;
        let read = read_exactly(fd.as_fd(), size)
            .map_err(|cause| self.file_fault("read", &path, cause))?;
        let after = self.stat(fd, &path)?;
        // Bytes that were written during the read may be half old and half new.
        let Some(bytes) = read.filter(|_| same_content(opened, &after)) else {
            return Err(SourceError::Changed(path.into()));
        };
        self.files.push(RawFile {
            mode: Mode::of_permissions(opened.st_mode),
            path,
            bytes,
        });
        Ok(())
    }

    fn stat(&self, fd: &OwnedFd, path: &str) -> Result<Stat, SourceError> {
        rustix::fs::fstat(fd).map_err(|cause| self.file_fault("look at", path, cause))
    }

    fn file_fault(&self, doing: &'static str, path: &str, cause: Errno) -> SourceError {
        file_error(doing, &self.root.join(path))(cause).into()
    }

    fn too_many(&self, path: &str) -> SourceError {
        SourceError::TooLarge {
            path: self.shown_path(path),
            limit: self.options.limits.files as u64,
            unit: "files",
        }
    }

    fn shown_path(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.to_owned()
        } else {
            path.into()
        }
    }
}

/// Returns whether nothing was written to an entry between two calls of `stat`.
fn same_content(a: &Stat, b: &Stat) -> bool {
    (
        a.st_size,
        a.st_mode,
        a.st_mtime,
        a.st_mtime_nsec,
        a.st_ctime,
        a.st_ctime_nsec,
    ) == (
        b.st_size,
        b.st_mode,
        b.st_mtime,
        b.st_mtime_nsec,
        b.st_ctime,
        b.st_ctime_nsec,
    )
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        _ => "special file",
    }
}

#[cfg(test)]
mod tests;
