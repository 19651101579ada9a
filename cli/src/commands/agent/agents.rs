//! `vault agents`: lists the coding agents of this machine, the folders from which they read
//! skills, and whether the vault links into those folders.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_library::agents::{self, Agent};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Column, DIM, GOOD, HINT, Report, Table, count, paint},
};

/// The arguments of `vault agents`.
#[derive(Args, Debug)]
#[command(after_help = "\
An agent is found when one of its known files or folders exists. This command starts nothing and \
changes nothing.

Examples:
  vault agents
  vault agents --all --json
  vault agents --project .")]
pub struct Arguments {
    /// Show every agent that vault supports, also those that are not installed
    #[arg(long)]
    all: bool,
    /// Show the agents' folders in this project
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,
}

/// A coding agent that vault supports, as `vault agents` lists it.
#[derive(JsonSchema, Serialize)]
pub struct ShownAgent {
    /// The id that `--agent` takes.
    id: String,
    /// The product's name for people.
    name: String,
    /// Whether one of the paths that show its use exists on this machine or in the project.
    found: bool,
    /// The existing path from which that was concluded; null if there is none.
    found_by: Option<PathBuf>,
    /// The folders from which it reads skills: the user's, or with `--project` the project's.
    folders: Vec<AgentFolder>,
}

/// A folder from which an agent reads skills.
#[derive(JsonSchema, Serialize)]
pub struct AgentFolder {
    /// The path; the folder need not exist.
    path: PathBuf,
    /// Whether the path is a folder now.
    exists: bool,
    /// Whether `vault sync-profiles` keeps links to the vault's skills there.
    linked: bool,
}

/// Lists the agents that are found on this machine, or with `--all` all known ones, and the folders
/// from which each reads skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let project = match &arguments.project {
        // Linked folders are compared by their paths, so symbolic links in the project's path are
        // resolved.
        Some(path) => Some(
            std::fs::canonicalize(path)
                .map_err(|error| Failure::io("finding the project", path, &error))?,
        ),
        None => None,
    };
    let machine = crate::tasks::profiles::find_machine(context, project)?;
    // Without a vault no folder is linked. This command only lists, so it must not create a vault.
    let linked: BTreeMap<PathBuf, Vec<String>> = match context.existing_vault()? {
        Some(vault) => agents::linked_roots(&vault)?
            .into_iter()
            .map(|(path, agents)| (path, agents.iter().map(ToString::to_string).collect()))
            .collect(),
        None => BTreeMap::new(),
    };
    let show = |agent: &Agent| {
        let found_by = agent.mark_found(&machine);
        let roots = match &machine.project {
            Some(project) => agent.project_roots(project),
            None => agent.global_roots(&machine),
        };
        ShownAgent {
            id: agent.id.to_string(),
            name: agent.display_name.clone(),
            found: found_by.is_some(),
            found_by,
            folders: roots
                .into_iter()
                .map(|root| AgentFolder {
                    exists: root.path.is_dir(),
                    linked: linked
                        .get(&root.path)
                        .is_some_and(|agents| agents.iter().any(|id| id == agent.id.as_str())),
                    path: root.path,
                })
                .collect(),
        }
    };
    let listed_agents: Vec<ShownAgent> = agents::known_agents()
        .iter()
        .map(show)
        .filter(|agent| arguments.all || agent.found)
        .collect();
    let detected_count = listed_agents.iter().filter(|agent| agent.found).count();
    let mut lines = Vec::new();
    if !listed_agents.is_empty() {
        let mut table = Table::new([
            Column::new("agent"),
            Column::new("name").leaves(1),
            Column::new("folder").shrinks_to(20),
            Column::new("linked"),
        ]);
        for agent in &listed_agents {
            add_agent_rows(context, &mut table, agent);
        }
        lines.push(context.ui.format_table(&table));
    }
    lines.push(paint(
        DIM,
        format_args!(
            "{} found on this machine, of {} known.",
            count(detected_count, "agent"),
            agents::known_agents().len()
        ),
    ));
    let unlinked = listed_agents
        .iter()
        .any(|agent| agent.found && !agent.folders.iter().any(|folder| folder.linked));
    if unlinked {
        context.ui.note(format!("{HINT}hint:{HINT:#} vault sync-profiles --discover links the vault's skills into their folders"));
    }
    Ok(Report::view(&listed_agents, lines.join("\n")))
}

/// Adds a row for each folder of an agent. The first shows the agent's id and name.
fn add_agent_rows(context: &Context, table: &mut Table, agent: &ShownAgent) {
    let mut name = if agent.found {
        paint(BOLD, &agent.id)
    } else {
        paint(DIM, &agent.id)
    };
    let mut title = agent.name.clone();
    // Some agents read skills only in projects and have no folder here. They get a row that says
    // so.
    if agent.folders.is_empty() {
        table.push_row([
            name.clone(),
            title.clone(),
            paint(DIM, "projects only"),
            String::new(),
        ]);
    }
    for folder in &agent.folders {
        let mut path = context.process.short_path(&folder.path);
        if !folder.exists {
            path = format!("{path} {DIM}(will be created){DIM:#}");
        }
        table.push_row([
            // Only the first row of an agent shows its id and name.
            std::mem::take(&mut name),
            std::mem::take(&mut title),
            path,
            if folder.linked {
                paint(GOOD, "yes")
            } else {
                "no".to_owned()
            },
        ]);
    }
}
