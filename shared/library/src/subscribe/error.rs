//! Errors of linking vaults and of pulling their skills.

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

/// Error of linking or pulling. Nothing on disk has changed, except root versions that were stored.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No linked vault has this id.
    #[error("{0} is not linked")]
    Unknown(LinkId),
    /// The catalog was rejected, so nothing of its release is installed.
    #[error("{cause}")]
    Catalog {
        /// Rule that the catalog breaks.
        #[source]
        cause: CatalogError,
        /// Changes of the vault's keys, if root versions that came with the catalog were stored all
        /// the same.
        roots: Option<Box<RootChanges>>,
    },
    /// The selection names a skill that the catalog does not list.
    #[error("the vault publishes no skill named {name}")]
    NotInCatalog {
        /// Name in the selection.
        name: SkillName,
        /// Skills that the vault publishes.
        published: Vec<SkillName>,
    },
    /// The selection names a tag that no skill of the catalog has.
    #[error("the vault publishes no skill with the tag {tag}")]
    TagUnknown {
        /// Tag in the selection.
        tag: String,
        /// Tags of the vault's skills.
        published: Vec<String>,
    },
    /// The selection names an agent that neither this program nor the catalog knows.
    #[error("no agent is called {agent}, and the vault publishes nothing for it")]
    AgentUnknown {
        /// Agent in the selection.
        agent: AgentId,
        /// Agents that the catalog names.
        published: Vec<AgentId>,
    },
    /// An index object of the catalog is missing or invalid.
    #[error("the object {hash} of the catalog is not usable: {reason}")]
    Object {
        /// SHA-256 by which the catalog names the object.
        hash: Digest,
        /// What is missing or invalid, as text for the message.
        reason: String,
    },
    /// A profile of the release is missing, invalid, or does not fit the release.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A variant of a skill for an agent can't be installed.
    #[error("the variant for {agent}: {cause}")]
    Variant {
        /// Agent for which the variant was rendered.
        agent: AgentId,
        /// Error of the variant's bundle. It names the skill.
        cause: Box<Self>,
    },
    /// Another name (`--as`) was given, but not exactly one skill was selected.
    #[error("another name can be given to one skill only")]
    OneNameOnly,
    /// A bundle does not match the catalog, or fails verification.
    #[error("the bundle of {name} is refused: {reason}")]
    Bundle {
        /// Skill of the bundle, by its name in the catalog.
        name: SkillName,
        /// Why the bytes are not the bundle that the catalog lists.
        reason: BundleError,
    },
    /// The manifest of a skill declares something that its files do not.
    #[error("{name}: {reason}")]
    Derived {
        /// Skill with this manifest, by its name in the catalog.
        name: SkillName,
        /// Name of the member of the manifest that does not follow from the files.
        reason: DerivedMismatch,
    },
    /// A bundle is valid but not encoded canonically. Verification encodes installed bundles again
    /// and needs the same hash.
    #[error("the bundle of {0} is not in canonical form")]
    NotCanonical(SkillName),
    /// A bundle of the selection was neither fetched nor is it installed.
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
    /// The gate of this machine blocks these skills, and the link is set to refuse such skills.
    #[error("the gate refuses {}", names_of(.0))]
    Gate(Vec<FlaggedSkill>),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A skill that the gate of this machine blocks.
#[derive(Clone, Debug)]
pub struct FlaggedSkill {
    /// Name that the skill has, or would have, on this machine.
    pub name: SkillName,
    /// Findings that block the skill, none of them a mere warning.
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
