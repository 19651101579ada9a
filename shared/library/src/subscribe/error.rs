//! Why a linked vault was not changed.

use vault_skill::bundle::BundleError;
use vault_skill::catalog::CatalogError;
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use crate::disk::FileError;
use crate::installed::link_id::LinkId;
use crate::vault::VaultError;
use crate::vault::keys::KeyError;

/// Why a link, a catalog or a bundle was refused. Nothing on disk has changed then.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This vault is not linked.
    #[error("{0} is not linked")]
    Unknown(LinkId),
    /// The catalog is not one to believe.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The vault's key is not the one that was expected.
    #[error("the vault's key has the fingerprint {found}, not {expected}")]
    Fingerprint {
        /// As given by the caller.
        expected: String,
        /// Of the key that signed the catalog.
        found: String,
    },
    /// A skill was asked for that the catalog does not name.
    #[error("the vault has no skill named {0}")]
    NotInCatalog(SkillName),
    /// An index or profile object is missing or wrong.
    #[error("the object {hash} of the catalog is not usable: {reason}")]
    Object {
        /// Its hash.
        hash: Digest,
        /// What is wrong.
        reason: String,
    },
    /// `--as` without exactly one skill.
    #[error("another name can be given to one skill only")]
    OneNameOnly,
    /// A bundle is not what the catalog names.
    #[error("the bundle of {name} is refused: {reason}")]
    Bundle {
        /// The skill.
        name: SkillName,
        /// What is wrong.
        reason: BundleError,
    },
    /// A bundle says the right things in another way of writing than the one that every vault writes.
    #[error("the bundle of {0} is not written in the one way that can be checked again")]
    NotCanonical(SkillName),
    /// A selected bundle was neither staged nor installed.
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
