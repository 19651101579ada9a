//! Errors of planning a release, and the differences that they report.

use std::sync::Arc;

use vault_format::catalog::{CatalogError, ChangeLine};
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};
use vault_policy::PolicyError;
use vault_policy::profile::{ProfileError, RulesError};

use crate::admit::AdmitError;
use crate::store::Damage;
use crate::vault::VaultError;
use crate::vault::keys::{KeyError, agent_refusal};
use crate::vault::trust::NamedKey;

/// The differences between the service's current catalog and the vault on this machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// Number of the service's release.
    pub release: u64,
    /// Skills that only the service's release contains.
    pub theirs: Vec<SkillName>,
    /// Skills that only this machine has.
    pub ours: Vec<SkillName>,
    /// Skills that both have, with different content.
    pub differing: Vec<SkillName>,
    /// A line for each signer of the service's release who is no longer a publisher.
    pub former_signers: Vec<ChangeLine>,
}

/// The things that two publishers changed in different ways.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conflicts {
    /// Number of the service's release.
    pub release: u64,
    /// Skills that both sides changed.
    pub changed: Vec<SkillName>,
    /// Skills that were changed on this machine and removed in the service's release.
    pub removed_there: Vec<SkillName>,
    /// Skills that were removed on this machine and changed in the service's release.
    pub removed_here: Vec<SkillName>,
    /// Whether both sides changed the policy, or the local file has changes that nobody approved.
    pub policy: bool,
    /// Profiles of the service's release that this machine does not make, or makes differently.
    pub profiles: Vec<String>,
}

impl Conflicts {
    /// Returns no conflicts with this release.
    pub(super) fn for_release(release: u64) -> Self {
        Self {
            release,
            ..Self::default()
        }
    }
}

/// Error of planning a release. Nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The current catalog was not published from this machine.
    #[error("release {} of the service was not published from this library", .0.release)]
    Diverged(Difference),
    /// This machine and the service's current release changed the same things.
    #[error("this library and release {} changed the same things", .0.release)]
    Conflicts(Conflicts),
    /// The service shows an older release than the last one that it acknowledged.
    #[error(
        "the service shows release {current}, but release {published} was published: it was rolled back"
    )]
    RolledBack {
        /// Release that the service shows; 0 if it shows none.
        current: u64,
        /// Last release that the service acknowledged.
        published: u64,
    },
    /// The service shows another catalog with the number of a release that this machine published.
    #[error("the service shows another release {0} than the one that was published")]
    TwoCatalogs(u64),
    /// The current catalog names another vault id than this vault has.
    #[error("the service's current catalog is another vault's")]
    OtherVault,
    /// The current catalog has this vault's id, but this vault does not trust its keys or
    /// signatures, or it is for another namespace. Holds the reason.
    #[error("the service's current catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// The service's current release is not valid under this vault's newest keys, and this machine
    /// has neither published nor taken it over.
    #[error("release {release} of the service does not count: {reason}")]
    NotCounted {
        /// Number of the release.
        release: u64,
        /// SHA-256 of the release's payload.
        payload_sha256: Digest,
        /// Signers that are publishers in the root version (signed list of keys) that the release
        /// names.
        signers: Vec<NamedKey>,
        /// A line for each signer of the release who is no longer a publisher.
        former_signers: Vec<ChangeLine>,
        /// Reason for which the release is not valid.
        reason: Arc<CatalogError>,
        /// Whether this machine has no skills. Publishing over the release would then remove all
        /// skills.
        is_empty_here: bool,
    },
    /// A key that signed the service's release is revoked, or was never a publisher's. Readers
    /// ignore that release.
    #[error("release {release} of the service is not signed by publishers of this vault alone")]
    Voided {
        /// Number of the release.
        release: u64,
        /// SHA-256 of the release's payload.
        payload_sha256: Digest,
        /// A line for each signer who is no longer a publisher.
        former_signers: Vec<ChangeLine>,
    },
    /// The current catalog can't be parsed or verified, or the new one can't be signed.
    #[error(transparent)]
    Catalog(CatalogError),
    /// Installed skills fail verification. A release without them would remove them from all
    /// devices.
    #[error("{} of the installed skills were modified after signing, first {}", .0.len(), .0.first().map_or("", |(name, _)| name.as_str()))]
    Damaged(Vec<(SkillName, Damage)>),
    /// The approved `policy.toml` is not a valid policy, so it can't become an object of the
    /// release.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// The approved `profiles.toml` has an invalid rule, so no profiles can be built.
    #[error("profiles.toml: {0}")]
    Profiles(#[from] RulesError),
    /// The policy or the profiles are not UTF-8.
    #[error("{file} is not UTF-8")]
    NotText {
        /// Name of the file in the vault's folder.
        file: &'static str,
    },
    /// A transform can't be applied, so a variant that a profile needs can't be rendered.
    #[error("{skill} can't be rendered for {agent}: {reason}")]
    Transform {
        /// Skill that the transform changes.
        skill: SkillName,
        /// Agent that the variant is for.
        agent: AgentId,
        /// Why the variant can't be rendered, as text for the message.
        reason: String,
    },
    /// A transform file is not valid, so nobody knows for which agents it is.
    #[error("a transform of {skill} can't be read: {reason}")]
    TransformUnread {
        /// Skill that the transform changes.
        skill: SkillName,
        /// The file, and what is wrong with it.
        reason: String,
    },
    /// The profiles of the release have more skills or variants than the service accepts.
    #[error("{reason}{widest}")]
    Published {
        /// Limit that is exceeded, and what was found.
        reason: ProfileError,
        /// The transform that is for the most agents, as the end of the message.
        widest: String,
    },
    /// An index, profile or policy object exceeds the size limit of objects.
    #[error("an index, profile or policy object is over 4 MiB")]
    TooLarge,
    /// A skill must be signed as a higher version, but the current gate blocks it.
    #[error("{name} can't be signed again: {reason}")]
    Refused {
        /// Own skill that the gate blocks.
        name: SkillName,
        /// Findings of the gate, or another reason against signing.
        reason: AdmitError,
    },
    /// A skill changed or was removed during the upload. The caller must plan again.
    #[error("{0} changed while the release was being published")]
    Moved(SkillName),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl PlanError {
    /// Returns whether the service's current catalog belongs to another vault, or has a format that
    /// is no longer read.
    pub const fn is_another_vaults(&self) -> bool {
        matches!(
            self,
            Self::OtherVault | Self::Catalog(CatalogError::EarlierFormat)
        )
    }
}

impl From<CatalogError> for PlanError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Signer(error) => match agent_refusal(error) {
                Ok(refusal) => refusal.into(),
                Err(error) => Self::Catalog(error.into()),
            },
            error => Self::Catalog(error),
        }
    }
}

impl From<KeyError> for PlanError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}
