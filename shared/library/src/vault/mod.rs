//! A vault on disk: its paths and id, opening and creating it, the writer lock, and the generation
//! number for watchers.
//!
//! ```text
//! vault.json       format version and vault id: written last when a vault is made
//! store/  skills/  links/  tmp/  lock  generation  index.db
//! ```
//! Everything below the folder is opened from there through handles, without following links
//! (`VaultPaths::folder`). Nothing in this folder adds or removes trust. Keys, root versions and
//! pins lie in the trust folder (`folder.rs`); without it the skills of a vault are untrusted.
//! Readers take no lock. A writer stages a change under `tmp/`, flushes it, moves it into `store/`,
//! and makes it visible by switching one link. The next writer removes what a killed one left
//! behind.

pub mod authored;
mod create;
pub(crate) mod folder;
mod key_error;
pub mod keys;
pub mod occupant;
pub(crate) mod own_skills;
pub(crate) mod policy;
pub mod releases;
pub(crate) mod seal;
pub mod ssh_agent;
pub mod trust;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vault_format::json;
use vault_format::keys::{PublicKey, Signer};
use vault_format::root::{KeyStanding, RootError, RootWriteError, VaultId};
use vault_store::clock::Clock;
use vault_store::random::Random;

use self::create::{CREATING, NewVault};
pub(crate) use self::create::{first_root, write_format};
use self::folder::PrivateFolder;
use self::keys::{KeyError, NoPassphrases, Passphrases, VaultKeys};
pub use self::occupant::SwappedVault;
use self::trust::VaultTrust;
pub(crate) use self::writer::Change;
pub use self::writer::HeldVault;
use crate::disk::lock::{self, LockError};
use crate::disk::scratch::{self, Scratch};
use crate::disk::{self, FileError, HeldPath, Location};

/// The paths of a vault. The caller chooses all of them; this crate reads no environment variable.
#[derive(Clone, Debug)]
pub struct VaultPaths {
    /// The vault itself, usually `~/.vault`.
    pub root: PathBuf,
    /// The trust folder, usually `$XDG_CONFIG_HOME/vault`; never inside `root`.
    pub config: PathBuf,
    /// The rebuildable index; `None` means `index.db` in `root`.
    pub index: Option<PathBuf>,
    /// The socket of the user's SSH agent (`SSH_AUTH_SOCK`); `None` if none runs.
    pub ssh_agent: Option<PathBuf>,
}

impl VaultPaths {
    /// Paths with the index at its default location.
    pub fn new(root: impl Into<PathBuf>, config: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            config: config.into(),
            index: None,
            ssh_agent: None,
        }
    }

    /// Creates the folder of the configured index if it is missing. Resets the index to its default
    /// location if no file can be created at the configured path, and returns that path.
    pub fn drop_unusable_index(&mut self) -> Option<PathBuf> {
        // A file that is absent is fine: the index creates it. A folder in its place, or a folder
        // around it that can't be created, is not.
        let path = self.index.take_if(|path| {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let has_folder =
                |folder: &Path| folder.is_dir() || disk::make_dirs(folder, 0o700).is_ok();
            path.is_dir() || !folder.is_none_or(has_folder)
        })?;
        Some(path)
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.index
            .clone()
            .unwrap_or_else(|| self.root.join("index.db"))
    }

    /// The vault's folder. Everything below it is opened from here, without following links,
    /// because any process that can write to the folder could plant a link there at any moment.
    pub(crate) fn folder(&self) -> HeldPath {
        HeldPath::new(&self.root)
    }
}

/// An error of opening, creating or changing a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no vault at this path.
    #[error("there is no vault at {}", .0.display())]
    Missing(PathBuf),
    /// The folder held another vault according to the trust folder, and no command replaced it.
    #[error(transparent)]
    Swapped(Box<SwappedVault>),
    /// The vault is of a format that is not read any more.
    #[error("{} is a vault of an earlier format", path.display())]
    Earlier {
        /// The format file.
        path: PathBuf,
    },
    /// The format file is damaged or of a later version.
    #[error("{} is not a vault that this version can read: {reason}", path.display())]
    Format {
        /// The format file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// One of the vault's own records is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// This machine has no trust folder for the vault: it was copied or synced here.
    #[error("this machine has no record of the keys that the vault {0} trusts")]
    Untrusted(VaultId),
    /// No key on this machine may sign for the vault.
    #[error("no key on this machine may sign for the vault {0}")]
    NoReleaseKey(VaultId),
    /// The vault only holds linked vaults and has no keys of its own.
    #[error("the vault at {} only holds linked vaults and has no key to sign with", .0.display())]
    ForLinks(PathBuf),
    /// The configuration folder lies inside the vault, so a copy of the vault would contain the
    /// keys.
    #[error("the configuration folder {} is inside the vault", .0.display())]
    KeysInside(PathBuf),
    /// Other users can write to a folder of the vault, so nothing is signed or installed there.
    #[error("other users can write to {} (mode {mode:04o}), so nothing is signed or installed there", path.display())]
    WritableByOthers {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder of the vault belongs to another user.
    #[error("{} belongs to another user, so nothing is signed or installed there", .0.display())]
    OfAnotherUser(PathBuf),
    /// The given root versions are not valid, or they contradict those that are known.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// A root version can't be made or signed.
    #[error(transparent)]
    Root(#[from] RootWriteError),
    /// The writer lock could not be acquired.
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
struct FormatFile {
    schema: String,
    vault_id: VaultId,
}

/// The part of `vault.json` that every format has.
#[derive(Deserialize)]
struct FormatSchema {
    schema: String,
}

/// Name of the folder, in the trust folder, of the copies that actions run from.
pub(crate) const RUNNING: &str = "running";
const SCHEMA: &str = "vault.library/2";
/// The format before root versions. Such a vault is imported and not opened.
const EARLIER_SCHEMA: &str = "vault.library/1";
/// Default limit on waiting for the writer lock.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// An open vault. Cheap to clone; holds no lock and no secret.
#[derive(Clone)]
pub struct Vault {
    paths: VaultPaths,
    id: VaultId,
    keys: VaultKeys,
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
    /// Opens the vault, or creates it with one key if there is none. Takes the writer lock only to
    /// create it. If several processes start at once, one of them creates it and the others open
    /// it.
    pub fn open_or_create(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, VaultError> {
        Self::open_or_create_with(paths, clock, random, Arc::new(NoPassphrases))
    }

    /// Like [`Self::open_or_create`], with a source of passphrases for the keys.
    pub fn open_or_create_with(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        passphrases: Arc<dyn Passphrases>,
    ) -> Result<Self, VaultError> {
        Self::open_or_make(paths, clock, random, passphrases, false)
    }

    /// Opens the vault, or creates one without keys if there is none: it holds linked vaults, and
    /// gets keys of its own when [`Self::open_or_create`] opens it.
    pub fn open_or_create_for_links(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        passphrases: Arc<dyn Passphrases>,
    ) -> Result<Self, VaultError> {
        Self::open_or_make(paths, clock, random, passphrases, true)
    }

    fn open_or_make(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        passphrases: Arc<dyn Passphrases>,
        for_links: bool,
    ) -> Result<Self, VaultError> {
        let new_vault = NewVault {
            paths: &paths,
            clock: &*clock,
            random: &*random,
            passphrases: &passphrases,
            for_links,
        };
        let id = match occupant::find_occupant(&paths)? {
            // The key of a vault for links was thrown away after it signed the first root version,
            // so the first own skill needs a new identity.
            Some(id) if !for_links && VaultTrust::is_for_links(&paths.config, &id)? => {
                new_vault.replace_placeholder(id)?
            }
            Some(id) => id,
            None => new_vault.create_vault()?,
        };
        Ok(Self::from_parts(paths, id, clock, random).with_passphrases(passphrases))
    }

    /// Opens an existing vault.
    pub fn open(
        paths: VaultPaths,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, VaultError> {
        match occupant::find_occupant(&paths)? {
            Some(id) => Ok(Self::from_parts(paths, id, clock, random)),
            None => Err(VaultError::Missing(paths.root)),
        }
    }

    fn from_parts(
        paths: VaultPaths,
        id: VaultId,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            keys: VaultKeys::new(&paths, &id, Arc::new(NoPassphrases)),
            paths,
            id,
            clock,
            random,
            wait: DEFAULT_WAIT,
        }
    }

    /// Returns the same folders under another id, with the same source of passphrases.
    pub(crate) fn with_id(&self, id: VaultId) -> Self {
        let mut other = self.clone();
        other.id = id;
        // The folder of the key files is named after the id, so the keys are set up again.
        other.with_passphrases(self.keys.passphrases())
    }

    /// Creates the folders of a vault whose trust folder is being restored. The vault can't be
    /// opened before [`write_format`].
    pub(crate) fn prepare_restored(
        paths: VaultPaths,
        id: VaultId,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, VaultError> {
        create::make_folders(&paths)?;
        Ok(Self::from_parts(paths, id, clock, random))
    }

    /// Sets the source of passphrases for encrypted keys.
    #[must_use]
    pub fn with_passphrases(mut self, passphrases: Arc<dyn Passphrases>) -> Self {
        self.keys = VaultKeys::new(&self.paths, &self.id, passphrases);
        self
    }

    /// Changes the limit on waiting for the writer lock.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The vault's id, derived from its first root version. Every manifest and catalog contains it.
    pub fn id(&self) -> &VaultId {
        &self.id
    }

    /// The vault's paths.
    pub fn paths(&self) -> &VaultPaths {
        &self.paths
    }

    /// Fails if other users can write to the vault's folder or the trust folder. Changes fail then,
    /// but reads do not, so callers that read print a warning.
    pub fn check_folders(&self) -> Result<(), VaultError> {
        folder::check_top(&self.paths.config)?;
        folder::check_vault(&self.folder())
    }

    /// The vault's keys on this machine.
    pub fn keys(&self) -> &VaultKeys {
        &self.keys
    }

    /// Returns whether the vault only holds linked ones and has no keys of its own.
    pub fn only_holds_links(&self) -> Result<bool, VaultError> {
        Ok(self.trust()?.is_some_and(|trust| trust.for_links))
    }

    /// The key on this machine that may sign manifests and catalogs.
    pub fn release_key(&self) -> Result<PublicKey, VaultError> {
        let trust = self.require_trust()?;
        if trust.for_links {
            return Err(VaultError::ForLinks(self.paths.root.clone()));
        }
        let roots = trust.roots;
        // A key file alone decides nothing: the key may be staged for a root version that was never
        // written, or revoked.
        let mut keys = self.keys.list()?.into_iter();
        keys.find(|key| roots.standing(key) == KeyStanding::Release)
            .ok_or(VaultError::NoReleaseKey(self.id))
    }

    /// The signer of manifests and catalogs on this machine.
    pub fn release_signer(&self) -> Result<Box<dyn Signer + Send + Sync>, VaultError> {
        Ok(self.keys.signer(&self.release_key()?)?)
    }

    /// A number that grows with each committed change, for watchers. It is odd during a change and
    /// after a killed writer. While it is odd, readers may already see new content, so a watcher
    /// must read again later even if the number stays the same.
    pub fn generation(&self) -> Result<u64, VaultError> {
        let path = self.folder().join("generation");
        let Some(bytes) = disk::read(&path, 64)? else {
            return Ok(0);
        };
        // Treat a damaged number like that of an interrupted change; the next writer starts over.
        Ok(std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.trim_end().parse().ok())
            .unwrap_or(1))
    }

    pub(crate) fn lock_wait(&self) -> Duration {
        self.wait
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// See [`VaultPaths::folder`].
    pub(crate) fn folder(&self) -> HeldPath {
        self.paths.folder()
    }

    pub(crate) fn store_folder(&self) -> HeldPath {
        self.folder().join("store")
    }

    pub(crate) fn skills_folder(&self) -> HeldPath {
        self.folder().join("skills")
    }

    pub(crate) fn tmp_folder(&self) -> HeldPath {
        self.folder().join("tmp")
    }

    /// A temporary folder. It is removed on drop, or else by the next writer.
    pub(crate) fn new_scratch(&self) -> Result<Scratch, FileError> {
        let tmp = self.tmp_folder();
        disk::make_dirs(&tmp, 0o700)?;
        Scratch::new(&tmp)
    }

    /// Creates a temporary folder in the trust folder, for files that must stay as they were
    /// verified. It is removed on drop, or else by the next call.
    pub(crate) fn private_scratch(&self) -> Result<Scratch, VaultError> {
        let folder = PrivateFolder::new(&self.paths.config, RUNNING);
        folder.ensure_exists()?;
        let folder = HeldPath::new(folder.path());
        // Another process may sweep at the same time, so a leftover may be gone before this process
        // removes it.
        let _best_effort = scratch::sweep_unlocked(&folder);
        Ok(Scratch::new(&folder)?)
    }

    /// Takes the writer lock. Does not remove what a killed writer left behind:
    /// `Vault::begin_change` does.
    pub(crate) fn lock_writer(&self) -> Result<Change<'_>, VaultError> {
        let root = self.folder();
        // Another user who can write to these folders could replace whatever this change verifies.
        folder::check_top(&self.paths.config)?;
        folder::check_vault(&root)?;
        let lock = lock::take_lock(&root.join("lock"), self.wait)?;
        // An interrupted creation of the vault may have left its note behind.
        disk::remove_file(&root.join(CREATING))?;
        // A vault of an earlier build has no record of its folder. Before `vault.json` is written
        // there is no vault to record.
        if !occupant::is_known(&self.paths)? && disk::kind_at(&root.join("vault.json"))?.is_some() {
            occupant::record_vault(&self.paths, &self.id, None)?;
        }
        let generation = self.generation()?;
        Ok(Change {
            vault: self,
            next: (generation / 2 + 1) * 2,
            // An odd number means that the last writer was killed during a change, so this writer
            // must advance the number in any case.
            switched: generation % 2 == 1,
            _lock: lock,
        })
    }
}

fn read_format(root: &HeldPath) -> Result<Option<VaultId>, VaultError> {
    let path = root.join("vault.json");
    let Some(bytes) = disk::read(&path, 4096)? else {
        // `vault.json` is written before the first skill. If it is gone, it is unknown whose skills
        // these are, and a new vault must not take their place.
        if disk::list(&root.join("skills"))?.is_empty() {
            return Ok(None);
        }
        return Err(VaultError::Damaged {
            path: path.path(),
            reason: "it is missing, although there are skills".to_owned(),
        });
    };
    let wrong = |reason: String| VaultError::Format {
        path: path.path(),
        reason,
    };
    // Read the schema alone first: a later format may lack the other fields, and the message should
    // name the version.
    let format: FormatSchema = json::parse(&bytes).map_err(|reason| wrong(reason.to_string()))?;
    if format.schema == EARLIER_SCHEMA {
        return Err(VaultError::Earlier { path: path.path() });
    }
    if format.schema != SCHEMA {
        return Err(wrong(format!("{} is not {SCHEMA}", format.schema)));
    }
    let format: FormatFile = json::parse(&bytes).map_err(|reason| wrong(reason.to_string()))?;
    Ok(Some(format.vault_id))
}

#[cfg(test)]
mod tests;
