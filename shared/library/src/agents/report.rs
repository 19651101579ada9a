//! What a sync of profiles reports.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::profile::RulesError;

use crate::disk::FileError;
use crate::installed::agent_links::record::{RootMode, RootScope};
use crate::vault::VaultError;

/// What [`sync_profiles`] did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileSyncReport {
    /// Whether what an agent sees through links changed: one that read them at its start must be started again.
    pub restart_required: bool,
    /// The profiles in the order of `profiles.toml`, else of the agents' ids.
    pub profiles: Vec<ProfileState>,
    /// The folders of agents that are linked into.
    pub roots: Vec<RootState>,
    /// Agents that were found and are not linked into, by their ids.
    pub unlinked_agents: Vec<AgentId>,
    /// What was noticed besides; callers write the sentences.
    #[serde(skip)]
    pub warnings: Vec<ProfileWarning>,
}

/// A profile as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileState {
    /// Its name.
    pub name: String,
    /// Its agent.
    pub agent: AgentId,
    /// How many skills it shows.
    pub skills: usize,
    /// Its folder in the vault.
    pub path: PathBuf,
}

/// A folder of an agent as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct RootState {
    /// The folder.
    pub path: PathBuf,
    /// The agents that read it.
    pub agents: Vec<AgentId>,
    /// Why it is linked into.
    pub scope: RootScope,
    /// Links or copies.
    pub mode: RootMode,
    /// Skills of the vault in it.
    pub skills: usize,
    /// Skills that are new in it.
    pub added: Vec<String>,
    /// Skills that are shown from another place than before.
    pub changed: Vec<String>,
    /// Skills that it shows no more.
    pub removed: Vec<String>,
    /// Skills that are not shown, since something of the user's has their name.
    pub foreign: Vec<SkillName>,
    /// The folder was made.
    pub created: bool,
    /// It is not there, and is not made again.
    pub missing: bool,
    /// Why nothing was done in it.
    pub failed: Option<String>,
}

/// Something that did not stop the sync and that the user should know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProfileWarning {
    /// A skill is not as it was signed and is shown to no agent.
    SkillDamaged(SkillName),
    /// An agent sees a skill without its transforms.
    TransformFailed {
        /// The skill.
        skill: SkillName,
        /// The agent.
        agent: AgentId,
        /// Why the transforms can't be applied.
        reason: String,
    },
    /// This entry of the link trees was not made by the vault and is left alone.
    ForeignInProfiles(PathBuf),
    /// This folder of an agent leads into the vault itself.
    RootInVault(PathBuf),
    /// This folder of an agent is missing.
    RootMissing(PathBuf),
}

impl ProfileWarning {
    /// The stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SkillDamaged(_) => "skill_damaged",
            Self::TransformFailed { .. } => "transform_failed",
            Self::ForeignInProfiles(_) => "foreign_in_profiles",
            Self::RootInVault(_) => "root_in_vault",
            Self::RootMissing(_) => "root_missing",
        }
    }

    /// Where.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::ForeignInProfiles(path) | Self::RootInVault(path) | Self::RootMissing(path) => {
                Some(path)
            }
            Self::SkillDamaged(_) | Self::TransformFailed { .. } => None,
        }
    }
}

/// Why profiles were not synced. What was linked before still is.
#[derive(Debug, thiserror::Error)]
pub enum ProfileSyncError {
    /// profiles.toml has an error.
    #[error("profiles.toml: {0}")]
    Rules(#[from] RulesError),
    /// A target that depends on where the command runs.
    #[error("profiles.toml: the target {0:?} is neither absolute nor below ~/")]
    Target(String),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for ProfileSyncError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}
