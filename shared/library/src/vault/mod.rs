//! A vault on disk: its paths and id, opening and creating it, the writer lock, and the generation
//! number for watchers.
//!
//! ```text
//! vault.json       format version and vault id: written last when a vault is made
//! store/  skills/  links/  cloud/  tmp/  lock  generation  index.db  rotations.json
//! ```
//! Readers take no lock. A writer stages a change under `tmp/`, flushes it, moves it into `store/`,
//! and makes it visible by switching one link. The next writer removes what a killed one left
//! behind.

pub mod keys;
pub(crate) mod policy;
pub(crate) mod rotations;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vault_skill::json;
use vault_skill::name::VaultId;
use vault_store::clock::Clock;
use vault_store::random::{Random, ulid_parts};

use self::keys::{KeyError, VaultKeys};
pub(crate) use self::writer::Change;
use crate::disk::lock::{self, LockError};
use crate::disk::scratch::{self, Scratch};
use crate::disk::{self, FileError};

/// The paths of a vault. None of them is read from the environment.
#[derive(Clone, Debug)]
pub struct VaultPaths {
    /// The vault itself, usually `~/.vault`.
    pub root: PathBuf,
    /// Keys, device keys and tokens, usually `$XDG_CONFIG_HOME/vault`; never inside `root`.
    pub config: PathBuf,
    /// The rebuildable index; `None` means `index.db` in `root`.
    pub index: Option<PathBuf>,
}

impl VaultPaths {
    /// Paths with the index at its default location.
    pub fn new(root: impl Into<PathBuf>, config: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            config: config.into(),
            index: None,
        }
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.index
            .clone()
            .unwrap_or_else(|| self.root.join("index.db"))
    }
}

/// Why a vault could not be opened, created or changed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no vault at this path.
    #[error("there is no vault at {}", .0.display())]
    Missing(PathBuf),
    /// The format file is damaged or of a later version.
    #[error("{} is not a vault that this version can read: {reason}", path.display())]
    Format {
        /// The format file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// One of the vault's own records is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The configuration folder lies inside the vault, so a copy of the vault would contain the
    /// keys.
    #[error("the configuration folder {} lies inside the vault", .0.display())]
    KeysInside(PathBuf),
    /// The writer lock could not be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A key file can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A system call failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The content of `vault.json`.
#[derive(Debug, Deserialize, Serialize)]
struct Format {
    schema: String,
    vault_id: VaultId,
}

const SCHEMA: &str = "vault.library/1";
/// Name of the file that holds the id of a vault while the vault is being created.
const CREATING: &str = "creating";
const MAX_RECORD: u64 = 16 * 1024 * 1024;
/// Default limit on waiting for the writer lock.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// An open vault. Cheap to clone; holds no lock and no secret.
#[derive(Clone)]
pub struct Vault {
    paths: VaultPaths,
    id: VaultId,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    wait: Duration,
}

impl fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Vault")
            .field("id", &self.id)
            .field("root", &self.paths.root)
            .finish_non_exhaustive()
    }
}

impl Vault {
    /// Opens the vault, or creates it with its release and recovery keys if there is none. Takes
    /// the writer lock only to create it. If several processes start at once, one of them creates
    /// it.
    pub fn open_or_create(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, VaultError> {
        if let Some(id) = read_format(&paths.root)? {
            return Ok(Self::with(paths, id, clock, random));
        }
        create(&paths, &*clock, &*random).map(|id| Self::with(paths, id, clock, random))
    }

    /// Opens an existing vault.
    pub fn open(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, VaultError> {
        match read_format(&paths.root)? {
            Some(id) => Ok(Self::with(paths, id, clock, random)),
            None => Err(VaultError::Missing(paths.root)),
        }
    }

    fn with(
        paths: VaultPaths,
        id: VaultId,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            paths,
            id,
            clock,
            random,
            wait: DEFAULT_WAIT,
        }
    }

    /// Changes the limit on waiting for the writer lock.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The vault's id. Every manifest and catalog contains it, and it never changes.
    pub fn id(&self) -> &VaultId {
        &self.id
    }

    /// The vault's paths.
    pub fn paths(&self) -> &VaultPaths {
        &self.paths
    }

    /// The vault's keys.
    pub fn keys(&self) -> VaultKeys {
        VaultKeys::new(&self.paths.config, &self.id)
    }

    /// A number that grows with each committed change, for watchers. It is odd during a change and
    /// after a killed writer. While it is odd, readers may already see new content, so a watcher
    /// must read again later even if the number stays the same.
    pub fn generation(&self) -> Result<u64, VaultError> {
        let path = self.paths.root.join("generation");
        let Some(bytes) = disk::read(&path, 64)? else {
            return Ok(0);
        };
        // Treat a damaged number like that of an interrupted change; the next writer starts over.
        Ok(std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.trim_end().parse().ok())
            .unwrap_or(1))
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn random(&self) -> &dyn Random {
        &*self.random
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.paths.root.join("store")
    }

    pub(crate) fn skills(&self) -> PathBuf {
        self.paths.root.join("skills")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.paths.root.join("tmp")
    }

    /// A temporary folder. It is removed on drop, or else by the next writer.
    pub(crate) fn scratch(&self) -> Result<Scratch, FileError> {
        let tmp = self.tmp();
        disk::make_dirs(&tmp, 0o700)?;
        Scratch::new(&tmp)
    }

    /// Takes the writer lock. Does not remove what a killed writer left behind: `Vault::change`
    /// does.
    pub(crate) fn lock_writer(&self) -> Result<Change<'_>, VaultError> {
        let root = &self.paths.root;
        let lock = lock::take(&root.join("lock"), self.wait)?;
        // Creating the vault may have been interrupted just before this step.
        disk::remove_file(&root.join(CREATING))?;
        let found = self.generation()?;
        Ok(Change {
            vault: self,
            // Odd: the last writer was killed during a change, so this one must advance the number.
            next: (found / 2 + 1) * 2,
            switched: found % 2 == 1,
            _lock: lock,
        })
    }
}

/// Reads one of the vault's own JSON records; `None` if it is absent.
pub(crate) fn read_record<T: serde::de::DeserializeOwned>(
    path: &Path,
) -> Result<Option<T>, VaultError> {
    let Some(bytes) = disk::read(path, MAX_RECORD)? else {
        return Ok(None);
    };
    json::parse(&bytes)
        .map(Some)
        .map_err(|reason| VaultError::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        })
}

fn read_format(root: &Path) -> Result<Option<VaultId>, VaultError> {
    let path = root.join("vault.json");
    let Some(bytes) = disk::read(&path, 4096)? else {
        return Ok(None);
    };
    let wrong = |reason: String| VaultError::Format {
        path: path.clone(),
        reason,
    };
    let format: Format = json::parse(&bytes).map_err(|reason| wrong(reason.to_string()))?;
    if format.schema != SCHEMA {
        return Err(wrong(format!("{} is not {SCHEMA}", format.schema)));
    }
    Ok(Some(format.vault_id))
}

fn create(
    paths: &VaultPaths,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<VaultId, VaultError> {
    if paths.config.starts_with(&paths.root) {
        return Err(VaultError::KeysInside(paths.config.clone()));
    }
    let root = &paths.root;
    disk::make_dirs(root, 0o700)?;
    let _lock = lock::take(&root.join("lock"), DEFAULT_WAIT)?;
    if let Some(id) = read_format(root)? {
        return Ok(id); // another process was first
    }
    for folder in ["store", "skills", "links", "cloud", "tmp"] {
        disk::make_dirs(&root.join(folder), 0o700)?;
    }
    let tmp = root.join("tmp");
    scratch::sweep(&tmp)?;
    // Record the id before its keys are created, so that a retry after an interruption uses the
    // same id and keys.
    let noted = root.join(CREATING);
    let earlier = disk::read(&noted, 64)?
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.parse().ok());
    let id: VaultId = if let Some(id) = earlier {
        id
    } else {
        let (milliseconds, bits) = ulid_parts(clock, random);
        let id = VaultId::from_parts(milliseconds, bits);
        disk::replace(&noted, id.to_string().as_bytes(), 0o600, &tmp)?;
        id
    };
    VaultKeys::new(&paths.config, &id).make(random)?;
    let format = Format {
        schema: SCHEMA.to_owned(),
        vault_id: id,
    };
    // Written last: the folder is a vault once this file exists.
    disk::replace(
        &root.join("vault.json"),
        &json::to_bytes(&format),
        0o600,
        &tmp,
    )?;
    disk::remove_file(&noted)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use vault_store::{assert_matches, clock::TestClock, random::SeededRandom};

    use super::*;

    fn try_open(paths: VaultPaths, seed: u64) -> Result<Vault, VaultError> {
        let random = Arc::new(SeededRandom::new(seed));
        Vault::open_or_create(paths, Arc::new(TestClock::default()), random)
    }

    fn open(home: &Path, seed: u64) -> Vault {
        let paths = VaultPaths::new(home.join("vault"), home.join("config/vault"));
        try_open(paths, seed).unwrap()
    }

    fn public_key(vault: &Vault) -> vault_skill::keys::PublicKey {
        vault.keys().public().unwrap()
    }

    #[test]
    fn a_vault_is_made_once_with_its_keys_and_keeps_its_id() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path(), 1);
        let again = open(home.path(), 2);
        assert_eq!(first.id(), again.id());
        assert_eq!(public_key(&first), public_key(&again));
        assert!(first.keys().recovery_left_here().unwrap().is_some());
    }

    #[test]
    fn an_interrupted_creation_goes_on_with_the_same_keys() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("vault");
        let first = open(home.path(), 1);
        std::fs::remove_file(root.join("vault.json")).unwrap();
        std::fs::write(root.join("creating"), first.id().to_string()).unwrap();
        let again = open(home.path(), 2);
        assert_eq!(first.id(), again.id());
        assert_eq!(public_key(&first), public_key(&again));
        assert!(!root.join("creating").exists());
    }

    #[test]
    fn of_many_that_start_at_once_one_makes_it() {
        let home = tempfile::tempdir().unwrap();
        let ids: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|seed| {
                    let home = home.path();
                    scope.spawn(move || open(home, seed).id().to_string())
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(ids.len(), 1);
    }

    #[test]
    fn a_later_or_damaged_format_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let vault = open(home.path(), 1);
        let path = vault.paths().root.join("vault.json");
        let text = std::fs::read_to_string(&path).unwrap();
        for bad in [text.replace("/1", "/2"), "[]".to_owned(), String::new()] {
            std::fs::write(&path, bad).unwrap();
            let refused = try_open(vault.paths().clone(), 1);
            assert_matches!(refused, Err(VaultError::Format { .. }));
        }
    }

    #[test]
    fn keys_never_lie_inside_the_vault() {
        let home = tempfile::tempdir().unwrap();
        let paths = VaultPaths::new(home.path(), home.path().join("config"));
        assert_matches!(try_open(paths, 1), Err(VaultError::KeysInside(_)));
    }

    #[test]
    fn the_generation_is_odd_only_during_a_change() {
        let home = tempfile::tempdir().unwrap();
        let vault = open(home.path(), 1);
        assert_eq!(vault.generation().unwrap(), 0);
        drop(vault.change().unwrap());
        assert_eq!(vault.generation().unwrap(), 0, "a lock is no change");
        let mut change = vault.change().unwrap();
        change.switching().unwrap();
        assert_eq!(vault.generation().unwrap(), 1);
        change.switching().unwrap();
        drop(change);
        assert_eq!(vault.generation().unwrap(), 2);
        std::fs::write(vault.paths().root.join("generation"), "3").unwrap();
        drop(vault.change().unwrap());
        assert_eq!(vault.generation().unwrap(), 4, "a killed change is settled");
    }
}
