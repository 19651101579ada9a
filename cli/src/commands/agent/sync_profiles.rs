//! `vault sync-profiles`: links the vault's skills into the folders from which coding agents read
//! skills, and removes links that are out of date. `profiles.toml` in the vault decides which agent
//! gets which skill.

use std::path::{Path, PathBuf};

use clap::Args;
use vault_format::name::AgentId;
use vault_library::{
    AuthoredFile, Vault,
    agents::{self, ProfileSyncReport, SyncProfilesInput, sync_profiles},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{Report, TICK, join},
    tasks::{
        approval,
        profiles::{
            agent_id, agent_name, discover_input, find_machine, parse_link, report_of, sync_failure,
        },
    },
};

/// The arguments of `vault sync-profiles`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each skill becomes one link in an agent's own folder. Everything else in that folder is left \
untouched. Without options, this command updates the folders that are already linked; where none \
is, it asks which of the agents on this machine to link, and without a terminal it links them all. \
profiles.toml in the vault decides which agent sees which skill; changes to it take effect with \
`vault approve`.

Examples:
  vault sync-profiles
  vault sync-profiles --discover
  vault sync-profiles --link claude-code=/srv/agent/skills
  vault sync-profiles --forget codex
  vault sync-profiles --discover --project .")]
pub struct Arguments {
    /// Link into the folders of every agent on this machine
    #[arg(long)]
    discover: bool,
    /// Link into this folder for an agent and remember it; repeatable
    #[arg(long = "link", value_name = "AGENT=PATH", value_parser = parse_link)]
    links: Vec<(AgentId, PathBuf)>,
    /// Remove the vault's skills from an agent's folders and stop linking them; repeatable
    #[arg(long, value_name = "AGENT", value_parser = agent_id, conflicts_with_all = ["discover", "links", "copy"])]
    forget: Vec<AgentId>,
    /// Link into the agents' folders in this project instead of your own
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,
    /// Copy instead of linking, for folders that are read where links cannot be resolved
    #[arg(long)]
    copy: bool,
}

/// Asks for approval of changed files such as profiles.toml, then updates the links in the agents'
/// folders. If no folder is linked yet, offers to link the agents that are found.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    refuse_remote(context)?;
    let project = match &arguments.project {
        Some(path) => Some(
            std::fs::canonicalize(path)
                .map_err(|error| Failure::io("finding the project", path, &error))?,
        ),
        None => None,
    };
    // All folders are checked before the first link is made, so that a misspelt path changes
    // nothing.
    for (_, folder) in &arguments.links {
        check_folder(folder)?;
    }
    let vault = context.open_vault()?;
    check_forgotten(context, &vault, &arguments.forget)?;
    let input = SyncProfilesInput {
        machine: find_machine(context, project)?,
        discover: arguments.discover,
        only: None,
        project: arguments.project.is_some(),
        profile_roots: arguments.links.clone(),
        forget: arguments.forget.clone(),
        copy: arguments.copy,
    };
    // The policy does not decide which agent sees a skill, so its approval is not asked for here.
    let approvals =
        approval::ask_for_approvals(context, &vault, |file| *file != AuthoredFile::Policy)?;
    let mut report = sync_profiles(&vault, &input).map_err(sync_failure)?;
    let forgotten = forgotten_lines(context, &vault, &arguments.forget)?;
    // The agents of this machine are offered only while no folder is linked. Later runs keep to the
    // folders that the user has chosen.
    if report.roots.is_empty() && arguments.forget.is_empty() {
        report = link_found(context, &vault, &input, report)?;
    }
    let mut shown = report_of(context, &report);
    // The table shows folders, and one of a forgotten agent may stay as it is for another.
    shown.text = forgotten
        .into_iter()
        .chain([shown.text])
        .collect::<Vec<_>>()
        .join("\n");
    Ok(approvals.add_to(shown))
}

/// Formats one line for each agent that is no longer linked, and for each of its folders that stays
/// linked because another agent reads it too.
fn forgotten_lines(
    context: &Context,
    vault: &Vault,
    forgotten: &[AgentId],
) -> Result<Vec<String>, Failure> {
    let linked = agents::linked_roots(vault)?;
    let machine = find_machine(context, None)?;
    let mut lines = Vec::new();
    for agent in forgotten {
        let name = agent_name(agent);
        // Only profiles.toml decides about the folders that it names.
        let of_profiles = linked.iter().filter(|(_, agents)| agents.contains(agent));
        let of_profiles: Vec<_> = of_profiles
            .map(|(path, _)| context.process.short_path(path))
            .collect();
        lines.push(if of_profiles.is_empty() {
            format!("{TICK} {name} is not linked any more, and no command offers to link it")
        } else {
            format!("{TICK} {name}'s own folders are not linked any more")
        });
        lines.extend(of_profiles.into_iter().map(|path| {
            format!(
                "  profiles.toml still links {path} for it; to end that, remove the profile there \
                 and run: vault approve profiles.toml"
            )
        }));
        let known = agents::by_name(agent.as_str());
        let folders = known.map_or_else(Vec::new, |known| known.global_roots(&machine));
        let reads = |path: &PathBuf| folders.iter().any(|root| root.path == *path);
        for (path, others) in linked.iter().filter(|(path, _)| reads(path)) {
            let path = context.process.short_path(path);
            let others = join(others.iter().map(agent_name));
            lines.push(format!(
                "  it reads {path} too, which stays linked for {others}"
            ));
        }
    }
    Ok(lines)
}

/// Links the agents that are found on this machine and that the user has not declined before, after
/// a question on a terminal. Returns `report` unchanged if there are none, or the answer is no.
fn link_found(
    context: &Context,
    vault: &Vault,
    input: &SyncProfilesInput,
    report: ProfileSyncReport,
) -> Result<ProfileSyncReport, Failure> {
    let unlinked_agents = &report.unlinked_agents;
    if input.discover || unlinked_agents.is_empty() {
        return Ok(report);
    }
    let names = join(unlinked_agents.iter().map(agent_name));
    let question = format!("Link the vault's skills for {names}?");
    // Without a terminal nobody can be asked. Running the command counts as consent then.
    if context.ui.may_ask() && !context.ui.confirm_default(&question, true)? {
        return Ok(report);
    }
    let discovering = SyncProfilesInput {
        project: input.project,
        copy: input.copy,
        ..discover_input(input.machine.clone(), unlinked_agents.clone())
    };
    sync_profiles(vault, &discovering).map_err(sync_failure)
}

/// Fails if neither the folder nor its parent exists, because the path is probably misspelt.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let above = folder.parent().unwrap_or(folder);
    if folder.is_dir() || above.is_dir() {
        return Ok(());
    }
    Err(Failure::no_such_path(above.display()).hint(format!(
        "is the path right? If it is: mkdir -p {}",
        above.display()
    )))
}

/// Fails if an agent of `--forget` neither has a linked folder nor is on this machine.
fn check_forgotten(context: &Context, vault: &Vault, forget: &[AgentId]) -> Result<(), Failure> {
    if forget.is_empty() {
        return Ok(());
    }
    let linked = agents::linked_roots(vault)?.into_iter();
    let mut known_agents: Vec<_> = linked.flat_map(|(_, agents)| agents).collect();
    known_agents.extend(
        agents::detect_agents(&find_machine(context, None)?)
            .iter()
            .map(|agent| agent.id.clone()),
    );
    match forget.iter().find(|agent| !known_agents.contains(agent)) {
        Some(agent) => Err(fail!(AgentNotFound, "no folder is linked for {agent}")
            .hint("vault agents lists the agents and their folders")),
        None => Ok(()),
    }
}

/// Fails with `VAULT_MODE=remote`. In this mode the agents run on other machines and fetch the
/// skills from this one, so there are no folders here to link into.
fn refuse_remote(context: &Context) -> Result<(), Failure> {
    if context.settings()?.text("VAULT_MODE") == Some("remote") {
        return Err(fail!(
            RemoteModeError,
            "RemoteModeError: profiles are not synced in remote mode"
        )
        .hint("run it where the agents are, with VAULT_MODE=local"));
    }
    Ok(())
}
