//! What the vault remembers of the folders that it links into, and which skills are switched off where.
//!
//! Links need no record: one that points into the vault's `profiles/` is ours, any other is not. Copies do: each is
//! noted before it is made, with what it holds, so that one that somebody edited is never taken for ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};

use crate::vault::{Change, Vault, VaultError, read_record};

const SCHEMA: &str = "vault.profiles/1";

/// Why a folder is linked into.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", from = "String")]
pub enum RootScope {
    /// An agent of this user reads it.
    User,
    /// An agent reads it in one project.
    Project,
    /// The user named it.
    Given,
    /// A profile of `profiles.toml` names it.
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
            // What a later version may write counts as named by the user: it is kept and never made again.
            other => other
                .strip_prefix("profile:")
                .map_or(Self::Given, |name| Self::Profile(name.to_owned())),
        }
    }
}

/// How skills are put into a folder.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootMode {
    /// One symbolic link for each skill.
    #[default]
    Link,
    /// A copy of each skill, kept track of: for a folder that holds no links.
    Copy,
}

/// A folder that is linked into.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct RootRecord {
    pub(super) path: PathBuf,
    pub(super) agents: BTreeSet<AgentId>,
    pub(super) scope: RootScope,
    #[serde(default)]
    pub(super) mode: RootMode,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) copies: BTreeMap<SkillName, CopyRecord>,
}

/// A copy of a skill in a folder of an agent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct CopyRecord {
    /// The bundle that it shows.
    pub(super) bundle: Digest,
    /// What the copy may hold, the newest last: two while one takes the place of another.
    pub(super) contents: Vec<Digest>,
}

/// All folders that are linked into.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Record {
    schema: String,
    pub(super) roots: Vec<RootRecord>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            roots: Vec::new(),
        }
    }
}

/// The folder of the vault that holds the link trees.
pub(super) fn trees(vault: &Vault) -> PathBuf {
    vault.paths().root.join("profiles")
}

fn path(vault: &Vault) -> PathBuf {
    vault.paths().root.join("profiles.json")
}

impl Record {
    /// Reads the record; an empty one where nothing was linked yet.
    pub(super) fn read(vault: &Vault) -> Result<Self, VaultError> {
        let path = path(vault);
        let Some(record) = read_record::<Self>(&path)? else {
            return Ok(Self::default());
        };
        if record.schema == SCHEMA {
            Ok(record)
        } else {
            Err(VaultError::Damaged {
                path,
                reason: format!("{} is not {SCHEMA}", record.schema),
            })
        }
    }

    pub(super) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        change.write_record(&path(vault), self, 0o600)
    }

    /// Notes a folder, or that one more agent reads it.
    pub(super) fn note(&mut self, path: &Path, agent: &AgentId, scope: RootScope, mode: RootMode) {
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
            copies: BTreeMap::new(),
        });
    }
}

/// Skills that are switched off, for one agent or for all.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Switches {
    disabled: BTreeSet<Disabled>,
}

/// One skill that is switched off.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Disabled {
    /// The skill.
    pub name: SkillName,
    /// The agent that does not see it; `None`: no agent does.
    pub agent: Option<AgentId>,
}

impl Switches {
    /// Reads them; damaged ones are an error, so that nothing is switched on by accident.
    pub fn read(vault: &Vault) -> Result<Self, VaultError> {
        Ok(read_record(&switches_path(vault))?.unwrap_or_default())
    }

    /// Whether an agent sees a skill.
    pub fn shows(&self, name: &SkillName, agent: &AgentId) -> bool {
        // Looked up for every skill and agent: most vaults have none.
        self.disabled.is_empty()
            || !self.disabled.iter().any(|off| {
                off.name == *name && off.agent.as_ref().is_none_or(|other| other == agent)
            })
    }

    /// What is switched off, in order.
    pub fn disabled(&self) -> impl Iterator<Item = &Disabled> {
        self.disabled.iter()
    }

    /// Whether nothing is switched off.
    pub fn is_empty(&self) -> bool {
        self.disabled.is_empty()
    }

    /// Switches a skill off or on for an agent or for all; true when that changed anything. Switching on for all also
    /// undoes what was switched off for single agents.
    pub(super) fn set(&mut self, name: &SkillName, agent: Option<&AgentId>, on: bool) -> bool {
        let before = self.disabled.clone();
        if !on {
            self.disabled.insert(Disabled {
                name: name.clone(),
                agent: agent.cloned(),
            });
        } else if agent.is_some() {
            self.disabled
                .retain(|off| off.name != *name || off.agent.as_ref() != agent);
        } else {
            self.disabled.retain(|off| off.name != *name);
        }
        self.disabled != before
    }

    pub(super) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        change.write_record(&switches_path(vault), self, 0o600)
    }
}

fn switches_path(vault: &Vault) -> PathBuf {
    vault.paths().root.join("disabled.json")
}
