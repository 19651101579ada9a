//! `vault list`: lists the installed skills, or those of a project, for people.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use serde_json::{Value, json};
use vault_format::name::SkillName;
use vault_library::{
    Damage, Examined, Origin, Vault,
    project::{self, Project},
    shelf,
    subscribe::LinkId,
};

use super::skill::{as_json, link_name, warn_of_damaged};
use crate::{
    context::Context,
    errors::{Exit, Failure, chain},
    output::{
        BOLD, DIM, Report, Table, WARN, clean,
        origin::{whose, whose_skill},
        paint,
    },
    project_lock::{Lock, LockEntry, digest_of_installed},
};

/// The arguments of `vault list`.
#[derive(Args, Debug)]
#[command(after_help = "\
Lists your own skills and those from linked vaults. With --project, lists the skills that `vault \
install` installed in a project and compares each with the project's vault.lock.

Examples:
  vault list
  vault list --project
  vault list --project ~/work/shop --json")]
pub struct Arguments {
    /// List the skills of this project [default: the project of the nearest vault.lock]
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "the flag may stand alone, have a value, or be absent"
    )]
    project: Option<Option<PathBuf>>,
}

/// Lists skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match &arguments.project {
        Some(path) => of_project(context, vault.as_ref(), path.as_ref()),
        None => of_vault(context, vault.as_ref()),
    }
}

fn of_vault(context: &Context, vault: Option<&Vault>) -> Result<Report, Failure> {
    let listing = vault.map(shelf::list).transpose()?.unwrap_or_default();
    let exit = match vault {
        Some(vault) => warn_of_damaged(context, vault, &listing)?,
        None => Exit::Done,
    };
    let mut table = Table::new(&["skill", "version", "from", ""]);
    for skill in &listing.skills {
        table.row([
            paint(BOLD, &skill.name),
            skill.version.to_string(),
            whose_skill(&skill.origin, &skill.qualified),
            clean(skill.texts.description.trim(), 80),
        ]);
    }
    let mut withheld = Vec::new();
    for (link, skills) in listing.withheld() {
        let whose = match (vault, link) {
            (Some(vault), Some(link)) => format!("linked vault {}", link_name(vault, link)?),
            _ => whose(&Origin::Local),
        };
        for name in skills {
            let state = paint(WARN, "withheld");
            table.row([paint(BOLD, name), String::new(), whose.clone(), state]);
            withheld.push(json!({ "name": name, "link": link.map(LinkId::as_str) }));
        }
    }
    let text = if listing.skills.is_empty() && withheld.is_empty() {
        "No skill is installed.".to_owned()
    } else {
        table.text()
    };
    let skills: Vec<Value> = listing.skills.iter().map(as_json).collect();
    let data = json!({ "skills": skills, "withheld": withheld });
    Ok(Report::new(data, text).exit(exit))
}

/// How a skill of a project stands to its lock.
enum State {
    /// Installed as the lock names it.
    Installed,
    /// Installed with other content than the lock names.
    Outdated,
    /// Installed, but the lock does not name it.
    Unlocked,
    /// Named by the lock, but not installed.
    Missing,
    /// Its bytes are not the installed ones.
    Damaged(Damage),
}

impl State {
    fn of(read: Option<&Examined>, locked: Option<&LockEntry>) -> Self {
        match (read, locked) {
            (None, _) => Self::Missing,
            (Some(_), None) => Self::Unlocked,
            (Some(read), Some(locked)) if locked.digest == Some(digest_of_installed(read)) => {
                Self::Installed
            }
            (Some(_), Some(_)) => Self::Outdated,
        }
    }

    /// The code in JSON, and the words for people.
    const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Installed => ("installed", ""),
            Self::Outdated => ("outdated", "differs from vault.lock: vault install"),
            Self::Unlocked => ("unlocked", "not in vault.lock: vault install removes it"),
            Self::Missing => ("missing", "not installed: vault install"),
            Self::Damaged(_) => ("damaged", "not what was installed: vault install"),
        }
    }
}

fn of_project(
    context: &Context,
    vault: Option<&Vault>,
    path: Option<&PathBuf>,
) -> Result<Report, Failure> {
    let lock = Lock::of_project(context, path.map(PathBuf::as_path))?;
    let folder = lock.project(context)?;
    let project = match vault {
        Some(vault) => project::find(vault, &folder)?,
        None => None,
    };
    let locked = lock.skills.into_iter();
    let locked: BTreeMap<_, _> = locked.map(|locked| (locked.name.clone(), locked)).collect();
    let installed = project.iter().flat_map(Project::names);
    let names: std::collections::BTreeSet<_> = locked.keys().chain(installed).collect();
    let mut table = Table::new(&["skill", "version", "from", ""]);
    let mut skills = Vec::new();
    let mut exit = Exit::Done;
    for name in &names {
        let read = vault.zip(project.as_ref());
        let read = read.and_then(|(vault, project)| project.read_skill(vault, name));
        let (read, state) = match read {
            Some(Err(damage)) => {
                exit = Exit::Integrity;
                (None, State::Damaged(damage))
            }
            read => {
                let read = read.and_then(Result::ok);
                let state = State::of(read.as_ref(), locked.get(*name));
                (read, state)
            }
        };
        table.row(row(name, read.as_ref(), &state));
        skills.push(project_json(name, read.as_ref(), &state));
    }
    let text = if names.is_empty() {
        "The project has no skills.".to_owned()
    } else {
        table.text()
    };
    let folders = project.as_ref().map(Project::folders);
    let data = json!({ "project": folder.path(), "skills": skills, "folders": folders });
    Ok(Report::new(data, text).exit(exit))
}

fn row(name: &SkillName, read: Option<&Examined>, state: &State) -> [String; 4] {
    let manifest = read.map(|read| &read.manifest);
    [
        paint(BOLD, name),
        manifest.map_or_else(String::new, |manifest| manifest.version.to_string()),
        manifest.map_or_else(String::new, |manifest| {
            clean(manifest.provenance.identifier.as_str(), 200)
        }),
        paint(DIM, state.words().1),
    ]
}

fn project_json(name: &SkillName, read: Option<&Examined>, state: &State) -> Value {
    let manifest = read.map(|read| &read.manifest);
    let damage = match state {
        State::Damaged(damage) => Some(chain(damage)),
        _ => None,
    };
    json!({
        "name": name, "version": manifest.map(|manifest| manifest.version),
        "provenance": manifest.map(|manifest| &manifest.provenance.identifier),
        "state": state.words().0, "damage": damage,
    })
}
