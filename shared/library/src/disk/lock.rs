//! The writer lock of a vault: a kernel lock on a file. It ends when the process that holds it
//! exits or is killed.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{FileError, Location, file_error, open_private, stat};

/// Error of taking the writer lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process held the lock as long as this one was willing to wait.
    #[error(
        "the vault at {} is being changed by another process{}; waited {} s",
        vault.display(),
        holder.as_deref().map(|id| format!(" (process {id})")).unwrap_or_default(),
        waited.as_secs()
    )]
    Busy {
        /// The vault's folder.
        vault: PathBuf,
        /// Process id from the lock file, unverified; for messages only.
        holder: Option<String>,
        /// Time that this process waited.
        waited: Duration,
    },
    /// The lock file can't be opened or locked.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The writer lock while it is held. Dropping it ends the lock.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _file: File,
}

/// Takes the lock at `path`, retrying with backoff (2 to 50 ms) for about `wait`. Fails if a
/// symbolic link or anything else but a regular file lies there.
pub(crate) fn take_lock(
    path: &(impl Location + ?Sized),
    wait: Duration,
) -> Result<WriterLock, LockError> {
    let mut waited = Duration::ZERO;
    let mut step = Duration::from_millis(2);
    loop {
        // Open the file anew in each round, because it may have been removed since the last one.
        let mut file = open_private(path).map_err(file_error("open", path))?;
        match file.try_lock() {
            Ok(()) if is_still(&file, path) => {
                write_process_id(&mut file);
                return Ok(WriterLock { _file: file });
            }
            Err(TryLockError::Error(cause)) => {
                return Err(FileError::new("lock", path, cause).into());
            }
            // Either another process holds the lock, or it removed the file between the open and
            // the lock. A lock on a removed file guards nothing.
            Ok(()) | Err(TryLockError::WouldBlock) => {
                if waited >= wait {
                    return Err(LockError::Busy {
                        vault: path.path().parent().map(Into::into).unwrap_or_default(),
                        holder: read_holder(&mut file),
                        waited,
                    });
                }
                std::thread::sleep(step);
                waited += step;
                step = (step * 2).min(Duration::from_millis(50));
            }
        }
    }
}

/// Takes a lock on a folder itself, waiting like [`take_lock`]. `None` if its file system has no
/// such locks, as some network file systems.
pub(crate) fn lock_folder(path: &Path, wait: Duration) -> Result<Option<File>, LockError> {
    let folder = File::open(path).map_err(|cause| FileError::new("open", path, cause))?;
    let mut waited = Duration::ZERO;
    let mut step = Duration::from_millis(2);
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if waited >= wait => {
                return Err(LockError::Busy {
                    vault: path.to_owned(),
                    holder: None,
                    waited,
                });
            }
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(step);
                waited += step;
                step = (step * 2).min(Duration::from_millis(50));
            }
        }
    }
}

/// Returns whether `path` still leads to the open file.
pub(super) fn is_still(file: &impl AsFd, path: &(impl Location + ?Sized)) -> bool {
    match (rustix::fs::fstat(file), stat(path)) {
        (Ok(held), Ok(named)) => (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino),
        _ => false,
    }
}

/// Writes this process id into the lock file, for the messages of waiting processes. A failure is
/// ignored, because the lock works without it.
fn write_process_id(file: &mut File) {
    // Truncate first: the id of an earlier holder may be longer.
    let _best_effort = file
        .set_len(0)
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
}

/// Returns the process id in the lock file; `None` if its content is not a plain number.
fn read_holder(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(20).read_to_string(&mut text).ok()?;
    // Any program of the user can write to the file. Only digits may get into a message.
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_second_writer_is_told_who_holds_it_and_gets_it_when_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = take_lock(&path, Duration::ZERO).unwrap();
        let refused = take_lock(&path, Duration::from_millis(5)).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&format!("process {}", std::process::id())),
            "{refused}"
        );
        drop(first);
        take_lock(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_on_a_removed_file_guards_nothing_and_is_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = take_lock(&path, Duration::ZERO).unwrap();
        fs::remove_file(&path).unwrap();
        let WriterLock { _file: second } = take_lock(&path, Duration::ZERO).unwrap();
        assert!(is_still(&second, &path));
    }

    #[test]
    fn what_is_no_regular_file_is_never_locked() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("lock"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        for exists in [false, true] {
            let refused = take_lock(&path, Duration::from_secs(30)).unwrap_err();
            assert!(matches!(refused, LockError::File(_)), "{refused}");
            assert_eq!(target.exists(), exists, "nothing is created behind a link");
            fs::write(&target, "theirs").unwrap();
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(take_lock(&path, Duration::from_secs(30)).is_err());
    }
}
