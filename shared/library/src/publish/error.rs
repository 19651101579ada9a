//! Errors of release planning.

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

/// The difference between the service's current catalog and this library.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// The service's release number.
    pub release: u64,
    /// Skills only in the service's release.
    pub theirs: Vec<SkillName>,
    /// Skills only in this library.
    pub ours: Vec<SkillName>,
    /// Skills in both, with different content.
    pub differing: Vec<SkillName>,
    /// A line for each signer of the release who is no longer a publisher.
    pub former_signers: Vec<ChangeLine>,
}

/// The conflicting changes of two publishers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conflicts {
    /// The service's release number.
    pub release: u64,
    /// Skills that both sides changed.
    pub changed: Vec<SkillName>,
    /// Skills that were changed here and removed there.
    pub removed_there: Vec<SkillName>,
    /// Skills that were removed here and changed there.
    pub removed_here: Vec<SkillName>,
    /// Whether both sides changed the policy, or the local file has unapproved changes.
    pub policy: bool,
    /// Profiles of the service's release that this library does not make, or makes differently.
    pub profiles: Vec<String>,
}

impl Conflicts {
    /// No conflicts with this release.
    pub(super) fn for_release(release: u64) -> Self {
        Self {
            release,
            ..Self::default()
        }
    }
}

/// An error of planning a release. Nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The current catalog was not published from this library.
    #[error("release {} of the service was not published from this library", .0.release)]
    Diverged(Difference),
    /// This library and the service's current release changed the same things.
    #[error("this library and release {} changed the same things", .0.release)]
    Conflicts(Conflicts),
    /// The service serves an older release than the last one it acknowledged.
    #[error(
        "the service shows release {current}, but release {published} was published: it was rolled back"
    )]
    RolledBack {
        /// The release that the service serves; 0 if it has none.
        current: u64,
        /// The release that it last acknowledged.
        published: u64,
    },
    /// The service serves a different catalog under a release number that this library published.
    #[error("the service shows another release {0} than the one that was published")]
    TwoCatalogs(u64),
    /// The current catalog is another vault's.
    #[error("the service's current catalog is another vault's")]
    OtherVault,
    /// The current catalog does not belong to this vault.
    #[error("the service's current catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// The service's current release is not valid under this vault's newest keys, and this machine
    /// has neither published nor taken it over.
    #[error("release {release} of the service does not count: {reason}")]
    NotCounted {
        /// Its number.
        release: u64,
        /// SHA-256 of its payload.
        payload_sha256: Digest,
        /// The signers that are publishers in the root version that it names.
        signers: Vec<NamedKey>,
        /// A line for each of them who is no longer a publisher.
        former_signers: Vec<ChangeLine>,
        /// The reason why it is not valid.
        reason: Arc<CatalogError>,
        /// Whether this library has no skills: publishing over it would remove all of them.
        is_empty_here: bool,
    },
    /// A key that signed the service's release is revoked, or was never a publisher's.
    #[error("release {release} of the service is not signed by publishers of this vault alone")]
    Voided {
        /// Its number.
        release: u64,
        /// SHA-256 of its payload.
        payload_sha256: Digest,
        /// A line for each signer who is no longer a publisher.
        former_signers: Vec<ChangeLine>,
    },
    /// The current catalog can't be parsed or verified, or the new one can't be signed.
    #[error(transparent)]
    Catalog(CatalogError),
    /// Installed skills fail verification, so they are not published.
    #[error("{} of the installed skills were modified after signing, first {}", .0.len(), .0.first().map_or("", |(name, _)| name.as_str()))]
    Damaged(Vec<(SkillName, Damage)>),
    /// `policy.toml` is invalid.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// `profiles.toml` is invalid.
    #[error("profiles.toml: {0}")]
    Profiles(#[from] RulesError),
    /// A policy or profiles file is not UTF-8 text.
    #[error("{file} is not UTF-8")]
    NotText {
        /// The file name in the vault's folder.
        file: &'static str,
    },
    /// A transform can't be applied, so a variant that a profile needs can't be rendered.
    #[error("{skill} can't be rendered for {agent}: {reason}")]
    Transform {
        /// The skill.
        skill: SkillName,
        /// The agent that the variant is for.
        agent: AgentId,
        /// The cause.
        reason: String,
    },
    /// A transform file is not valid, so it is unknown which agents it is for.
    #[error("a transform of {skill} can't be read: {reason}")]
    TransformUnread {
        /// The skill.
        skill: SkillName,
        /// The file and its fault.
        reason: String,
    },
    /// The profiles of the release are more than the service accepts.
    #[error("{reason}{widest}")]
    Published {
        /// The bound, and what was found.
        reason: ProfileError,
        /// The transform that is for the most agents, as the end of the sentence.
        widest: String,
    },
    /// An index, profile or policy object is too large.
    #[error("an index, profile or policy object is over 4 MiB")]
    TooLarge,
    /// A skill needs a higher version, but the current gate rejects it.
    #[error("{name} can't be signed again: {reason}")]
    Refused {
        /// The skill.
        name: SkillName,
        /// The cause.
        reason: AdmitError,
    },
    /// A skill changed or was removed during the upload. The caller must plan again.
    #[error("{0} changed while the release was being published")]
    Moved(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl PlanError {
    /// Returns whether the service's current catalog is another vault's, or of a format that is no
    /// longer read.
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
