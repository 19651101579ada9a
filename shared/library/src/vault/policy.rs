//! The policy of a vault, as it stands in its file: `policy.toml`.

use vault_skill::policy::{MAX_BYTES, Policy, PolicyError};

use super::{Vault, VaultError};
use crate::disk;

/// Name of the policy's file in a vault's folder.
pub const POLICY_FILE: &str = "policy.toml";

/// Why the policy can't be read, or nothing can be resolved by it. That a caller is unknown is an answer, no error.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// policy.toml has an error.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// policy.toml is not UTF-8.
    #[error("policy.toml is not UTF-8")]
    NotText,
    /// The vault, or a file of it, can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Reads the vault's `policy.toml`; nothing where there is none. Fails with line and column on the first thing wrong in it.
pub fn read_policy(vault: &Vault) -> Result<Option<Policy>, ResolveError> {
    read_policy_at(&vault.paths().root)
}

/// [`read_policy`] of a vault's folder, which may not be a vault yet.
pub fn read_policy_at(root: &std::path::Path) -> Result<Option<Policy>, ResolveError> {
    let path = root.join(POLICY_FILE);
    // One byte more than is allowed, so that a file that is too large is told so with the limit.
    let Some(bytes) = disk::read(&path, 4 * MAX_BYTES as u64).map_err(VaultError::from)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| ResolveError::NotText)?;
    Ok(Some(Policy::from_toml(&text)?))
}
