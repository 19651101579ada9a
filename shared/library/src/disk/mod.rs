//! Disk access: atomic replacement of files, links, locks, scratch folders and bulk flushes.
//!
//! Functions act on a plain path, or on one that is held below a folder ([`HeldPath`]), like
//! everything below the vault's folder. Unless a function says otherwise, readers see a file whole
//! or not at all, data is flushed before a rename makes it visible, and symbolic links that are
//! found on disk are not followed. The rest of the crate makes no `std::fs` call except to ask
//! whether a path is a file or a folder, so supporting another operating system changes this module
//! only.

pub(crate) mod archive;
mod batch;
pub(crate) mod beneath;
mod links;
pub(crate) mod location;
pub(crate) mod lock;
mod removal;
pub(crate) mod scratch;
pub(crate) mod source;
pub(crate) mod tree;
mod write;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use zeroize::Zeroizing;

pub(crate) use self::batch::Batch;
pub(crate) use self::links::{is_behind_link, is_same_place, reject_link};
pub(crate) use self::location::{HeldPath, Location};
pub(crate) use self::removal::remove_tree;
pub(crate) use self::write::{
    create, free_path, make_executable, make_private, may_write, new_link, overwrite_unflushed,
    remove_empty, remove_file, rename, replace, set_mode, settled_time, supports_links,
    sweep_asides, switch_link, write_unflushed,
};
use self::write::{open_private, write_new};

/// A failed system call: what was tried, the path and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {cause}", displayable_path(path))]
pub struct FileError {
    /// The operation that failed, as a verb for the message: "read", "write".
    pub doing: &'static str,
    /// Path that the call acted on.
    pub path: PathBuf,
    /// Error of the operating system.
    pub cause: io::Error,
}

impl FileError {
    pub(crate) fn new(
        doing: &'static str,
        path: &(impl Location + ?Sized),
        cause: impl Into<io::Error>,
    ) -> Self {
        Self {
            doing,
            path: path.path(),
            cause: cause.into(),
        }
    }
}

/// Returns a path for a message, without control characters. Anybody may choose file names, and one
/// with line breaks must not look like further lines of the message.
pub(crate) fn displayable_path(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().to_string_lossy();
    text.replace(char::is_control, "\u{fffd}")
}

/// The kind of an entry of a folder. A symbolic link counts as a link, whatever its target is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    File,
    Dir,
    Link,
    Other,
}

/// Returns a closure for `map_err` that turns a system error into a [`FileError`].
pub(crate) fn file_error<E: Into<io::Error>>(
    doing: &'static str,
    path: &(impl Location + ?Sized),
) -> impl FnOnce(E) -> FileError {
    move |cause| FileError::new(doing, path, cause)
}

/// Returns a name for a temporary file that no other live process of this machine uses.
pub(crate) fn unique_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

/// Creates a folder and its missing parents with this mode. A folder that exists keeps its mode.
pub(crate) fn make_dirs(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    let make = || -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path.top_folder())?;
        let mut folder = HeldPath::new(path.top_folder());
        // Create each folder below the top through the handle of its parent, because a symbolic
        // link may take the place of any of them.
        for part in path.path_below() {
            folder = folder.join(part);
            match mkdir(&folder, mode) {
                Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
                _ => {}
            }
        }
        // An entry that exists may be no folder. Opening it fails then.
        path.open_folder().map(drop)
    };
    make().map_err(file_error("create folder", path))
}

/// Creates one folder. Fails if it exists.
pub(crate) fn make_dir(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    mkdir(path, mode).map_err(file_error("create folder", path))
}

fn mkdir(path: &(impl Location + ?Sized), mode: u32) -> io::Result<()> {
    let at = path.open_parent()?;
    Ok(rustix::fs::mkdirat(
        at.parent_folder(),
        at.name,
        mode_bits(mode),
    )?)
}

fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as rustix::fs::RawMode)
}

/// Reads a regular file; `None` if it is absent. Fails if it has more than `max` bytes or is
/// anything other than a regular file, for example a symbolic link.
pub(crate) fn read(
    path: &(impl Location + ?Sized),
    max: u64,
) -> Result<Option<Vec<u8>>, FileError> {
    let mut file = match open_regular(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(FileError::new("read", path, cause)),
    };
    let mut bytes = Vec::new();
    // Reading one byte more than allowed shows that a file is too long, without reading all of it.
    (&mut file)
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(file_error("read", path))?;
    if bytes.len() as u64 > max {
        let cause = io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large");
        return Err(FileError::new("read", path, cause));
    }
    Ok(Some(bytes))
}

/// Reads a secret like [`read`], into one buffer that is wiped when it is dropped.
pub(crate) fn read_secret(path: &Path, max: u64) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let mut file = match open_regular(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(FileError::new("read", path, cause)),
    };
    let length = file.metadata().map_err(file_error("read", path))?.len();
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    if length > max || size == usize::MAX {
        let cause = io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large");
        return Err(FileError::new("read", path, cause));
    }
    // A buffer that grows while it is filled would leave copies of the secret on the heap.
    let mut bytes = Zeroizing::new(vec![0; size]);
    file.read_exact(&mut bytes)
        .map_err(file_error("read", path))?;
    Ok(Some(bytes))
}

/// Opens the entry at a path. Fails if it is a symbolic link; a FIFO does not block. If the flags
/// create a file, it gets this mode.
fn open(path: &(impl Location + ?Sized), flags: OFlags, mode: u32) -> io::Result<File> {
    let at = path.open_parent()?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at.parent_folder(), at.name, flags, mode_bits(mode))?.into())
}

/// Opens a regular file for reading; fails for anything else.
fn open_regular(path: &(impl Location + ?Sized)) -> io::Result<File> {
    let file = open(path, OFlags::RDONLY, 0)?;
    // Check the open handle: after a check by path, another entry could take the path's place.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Returns the permission bits (the lower twelve) and the user id of the owner of a path, links not
/// followed; `None` if it is absent.
#[cfg_attr(
    target_os = "linux",
    expect(
        clippy::useless_conversion,
        reason = "the type of the mode differs between systems"
    )
)]
pub(crate) fn mode_and_owner(
    path: &(impl Location + ?Sized),
) -> Result<Option<(u32, u32)>, FileError> {
    match stat(path) {
        Ok(metadata) => Ok(Some((
            u32::from(metadata.st_mode) & 0o7777,
            metadata.st_uid,
        ))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(FileError::new("look at", path, cause)),
    }
}

/// Like [`mode_and_owner`], but for the target if the path is a symbolic link. Fails if it leads to
/// another link.
pub(crate) fn folder_mode_and_owner(path: &Path) -> Result<Option<(u32, u32)>, FileError> {
    let Some(target) = link_target(path)? else {
        return mode_and_owner(path);
    };
    // A relative target starts at the folder of the link. An absolute one replaces the whole path.
    let target = path.parent().unwrap_or(path).join(target);
    if kind_at(&target)? == Some(Kind::Link) {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, "it points to another link");
        return Err(FileError::new("follow", path, cause));
    }
    mode_and_owner(&target)
}

pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the metadata of an entry, links not followed.
fn stat(path: &(impl Location + ?Sized)) -> io::Result<Stat> {
    let at = path.open_parent()?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::statat(at.parent_folder(), at.name, flags)?)
}

/// Returns the kind of entry at a path, links not followed; `None` if it is absent.
pub(crate) fn kind_at(path: &(impl Location + ?Sized)) -> Result<Option<Kind>, FileError> {
    match stat(path) {
        Ok(metadata) => Ok(Some(kind_of(FileType::from_raw_mode(metadata.st_mode)))),
        // If a part of the path is a file and not a folder, nothing is there either.
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(cause) => Err(FileError::new("look at", path, cause)),
    }
}

/// Returns whether the path exists, links followed. Also false if that can't be determined.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

/// Returns whether the path is a folder, links followed. Also false if that can't be determined.
pub(crate) fn is_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn kind_of(found: FileType) -> Kind {
    match found {
        FileType::Symlink => Kind::Link,
        FileType::Directory => Kind::Dir,
        FileType::RegularFile => Kind::File,
        _ => Kind::Other,
    }
}

/// Returns the absolute path of a directory, with every symbolic link resolved.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, FileError> {
    fs::canonicalize(path).map_err(file_error("find", path))
}

/// Returns the entries of a directory with their kinds, in byte order of their names. Empty if the
/// directory is absent.
pub(crate) fn list(path: &(impl Location + ?Sized)) -> Result<Vec<(OsString, Kind)>, FileError> {
    let folder = match path.open_folder() {
        Ok(folder) => folder,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(FileError::new("list", path, cause)),
    };
    let mut sorted = read_entries(folder).map_err(file_error("list", path))?;
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(sorted)
}

fn read_entries(folder: OwnedFd) -> io::Result<Vec<(OsString, Kind)>> {
    let mut entries = Vec::new();
    let mut listing = Dir::new(folder)?;
    while let Some(entry) = listing.read() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        // Some file systems omit the type from a listing.
        if kind == FileType::Unknown {
            let stat = rustix::fs::statat(listing.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind_of(kind)));
    }
    Ok(entries)
}

/// The entries of a folder that [`list_kept`] returns.
#[derive(Debug)]
pub(crate) struct KeptEntries {
    /// Accepted entries with their kinds, in byte order of their names.
    pub(crate) kept: Vec<(OsString, Kind)>,
    /// Whether folders were left out because the limit was reached.
    pub(crate) cut: bool,
}

/// Lists the entries of a folder that `keep` accepts. Once `most` folders are kept, further ones
/// are left out; other entries are not. Fails if the folder can't be listed or is absent.
pub(crate) fn list_kept(
    path: &Path,
    most: usize,
    keep: &dyn Fn(&OsStr, Kind) -> bool,
) -> Result<KeptEntries, FileError> {
    let mut kept = Vec::new();
    let (mut folders, mut cut) = (0, false);
    for entry in fs::read_dir(path).map_err(file_error("list", path))? {
        let entry = entry.map_err(file_error("list", path))?;
        // The entry may have been removed since it was listed.
        let Ok(file_type) = entry.file_type() else {
            continue;
        };
        let kind = if file_type.is_symlink() {
            Kind::Link
        } else if file_type.is_dir() {
            Kind::Dir
        } else if file_type.is_file() {
            Kind::File
        } else {
            Kind::Other
        };
        let name = entry.file_name();
        if !keep(&name, kind) {
            continue;
        }
        // Files do not count towards the limit, because callers search for files.
        if kind == Kind::Dir {
            if folders >= most {
                cut = true;
                continue;
            }
            folders += 1;
        }
        kept.push((name, kind));
    }
    kept.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(KeptEntries { kept, cut })
}

/// Returns the target of a symbolic link; `None` if the path is absent or not a link.
pub(crate) fn link_target(path: &(impl Location + ?Sized)) -> Result<Option<PathBuf>, FileError> {
    let read = || -> io::Result<PathBuf> {
        let at = path.open_parent()?;
        let target = rustix::fs::readlinkat(at.parent_folder(), at.name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    };
    match read() {
        Ok(target) => Ok(Some(target)),
        // `readlink` fails with EINVAL on an entry that is not a link.
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(cause) => Err(FileError::new("read link", path, cause)),
    }
}

/// Flushes a directory, so that its entries survive a power failure.
pub(crate) fn sync_dir(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    path.open_folder()
        .and_then(|folder| File::from(folder).sync_all())
        .map_err(file_error("flush", path))
}
