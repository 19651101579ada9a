//! What a sync of profiles reports.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::profile::RulesError;

use crate::files::FileError;
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
    /// What was noticed besides.
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
#[derive(Clone, Debug, Serialize)]
pub struct ProfileWarning {
    /// The stable word.
    pub code: &'static str,
    /// One sentence without a full stop.
    pub message: String,
    /// What mends it.
    pub hint: String,
    /// Where.
    pub path: Option<PathBuf>,
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

pub(super) fn damaged_warning(name: &SkillName) -> ProfileWarning {
    ProfileWarning {
        code: "skill_damaged",
        message: format!("{name} is not as it was signed and is shown to no agent"),
        hint: format!("vault doctor {name}"),
        path: None,
    }
}

pub(super) fn transform_warning(
    (name, agent, reason): (SkillName, AgentId, String),
) -> ProfileWarning {
    ProfileWarning {
        code: "transform_failed",
        message: format!("{agent} sees {name} without its transforms: {reason}"),
        hint: format!("mend it and add it again: vault transform add {name} <file>"),
        path: None,
    }
}

pub(super) fn strange_warning(path: PathBuf) -> ProfileWarning {
    ProfileWarning {
        code: "foreign_in_profiles",
        message: format!("{} is not the vault's and is left alone", path.display()),
        hint: "move it elsewhere: this folder is made by vault sync-profiles".to_owned(),
        path: Some(path),
    }
}

pub(super) fn inside_warning(path: &Path) -> ProfileWarning {
    ProfileWarning {
        code: "root_in_vault",
        message: format!("{} leads into the vault itself", path.display()),
        hint: format!(
            "make it a folder of its own: rm {0} && mkdir {0}",
            path.display()
        ),
        path: Some(path.to_owned()),
    }
}

pub(super) fn missing_warning(path: &Path) -> ProfileWarning {
    ProfileWarning {
        code: "root_missing",
        message: format!("{} is not there any more", path.display()),
        hint: "vault doctor --clean forgets it; vault sync-profiles --discover links into what is there".to_owned(),
        path: Some(path.to_owned()),
    }
}
