//! Approval of the files that the owner writes by hand: the policy, the profiles and the
//! transforms. A changed file has no effect until the owner has seen the difference and approves
//! it.

use std::path::Path;

use vault_policy::PolicyError;
use vault_policy::profile::{ProfileRule, RulesError};

use super::variants::{self, AddTransformError};
use crate::disk::FileError;
use crate::vault::authored::{AuthoredFile, PendingFile};
use crate::vault::policy::{ResolveError, parse_policy};
use crate::vault::{Vault, VaultError};

/// Error of an approval. The approved version stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// The new `policy.toml` is not a valid policy. Holds the fault with its line.
    #[error("{0}")]
    Policy(PolicyError),
    /// The new `profiles.toml` has an invalid rule, or is no TOML.
    #[error("{0}")]
    Profiles(RulesError),
    /// A profile links skills into a relative folder, which would depend on the working directory.
    #[error("the target {0:?} is neither absolute nor below ~/")]
    Target(String),
    /// A policy or profiles file is not UTF-8 text.
    #[error("it is not UTF-8")]
    NotText,
    /// The transform is invalid, or the gate blocks a skill that it was applied to.
    #[error(transparent)]
    Transform(AddTransformError),
    /// The pending file could not be read. Holds the reason, for the message.
    #[error("{0}")]
    Unreadable(String),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<ResolveError> for ApproveError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Policy(error) => Self::Policy(error),
            ResolveError::NotText => Self::NotText,
            ResolveError::Vault(error) => Self::Vault(error),
        }
    }
}

/// Approves a pending file: exactly the bytes in `pending`, even if the file changed meanwhile.
/// Fails if they are invalid.
pub fn approve_file(vault: &Vault, pending: &PendingFile) -> Result<(), ApproveError> {
    let mut change = vault.begin_change()?;
    // These are the bytes that the owner was shown. Reading the file again could approve something
    // else.
    let unreadable = |error: &FileError| ApproveError::Unreadable(error.to_string());
    let content = pending.found.as_ref().map_err(unreadable)?.as_deref();
    // No content means that the owner deleted the file, which needs no check.
    if let Some(bytes) = content {
        check_content(vault, &pending.file, bytes)?;
    }
    Ok(change.set_approved(&pending.file, content)?)
}

fn check_content(vault: &Vault, file: &AuthoredFile, bytes: &[u8]) -> Result<(), ApproveError> {
    match file {
        AuthoredFile::Policy => {
            parse_policy(bytes)?;
        }
        AuthoredFile::Profiles => {
            let text = std::str::from_utf8(bytes).map_err(|_| ApproveError::NotText)?;
            let rules = ProfileRule::from_toml(text).map_err(ApproveError::Profiles)?;
            // A relative target would depend on the folder in which a later sync runs.
            for target in rules.into_iter().filter_map(|rule| rule.target) {
                if !(target.starts_with("~/") || Path::new(&target).is_absolute()) {
                    return Err(ApproveError::Target(target));
                }
            }
        }
        AuthoredFile::Transform { skill, name } => {
            let checked = variants::try_transform(vault, skill, name.clone(), bytes);
            checked.map_err(|error| match error {
                AddTransformError::Vault(error) => ApproveError::Vault(error),
                error => ApproveError::Transform(error),
            })?;
        }
    }
    Ok(())
}

/// Writes a file of the owner and approves it at once, because a command produced its content.
/// Fails if the content is invalid.
pub fn write_approved(
    vault: &Vault,
    file: &AuthoredFile,
    bytes: &[u8],
) -> Result<(), ApproveError> {
    let mut change = vault.begin_change()?;
    // Check under the lock, since a transform is tried on the skill that is installed now.
    check_content(vault, file, bytes)?;
    Ok(change.write_authored(file, bytes)?)
}
