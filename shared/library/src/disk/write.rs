//! Changes of files and links: atomic replacement, creation, renames, removal, and modes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::{
    FileError, HeldPath, Kind, Location, file_error, kind_at, list, mode_bits, open, sync_dir,
    unique_name,
};

/// Returns a time of the file system's own clock that lies slightly in the past, as seconds and
/// nanoseconds. If a file was last changed before this time, any later change gives the file
/// another timestamp, so its timestamps reveal the change.
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

/// Replaces a file atomically: writes a temporary file in the folder `aside`, which must be on the
/// same file system, flushes it, renames it and flushes the folder.
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

/// Creates a file atomically: writes a temporary file in the folder `aside`, flushes it and
/// hard-links it to `path`. Returns false and changes nothing if `path` exists.
pub(crate) fn create(
    path: &(impl Location + ?Sized),
    bytes: &[u8],
    mode: u32,
    aside: &(impl Location + ?Sized),
) -> Result<bool, FileError> {
    let temporary = write_aside(bytes, mode, aside)?;
    let link = || -> io::Result<()> {
        let (from, to) = (temporary.open_parent()?, path.open_parent()?);
        let flags = AtFlags::empty();
        // A hard link fails if the name exists; a rename would overwrite it.
        rustix::fs::linkat(
            from.parent_folder(),
            from.name,
            to.parent_folder(),
            to.name,
            flags,
        )?;
        Ok(())
    };
    let linked = link();
    // If the link was made, the content stays under `path`.
    remove_file(&temporary)?;
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(FileError::new("create", path, cause)),
    }
}

/// Writes and flushes a temporary file in `aside`. Returns its path.
fn write_aside(
    bytes: &[u8],
    mode: u32,
    aside: &(impl Location + ?Sized),
) -> Result<HeldPath, FileError> {
    let path = aside.held_entry(format!(".new-{}", unique_name()));
    // A dead process with the same process id may have left a file of this name, which would make
    // every attempt to create it fail.
    let _absent = unlink(&path, AtFlags::empty());
    let written = write_new(&path, bytes, mode).and_then(|file| file.sync_all());
    if let Err(cause) = written {
        let _best_effort = unlink(&path, AtFlags::empty());
        return Err(FileError::new("write", &path, cause));
    }
    Ok(path)
}

/// Creates a file with exactly this mode, whatever the umask. Does not flush it.
pub(super) fn write_new(
    path: &(impl Location + ?Sized),
    bytes: &[u8],
    mode: u32,
) -> io::Result<File> {
    // EXCL: never write into a file that another process put there.
    let mut file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600)?;
    file.write_all(bytes)?;
    // Until the content is complete, only the owner has access.
    if mode != 0o600 {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    Ok(file)
}

fn move_entry(from: &(impl Location + ?Sized), to: &(impl Location + ?Sized)) -> io::Result<()> {
    let (from, to) = (from.open_parent()?, to.open_parent()?);
    rustix::fs::renameat(from.parent_folder(), from.name, to.parent_folder(), to.name)?;
    Ok(())
}

fn unlink(path: &(impl Location + ?Sized), flags: AtFlags) -> io::Result<()> {
    let at = path.open_parent()?;
    Ok(rustix::fs::unlinkat(at.parent_folder(), at.name, flags)?)
}

/// Flushes the folder that contains a path, so that a rename or creation there is durable.
fn sync_parent(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    if let Some(parent) = path.path_below().parent() {
        return sync_dir(&HeldPath::new(path.top_folder()).join(parent));
    }
    match path.top_folder().parent() {
        None => sync_dir(Path::new("/")),
        // A bare file name is relative to the current folder.
        Some(parent) if parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) => sync_dir(parent),
    }
}

/// Makes a file private: creates an empty one that only its owner may read and write, or removes
/// the permissions of others from an existing one. Flushes nothing. Fails if the path is anything
/// but a regular file.
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

/// Opens a file for reading and writing, or creates an empty one that only its owner may access.
/// Fails if the path is anything but a regular file.
pub(super) fn open_private(path: &(impl Location + ?Sized)) -> io::Result<File> {
    let file = open(path, OFlags::RDWR | OFlags::CREATE, 0o600)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a regular file",
    ))
}

/// Overwrites the start of a file with a short text, in one call, so that readers never see an
/// empty file. The text is not flushed, so its loss must be harmless. Fails if the path is a
/// symbolic link.
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

/// Writes a small text file, or replaces an earlier one. It is not flushed: it survives a killed
/// process, but perhaps not a power failure.
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

/// Creates or replaces a symbolic link atomically. Does not flush the folder, which the caller does
/// with [`sync_dir`].
pub(crate) fn switch_link(
    link: &(impl Location + ?Sized),
    target: &Path,
    aside: &(impl Location + ?Sized),
) -> Result<(), FileError> {
    // Syncs recognise leftovers in an agent's folder by this start of their names.
    let temporary = aside.held_entry(format!(".vault-aside-link-{}", unique_name()));
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
    let at = link.open_parent()?;
    Ok(rustix::fs::symlinkat(target, at.parent_folder(), at.name)?)
}

/// Returns a path in a folder that does not exist yet: `<name>`, or the first free
/// `<name>-<number>`.
pub(crate) fn free_path(
    folder: &(impl Location + ?Sized),
    name: &str,
) -> Result<HeldPath, FileError> {
    let mut path = folder.held_entry(name);
    let mut number = 1;
    while kind_at(&path)?.is_some() {
        path = folder.held_entry(format!("{name}-{number}"));
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

/// Removes the temporary files that killed processes left behind in [`replace`] and [`create`].
/// Temporary files of live processes stay, because several vaults may share one key folder, each
/// with its own lock.
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

/// Returns whether a process with this id exists, whichever user it belongs to.
fn is_alive(process: i32) -> bool {
    rustix::process::Pid::from_raw(process).is_some_and(|process| {
        // A live process of another user gives EPERM. Only ESRCH means that there is none.
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

/// Sets the permission bits of a folder that its owner may read.
pub(crate) fn set_mode(path: &(impl Location + ?Sized), mode: u32) -> Result<(), FileError> {
    path.open_folder()
        .and_then(|folder| Ok(rustix::fs::fchmod(&folder, mode_bits(mode))?))
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

pub(crate) fn may_write(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Removes a folder if it is empty. Does nothing if it has content or is absent.
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

/// Returns whether symbolic links can be created in a folder. Returns false only if the file system
/// says that it does not support them; any other error counts as true.
pub(crate) fn supports_links(folder: &Path) -> bool {
    let path = folder.held_entry(format!(".vault-aside-link-{}", unique_name()));
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
