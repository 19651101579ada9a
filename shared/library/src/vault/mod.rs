//! A vault on disk: its paths and id, opening and creating it, the writer lock, and the generation
//! number for watchers.
//!
//! ```text
//! vault.json       format version and vault id: written last when a vault is made
//! store/  skills/  links/  tmp/  lock  generation  index.db
//! ```
//! Everything below the folder is opened from there through handles, without following links
//! (`VaultPaths::folder`). Nothing in this folder adds or removes trust: keys, root versions
//! (signed lists of keys) and pins (what is trusted about linked vaults) lie in the trust folder
//! (`folder.rs`). Without it, no skill of the vault is trusted. Readers take no lock. A writer
//! stages a change in `tmp/`, flushes it, moves it into `store/`, and makes it visible by switching
//! one link. The next writer removes what a killed one left behind.

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

/// Paths of a vault and of what belongs to it. The caller chooses them; this crate reads no
/// environment variable.
#[derive(Clone, Debug)]
pub struct VaultPaths {
    /// Folder of the vault, usually `~/.vault`.
    pub root: PathBuf,
    /// Trust folder, usually `$XDG_CONFIG_HOME/vault`. It must not lie inside `root`.
    pub config: PathBuf,
    /// Index of the installed skills, which can be built again at any time; `None` means `index.db`
    /// in `root`.
    pub index: Option<PathBuf>,
    /// Socket of the user's SSH agent (`SSH_AUTH_SOCK`); `None` if none runs.
    pub ssh_agent: Option<PathBuf>,
}

impl VaultPaths {
    /// Returns the paths with the index at its default location and without an SSH agent.
    pub fn new(root: impl Into<PathBuf>, config: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            config: config.into(),
            index: None,
            ssh_agent: None,
        }
    }

    /// Creates the folder of the chosen index if it is missing. If no file can be created at that
    /// path, resets the index to its default location and returns the unusable path.
    pub fn drop_unusable_index(&mut self) -> Option<PathBuf> {
        // An absent file is created later. A folder in its place, or a parent that can't be
        // created, makes the path unusable.
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

    /// Returns the vault's folder. Everything below it is opened from here without following links,
    /// because any process that can write to the folder could plant a link there at any moment.
    pub(crate) fn folder(&self) -> HeldPath {
        HeldPath::new(&self.root)
    }
}

/// Error of opening, creating or changing a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The folder is absent, or has neither `vault.json` nor skills.
    #[error("there is no vault at {}", .0.display())]
    Missing(PathBuf),
    /// The trust folder has recorded another vault for this folder, and no command replaced it.
    #[error(transparent)]
    Swapped(Box<SwappedVault>),
    /// The vault is of an earlier format, which this version imports but does not open.
    #[error("{} is a vault of an earlier format", path.display())]
    Earlier {
        /// Path of `vault.json`.
        path: PathBuf,
    },
    /// `vault.json` is damaged or of a later format.
    #[error("{} is not a vault that this version can read: {reason}", path.display())]
    Format {
        /// Path of `vault.json`.
        path: PathBuf,
        /// Description of the fault, for the error message.
        reason: String,
    },
    /// A record of the vault or of its trust folder is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// File or folder that is damaged.
        path: PathBuf,
        /// Description of the fault, for the error message.
        reason: String,
    },
    /// This machine has no trust folder for the vault, because the vault was copied or synced here.
    #[error("this machine has no record of the keys that the vault {0} trusts")]
    Untrusted(VaultId),
    /// No key on this machine is a current publisher's, so skills and releases can't be signed
    /// here.
    #[error("no key on this machine may sign for the vault {0}")]
    NoReleaseKey(VaultId),
    /// The vault only holds linked vaults, so it has no keys of its own.
    #[error("the vault at {} only holds linked vaults and has no key to sign with", .0.display())]
    ForLinks(PathBuf),
    /// The trust folder lies inside the vault's folder, so that a copy of the vault would contain
    /// the keys.
    #[error("the configuration folder {} is inside the vault", .0.display())]
    KeysInside(PathBuf),
    /// Other users can write to a folder of the vault. Nothing is signed or installed there.
    #[error("other users can write to {} (mode {mode:04o}), so nothing is signed or installed there", path.display())]
    WritableByOthers {
        /// Folder to which others can write.
        path: PathBuf,
        /// Permission bits of the folder.
        mode: u32,
    },
    /// A folder of the vault belongs to another user. Nothing is signed or installed there.
    #[error("{} belongs to another user, so nothing is signed or installed there", .0.display())]
    OfAnotherUser(PathBuf),
    /// The given root versions are not valid, or contradict those that this machine knows.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// A root version can't be built or signed.
    #[error(transparent)]
    Root(#[from] RootWriteError),
    /// Another process holds the writer lock, or the lock file can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file of the trust folder, such as a key, can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file or folder of the vault can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The content of `vault.json`.
#[derive(Debug, Deserialize, Serialize)]
struct FormatFile {
    schema: String,
    vault_id: VaultId,
}

/// The part of `vault.json` that all formats share.
#[derive(Deserialize)]
struct FormatSchema {
    schema: String,
}

/// Folder in the trust folder for the private copies that actions run from.
pub(crate) const RUNNING: &str = "running";
const SCHEMA: &str = "vault.library/2";
/// Format of vaults before root versions existed. Such a vault can only be imported.
const EARLIER_SCHEMA: &str = "vault.library/1";
/// Default for how long a writer waits for the lock.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// An open vault: its paths, its id, and access to its keys. It is cheap to clone, and holds no
/// lock.
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
    /// create it. If several processes do this at once, one of them creates the vault and the
    /// others open it.
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

    /// Opens the vault, or creates one without keys if there is none. Such a vault only holds
    /// linked vaults, and gets keys of its own when [`Self::open_or_create`] opens it.
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

    /// Opens an existing vault. Fails if there is none, or if the folder contained another one
    /// before.
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

    /// Returns this vault under another id, for a vault that is made from it. The folders and the
    /// source of passphrases are the same.
    pub(crate) fn with_id(&self, id: VaultId) -> Self {
        let mut other = self.clone();
        other.id = id;
        // The folder of the key files is named after the id, so the keys are set up again.
        other.with_passphrases(self.keys.passphrases())
    }

    /// Creates the folders of a vault whose trust folder is being restored. The vault can't be
    /// opened until [`write_format`] has written `vault.json`.
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

    /// The id of the vault, derived from its first root version. Every manifest and catalog
    /// contains it.
    pub fn id(&self) -> &VaultId {
        &self.id
    }

    /// Paths with which the vault was opened.
    pub fn paths(&self) -> &VaultPaths {
        &self.paths
    }

    /// Fails if other users can write to the vault's folder or the trust folder. Writers fail then;
    /// readers do not, so they should print this error as a warning.
    pub fn check_folders(&self) -> Result<(), VaultError> {
        folder::check_top(&self.paths.config)?;
        folder::check_vault(&self.folder())
    }

    /// The keys of the vault on this machine.
    pub fn keys(&self) -> &VaultKeys {
        &self.keys
    }

    /// Returns whether the vault only holds linked vaults and has no keys of its own.
    pub fn only_holds_links(&self) -> Result<bool, VaultError> {
        Ok(self.trust()?.is_some_and(|trust| trust.for_links))
    }

    /// Returns the key of this machine that may sign manifests and catalogs.
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

    /// Returns a signer with the key of [`Self::release_key`], for manifests and catalogs.
    pub fn release_signer(&self) -> Result<Box<dyn Signer + Send + Sync>, VaultError> {
        Ok(self.keys.signer(&self.release_key()?)?)
    }

    /// Returns a number that grows with each committed change, by which other processes notice
    /// changes. It is odd during a change, and after a writer was killed. While it is odd, readers
    /// may already see new content, so a watcher must read again later even if the number stays the
    /// same.
    pub fn generation(&self) -> Result<u64, VaultError> {
        let path = self.folder().join("generation");
        let Some(bytes) = disk::read(&path, 64)? else {
            return Ok(0);
        };
        // Treat a damaged number like an interrupted change. The next writer starts over.
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

    /// Returns the vault's folder; see [`VaultPaths::folder`].
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

    /// Creates a temporary folder in the vault. It is removed on drop, or by the next writer.
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
        // Another process may sweep at the same time and remove a leftover first.
        let _best_effort = scratch::sweep_unlocked(&folder);
        Ok(Scratch::new(&folder)?)
    }

    /// Takes the writer lock. Unlike `Vault::begin_change`, does not remove what a killed writer
    /// left behind.
    pub(crate) fn lock_writer(&self) -> Result<Change<'_>, VaultError> {
        let root = self.folder();
        // Another user who can write to these folders could replace anything that this change
        // verifies.
        folder::check_top(&self.paths.config)?;
        folder::check_vault(&root)?;
        let lock = lock::take_lock(&root.join("lock"), self.wait)?;
        // An interrupted creation of the vault may have left its record of the id behind.
        disk::remove_file(&root.join(CREATING))?;
        // A vault of an earlier version of this program has no record of its folder. Without
        // `vault.json` there is no vault to record.
        if !occupant::is_known(&self.paths)? && disk::kind_at(&root.join("vault.json"))?.is_some() {
            occupant::record_vault(&self.paths, &self.id, None)?;
        }
        let generation = self.generation()?;
        Ok(Change {
            vault: self,
            next: (generation / 2 + 1) * 2,
            // An odd number means that the last writer was killed during a change. Readers may have
            // seen parts of that change, so this writer advances the number in any case.
            switched: generation % 2 == 1,
            _lock: lock,
        })
    }
}

/// Returns the vault that `vault.json` names; `None` if the folder has neither that file nor
/// skills.
fn read_format(root: &HeldPath) -> Result<Option<VaultId>, VaultError> {
    let path = root.join("vault.json");
    let Some(bytes) = disk::read(&path, 4096)? else {
        // `vault.json` is written before the first skill. If only that file is gone, nobody knows
        // whose skills these are, and a new vault must not take their place.
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
