//! Errors of the files in the trust folder, which keep keys and the records that decide trust.

use std::io;
use std::path::PathBuf;

use super::ssh_agent::AgentError;
use crate::disk::FileError;

/// An error of reading or writing a file of the trust folder.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is not on this machine: the vault was copied here, or the key was moved away.
    #[error("there is no key at {}", .0.display())]
    Missing(PathBuf),
    /// Group or others have access to the file or its folder.
    #[error("other users can read {} (mode {mode:04o}); only its owner may", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file or folder belongs to another user.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// The content is not in the format that this version writes.
    #[error("{} is not a {kind} key file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The kind of key that it should hold.
        kind: &'static str,
    },
    /// The file holds another key than the one that it is named after.
    #[error("the key in {} does not match the file's name", .0.display())]
    Mismatch(PathBuf),
    /// The key file is encrypted, and no passphrase is available.
    #[error("{} is encrypted, and no passphrase was given", .0.display())]
    Locked(PathBuf),
    /// The passphrase does not open the key file.
    #[error("the passphrase does not open {}", .0.display())]
    WrongPassphrase(PathBuf),
    /// The passphrase could not be read.
    #[error("the passphrase of a key could not be read: {0}")]
    Passphrase(#[source] io::Error),
    /// The encryption failed.
    #[error("{} can't be encrypted: {cause}", path.display())]
    Encrypt {
        /// The key file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The SSH agent holds the key and does not export it.
    #[error("the key {0} is in the SSH agent and can't be copied")]
    InAgent(String),
    /// The SSH agent can't be reached, or does not hold the key.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A system call failed.
    #[error(transparent)]
    File(#[from] FileError),
}
