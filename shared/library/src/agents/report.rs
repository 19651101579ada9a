//! The report and the errors of a profile sync.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{AgentId, SkillName};
use vault_policy::profile::RulesError;

use crate::admit::variants::RenderedVariant;
use crate::disk::FileError;
use crate::installed::agent_links::record::{RootMode, RootScope};
use crate::vault::VaultError;

/// The result of [`crate::sync_profiles`].
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ProfileSyncReport {
    /// Whether the skills visible to any agent changed. An agent that reads them at startup must be
    /// restarted.
    pub restart_required: bool,
    /// The profiles in the order of `profiles.toml`, otherwise ordered by agent id.
    pub profiles: Vec<ProfileState>,
    /// The linked agent folders.
    pub roots: Vec<RootState>,
    /// Detected agents that are neither linked nor declined, by id.
    pub unlinked_agents: Vec<AgentId>,
    /// Skills that were rendered for one agent and signed.
    pub rendered: Vec<RenderedVariant>,
    /// Warnings as data; callers write the messages.
    #[serde(skip)]
    pub warnings: Vec<ProfileWarning>,
}

/// The state of a profile after the sync.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProfileState {
    /// Its name.
    pub name: String,
    /// Id of the agent to which the profile applies.
    pub agent: AgentId,
    /// Number of skills that the profile shows to its agent.
    pub skills: usize,
    /// Folder of the profile in the vault, with one link for each skill.
    pub path: PathBuf,
}

/// The state of an agent's folder after the sync.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RootState {
    /// Path of the folder from which agents read skills.
    pub path: PathBuf,
    /// Ids of the agents that read skills from the folder.
    pub agents: Vec<AgentId>,
    /// Reason for linking the folder.
    pub scope: RootScope,
    /// Whether the folder holds symlinks or copies.
    pub mode: RootMode,
    /// Number of skills that the vault shows in the folder.
    pub skills: usize,
    /// Names of skills that this sync added to the folder.
    pub added: Vec<String>,
    /// Names of skills whose target or copy changed.
    pub changed: Vec<String>,
    /// Names of skills that this sync removed from the folder.
    pub removed: Vec<String>,
    /// Skills that are not shown because an entry of the user has their name.
    pub foreign: Vec<SkillName>,
    /// The skills in `foreign` that no sync has reported before.
    #[serde(skip)]
    pub newly_foreign: Vec<SkillName>,
    /// Whether this sync created the folder.
    pub created: bool,
    /// Whether the folder is missing and was not created.
    pub missing: bool,
    /// Error that kept the folder from being changed, if any.
    pub failed: Option<String>,
}

/// A problem that the user should know about, and that did not stop the sync.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProfileWarning {
    /// A skill fails verification and is shown to no agent.
    SkillDamaged(SkillName),
    /// An agent sees the plain skill because its transforms can't be applied.
    TransformFailed {
        /// The skill whose variant is missing.
        skill: SkillName,
        /// The agent that gets the plain skill instead.
        agent: AgentId,
        /// Reason for not rendering the variant, for messages.
        reason: String,
    },
    /// A file or folder among the link trees that the vault did not create. It is left alone.
    ForeignInProfiles(PathBuf),
    /// An agent's folder that resolves to a path inside the vault. Nothing is linked there.
    RootInVault(PathBuf),
    /// An agent's folder of a project that lies behind a symbolic link, which a repository may
    /// contain. Nothing is linked there.
    RootBehindLink(PathBuf),
    /// A recorded agent's folder that does not exist. It is not created again.
    RootMissing(PathBuf),
}

impl ProfileWarning {
    /// Returns a stable code for machine-readable output.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SkillDamaged(_) => "skill_damaged",
            Self::TransformFailed { .. } => "transform_failed",
            Self::ForeignInProfiles(_) => "foreign_in_profiles",
            Self::RootInVault(_) => "root_in_vault",
            Self::RootBehindLink(_) => "root_behind_link",
            Self::RootMissing(_) => "root_missing",
        }
    }

    /// Returns the path that the warning is about, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::ForeignInProfiles(path)
            | Self::RootInVault(path)
            | Self::RootBehindLink(path)
            | Self::RootMissing(path) => Some(path),
            Self::SkillDamaged(_) | Self::TransformFailed { .. } => None,
        }
    }
}

/// Error of a profile sync. Folders that were linked before stay linked.
#[derive(Debug, thiserror::Error)]
pub enum ProfileSyncError {
    /// `profiles.toml` is invalid.
    #[error("profiles.toml: {0}")]
    Rules(#[from] RulesError),
    /// A profile in `profiles.toml` has a relative target folder, which would depend on the working
    /// directory.
    #[error("profiles.toml: the target {0:?} is neither absolute nor below ~/")]
    Target(String),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for ProfileSyncError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}
