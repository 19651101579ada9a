//! Errors of linked vaults.

use vault_skill::bundle::BundleError;
use vault_skill::catalog::CatalogError;
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use crate::disk::FileError;
use crate::installed::link_id::LinkId;
use crate::vault::VaultError;
use crate::vault::keys::KeyError;

/// Why a link, a catalog or a bundle was rejected. Nothing on disk has changed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This vault is not linked.
    #[error("{0} is not linked")]
    Unknown(LinkId),
    /// The catalog is rejected.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The vault's key does not have the expected fingerprint.
    #[error("the vault's key has the fingerprint {found}, not {expected}")]
    Fingerprint {
        /// The fingerprint that the caller or [`expect`](super::expect) supplied.
        expected: String,
        /// The fingerprint of the key that signed the catalog.
        found: String,
    },
    /// The selection names a skill that is not in the catalog.
    #[error("the vault has no skill named {0}")]
    NotInCatalog(SkillName),
    /// An index or profile object is missing or invalid.
    #[error("the object {hash} of the catalog is not usable: {reason}")]
    Object {
        /// The object's hash.
        hash: Digest,
        /// What is wrong.
        reason: String,
    },
    /// Another name (`--as`) was given, but not exactly one skill was selected.
    #[error("another name can be given to one skill only")]
    OneNameOnly,
    /// A bundle does not match the catalog, or its verification failed.
    #[error("the bundle of {name} is refused: {reason}")]
    Bundle {
        /// The skill.
        name: SkillName,
        /// What is wrong.
        reason: BundleError,
    },
    /// A bundle is valid, but not in the canonical encoding. The integrity check encodes installed
    /// bundles again and needs the same hash.
    #[error("the bundle of {0} is not written in the one way that can be checked again")]
    NotCanonical(SkillName),
    /// A selected bundle is neither staged nor installed.
    #[error("the bundle of {0} was not fetched")]
    NotStaged(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for LinkError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<KeyError> for LinkError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}
