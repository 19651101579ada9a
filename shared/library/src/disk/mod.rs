//! Disk access: atomic replacement of files, links, locks, scratch folders and bulk flushes.
//!
//! Functions act on a plain path, or on one that is held below a folder ([`HeldPath`]), like
//! everything below the vault's folder. Readers see a file whole or not at all. Data is flushed
//! before a rename makes it visible. Symbolic links that are found on disk are not followed, unless
//! the function's description says so. The rest of the crate makes no `std::fs` call, so supporting
//! another operating system changes this module only.

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

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use zeroize::Zeroizing;

pub(crate) use self::batch::Batch;
pub(crate) use self::links::{is_behind_link, is_same_place, reject_link};
pub(crate) use self::location::{HeldPath, Location};
pub(crate) use self::removal::remove_tree;

/// A failed system call: the operation, the path and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {cause}", shown(path))]
pub struct FileError {
    /// The operation, as a verb: "read", "write".
    pub doing: &'static str,
    /// The path that it acted on.
    pub path: PathBuf,
    /// The error of the operating system.
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

/// Returns a path for a message. File names may come from anybody, and one with line breaks must
/// not look like further lines of the message.
pub(crate) fn shown(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().to_string_lossy();
    text.replace(char::is_control, "\u{fffd}")
}

/// The kind of a directory entry. A symbolic link counts as a link, not as its target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    File,
    Dir,
    Link,
    Other,
}

/// Makes a closure for `map_err` that turns a system error into a [`FileError`].
pub(crate) fn file_error<E: Into<io::Error>>(
    doing: &'static str,
    path: &(impl Location + ?Sized),
) -> impl FnOnce(E) -> FileError {
    move |cause| FileError::new(doing, path, cause)
}

/// Returns a name for a temporary file, unique among live processes.
pub(crate) fn unique_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

/// Creates a directory and its missing parents with this mode. An existing directory keeps its
/// mode.
pub(crate) fn make_dirs(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    let make = || -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path.top())?;
        let mut folder = HeldPath::new(path.top());
        // Below the top each folder is made through the handle of its parent, because a symbolic
        // link may take the place of any of them.
        for part in path.below() {
            folder = folder.join(part);
            match mkdir(&folder, mode) {
                Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
                _ => {}
            }
        }
        // What lies there may be no folder.
        path.open_folder().map(drop)
    };
    make().map_err(file_error("create folder", path))
}

/// Creates one directory; fails if it exists.
pub(crate) fn make_dir(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    mkdir(path, mode).map_err(file_error("create folder", path))
}

fn mkdir(path: &(impl Location + ?Sized), mode: u32) -> io::Result<()> {
    let at = path.at()?;
    Ok(rustix::fs::mkdirat(at.folder(), at.name, bits(mode))?)
}

/// Permission bits for a system call.
fn bits(mode: u32) -> Mode {
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
    // One byte more than allowed shows that the file is too long, without reading all of it.
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

/// Opens an entry itself, never what a link leads to. A FIFO does not block. A file that the flags
/// create has this mode.
fn open(path: &(impl Location + ?Sized), flags: OFlags, mode: u32) -> io::Result<File> {
    let at = path.at()?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at.folder(), at.name, flags, bits(mode))?.into())
}

fn open_regular(path: &(impl Location + ?Sized)) -> io::Result<File> {
    let file = open(path, OFlags::RDONLY, 0)?;
    // Checked on the open handle, because the entry may be exchanged after a check by its path.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Returns the permission bits (lower twelve) and the owner's user id of a path, links not
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
        Ok(found) => Ok(Some((u32::from(found.st_mode) & 0o7777, found.st_uid))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(FileError::new("look at", path, cause)),
    }
}

/// Like [`mode_and_owner`], of the folder that a symbolic link leads to. Fails if it leads to
/// another link.
pub(crate) fn folder_mode_and_owner(path: &Path) -> Result<Option<(u32, u32)>, FileError> {
    let Some(target) = link_target(path)? else {
        return mode_and_owner(path);
    };
    // A relative target starts at the folder of the link. An absolute one replaces the whole path.
    let target = path.parent().unwrap_or(path).join(target);
    if kind(&target)? == Some(Kind::Link) {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, "it points to another link");
        return Err(FileError::new("follow", path, cause));
    }
    mode_and_owner(&target)
}

/// Returns the effective user id of this process.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the metadata of an entry, links not followed.
fn stat(path: &(impl Location + ?Sized)) -> io::Result<Stat> {
    let at = path.at()?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::statat(at.folder(), at.name, flags)?)
}

/// Returns the kind of entry at a path, links not followed; `None` if it is absent.
pub(crate) fn kind(path: &(impl Location + ?Sized)) -> Result<Option<Kind>, FileError> {
    match stat(path) {
        Ok(found) => Ok(Some(kind_of(FileType::from_raw_mode(found.st_mode)))),
        // A file in place of a folder on the way also means that nothing is there.
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

/// Whether the path exists, links followed. Also false if that can't be determined.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

/// Whether the path is a folder, links followed. Also false if that can't be determined.
pub(crate) fn is_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_dir())
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
    let mut found = entries(folder).map_err(file_error("list", path))?;
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn entries(folder: OwnedFd) -> io::Result<Vec<(OsString, Kind)>> {
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

/// The entries that [`list_kept`] selected.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The entries with their kinds, in byte order of their names.
    pub(crate) kept: Vec<(OsString, Kind)>,
    /// Whether folders were left out because the limit was reached.
    pub(crate) cut: bool,
}

/// Lists the entries of a directory that `keep` accepts. Once `most` entries are kept, further
/// folders are left out, further files are not. Fails if the directory can't be listed or is
/// absent.
pub(crate) fn list_kept(
    path: &Path,
    most: usize,
    keep: &dyn Fn(&OsStr, Kind) -> bool,
) -> Result<Listed, FileError> {
    let mut kept = Vec::new();
    let mut cut = false;
    for entry in fs::read_dir(path).map_err(file_error("list", path))? {
        let entry = entry.map_err(file_error("list", path))?;
        // The entry may have been removed since it was listed.
        let Ok(found) = entry.file_type() else {
            continue;
        };
        let kind = if found.is_symlink() {
            Kind::Link
        } else if found.is_dir() {
            Kind::Dir
        } else if found.is_file() {
            Kind::File
        } else {
            Kind::Other
        };
        let name = entry.file_name();
        if !keep(&name, kind) {
            continue;
        }
        // Files are exempt from the limit: the callers search for files.
        if kind == Kind::Dir && kept.len() >= most {
            cut = true;
            continue;
        }
        kept.push((name, kind));
    }
    kept.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(Listed { kept, cut })
}

/// Returns the target of a symbolic link; `None` if the path is absent or not a link.
pub(crate) fn link_target(path: &(impl Location + ?Sized)) -> Result<Option<PathBuf>, FileError> {
    let read = || -> io::Result<PathBuf> {
        let at = path.at()?;
        let target = rustix::fs::readlinkat(at.folder(), at.name, Vec::new())?;
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

/// Returns a time by the file system's own clock, slightly in the past, as seconds and nanoseconds.
/// If a file was last changed before it, any further change gives the file a different timestamp.
pub(crate) fn settled_time(folder: &HeldPath) -> Result<(i64, u64), FileError> {
    // A new file shows the file system's current time, which may differ from the system clock.
    let path = folder.join(unique_name());
    let found = write_new(&path, b"", 0o600)
        .and_then(|file| file.metadata())
        .map_err(file_error("write", &path))?;
    remove_file(&path)?;
    let nanoseconds = u64::try_from(found.ctime_nsec()).unwrap_or(0);
    // On most file systems timestamps advance every few milliseconds. Some store whole seconds only
    // and advance every second or two.
    let margin = if nanoseconds == 0 {
        2_000_000_000
    } else {
        50_000_000
    };
    let now = u128::try_from(found.ctime()).unwrap_or(0) * 1_000_000_000 + u128::from(nanoseconds);
    let settled = now.saturating_sub(margin);
    Ok((
        i64::try_from(settled / 1_000_000_000).unwrap_or(0),
        u64::try_from(settled % 1_000_000_000).unwrap_or(0),
    ))
}

/// Replaces a file atomically: writes a temporary file in `aside` (on the same file system),
/// flushes it, renames it and flushes the folder.
pub(crate) fn replace(
    path: &(impl Location + ?Sized),
    bytes: &[u8],
    mode: u32,
    aside: &(impl Location + ?Sized),
) -> Result<(), FileError> {
    let temporary = write_aside(bytes, mode, aside)?;
    move_entry(&temporary, path).map_err(file_error("replace", path))?;
    sync_parent(path)
}

/// Creates a file atomically: writes a temporary file in `aside`, flushes it and hard-links it to
/// `path`. Returns false and changes nothing if `path` exists.
pub(crate) fn create(
    path: &(impl Location + ?Sized),
    bytes: &[u8],
    mode: u32,
    aside: &(impl Location + ?Sized),
) -> Result<bool, FileError> {
    let temporary = write_aside(bytes, mode, aside)?;
    let link = || -> io::Result<()> {
        let (from, to) = (temporary.at()?, path.at()?);
        let flags = AtFlags::empty();
        // A hard link fails if the name exists; a rename would overwrite it.
        rustix::fs::linkat(from.folder(), from.name, to.folder(), to.name, flags)?;
        Ok(())
    };
    let linked = link();
    // If the link was made, the file lives on under `path`.
    remove_file(&temporary)?;
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(FileError::new("create", path, cause)),
    }
}

/// Writes and flushes a temporary file in `aside`; returns its path.
fn write_aside(
    bytes: &[u8],
    mode: u32,
    aside: &(impl Location + ?Sized),
) -> Result<HeldPath, FileError> {
    let path = aside.entry(format!(".new-{}", unique_name()));
    // A leftover of a dead process with the same process id would make the creation fail every
    // time.
    let _absent = unlink(&path, AtFlags::empty());
    let written = write_new(&path, bytes, mode).and_then(|file| file.sync_all());
    if let Err(cause) = written {
        let _best_effort = unlink(&path, AtFlags::empty());
        return Err(FileError::new("write", &path, cause));
    }
    Ok(path)
}

/// Creates a file with exactly this mode, whatever the umask. Does not flush it.
fn write_new(path: &(impl Location + ?Sized), bytes: &[u8], mode: u32) -> io::Result<File> {
    // EXCL, so that nothing is ever written into a file that another process put there.
    let mut file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600)?;
    file.write_all(bytes)?;
    // Until the content is complete, only the owner has access.
    if mode != 0o600 {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    Ok(file)
}

fn move_entry(from: &(impl Location + ?Sized), to: &(impl Location + ?Sized)) -> io::Result<()> {
    let (from, to) = (from.at()?, to.at()?);
    rustix::fs::renameat(from.folder(), from.name, to.folder(), to.name)?;
    Ok(())
}

fn unlink(path: &(impl Location + ?Sized), flags: AtFlags) -> io::Result<()> {
    let at = path.at()?;
    Ok(rustix::fs::unlinkat(at.folder(), at.name, flags)?)
}

fn sync_parent(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    if let Some(parent) = path.below().parent() {
        return sync_dir(&HeldPath::new(path.top()).join(parent));
    }
    match path.top().parent() {
        None => sync_dir(Path::new("/")),
        // A bare file name is relative to the current folder.
        Some(parent) if parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) => sync_dir(parent),
    }
}

/// Makes sure that there is a file which only its owner may read and write: creates an empty one,
/// or takes the permissions of others from an existing one. Flushes nothing. Fails if anything but
/// a regular file lies there.
pub(crate) fn make_private(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    let make = || -> io::Result<()> {
        let file = open_private(path)?;
        if file.metadata()?.mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    };
    make().map_err(file_error("make private", path))
}

/// Opens a file to read and write it, or makes an empty one that only its owner may read and write.
/// Fails if anything but a regular file lies there.
fn open_private(path: &(impl Location + ?Sized)) -> io::Result<File> {
    let file = open(path, OFlags::RDWR | OFlags::CREATE, 0o600)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a regular file",
    ))
}

/// Overwrites the start of a file with a short text, in one call. The text is not flushed, so its
/// loss must be harmless. Fails if a symbolic link lies there.
pub(crate) fn overwrite_unflushed(
    path: &(impl Location + ?Sized),
    text: &str,
) -> Result<(), FileError> {
    let write = || -> io::Result<()> {
        let file = open(path, OFlags::WRONLY | OFlags::CREATE, 0o666)?;
        std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0)
    };
    write().map_err(file_error("write", path))
}

/// Writes a small text file, replacing an earlier one. It is not flushed: it survives a killed
/// process, but maybe not a power failure.
pub(crate) fn write_unflushed(
    path: &(impl Location + ?Sized),
    text: &str,
) -> Result<(), FileError> {
    // `write_new` fails if the name is taken.
    let _absent = unlink(path, AtFlags::empty());
    write_new(path, text.as_bytes(), 0o600)
        .map(|_| ())
        .map_err(file_error("write", path))
}

/// Points a symbolic link at a target atomically, whether or not the link exists. Does not flush
/// the folder; [`sync_dir`] does.
pub(crate) fn switch_link(
    link: &(impl Location + ?Sized),
    target: &Path,
    aside: &(impl Location + ?Sized),
) -> Result<(), FileError> {
    // A sync recognises a leftover in an agent's folder by the start of this name.
    let temporary = aside.entry(format!(".vault-aside-link-{}", unique_name()));
    let _absent = unlink(&temporary, AtFlags::empty());
    new_link(&temporary, target)?;
    move_entry(&temporary, link).map_err(|cause| {
        let _best_effort = unlink(&temporary, AtFlags::empty());
        FileError::new("switch", link, cause)
    })
}

/// Creates a symbolic link; fails if the name exists.
pub(crate) fn new_link(link: &(impl Location + ?Sized), target: &Path) -> Result<(), FileError> {
    symlink(link, target).map_err(file_error("link", link))
}

fn symlink(link: &(impl Location + ?Sized), target: &Path) -> io::Result<()> {
    let at = link.at()?;
    Ok(rustix::fs::symlinkat(target, at.folder(), at.name)?)
}

/// Returns a path in a folder that does not exist yet: `<name>`, or the first free
/// `<name>-<number>`.
pub(crate) fn free_path(
    folder: &(impl Location + ?Sized),
    name: &str,
) -> Result<HeldPath, FileError> {
    let mut path = folder.entry(name);
    let mut number = 1;
    while kind(&path)?.is_some() {
        path = folder.entry(format!("{name}-{number}"));
        number += 1;
    }
    Ok(path)
}

/// Moves a file or folder within one file system.
pub(crate) fn rename(
    from: &(impl Location + ?Sized),
    to: &(impl Location + ?Sized),
) -> Result<(), FileError> {
    move_entry(from, to).map_err(file_error("move", from))
}

/// Removes a file or link; returns whether it existed.
pub(crate) fn remove_file(path: &(impl Location + ?Sized)) -> Result<bool, FileError> {
    match unlink(path, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(FileError::new("remove", path, cause)),
    }
}

/// Removes the temporary files that dead processes left behind in [`replace`] and [`create`]. Those
/// of live processes stay: several vaults may share one key folder, each with its own lock.
pub(crate) fn sweep_asides(folder: &Path) -> Result<(), FileError> {
    for (name, kind) in list(folder)? {
        let writer = name
            .to_str()
            .and_then(|name| name.strip_prefix(".new-"))
            .and_then(|rest| rest.split_once('-')?.0.parse::<i32>().ok());
        if let Some(writer) = writer
            && kind != Kind::Dir
            && !is_alive(writer)
        {
            remove_file(&folder.join(&name))?;
        }
    }
    Ok(())
}

/// Whether a process with this id exists, whichever user it belongs to.
fn is_alive(process: i32) -> bool {
    rustix::process::Pid::from_raw(process).is_some_and(|process| {
        // A live process of another user gives EPERM. Only ESRCH means that there is none.
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

/// Sets the permission bits of a folder that its owner may read.
pub(crate) fn set_mode(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    path.open_folder()
        .and_then(|folder| Ok(rustix::fs::fchmod(&folder, bits(mode))?))
        .map_err(file_error("set the mode of", path))
}

/// Makes a regular file executable for everybody who may read it.
pub(crate) fn make_executable(path: &Path) -> Result<(), FileError> {
    let set = open(path, OFlags::RDONLY, 0).and_then(|file| {
        let mode = file.metadata()?.permissions().mode();
        file.set_permissions(fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))
    });
    set.map_err(file_error("set the mode of", path))
}

/// Whether this process may write to a folder.
pub(crate) fn may_write(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Removes a folder if it exists and is empty.
pub(crate) fn remove_empty(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    // `rmdir` itself fails on a folder with content, so no file that appears now can be lost.
    match unlink(path, AtFlags::REMOVEDIR) {
        Err(cause)
            if !matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Err(FileError::new("remove", path, cause))
        }
        _ => Ok(()),
    }
}

/// Whether symbolic links can be created in a folder. False only if the file system reports that it
/// does not support them; any other error counts as true.
pub(crate) fn supports_links(folder: &Path) -> bool {
    let path = folder.entry(format!(".vault-aside-link-{}", unique_name()));
    match symlink(&path, Path::new(".")) {
        Ok(()) => {
            let _best_effort = unlink(&path, AtFlags::empty());
            true
        }
        Err(cause) => !matches!(
            Errno::from_io_error(&cause),
            Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_writers_left_goes_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let dead = ended.id();
        ended.wait().unwrap();
        let ours = std::process::id();
        for (name, stays) in [
            (format!(".new-{dead}-0"), false),
            (format!(".new-{ours}-0"), true),
            (".new-x-0".to_owned(), true),
            ("a-key".to_owned(), true),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, "x").unwrap();
            sweep_asides(folder.path()).unwrap();
            assert_eq!(path.exists(), stays, "{}", path.display());
        }
    }
}
