//! Opens the file of the recovery key, and writes it again after each use, because it names the
//! newest root version that the key has signed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use vault_format::catalog::CatalogError;
use vault_format::root::{RecoveryFile, RecoveryFileError, RootChain, RootError, VaultId};
use zeroize::Zeroizing;

use crate::disk::{self, FileError};
use crate::vault::keys::{self, KeyError, Passphrases};

/// Size limit of a recovery file, in bytes: 64 KiB and the overhead of encryption.
const MAX_FILE: u64 = 80 << 10;

/// Error of using a recovery file.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// There is no file at this path.
    #[error("there is no recovery file at {}", .0.display())]
    Missing(PathBuf),
    /// A file exists at this path, and a recovery file never replaces another one.
    #[error("{} exists; a recovery file never replaces another", .0.display())]
    Exists(PathBuf),
    /// The file would lie in the vault or beside the keys that it is meant to replace.
    #[error("{} is in the vault or beside its keys; keep the recovery file elsewhere", .0.display())]
    Inside(PathBuf),
    /// The content is not a valid recovery file.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the recovery file.
        path: PathBuf,
        /// Fault of the JSON or of the key in it.
        cause: RecoveryFileError,
    },
    /// The known root versions lack the newest version that the file names, so they are too old or
    /// forged.
    #[error("{}: {cause}", path.display())]
    Chain {
        /// Path of the recovery file.
        path: PathBuf,
        /// The contradiction between the file and the root versions.
        cause: RootError,
    },
    /// The key in this file no longer has the root role, so it can't change the vault's keys.
    #[error("the key in {} may no longer change the vault's keys", .0.display())]
    NotInRole(PathBuf),
    /// This machine has another vault than the file is for.
    #[error("this machine has the vault {here}, and the recovery file is for {wanted}")]
    OtherVault {
        /// Vault on this machine.
        here: VaultId,
        /// Vault that the file is for.
        wanted: VaultId,
    },
    /// No root version of the vault is on this machine, and no catalog was given.
    #[error("this machine does not know the vault; give its address or a file with its catalog")]
    CatalogNeeded,
    /// The vault has several publishers, so the lost key must be named.
    #[error("the vault has several publishers; name the key that was lost")]
    WhichKey,
    /// The given catalog can't be read or verified.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A passphrase is wrong or missing, or encryption failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The recovery file can't be read or written.
    #[error(transparent)]
    Disk(#[from] FileError),
}

/// A recovery file that was opened, with its passphrase for writing it again.
pub struct RecoveryKey {
    path: PathBuf,
    file: RecoveryFile,
    passphrase: Option<Zeroizing<String>>,
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RecoveryKey")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl RecoveryKey {
    /// Returns a recovery key that is not in any file yet.
    pub(super) const fn new(file: RecoveryFile, passphrase: Option<Zeroizing<String>>) -> Self {
        Self {
            path: PathBuf::new(),
            file,
            passphrase,
        }
    }

    /// Opens a recovery file at any path, for example on a USB stick. Does not check permissions,
    /// because many sticks have none.
    pub fn open(path: &Path, passphrases: &dyn Passphrases) -> Result<Self, RecoveryError> {
        // This buffer is wiped when it is dropped, because the file may contain the key in the
        // clear.
        let bytes = disk::read_secret(path, MAX_FILE)?;
        let bytes = bytes.ok_or_else(|| RecoveryError::Missing(path.to_owned()))?;
        let opened = keys::decrypt_secret(path, bytes, passphrases)?;
        let file = RecoveryFile::parse(&opened.text).map_err(|cause| RecoveryError::File {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            passphrase: opened.passphrase,
        })
    }

    /// Returns the key in the file, and the vault and root version that the file names.
    pub const fn file(&self) -> &RecoveryFile {
        &self.file
    }

    /// Returns whether the file is encrypted with a passphrase.
    pub const fn is_encrypted(&self) -> bool {
        self.passphrase.is_some()
    }

    /// Fails unless the key may sign the next version of the chain. `at_least` is a version number
    /// that the user has read elsewhere, for example in the status of a device; an older chain is
    /// rejected.
    pub fn check_role(
        &self,
        chain: &RootChain,
        at_least: Option<u64>,
    ) -> Result<(), RecoveryError> {
        self.check_known(chain, at_least)?;
        if self.file.can_sign_next(chain) {
            Ok(())
        } else {
            Err(RecoveryError::NotInRole(self.path.clone()))
        }
    }

    /// Fails if the chain lacks the newest version that the key has signed. Such a chain is too
    /// old.
    pub(super) fn check_known(
        &self,
        chain: &RootChain,
        at_least: Option<u64>,
    ) -> Result<(), RecoveryError> {
        let checked = self.file.check_chain(chain, at_least);
        checked.map_err(|cause| RecoveryError::Chain {
            path: self.path.clone(),
            cause,
        })
    }

    /// Records in the file the newest version that the key has signed.
    pub(super) fn record_version(&mut self, chain: &RootChain) -> Result<(), RecoveryError> {
        self.file.version = chain.version();
        self.file.root_sha256 = *chain.newest().payload_sha256();
        self.replace_file(&self.path)
    }

    /// Returns whether a file contains this key, in the clear or under the same passphrase.
    pub(super) fn is_in(&self, path: &Path) -> bool {
        let passphrase = GivenPassphrase(self.passphrase.clone());
        let opened = Self::open(path, &passphrase);
        opened.is_ok_and(|found| found.file.key.public() == self.file.key.public())
    }

    /// Replaces a recovery file that contains this key.
    pub(super) fn replace_file(&self, path: &Path) -> Result<(), RecoveryError> {
        let bytes = self.encode_file(path)?;
        Ok(disk::replace(path, &bytes, 0o600, folder_of(path))?)
    }

    /// Writes a new recovery file. Fails if the path exists.
    pub(super) fn create_file(&self, path: &Path) -> Result<(), RecoveryError> {
        let bytes = self.encode_file(path)?;
        if disk::create(path, &bytes, 0o600, folder_of(path))? {
            Ok(())
        } else {
            Err(RecoveryError::Exists(path.to_owned()))
        }
    }

    fn encode_file(&self, path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let text = self.file.to_bytes();
        match &self.passphrase {
            Some(passphrase) => keys::encrypt_secret(path, &text, passphrase).map(Zeroizing::new),
            None => Ok(text),
        }
    }
}

/// Gives the same passphrase for every file.
pub(super) struct GivenPassphrase(pub(super) Option<Zeroizing<String>>);

impl Passphrases for GivenPassphrase {
    fn unlock(&self, _path: &Path) -> io::Result<Option<Zeroizing<String>>> {
        self.protect()
    }

    fn protect(&self) -> io::Result<Option<Zeroizing<String>>> {
        Ok(self.0.clone())
    }
}

/// Returns the folder that contains a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    let parent = path.parent();
    parent
        .filter(|parent| !parent.as_os_str().is_empty())
        // The parent of a bare file name is the empty path, which can't be opened.
        .unwrap_or(Path::new("."))
}
