//! Where the functions of [`super`] act: a plain path, or a path held below a folder.
//!
//! A plain path is one that the caller named, and the system follows the links on its way. A
//! [`HeldPath`] is opened name by name from its folder, through handles and without following
//! links: whoever may write below the folder, at whatever moment, can't lead out of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A path that a function of this module acts on.
pub(crate) trait Location {
    /// The folder that the rest is held below. A plain path holds nothing: it is its own top.
    fn top(&self) -> &Path;

    /// The path below the top; empty for the top itself.
    fn below(&self) -> &Path;

    /// The whole path, for messages and for targets of links.
    fn path(&self) -> PathBuf {
        // Joining an empty path would add a slash.
        if self.below().as_os_str().is_empty() {
            self.top().to_owned()
        } else {
            self.top().join(self.below())
        }
    }

    /// An entry of this folder, held below it.
    fn entry(&self, name: impl AsRef<Path>) -> HeldPath {
        HeldPath {
            top: self.top().to_owned(),
            below: self.below().join(name),
        }
    }

    /// Opens the folder that holds the entry.
    fn at(&self) -> io::Result<At<'_>> {
        let mut parts = self.below().components();
        let Some(last) = parts.next_back() else {
            return Ok(At {
                folder: None,
                name: self.top().as_os_str(),
            });
        };
        let name = plain_name(last)?;
        let mut folder = rustix::fs::open(self.top(), FOLDER, Mode::empty())?;
        for part in parts {
            folder = open_child(&folder, plain_name(part)?)?;
        }
        Ok(At {
            folder: Some(folder),
            name,
        })
    }

    /// Opens the folder that lies here.
    fn open_folder(&self) -> io::Result<OwnedFd> {
        let at = self.at()?;
        match at.folder {
            Some(folder) => open_child(&folder, at.name),
            None => Ok(rustix::fs::open(at.name, FOLDER, Mode::empty())?),
        }
    }
}

impl Location for Path {
    fn top(&self) -> &Path {
        self
    }

    fn below(&self) -> &Path {
        Path::new("")
    }
}

impl Location for PathBuf {
    fn top(&self) -> &Path {
        self
    }

    fn below(&self) -> &Path {
        Path::new("")
    }
}

/// A path below a folder, which no symbolic link below the folder leads astray. It deliberately
/// is no [`Path`]: what takes one would follow links.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HeldPath {
    top: PathBuf,
    below: PathBuf,
}

impl HeldPath {
    /// The folder itself. It may lie behind symbolic links.
    pub(crate) fn new(top: impl Into<PathBuf>) -> Self {
        Self {
            top: top.into(),
            below: PathBuf::new(),
        }
    }

    /// A path below this one. What points out of the folder can't be opened.
    pub(crate) fn join(&self, below: impl AsRef<Path>) -> Self {
        self.entry(below)
    }

    /// The folder that holds this path; `None` for the top.
    pub(crate) fn parent(&self) -> Option<Self> {
        Some(Self {
            top: self.top.clone(),
            below: self.below.parent()?.to_owned(),
        })
    }
}

impl Location for HeldPath {
    fn top(&self) -> &Path {
        &self.top
    }

    fn below(&self) -> &Path {
        &self.below
    }
}

/// An entry by its name in an open folder.
#[derive(Debug)]
pub(crate) struct At<'a> {
    folder: Option<OwnedFd>,
    /// The name in the folder; a whole path if no folder is held.
    pub(super) name: &'a OsStr,
}

impl At<'_> {
    /// The open folder.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, OwnedFd::as_fd)
    }
}

/// How folders are opened.
pub(super) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a folder in another one without following a link.
fn open_child(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|cause| {
        // Depending on the system, a link in place of a folder is one of these.
        let may_be_link = matches!(cause, Errno::LOOP | Errno::NOTDIR | Errno::MLINK);
        if may_be_link && is_link(folder, name) {
            let name = name.to_string_lossy();
            return io::Error::other(format!("{name} is a link, and must be a real folder"));
        }
        cause.into()
    })
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn plain_name(part: Component<'_>) -> io::Result<&OsStr> {
    match part {
        Component::Normal(name) => Ok(name),
        _ => Err(io::Error::other("it points out of its folder")),
    }
}
