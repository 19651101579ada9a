//! What the vault remembers of the folders that it links into, which are the folders that agents read.
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
pub(crate) struct RootRecord {
    pub(crate) path: PathBuf,
    pub(crate) agents: BTreeSet<AgentId>,
    pub(crate) scope: RootScope,
    #[serde(default)]
    pub(crate) mode: RootMode,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) copies: BTreeMap<SkillName, CopyRecord>,
}

/// A copy of a skill in a folder of an agent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct CopyRecord {
    /// The bundle that it shows.
    pub(crate) bundle: Digest,
    /// What the copy may hold, the newest last: two while one takes the place of another.
    pub(crate) contents: Vec<Digest>,
}

/// All folders that are linked into.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Record {
    schema: String,
    pub(crate) roots: Vec<RootRecord>,
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
pub(crate) fn trees(vault: &Vault) -> PathBuf {
    vault.paths().root.join("profiles")
}

fn path(vault: &Vault) -> PathBuf {
    vault.paths().root.join("profiles.json")
}

impl Record {
    /// Reads the record; an empty one where nothing was linked yet.
    pub(crate) fn read(vault: &Vault) -> Result<Self, VaultError> {
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

    pub(crate) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        change.write_record(&path(vault), self, 0o600)
    }

    /// Notes a folder, or that one more agent reads it.
    pub(crate) fn note(&mut self, path: &Path, agent: &AgentId, scope: RootScope, mode: RootMode) {
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

/// The names in a folder under which copies of the vault stand.
pub(crate) fn copies_in(vault: &Vault, root: &Path) -> Result<Vec<SkillName>, VaultError> {
    Ok(Record::read(vault)?
        .roots
        .into_iter()
        .filter(|known| known.path == root)
        .flat_map(|known| known.copies.into_keys())
        .collect())
}
