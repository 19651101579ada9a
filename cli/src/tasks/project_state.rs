//! Compares the installed skills of a project with its `vault.lock`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{name::SkillName, provenance::ProvenanceId};
use vault_library::{
    Examined, Vault,
    agents::wrong_links,
    project::{self, Project},
};

use crate::{
    errors::{Failure, message_chain},
    tasks::{
        project_lock::{LockEntry, digest_of_installed},
        project_scope::LockedProject,
    },
};

/// The skills of a project, compared with its `vault.lock`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProjectSkills {
    /// Path of the folder that contains the project's skills and its `vault.lock`.
    pub project: PathBuf,
    /// Every skill that is installed in the project or named by its lock.
    pub skills: Vec<ProjectSkill>,
    /// The agents' folders in it that show the skills; null if nothing is installed.
    pub folders: Option<BTreeSet<PathBuf>>,
}

/// A skill of a project, compared with the project's `vault.lock`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProjectSkill {
    /// Name in the project.
    pub name: SkillName,
    /// Version in its signed manifest; null if it is not installed.
    pub version: Option<u64>,
    /// Source that its signed manifest records; null if it is not installed or damaged.
    pub provenance: Option<ProvenanceId>,
    /// Source of its entry in the lock; null if it has none.
    pub source: Option<String>,
    /// The commit, version or digest of its entry in the lock; null if it has none, or names none.
    pub revision: Option<String>,
    /// How the skill differs from the entry of the lock.
    pub state: LockState,
    /// The first difference from what was signed; null if there is none.
    pub damage: Option<String>,
    /// Skills of the project that require it, as the lock records them.
    pub needed_by: Vec<SkillName>,
    /// Whether it came only because others require it.
    pub as_requirement: bool,
}

/// Relation of a project's skill to the lock.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// Installed as the lock names it.
    Installed,
    /// Installed with other content than the lock names.
    Outdated,
    /// Installed, but the lock does not name it.
    Unlocked,
    /// Named by the lock, but not installed.
    Missing,
    /// Installed, but its files differ from those that were signed.
    Damaged,
    /// Installed as the lock names it, but something else is in the place of a link to it.
    Hidden,
}

impl LockState {
    fn compare_with_lock(read: Option<&Examined>, locked: Option<&LockEntry>) -> Self {
        match (read, locked) {
            (None, _) => Self::Missing,
            (Some(_), None) => Self::Unlocked,
            // Compare contents, because a lock entry does not have the vault's version number.
            (Some(read), Some(locked)) if locked.digest == Some(digest_of_installed(read)) => {
                Self::Installed
            }
            (Some(_), Some(_)) => Self::Outdated,
        }
    }

    /// Returns the difference in words, without the command that resolves it; empty if there is
    /// none.
    pub const fn difference(self) -> &'static str {
        match self {
            Self::Installed => "",
            Self::Outdated => "differs from vault.lock",
            Self::Unlocked => "not in vault.lock",
            Self::Missing => "not installed",
            Self::Damaged => "not what was installed",
            Self::Hidden => "agents see something else in its place",
        }
    }

    /// Returns the difference with the command that resolves it; empty if there is none.
    pub const fn hint_text(self) -> &'static str {
        match self {
            Self::Installed => "",
            Self::Outdated => "differs from vault.lock: vault install",
            Self::Unlocked => "not in vault.lock: vault install removes it",
            Self::Missing => "not installed: vault install",
            Self::Damaged => "not what was installed: vault install",
            Self::Hidden => "agents see something else: vault doctor --project",
        }
    }
}

impl ProjectSkills {
    /// Reads and verifies the skills of a project. A damaged skill does not stop the others.
    pub fn read_skills(vault: Option<&Vault>, of: &LockedProject) -> Result<Self, Failure> {
        let project = match vault {
            Some(vault) => project::find_project(vault, &of.folder)?,
            None => None,
        };
        let locked = of.lock.skills.iter().map(|locked| (&locked.name, locked));
        let locked: BTreeMap<_, _> = locked.collect();
        let installed = project.iter().flat_map(Project::skill_names);
        // List skills that only the lock or only the project has, too.
        let names: BTreeSet<_> = locked.keys().copied().chain(installed).collect();
        let wrong = match vault.zip(project.as_ref()) {
            Some((vault, project)) => wrong_links(vault, project)?,
            None => Vec::new(),
        };
        let is_hidden = |name: &SkillName| {
            let mut names = wrong.iter().filter_map(|path| path.file_name());
            names.any(|wrong| wrong == name.as_str())
        };
        let skills = names.into_iter().map(|name| {
            let read = vault.zip(project.as_ref());
            let read = read.and_then(|(vault, project)| project.read_skill(vault, name));
            let entry = locked.get(name).copied();
            let skill = match read {
                Some(Err(damage)) => ProjectSkill {
                    damage: Some(message_chain(&damage)),
                    ..ProjectSkill::new(name, None, entry, LockState::Damaged)
                },
                read => {
                    let read = read.and_then(Result::ok);
                    let state = match LockState::compare_with_lock(read.as_ref(), entry) {
                        LockState::Installed if is_hidden(name) => LockState::Hidden,
                        state => state,
                    };
                    ProjectSkill::new(name, read, entry, state)
                }
            };
            ProjectSkill {
                as_requirement: entry.is_some_and(|entry| entry.as_requirement),
                ..skill
            }
        });
        Ok(Self {
            project: of.folder.path().to_owned(),
            skills: skills.collect(),
            folders: project
                .as_ref()
                .map(|project| project.agent_folders().clone()),
        })
    }

    /// Returns whether a skill's files differ from those that were signed.
    pub fn is_damaged(&self) -> bool {
        self.skills
            .iter()
            .any(|skill| skill.state == LockState::Damaged)
    }
}

impl ProjectSkill {
    fn new(
        name: &SkillName,
        read: Option<Examined>,
        entry: Option<&LockEntry>,
        state: LockState,
    ) -> Self {
        let manifest = read.map(|read| read.manifest);
        let digest = entry.and_then(|entry| entry.digest);
        let digest = digest.map(|digest| format!("sha256:{digest}"));
        Self {
            name: name.clone(),
            version: manifest.as_ref().map(|manifest| manifest.version),
            provenance: manifest.map(|manifest| manifest.provenance.identifier),
            source: entry.map(|entry| entry.source.clone()),
            revision: entry.and_then(|entry| entry.revision.clone()).or(digest),
            state,
            damage: None,
            needed_by: Vec::new(),
            as_requirement: false,
        }
    }
}
