//! Reads the policy of a vault: the approved version of `policy.toml`.

use std::path::Path;

use vault_policy::{MAX_BYTES, Policy, PolicyError};

use super::authored::AuthoredFile;
pub use super::authored::POLICY_FILE;
use super::{Vault, VaultError};
use crate::disk::{self, HeldPath};

/// Error of reading or applying the policy. A caller that the policy does not know is a regular
/// result and no error.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// `policy.toml` is not a valid policy. Holds the first fault with its line and column.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// `policy.toml` is not UTF-8.
    #[error("policy.toml is not UTF-8")]
    NotText,
    /// The vault, or one of its files, can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Reads the policy that is in force: the approved version of `policy.toml`; `None` if there is
/// none. Fails with the line and column of the first error in it.
pub fn read_policy(vault: &Vault) -> Result<Option<Policy>, ResolveError> {
    let bytes = AuthoredFile::Policy.read_approved(vault)?;
    bytes.as_deref().map(parse_policy).transpose()
}

/// Reads the policy that decides what may be fetched: the one in force, or else the unapproved
/// `policy.toml`. Without a policy everything may be fetched, so an unapproved file can only forbid
/// something.
pub fn read_source_policy(vault: &Vault) -> Result<Option<Policy>, ResolveError> {
    match read_policy(vault)? {
        Some(policy) => Ok(Some(policy)),
        None => read_policy_at(&vault.paths().root),
    }
}

/// Reads `policy.toml` in a folder that is not a vault yet, where no file can have been approved.
pub fn read_policy_at(root: &Path) -> Result<Option<Policy>, ResolveError> {
    let path = HeldPath::new(root).join(POLICY_FILE);
    // Read beyond the parser's limit, so that the parser reports a file that is too large, together
    // with the limit.
    let bytes = disk::read(&path, 4 * MAX_BYTES as u64).map_err(VaultError::from)?;
    bytes.as_deref().map(parse_policy).transpose()
}

/// Parses the content of a policy file.
pub fn parse_policy(bytes: &[u8]) -> Result<Policy, ResolveError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ResolveError::NotText)?;
    Ok(Policy::from_toml(text)?)
}
