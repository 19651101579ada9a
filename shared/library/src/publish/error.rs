//! Why no release was planned.

use vault_skill::catalog::CatalogError;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::policy::PolicyError;
use vault_skill::profile::RulesError;

use crate::admit::AdmitError;
use crate::store::Damage;
use crate::vault::VaultError;
use crate::vault::keys::KeyError;

/// How the current catalog differs from this library.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// The service's release.
    pub release: u64,
    /// In the service's release alone.
    pub theirs: Vec<SkillName>,
    /// In this library alone.
    pub ours: Vec<SkillName>,
    /// In both, with other content.
    pub differing: Vec<SkillName>,
}

/// Why no release was planned. Nothing was signed then.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The current catalog was not published from this library.
    #[error("release {} of the service was not published from this library", .0.release)]
    Diverged(Difference),
    /// The service shows an older release than it had acknowledged.
    #[error(
        "the service shows release {current}, but release {published} was published: it was rolled back"
    )]
    RolledBack {
        /// What the service shows; 0 for nothing.
        current: u64,
        /// What it had acknowledged.
        published: u64,
    },
    /// The service shows another catalog with a number that this library published.
    #[error("the service shows another release {0} than the one that was published")]
    TwoCatalogs(u64),
    /// The current catalog is not one of this vault.
    #[error("the service's current catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// The current catalog can't be read, or the new one can't be signed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Skills are not as they were signed; they are not published.
    #[error("{} of the installed skills are not as they were signed, first {}", .0.len(), .0.first().map_or("", |(name, _)| name.as_str()))]
    Damaged(Vec<(SkillName, Damage)>),
    /// policy.toml has an error.
    #[error("policy.toml: {0}")]
    Policy(#[from] PolicyError),
    /// profiles.toml has an error.
    #[error("profiles.toml: {0}")]
    Profiles(#[from] RulesError),
    /// One of the owner's files is no text.
    #[error("{file} is not UTF-8")]
    NotText {
        /// Its name in the vault's folder.
        file: &'static str,
    },
    /// A transform can't be applied, so that the variant that a profile names can't be made.
    #[error("{skill} can't be rendered for {agent}: {reason}")]
    Transform {
        /// The skill.
        skill: SkillName,
        /// The agent that the variant is for.
        agent: AgentId,
        /// Why.
        reason: String,
    },
    /// An index, profile or policy object is too large.
    #[error("an index, profile or policy object is over 4 MiB")]
    TooLarge,
    /// Today's gate refuses to sign a skill again whose version has to rise.
    #[error("{name} can't be signed again: {reason}")]
    Refused {
        /// The skill.
        name: SkillName,
        /// Why.
        reason: AdmitError,
    },
    /// A skill changed or went while the release was being uploaded; plan again.
    #[error("{0} changed while the release was being published")]
    Moved(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<KeyError> for PlanError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}
