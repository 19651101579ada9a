//! Disk access: atomic replacement of files, links, locks, scratch folders and bulk flushes.
//!
//! Readers see a file whole or not at all. Data is flushed before a rename makes it visible.
//! Symbolic links that are found on disk are not followed, unless the function's description says
//! so. The rest of the crate makes no `std::fs` call, so supporting another operating system
//! changes this module only.

mod batch;
pub(crate) mod beneath;
mod links;
pub(crate) mod lock;
mod removal;
pub(crate) mod scratch;
pub(crate) mod source;
pub(crate) mod tree;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

pub(crate) use self::batch::Batch;
pub(crate) use self::links::{is_behind_link, is_same_place, reject_link};
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
    pub(crate) fn new(doing: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self {
            doing,
            path: path.to_owned(),
            cause: cause.into(),
        }
    }
}

/// A path for a message. Whoever puts a file somewhere chooses its name, which must not look like
/// further lines of the message.
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
    path: &Path,
) -> impl FnOnce(E) -> FileError {
    move |cause| FileError::new(doing, path, cause)
}

/// A name for a temporary file, unique among live processes.
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
pub(crate) fn make_dirs(path: &Path, mode: u32) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(file_error("create folder", path))
}

/// Creates one directory; fails if it exists.
pub(crate) fn make_dir(path: &Path, mode: u32) -> Result<(), FileError> {
    DirBuilder::new()
        .mode(mode)
        .create(path)
        .map_err(file_error("create folder", path))
}

/// Reads a regular file; `None` if it is absent. Fails if it has more than `max` bytes or is
/// anything other than a regular file, for example a symbolic link.
pub(crate) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>, FileError> {
    let mut file = match open_regular(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(FileError::new("read", path, cause)),
    };
    let mut bytes = Vec::new();
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

fn open_regular(path: &Path) -> io::Result<File> {
    // NOFOLLOW rejects a symbolic link; NONBLOCK keeps a FIFO from blocking the open.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// The permission bits (lower twelve) and the owner's user id of a path, links not followed; `None`
/// if it is absent.
pub(crate) fn mode_and_owner(path: &Path) -> Result<Option<(u32, u32)>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some((found.mode() & 0o7777, found.uid()))),
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
    let target = path.parent().unwrap_or(path).join(target);
    if kind(&target)? == Some(Kind::Link) {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, "it points to another link");
        return Err(FileError::new("follow", path, cause));
    }
    mode_and_owner(&target)
}

/// The effective user id of this process.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The kind of entry at a path, links not followed; `None` if it is absent.
pub(crate) fn kind(path: &Path) -> Result<Option<Kind>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(kind_of(found.file_type()))),
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

fn kind_of(found: fs::FileType) -> Kind {
    if found.is_symlink() {
        Kind::Link
    } else if found.is_dir() {
        Kind::Dir
    } else if found.is_file() {
        Kind::File
    } else {
        Kind::Other
    }
}

/// The absolute path of a directory, with every symbolic link resolved.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, FileError> {
    fs::canonicalize(path).map_err(file_error("find", path))
}

/// The entries of a directory with their kinds, in byte order of their names. Empty if the
/// directory is absent.
pub(crate) fn list(path: &Path) -> Result<Vec<(OsString, Kind)>, FileError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(FileError::new("list", path, cause)),
    };
    let named = entries.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name(), kind_of(entry.file_type()?)))
    });
    let mut found: Vec<_> = named
        .collect::<io::Result<_>>()
        .map_err(file_error("list", path))?;
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
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
        let Ok(kind) = entry.file_type().map(kind_of) else {
            continue;
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

/// The target of a symbolic link; `None` if the path is absent or not a link.
pub(crate) fn link_target(path: &Path) -> Result<Option<PathBuf>, FileError> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
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
pub(crate) fn sync_dir(path: &Path) -> Result<(), FileError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(file_error("flush", path))
}

/// A time by the file system's own clock, slightly in the past, as seconds and nanoseconds. If a
/// file was last changed before it, any further change gives the file a different timestamp.
pub(crate) fn settled_time(folder: &Path) -> Result<(i64, u64), FileError> {
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
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32, aside: &Path) -> Result<(), FileError> {
    let temporary = write_aside(bytes, mode, aside)?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))?;
    sync_parent(path)
}

/// Creates a file atomically: writes a temporary file in `aside`, flushes it and hard-links it to
/// `path`. Returns false and changes nothing if `path` exists.
pub(crate) fn create(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    aside: &Path,
) -> Result<bool, FileError> {
    let temporary = write_aside(bytes, mode, aside)?;
    // A hard link fails if the name exists; a rename would overwrite it.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary).map_err(file_error("remove", &temporary))?;
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(FileError::new("create", path, cause)),
    }
}

/// Writes and flushes a temporary file in `aside`; returns its path.
fn write_aside(bytes: &[u8], mode: u32, aside: &Path) -> Result<PathBuf, FileError> {
    let path = aside.join(format!(".new-{}", unique_name()));
    // A leftover of a dead process with the same process id would make `create_new` fail every
    // time.
    let _absent = fs::remove_file(&path);
    let written = write_new(&path, bytes, mode).and_then(|file| file.sync_all());
    if let Err(cause) = written {
        let _best_effort = fs::remove_file(&path);
        return Err(FileError::new("write", &path, cause));
    }
    Ok(path)
}

/// Creates a file with exactly this mode, whatever the umask. Does not flush it.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    // Until the content is complete, only the owner has access.
    if mode != 0o600 {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    Ok(file)
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    match path.parent() {
        None => sync_dir(Path::new("/")),
        // A bare file name is relative to the current folder.
        Some(parent) if parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) => sync_dir(parent),
    }
}

/// Makes an empty file that only its owner may read and write, unless there is a file; one that
/// others may read is closed to them. Flushes nothing. Fails if anything but a regular file lies
/// there.
pub(crate) fn make_private(path: &Path) -> Result<(), FileError> {
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
fn open_private(path: &Path) -> io::Result<File> {
    // Behind a link another file would be made and written to. A FIFO would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
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
pub(crate) fn overwrite_unflushed(path: &Path, text: &str) -> Result<(), FileError> {
    let write = || -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)?;
        std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0)
    };
    write().map_err(file_error("write", path))
}

/// Writes a small text file, replacing an earlier one. It is not flushed: it survives a killed
/// process, but maybe not a power failure.
pub(crate) fn write_unflushed(path: &Path, text: &str) -> Result<(), FileError> {
    let _absent = fs::remove_file(path);
    write_new(path, text.as_bytes(), 0o600)
        .map(|_| ())
        .map_err(file_error("write", path))
}

/// Points a symbolic link at a target atomically, whether or not the link exists. Does not flush
/// the folder; [`sync_dir`] does.
pub(crate) fn switch_link(link: &Path, target: &Path, aside: &Path) -> Result<(), FileError> {
    let temporary = aside.join(format!(".vault-aside-link-{}", unique_name()));
    let _absent = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(target, &temporary).map_err(file_error("link", &temporary))?;
    fs::rename(&temporary, link).map_err(|cause| {
        let _best_effort = fs::remove_file(&temporary);
        FileError::new("switch", link, cause)
    })
}

/// Creates a symbolic link; fails if the name exists.
pub(crate) fn new_link(link: &Path, target: &Path) -> Result<(), FileError> {
    std::os::unix::fs::symlink(target, link).map_err(file_error("link", link))
}

/// A path in a folder that does not exist yet: `<name>`, or the first free `<name>-<number>`.
pub(crate) fn free_path(folder: &Path, name: &str) -> Result<PathBuf, FileError> {
    let mut path = folder.join(name);
    let mut number = 1;
    while kind(&path)?.is_some() {
        path = folder.join(format!("{name}-{number}"));
        number += 1;
    }
    Ok(path)
}

/// Moves a file or folder within one file system.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(file_error("move", from))
}

/// Removes a file or link; returns whether it existed.
pub(crate) fn remove_file(path: &Path) -> Result<bool, FileError> {
    match fs::remove_file(path) {
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
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

/// Sets the permission bits of a file or folder. The path must not be a link.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(file_error("set the mode of", path))
}

/// Makes a regular file executable for everybody who may read it.
pub(crate) fn make_executable(path: &Path) -> Result<(), FileError> {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path);
    let set = open.and_then(|file| {
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
pub(crate) fn remove_empty(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir(path) {
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
    let path = folder.join(format!(".vault-aside-link-{}", unique_name()));
    match std::os::unix::fs::symlink(".", &path) {
        Ok(()) => {
            let _best_effort = fs::remove_file(&path);
            true
        }
        Err(cause) => !matches!(
            rustix::io::Errno::from_io_error(&cause),
            Some(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS)
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
