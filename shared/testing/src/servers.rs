//! What the servers for tests share: a folder that all test processes of one build folder find, its lock, and the
//! reason why there is no server.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use vault_store::random::{SystemRandom, bytes};

/// Why there is no server for a test.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no server for tests: {0}")]
pub struct Absent(pub(crate) String);

impl Absent {
    pub(crate) fn because(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// The value, or `None` after a line on stderr that says why there is none. With `CI=true` that is a failure.
#[expect(
    clippy::disallowed_methods,
    reason = "test support asks whether this is CI"
)]
#[expect(
    clippy::print_stderr,
    reason = "test support says what a test leaves out"
)]
pub fn or_say_why<T>(found: Result<T, Absent>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(absent) if std::env::var("CI").is_ok_and(|value| value == "true") => panic!("{absent}"),
        Err(absent) => {
            eprintln!("left out: {absent}");
            None
        }
    }
}

/// Takes the lock of the folder, which the watchdog may remove at any moment: a lock on a removed file is none.
pub(crate) fn lock(base: &Path) -> Result<File, Absent> {
    for _ in 0..100 {
        fs::create_dir_all(base).map_err(Absent::because)?;
        if fs::symlink_metadata(base).map_err(Absent::because)?.uid() != own_uid()? {
            return Err(Absent(format!(
                "{} belongs to somebody else",
                base.display()
            )));
        }
        let path = base.join("lock");
        let Ok(file) = File::create(&path) else {
            continue;
        };
        file.lock().map_err(Absent::because)?;
        let held = file.metadata().map_err(Absent::because)?;
        if fs::metadata(&path).is_ok_and(|named| named.ino() == held.ino()) {
            return Ok(file);
        }
    }
    Err(Absent(format!("{} cannot be locked", base.display())))
}

/// Counts this process among the users of the folder's server, until the file is closed.
pub(crate) fn user_of(base: &Path) -> Result<File, Absent> {
    let users = File::create(base.join("users")).map_err(Absent::because)?;
    users.lock_shared().map_err(Absent::because)?;
    Ok(users)
}

/// The user that this process runs as.
pub(crate) fn own_uid() -> Result<u32, Absent> {
    fs::metadata("/proc/self")
        .map(|process| process.uid())
        .map_err(Absent::because)
}

/// Sixteen characters that nobody else has.
pub(crate) fn random_word() -> String {
    format!("{:016x}", u64::from_be_bytes(bytes(&SystemRandom)))
}
