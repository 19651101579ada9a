//! `vault remove`: removes skills from the vault and from the agents' folders.

pub mod project;

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    credentials::hide_credentials,
    name::{AgentId, SkillRef},
};
use vault_library::{
    Origin, Vault,
    admit::remove::{RemoveReport, RemoveSkills, RemovedSkill, remove_skills},
    agents,
    run::{self, FoundSkill},
    subscribe,
};

use crate::{
    commands::share::unlink::UnlinkedFolder,
    context::Context,
    errors::Failure,
    lookup::{find_own, installed_names},
    output::{BOLD, DIM, Report, TICK, Warning, clean, either, nearest_name},
    tasks::{profiles, project_scope::ProjectScope},
};

/// The arguments of `vault remove`.
#[derive(Args, Debug)]
#[command(after_help = "\
The skill is unlinked from the agents' folders, then removed from the vault with its transforms. \
The next sync publishes a release without it. A name that is not installed is reported and is not \
an error. A skill of a linked vault is hidden with `vault disable`, left out with `vault cloud pull \
--skill`, or removed with its whole vault: `vault unlink`.

--project removes skills from this project: from its vault.lock, its .vault/skills and the agents' \
folders in it. It refuses a skill that another one requires (--anyway removes it), and names those \
that came only as requirements and that no skill needs any more.

Examples:
  vault remove code-review
  vault remove old-one older-one --json
  vault remove code-review --link claude-code=/srv/agent/skills
  vault remove code-review --project
  vault remove leaked --withdraw \"contains a key\"")]
pub struct Arguments {
    /// The skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    scope: ProjectScope,
    /// Remove a skill from the project although another one requires it
    #[arg(long, requires = "is_project")]
    anyway: bool,
    /// Also make machines uninstall exactly these files, for this reason
    #[arg(long, value_name = "REASON", conflicts_with = "is_project")]
    withdraw: Option<String>,
    /// Change only folders that the vault links into; do not search for other agents
    #[arg(long, conflicts_with = "is_project")]
    no_discover: bool,
    /// Also remove links from this folder of an agent; repeatable
    #[arg(
        long = "link",
        value_name = "AGENT=PATH",
        value_parser = profiles::parse_link,
        conflicts_with = "is_project"
    )]
    links: Vec<(AgentId, PathBuf)>,
}

/// The result of a removal.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Removal {
    /// The removed skills, in the order in which they were named.
    removed: Vec<RemovedSkill>,
    /// Names that were not installed.
    unknown: Vec<String>,
    /// The agents' folders that showed the skills.
    unlinked: Vec<UnlinkedFolder>,
    /// Whether running agents must be restarted to see the change.
    restart_required: bool,
}

/// Removes skills that this vault itself signs, and warns of names that are not installed.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(project) = arguments.scope.project_to_change(context)? {
        return project::remove_skills(context, project, arguments);
    }
    let vault = context.existing_vault()?;
    // Read the names before the removal, for the suggestions about misspelt names.
    let installed = vault
        .as_ref()
        .map(installed_names)
        .transpose()?
        .unwrap_or_default();
    // Check all names before the first removal, so that an error changes nothing.
    let names = own_names(vault.as_ref(), &arguments.names)?;
    let report = match &vault {
        Some(vault) => remove_skills(
            vault,
            &RemoveSkills {
                roots: folders_to_search(context, arguments),
                names,
                withdraw: arguments.withdraw.clone(),
            },
        )?,
        None => RemoveReport {
            unknown: names,
            ..RemoveReport::default()
        },
    };
    let profiles = vault.and_then(|vault| profiles::refresh_links(context, &vault));
    for name in &report.unknown {
        let text = format!("`{}` is not installed", clean(name, 64));
        warn_of_unknown(context, text, name, installed.iter().map(String::as_str));
    }
    let note = either(
        arguments.withdraw.is_some(),
        ", and withdrawn from machines with the next release",
        "",
    );
    let mut lines = Vec::new();
    for RemovedSkill { name, version, .. } in &report.removed {
        let version_text =
            version.map_or_else(String::new, |version| format!(" version {version}"));
        lines.push(format!(
            "{TICK} removed {BOLD}{name}{BOLD:#}{DIM}{version_text}{DIM:#}{note}"
        ));
    }
    let synced = profiles.is_some_and(|profiles| profiles.restart_required);
    let view = Removal {
        removed: report.removed,
        unknown: without_passwords(&report.unknown),
        restart_required: synced || !report.unlinked.is_empty(),
        unlinked: UnlinkedFolder::from_removal(report.unlinked),
    };
    Ok(Report::view(view, lines.join("\n")))
}

/// Returns the unknown names for `--json` without the passwords of addresses that were typed as
/// names.
fn without_passwords(unknown: &[String]) -> Vec<String> {
    unknown.iter().map(|name| hide_credentials(name)).collect()
}

/// Warns of a name that names no skill, and suggests the nearest of the names that do.
fn warn_of_unknown<'n>(
    context: &Context,
    text: String,
    name: &str,
    known: impl Iterator<Item = &'n str>,
) {
    let near = nearest_name(name, known).filter(|near| *near != name);
    context.ui.warn(Warning {
        hint: near.map(|near| format!("did you mean `{near}`?")),
        ..Warning::new("not_installed", text)
    });
}

/// Returns the names without the prefix `local/` (this vault). Fails if a name means a skill of a
/// linked vault.
fn own_names(vault: Option<&Vault>, typed: &[String]) -> Result<Vec<String>, Failure> {
    let name = |text: &String| {
        // Text that is not a valid name matches no skill, and is reported as not installed.
        let (Some(vault), Ok(skill)) = (vault, text.parse::<SkillRef>()) else {
            return Ok(text.clone());
        };
        if let Some(found) = run::find_skill(vault, &skill)?
            && let Origin::Linked(link) = &found.origin
        {
            let link = subscribe::find_link_by_id(vault, link)?;
            let link = link.map(|link| link.pin().name.to_string());
            return Err(linked_skill_failure(&found, &link.unwrap_or_default()));
        }
        match skill.vault {
            Some(_) => Ok(find_own(vault, &skill)?.to_string()),
            None => Ok(text.clone()),
        }
    };
    typed.iter().map(name).collect()
}

/// Creates the failure for a skill of a linked vault, which cannot be removed alone: the next pull
/// would install it again.
fn linked_skill_failure(skill: &FoundSkill, vault: &str) -> Failure {
    let FoundSkill {
        name, qualified, ..
    } = skill;
    // If the bare name means another skill, `vault disable` would hide that one.
    let hide = if skill.bare {
        format!("vault disable {name} hides it from agents; ")
    } else {
        String::new()
    };
    fail!(
        SkillNotFound,
        "{qualified} comes from a linked vault: the next pull would install it again"
    )
    .hint(format!(
        "{hide}vault cloud pull --from {vault} --skill <others> leaves it out; vault unlink \
         {vault} removes all its skills"
    ))
}

/// Returns further folders in which to search for links to the skills: those of `--link`, and those
/// of every agent on this machine or in the current project. The library already knows the folders
/// that the vault links into.
fn folders_to_search(context: &Context, arguments: &Arguments) -> Vec<PathBuf> {
    let links = arguments.links.iter();
    let mut folders: Vec<PathBuf> = links.map(|(_, path)| path.clone()).collect();
    let here = std::path::absolute(".").ok();
    if let (false, Some(machine)) = (
        arguments.no_discover,
        context.process.describe_machine(here),
    ) {
        for agent in agents::detect_agents(&machine) {
            folders.extend(agent.folders_to_scan(&machine));
        }
    }
    // Agents may share a folder. Report each link once.
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|path| seen.insert(path.clone()));
    folders
}
