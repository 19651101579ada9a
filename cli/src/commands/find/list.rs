//! `vault list`: lists the installed skills, or the skills of a project and their state compared
//! with its `vault.lock`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    name::{SkillName, SkillRef},
    provenance::ProvenanceId,
};
use vault_library::{
    Examined, Origin, Vault,
    project::{self, Project},
    run, shelf,
    subscribe::LinkId,
};

use super::skill::{ListedSkill, link_name, warn_of_damaged};
use crate::{
    context::Context,
    errors::{Exit, Failure, message_chain},
    output::{
        BOLD, Column, DIM, Report, Table, WARN, clean,
        origin::{describe_owner, whose_skill},
        paint,
    },
    tasks::{
        exceptions::exceptions_of,
        project_lock::{LockEntry, digest_of_installed},
        project_scope::{LockedProject, ProjectScope},
    },
};

/// The arguments of `vault list`.
#[derive(Args, Debug)]
#[command(after_help = "\
Lists your own skills and those from linked vaults. With --project, lists the skills that `vault \
install` installed in a project and compares each with the project's vault.lock. -v shows the \
exceptions to the gate that skills are signed with.

Examples:
  vault list
  vault list --project
  vault list --project --root ~/work/shop --json")]
pub struct Arguments {
    #[command(flatten)]
    scope: ProjectScope,
}

/// The output of `vault list` without `--project`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct InstalledSkills {
    /// Intact skills: own ones first, by name within each origin.
    skills: Vec<ListedSkill>,
    /// Skills that are not run, because a revoked key signed them.
    withheld: Vec<WithheldSkill>,
}

/// A skill that is not run until its vault's next release.
#[derive(Debug, JsonSchema, Serialize)]
pub struct WithheldSkill {
    /// Name under which it is installed.
    name: SkillName,
    /// Link of the vault that published it; null for a skill of this vault.
    link: Option<LinkId>,
}

/// The output of `vault list --project`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProjectSkills {
    /// Path of the folder that contains the project's skills and its `vault.lock`.
    project: PathBuf,
    /// Every skill that is installed in the project or named by its lock.
    skills: Vec<ProjectSkill>,
    /// The agents' folders in it that show the skills; null if nothing is installed.
    folders: Option<BTreeSet<PathBuf>>,
}

/// A skill of a project, compared with the project's `vault.lock`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProjectSkill {
    /// Name in the project.
    name: SkillName,
    /// Version in its signed manifest; null if it is not installed.
    version: Option<u64>,
    /// Source that its signed manifest records; null if it is not installed or damaged.
    provenance: Option<ProvenanceId>,
    /// How the skill differs from the entry of the lock.
    state: LockState,
    /// The first difference from what was signed; null if there is none.
    damage: Option<String>,
}

/// Lists the installed skills, or with `--project` those of a project.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match arguments.scope.existing_project(context)? {
        Some(project) => list_project(context, vault.as_ref(), project),
        None => list_vault(context, vault.as_ref()),
    }
}

fn list_vault(context: &Context, vault: Option<&Vault>) -> Result<Report, Failure> {
    // Without a vault, nothing is installed, which is not an error.
    let listing = vault
        .map(shelf::list_installed)
        .transpose()?
        .unwrap_or_default();
    let exit = match vault {
        Some(vault) => warn_of_damaged(context, vault, &listing)?,
        None => Exit::Done,
    };
    let mut table = skills_table();
    for skill in &listing.skills {
        table.push_row([
            paint(BOLD, &skill.name),
            skill.version.to_string(),
            // Show the source of the vault's own skills, and the vault of linked ones.
            match skill.origin {
                Origin::Local => clean(&skill.texts.provenance, 200),
                _ => whose_skill(&skill.origin, &skill.qualified),
            },
            clean(skill.texts.description.trim(), 80),
        ]);
    }
    let mut withheld = Vec::new();
    // Also list withheld skills (not run, because their signer's key was revoked), or they would
    // seem to be gone.
    for (link, skills) in listing.withheld_skills() {
        let whose = match (vault, link) {
            (Some(vault), Some(link)) => format!("linked vault {}", link_name(vault, link)?),
            _ => describe_owner(&Origin::Local),
        };
        for name in skills {
            let state = paint(WARN, "withheld");
            table.push_row([paint(BOLD, name), String::new(), whose.clone(), state]);
            withheld.push(WithheldSkill {
                name: name.clone(),
                link: link.cloned(),
            });
        }
    }
    let mut text = if listing.skills.is_empty() && withheld.is_empty() {
        "No skill is installed.".to_owned()
    } else {
        context.ui.format_table(&table)
    };
    if let (Some(vault), true) = (vault, context.ui.is_verbose()) {
        for line in exception_lines(vault, &listing) {
            text.push('\n');
            text.push_str(&line);
        }
    }
    let skills = listing.skills.into_iter().map(ListedSkill::from).collect();
    Ok(Report::view(InstalledSkills { skills, withheld }, text).with_exit(exit))
}

/// Formats the exceptions to the gate with which the skills are signed, one line for each.
fn exception_lines(vault: &Vault, listing: &shelf::Listing) -> Vec<String> {
    let mut lines = Vec::new();
    for skill in &listing.skills {
        // The command already warns of skills that cannot be verified.
        let name = skill.qualified.parse::<SkillRef>().ok();
        let Some(Ok(verified)) = name.map(|name| run::inspect_skill(vault, name)) else {
            continue;
        };
        let exceptions = exceptions_of(&verified.examined.manifest);
        lines.extend(exceptions.iter().map(|exception| {
            let name = paint(BOLD, &skill.name);
            format!("{DIM}allowed{DIM:#} {name}: {}", exception.to_line())
        }));
    }
    lines
}

/// Creates the table of skills. The last column has a description or state, and is left out first
/// on a narrow terminal.
fn skills_table() -> Table {
    Table::new([
        Column::new("skill").shrinks_to(24),
        Column::new("version").leaves(2),
        Column::new("from").shrinks_to(16),
        Column::new("").shrinks_to(20).leaves(1),
    ])
}

/// Relation of a project's skill to the lock.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
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

    /// Returns the state in words, with the command that resolves it; empty if all is well.
    const fn hint_text(self) -> &'static str {
        match self {
            Self::Installed => "",
            Self::Outdated => "differs from vault.lock: vault install",
            Self::Unlocked => "not in vault.lock: vault install removes it",
            Self::Missing => "not installed: vault install",
            Self::Damaged => "not what was installed: vault install",
        }
    }
}

fn list_project(
    context: &Context,
    vault: Option<&Vault>,
    project: LockedProject,
) -> Result<Report, Failure> {
    let LockedProject { lock, folder } = project;
    let project = match vault {
        Some(vault) => project::find_project(vault, &folder)?,
        None => None,
    };
    let lock_entries = lock.skills.into_iter();
    let locked: BTreeMap<_, _> = lock_entries
        .map(|locked| (locked.name.clone(), locked))
        .collect();
    let installed = project.iter().flat_map(Project::skill_names);
    // List skills that only the lock or only the project has, too.
    let names: BTreeSet<_> = locked.keys().chain(installed).collect();
    let mut table = skills_table();
    let mut skills = Vec::new();
    let mut exit = Exit::Done;
    for name in &names {
        let read = vault.zip(project.as_ref());
        let read = read.and_then(|(vault, project)| project.read_skill(vault, name));
        let skill = match read {
            // Go on after a damaged skill, and report it in the exit code.
            Some(Err(damage)) => {
                exit = Exit::Integrity;
                ProjectSkill {
                    damage: Some(message_chain(&damage)),
                    ..ProjectSkill::new(name, None, LockState::Damaged)
                }
            }
            read => {
                let read = read.and_then(Result::ok);
                let state = LockState::compare_with_lock(read.as_ref(), locked.get(*name));
                ProjectSkill::new(name, read, state)
            }
        };
        table.push_row(skill.to_row());
        skills.push(skill);
    }
    let text = if names.is_empty() {
        "The project has no skills.".to_owned()
    } else {
        context.ui.format_table(&table)
    };
    let view = ProjectSkills {
        project: folder.path().to_owned(),
        skills,
        folders: project
            .as_ref()
            .map(|project| project.agent_folders().clone()),
    };
    Ok(Report::view(view, text).with_exit(exit))
}

impl ProjectSkill {
    fn new(name: &SkillName, read: Option<Examined>, state: LockState) -> Self {
        let manifest = read.map(|read| read.manifest);
        Self {
            name: name.clone(),
            version: manifest.as_ref().map(|manifest| manifest.version),
            provenance: manifest.map(|manifest| manifest.provenance.identifier),
            state,
            damage: None,
        }
    }

    fn to_row(&self) -> [String; 4] {
        let text = |number: u64| number.to_string();
        let from = self
            .provenance
            .as_ref()
            .map(|from| clean(from.as_str(), 200));
        [
            paint(BOLD, &self.name),
            self.version.map(text).unwrap_or_default(),
            from.unwrap_or_default(),
            paint(DIM, self.state.hint_text()),
        ]
    }
}
