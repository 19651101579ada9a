//! The record of the agents' folders that the vault links into. It lies in the trust folder,
//! because an attacker who can write to the vault's folder must not choose where on this machine
//! the vault makes links and copies, or which folders it removes as its own copies.
//!
//! Links need no record: a link that points into the vault's `profiles/` belongs to the vault, and
//! no other link does. Copies need one: each is recorded with its content hash before it is
//! created. A copy that a user edited no longer matches its hash, so the vault leaves it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};

use crate::disk::HeldPath;
use crate::vault::folder::PrivateFolder;
use crate::vault::{Change, Vault, VaultError};

const SCHEMA: &str = "vault.profiles/1";

/// The reason for linking into a folder.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(into = "String", from = "String")]
pub enum RootScope {
    /// An agent of this user reads the folder in all projects.
    #[default]
    User,
    /// An agent reads the folder in one project.
    Project,
    /// The user named the folder.
    Given,
    /// A profile of `profiles.toml` names the folder. Holds the name of the profile.
    Profile(String),
}

impl From<RootScope> for String {
    fn from(scope: RootScope) -> Self {
        match scope {
            RootScope::User => "user".to_owned(),
            RootScope::Project => "project".to_owned(),
            RootScope::Given => "given".to_owned(),
            RootScope::Profile(name) => format!("profile:{name}"),
        }
    }
}

impl From<String> for RootScope {
    fn from(text: String) -> Self {
        match text.as_str() {
            "user" => Self::User,
            "project" => Self::Project,
            // Treat a scope from a later version like a folder that the user named: it stays, and
            // is never created again.
            other => other
                .strip_prefix("profile:")
                .map_or(Self::Given, |name| Self::Profile(name.to_owned())),
        }
    }
}

/// The way in which skills are placed in a folder.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootMode {
    /// The folder has one symbolic link for each skill.
    #[default]
    Link,
    /// The folder has a copy of each skill, because it can't hold links.
    Copy,
}

/// An agent's folder in which the vault makes links or copies.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RootRecord {
    pub(crate) path: PathBuf,
    pub(crate) agents: BTreeSet<AgentId>,
    pub(crate) scope: RootScope,
    #[serde(default)]
    pub(crate) mode: RootMode,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) copies: BTreeMap<SkillName, CopyRecord>,
    /// Whether the folder was chosen while there was nothing to link, so that it was not created.
    /// The first skill creates it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) awaits_skill: bool,
    /// Skills that are not shown because an entry of the user has the name, and that a sync has
    /// reported already.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) reported: BTreeSet<SkillName>,
}

/// The record of one copy of a skill in an agent's folder.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct CopyRecord {
    /// Bundle that was copied.
    pub(crate) bundle: Digest,
    /// Content hashes that the copy may have, newest last. There are two of them while a new copy
    /// replaces an old one.
    pub(crate) contents: Vec<Digest>,
}

/// The record of all folders into which the vault links, and of the agents that the user declined.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct AgentFolders {
    schema: String,
    pub(crate) roots: Vec<RootRecord>,
    /// Agents whose folders the user does not want linked. Vault does not offer them again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) declined: BTreeSet<AgentId>,
}

impl Default for AgentFolders {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            roots: Vec::new(),
            declined: BTreeSet::new(),
        }
    }
}

/// Returns the vault's folder of link trees, `profiles/`. Each tree shows the skills of one
/// profile.
pub(crate) fn link_trees_folder(vault: &Vault) -> HeldPath {
    vault.folder().join("profiles")
}

/// File in the trust folder that holds the [`AgentFolders`].
const RECORD: &str = "agent-folders.json";

impl AgentFolders {
    /// Reads the record; it is empty if nothing has been linked yet.
    pub(crate) fn read(vault: &Vault) -> Result<Self, VaultError> {
        let folder = vault.trust_folder();
        let Some(record) = folder.read_record::<Self>(RECORD)? else {
            return Ok(Self::default());
        };
        if record.schema == SCHEMA {
            Ok(record)
        } else {
            Err(VaultError::Damaged {
                path: folder.path_of(RECORD),
                reason: format!("{} is not {SCHEMA}", record.schema),
            })
        }
    }

    /// Removes the records of all vaults from a copy of the trust folder, such as an unpacked
    /// backup.
    pub(crate) fn remove_from_copy(config: &Path) -> Result<(), VaultError> {
        let vaults = PrivateFolder::new(config, "vaults");
        for id in vaults.folder_names()? {
            vaults.child(&id).remove_file(RECORD)?;
        }
        Ok(())
    }

    /// Writes the record, under the writer lock.
    pub(crate) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        // The record is part of the vault's state, so watchers must notice the change.
        change.mark_changing()?;
        Ok(vault.trust_folder().write_record(RECORD, self)?)
    }

    /// Adds a folder, or adds an agent to a folder that is already recorded.
    pub(crate) fn add_folder(
        &mut self,
        path: &Path,
        agent: &AgentId,
        scope: RootScope,
        mode: RootMode,
    ) {
        // A path has one record for each profile that names it, and one for all other scopes
        // together.
        let same = |root: &&mut RootRecord| {
            root.path == path
                && (root.scope == scope
                    || !matches!(
                        (&root.scope, &scope),
                        (RootScope::Profile(_), _) | (_, RootScope::Profile(_))
                    ))
        };
        if let Some(root) = self.roots.iter_mut().find(same) {
            root.agents.insert(agent.clone());
            // The folder may contain copies already, so it never becomes a folder of links again.
            if mode == RootMode::Copy {
                root.mode = mode;
            }
            return;
        }
        self.roots.push(RootRecord {
            path: path.to_owned(),
            agents: [agent.clone()].into(),
            scope,
            mode,
            ..RootRecord::default()
        });
    }
}

/// Returns the names of the vault's copies in a folder.
pub(crate) fn copied_skills(vault: &Vault, root: &Path) -> Result<Vec<SkillName>, VaultError> {
    Ok(AgentFolders::read(vault)?
        .roots
        .into_iter()
        .filter(|known| known.path == root)
        .flat_map(|known| known.copies.into_keys())
        .collect())
}
