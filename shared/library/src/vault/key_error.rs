//! Errors of the trust folder's files, which hold keys and the records that decide about trust.

use std::io;
use std::path::PathBuf;

use super::ssh_agent::AgentError;
use crate::disk::FileError;

/// Error of reading or writing a file of the trust folder.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is not on this machine, because the vault was copied here or the key was moved away.
    #[error("there is no key at {}", .0.display())]
    Missing(PathBuf),
    /// Other users have access to the file or its folder.
    #[error("other users can read {} (mode {mode:04o}); only its owner may", path.display())]
    Open {
        /// The file or folder of which the owner must restrict the permissions.
        path: PathBuf,
        /// Permission bits of the file or folder.
        mode: u32,
    },
    /// The file or folder belongs to another user.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// The content is not in the format of key files that this version writes.
    #[error("{} is not a {kind} key file", path.display())]
    Malformed {
        /// Path of the file that should hold a key.
        path: PathBuf,
        /// Kind of key that was expected, as [`super::keys::KeyKind`] spells it.
        kind: &'static str,
    },
    /// The file contains another key than its name says.
    #[error("the key in {} does not match the file's name", .0.display())]
    Mismatch(PathBuf),
    /// The key file is encrypted, and no passphrase is available.
    #[error("{} is encrypted, and no passphrase was given", .0.display())]
    Locked(PathBuf),
    /// The passphrase does not decrypt the key file.
    #[error("the passphrase does not open {}", .0.display())]
    WrongPassphrase(PathBuf),
    /// The prompt or file for the passphrase failed.
    #[error("the passphrase of a key could not be read: {0}")]
    Passphrase(#[source] io::Error),
    /// The key file could not be encrypted.
    #[error("{} can't be encrypted: {cause}", path.display())]
    Encrypt {
        /// Path at which the encrypted file should be written.
        path: PathBuf,
        /// Error of the encryption.
        cause: io::Error,
    },
    /// The SSH agent holds the key, and agents do not export keys.
    #[error("the key {0} is in the SSH agent and can't be copied")]
    InAgent(String),
    /// The SSH agent can't be reached, lacks the key, or does not sign.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A file of the trust folder can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
