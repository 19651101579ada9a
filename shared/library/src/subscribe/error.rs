//! Errors of linked vaults.

use vault_format::bundle::BundleError;
use vault_format::catalog::CatalogError;
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName, SkillRef, Slug};
use vault_gate::derived::DerivedMismatch;
use vault_gate::finding::Finding;
use vault_policy::profile::ProfileError;

use crate::disk::FileError;
use crate::installed::link_id::LinkId;
use crate::vault::VaultError;
use crate::vault::keys::KeyError;
use crate::vault::trust::RootChanges;

/// An error of linking or pulling. Nothing on disk has changed, except for stored root versions.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This vault is not linked.
    #[error("{0} is not linked")]
    Unknown(LinkId),
    /// The catalog is rejected.
    #[error("{cause}")]
    Catalog {
        /// The cause.
        #[source]
        cause: CatalogError,
        /// The changes of the vault's keys, if root versions that came with the catalog were
        /// stored.
        roots: Option<Box<RootChanges>>,
    },
    /// The selection names a skill that is not in the catalog.
    #[error("the vault publishes no skill named {name}")]
    NotInCatalog {
        /// The name.
        name: SkillName,
        /// The skills that it publishes.
        published: Vec<SkillName>,
    },
    /// The selection names a tag that no skill of the catalog has.
    #[error("the vault publishes no skill with the tag {tag}")]
    TagUnknown {
        /// The tag.
        tag: String,
        /// The tags that its skills have.
        published: Vec<String>,
    },
    /// The selection names an agent that neither the caller nor the catalog knows.
    #[error("no agent is called {agent}, and the vault publishes nothing for it")]
    AgentUnknown {
        /// The agent.
        agent: AgentId,
        /// The agents that the catalog names.
        published: Vec<AgentId>,
    },
    /// An index object is missing or invalid.
    #[error("the object {hash} of the catalog is not usable: {reason}")]
    Object {
        /// The object's hash.
        hash: Digest,
        /// The reason.
        reason: String,
    },
    /// A profile of the release is missing, invalid, or does not fit the release.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The variant of a skill for an agent is refused.
    #[error("the variant for {agent}: {cause}")]
    Variant {
        /// The agent.
        agent: AgentId,
        /// The error of its bundle, with the name of the skill.
        cause: Box<Self>,
    },
    /// Another name (`--as`) was given, but not exactly one skill was selected.
    #[error("another name can be given to one skill only")]
    OneNameOnly,
    /// A bundle does not match the catalog, or its verification failed.
    #[error("the bundle of {name} is refused: {reason}")]
    Bundle {
        /// The skill.
        name: SkillName,
        /// The reason.
        reason: BundleError,
    },
    /// A skill's manifest contradicts its files.
    #[error("{name}: {reason}")]
    Derived {
        /// The skill.
        name: SkillName,
        /// The difference.
        reason: DerivedMismatch,
    },
    /// A bundle is valid, but not in the canonical encoding. The integrity check encodes installed
    /// bundles again and needs the same hash.
    #[error("the bundle of {0} is not in canonical form")]
    NotCanonical(SkillName),
    /// A selected bundle is neither staged nor installed.
    #[error("the bundle of {0} was not fetched")]
    NotStaged(SkillName),
    /// Another linked vault has this name on this machine.
    #[error("another linked vault is called {0} here")]
    NameTaken(Slug),
    /// No linked vault installs this skill.
    #[error("no skill named {0} is installed")]
    NotInstalled(SkillRef),
    /// An own skill has the bare name.
    #[error("your own skill {0} has this name")]
    OwnName(SkillName),
    /// The gate of this machine rejects skills, and the link is set to refuse those.
    #[error("the gate refuses {}", names_of(.0))]
    Gate(Vec<FlaggedSkill>),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A skill that the gate of this machine rejects.
#[derive(Clone, Debug)]
pub struct FlaggedSkill {
    /// The name it has, or would have, on this machine.
    pub name: SkillName,
    /// The findings that reject it.
    pub findings: Vec<Finding>,
}

fn names_of(flagged: &[FlaggedSkill]) -> String {
    let names: Vec<_> = flagged.iter().map(|skill| skill.name.as_str()).collect();
    names.join(", ")
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
