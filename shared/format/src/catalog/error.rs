//! The reasons to reject a catalog, and the warnings about one that is accepted.

use super::{MAX_RELEASE_JUMP, MAX_WITHDRAWN};
use crate::count::count;
use crate::dsse::EnvelopeError;
use crate::json::JsonError;
use crate::keys::SignerError;
use crate::name::SkillName;
use crate::root::RootError;
use crate::time::Timestamp;

/// A reason to reject a catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file has more bytes than any object may have.
    #[error("the catalog is larger than 4 MiB")]
    TooLarge,
    /// The file does not have the shape of a catalog file.
    #[error("not a catalog: {0}")]
    Json(#[from] JsonError),
    /// The envelope in the file is malformed.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries another type of payload than a catalog.
    #[error("the envelope does not carry a catalog")]
    PayloadType,
    /// The vault was made before root documents (signed lists of keys) existed.
    #[error(
        "the catalog is of an earlier format; take its skills into a new vault with `vault import --from-vault PATH`"
    )]
    EarlierFormat,
    /// The payload breaks a rule of its shape.
    #[error("{0}")]
    Shape(&'static str),
    /// The catalog withdraws more bundles than it may name.
    #[error("catalog must not withdraw more than {MAX_WITHDRAWN} bundles")]
    Withdrawn,
    /// The root versions in the catalog's file are rejected, or the catalog names a root version
    /// that is not the newest of them.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Fewer keys of the release role (the publishers) have signed than its threshold requires.
    #[error("the catalog has signatures of {} of the release role; it needs {needed}", count(*found, "key"))]
    SignaturesMissing {
        /// The number of distinct keys whose signatures are valid.
        found: usize,
        /// The number of keys that must sign.
        needed: usize,
    },
    /// The catalog names an older root version, and the same file carries the newest one: the owner
    /// has changed the keys and has not published a release since.
    #[error("the keys of the vault have changed; its owner has not published a release since")]
    ReleaseAwaited,
    /// The catalog names a key that may not sign it or did not sign it, or another key than its
    /// file names.
    #[error("{0}")]
    Key(&'static str),
    /// The signer of a new catalog failed to sign.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The catalog names another vault than the one whose keys verify its signatures.
    #[error("the catalog belongs to another vault")]
    VaultId,
    /// The catalog is for another namespace than the reader asked for.
    #[error("the catalog is for another namespace")]
    Slug,
    /// The catalog does not list the address from which the reader got it.
    #[error("the catalog does not name this address in its audience")]
    Audience,
    /// The catalog is issued in the future, its lifetime is too short or too long, or it outlives
    /// its root version; or the reader's clock shows an earlier time than it has shown before.
    #[error("{0}")]
    Clock(&'static str),
    /// The catalog is expired by the reader's clock.
    #[error("the release expired at {0}")]
    Expired(Timestamp),
    /// The newest root version, and with it every release, is expired by the reader's clock.
    #[error("the vault's list of keys expired at {0}")]
    RootExpired(Timestamp),
    /// The catalog is older than the one that the reader has stored (a rollback).
    #[error("release {release} is older than the stored release {stored}")]
    Older {
        /// Release number of the catalog.
        release: u64,
        /// Release number of the stored catalog.
        stored: u64,
    },
    /// The reader already has another catalog with the same release number.
    #[error("two different catalogs carry release {0}")]
    TwoCatalogs(u64),
    /// The catalog skips more release numbers than it may.
    #[error("the release is more than {MAX_RELEASE_JUMP} above the stored one")]
    Jump,
    /// A skill skips more version numbers than it may.
    #[error("the version of `{0}` is more than {MAX_RELEASE_JUMP} above the stored one")]
    SkillJump(SkillName),
    /// The catalog does not name the release that the reader has as its previous one.
    #[error("the catalog does not name the current release as its previous one")]
    Previous,
    /// The catalog has other content for a version of a skill than the reader has stored.
    #[error("version {version} of `{name}` has other content than the one that is stored")]
    SkillTwice {
        /// Skill whose version has two contents.
        name: SkillName,
        /// Version number that both have.
        version: u64,
    },
    /// The catalog lists an older version of a skill than the reader has stored (a rollback).
    #[error("version {version} of `{name}` is older than the stored version {stored}")]
    SkillRolledBack {
        /// Skill that comes back in an older version.
        name: SkillName,
        /// Version number in the catalog.
        version: u64,
        /// Version number that the reader has stored.
        stored: u64,
    },
    /// The proposed release was overtaken by another release or root version, or this machine has
    /// signed another payload under its number.
    #[error("the proposal is outdated: {0}")]
    ProposalOutdated(OutdatedProposal),
}

/// A reason why a proposed release can no longer be signed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OutdatedProposal {
    /// This machine has signed another payload under the same number.
    #[error("this machine has signed another payload under its number")]
    OtherSigned,
    /// The proposal's previous release is not the current one.
    #[error("it does not follow the current release")]
    NotNext,
    /// The proposal itself has been published.
    #[error("it is the current release already")]
    Published,
    /// The proposal names an older root version.
    #[error("the keys of the vault have changed since")]
    OtherKeys,
    /// Another release with the same or a higher number is current.
    #[error("another release is current")]
    Overtaken,
}

impl CatalogError {
    /// The machine-readable code of the error. The service's answer to a push and the test vectors
    /// use the same codes.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::TooLarge
            | Self::Json(_)
            | Self::Envelope(_)
            | Self::PayloadType
            | Self::EarlierFormat
            | Self::Shape(_) => "catalog_schema",
            Self::Withdrawn => "catalog_withdrawn",
            Self::Root(error) => error.error_code(),
            Self::SignaturesMissing { .. } | Self::Signer(_) => "signatures_missing",
            Self::ReleaseAwaited => "release_awaited",
            Self::Key(_) => "catalog_key",
            Self::VaultId => "catalog_vault_id",
            Self::Slug => "catalog_slug",
            Self::Audience => "catalog_audience",
            Self::Clock(_) => "catalog_clock",
            Self::Expired(_) | Self::RootExpired(_) => "release_expired",
            Self::Older { .. } | Self::TwoCatalogs(_) | Self::Jump | Self::SkillJump(_) => {
                "catalog_release"
            }
            Self::Previous => "catalog_previous",
            Self::SkillRolledBack { .. } | Self::SkillTwice { .. } => "skill_rolled_back",
            Self::ProposalOutdated(_) => "proposal_outdated",
        }
    }
}

/// A warning about a catalog that is accepted nevertheless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CatalogWarning {
    /// The catalog was issued more than 300 seconds in this clock's future.
    IssuedInFuture,
    /// This clock shows an earlier time than it did before.
    ClockWentBack,
    /// The catalog is expired. Only a publisher's machine still accepts it, in order to replace it.
    Expired,
}
