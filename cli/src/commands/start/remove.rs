//! `vault remove`: removes skills from the vault.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vault_library::{
    admit::remove::{RemoveSkills, remove_skills},
    agents,
};
use vault_skill::name::AgentId;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, GOOD, Report, Warning, clean, nearest, paint},
    profiles,
};

/// Since 0.4.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
A name that is not installed is said and is no failure. The skill leaves the agents' folders
first, then the vault with its transforms; the next sync publishes a release without it.

Examples:
  vault remove code-review
  vault remove old-one older-one --json
  vault remove code-review --link claude-code=/srv/agent/skills
  vault remove leaked --withdraw \"contains a key\"

Since 0.4.0 (stable).")]
pub struct Arguments {
    /// The skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Make machines uninstall these bytes too, for this reason
    #[arg(long, value_name = "REASON")]
    withdraw: Option<String>,
    /// Do not look for further agents: only folders that the vault links into are changed
    #[arg(long)]
    no_discover: bool,
    /// Look for links in this folder of an agent too; may be given several times
    #[arg(long = "link", value_name = "AGENT=PATH", value_parser = profiles::parse_link)]
    links: Vec<(AgentId, PathBuf)>,
}

/// Removes the vault's own skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = context.existing_vault()? else {
        return Ok(nothing_there(context, &arguments.names));
    };
    let installed: Vec<String> = vault_library::shelf::list(&vault)?
        .skills
        .into_iter()
        .map(|skill| skill.name.to_string())
        .collect();
    let report = remove_skills(
        &vault,
        &RemoveSkills {
            roots: folders(context, arguments),
            names: arguments.names.clone(),
            withdraw: arguments.withdraw.clone(),
        },
    )?;
    let profiles = profiles::refresh(context, &vault);
    for name in &report.unknown {
        let warning = Warning::new(
            "not_installed",
            format!("`{}` is not installed", clean(name, 64)),
        );
        context
            .ui
            .warn(match nearest(name, installed.iter().map(String::as_str)) {
                Some(near) if near != name => warning.hint(format!("did you mean `{near}`?")),
                _ => warning,
            });
    }
    let lines: Vec<String> = report
        .removed
        .iter()
        .map(|removed| {
            let version = removed
                .version
                .map_or_else(String::new, |version| format!(" version {version}"));
            format!(
                "{} removed {}{}{}",
                paint(GOOD, "✓"),
                paint(BOLD, &removed.name),
                paint(DIM, version),
                if arguments.withdraw.is_some() {
                    ", and withdrawn from machines with the next release"
                } else {
                    ""
                }
            )
        })
        .collect();
    let removed: Vec<_> = report
        .removed
        .iter()
        .map(|removed| {
            json!({
                "name": removed.name,
                "version": removed.version,
                "bundle_hash": removed.bundle,
                "withdrawn": arguments.withdraw.is_some(),
                "transforms": removed.transforms,
            })
        })
        .collect();
    Ok(Report::new(
        json!({
            "removed": removed,
            "unknown": report.unknown,
            "unlinked": report.unlinked.iter().map(|(path, names)| json!({ "path": path, "names": names })).collect::<Vec<_>>(),
            "restart_required": !report.unlinked.is_empty()
                || profiles.is_some_and(|profiles| profiles.restart_required),
        }),
        lines.join("\n"),
    ))
}

fn nothing_there(context: &Context, names: &[String]) -> Report {
    for name in names {
        context.ui.warn(Warning::new(
            "not_installed",
            format!("`{}` is not installed", clean(name, 64)),
        ));
    }
    Report::new(
        json!({ "removed": [], "unknown": names, "unlinked": [], "restart_required": false }),
        "",
    )
}

/// The folders to search for links, in addition to those that the vault already links into: the
/// ones given as arguments, and those of every agent found on the machine or in the project.
fn folders(context: &Context, arguments: &Arguments) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = arguments
        .links
        .iter()
        .map(|(_, path)| path.clone())
        .collect();
    let here = std::path::absolute(".").ok();
    if let (false, Some(machine)) = (arguments.no_discover, context.process.machine(here)) {
        for agent in agents::found(&machine) {
            folders.extend(agent.folders_to_scan(&machine));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|path| seen.insert(path.clone()));
    folders
}
