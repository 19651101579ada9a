//! Reads the policy of a vault from its file, `policy.toml`.

use vault_skill::policy::{MAX_BYTES, Policy, PolicyError};

use super::{Vault, VaultError};
use crate::disk;

/// Name of the policy file in a vault's folder.
pub const POLICY_FILE: &str = "policy.toml";

/// Why the policy can't be read or resolved. An unknown caller is a regular result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// policy.toml has an error.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// policy.toml is not UTF-8.
    #[error("policy.toml is not UTF-8")]
    NotText,
    /// The vault, or one of its files, can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Reads the vault's `policy.toml`; `None` if it is absent. Fails with the line and column of the
/// first error in it.
pub fn read_policy(vault: &Vault) -> Result<Option<Policy>, ResolveError> {
    read_policy_at(&vault.paths().root)
}

/// Like [`read_policy`], for a folder that may not be a vault yet.
pub fn read_policy_at(root: &std::path::Path) -> Result<Option<Policy>, ResolveError> {
    let path = root.join(POLICY_FILE);
    // Read beyond the parser's limit, so that the parser reports a file that is too large, together
    // with the limit.
    let Some(bytes) = disk::read(&path, 4 * MAX_BYTES as u64).map_err(VaultError::from)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| ResolveError::NotText)?;
    Ok(Some(Policy::from_toml(&text)?))
}
