//! `vault profiles`: prints which skills each agent of this machine gets from the vault, which it
//! does not get, and why. `profiles.toml` decides this; a *variant* is a skill that a transform
//! changed for one agent.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::AgentId;
use vault_library::agents::{self, AgentView};

use crate::{
    context::Context,
    errors::Failure,
    output::{
        BOLD, DIM, HINT, Report, WARN, count,
        doctor::{HiddenSkill, THROUGH_FOLDER, variant_maker},
        join,
    },
    tasks::profiles::{agent_id, find_machine, sync_failure},
};

/// The arguments of `vault profiles`.
#[derive(Args, Debug)]
#[command(after_help = "\
An agent gets every skill that names it or names no agent, as the profiles of this machine \
(profiles.toml) and of the linked vaults that publish the skills allow. It gets a skill as a \
variant where a transform of this vault, or the publisher of a linked one, changes it for this \
agent. The command changes nothing.

Examples:
  vault profiles
  vault profiles codex
  vault profiles --json")]
pub struct Arguments {
    /// Only this agent
    #[arg(value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
}

/// What one agent gets.
#[derive(JsonSchema, Serialize)]
pub struct AgentProfile {
    #[serde(flatten)]
    view: AgentView,
    /// The skills that it does not get.
    hidden: Vec<HiddenSkill>,
}

/// Prints the skills of each agent on this machine, or of the one that the arguments name.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let machine = find_machine(context, None)?;
    let views = agents::view_agents(&vault, &machine).map_err(sync_failure)?;
    let mut views = views.agents;
    if let Some(wanted) = &arguments.agent {
        views.retain(|view| view.agent == *wanted);
        if views.is_empty() {
            return Err(fail!(AgentUnknown, "{wanted} is not on this machine")
                .hint("vault agents lists those that are"));
        }
    }
    let profiles: Vec<_> = views.into_iter().map(AgentProfile::from).collect();
    let mut lines = Vec::new();
    for profile in &profiles {
        lines.extend(profile.describe(context));
    }
    if profiles.is_empty() {
        context.ui.note("No agent was found on this machine.");
    }
    Ok(Report::view(profiles, lines.join("\n")))
}

impl From<AgentView> for AgentProfile {
    fn from(view: AgentView) -> Self {
        let hidden = view.hidden.iter();
        let hidden = hidden.map(|hidden| HiddenSkill::new(&view.agent, hidden));
        Self {
            hidden: hidden.collect(),
            view,
        }
    }
}

impl AgentProfile {
    fn describe(&self, context: &Context) -> Vec<String> {
        let view = &self.view;
        let folders = view
            .roots
            .iter()
            .map(|root| context.process.short_path(root));
        let folders = if view.linked {
            join(folders)
        } else {
            format!("{WARN}not linked{WARN:#}, vault sync-profiles --discover links it")
        };
        let sees = count(view.sees.len(), "skill");
        let mut lines = vec![format!("{BOLD}{}{BOLD:#}  {sees}  {folders}", view.agent)];
        for variant in &view.variants {
            let by = variant_maker(variant.by);
            let skill = &variant.skill;
            lines.push(format!("  {skill}  {DIM}as a variant, made by {by}{DIM:#}"));
        }
        for skill in &view.through_folder {
            lines.push(format!("  {skill}  {DIM}{THROUGH_FOLDER}{DIM:#}"));
        }
        for hidden in &self.hidden {
            let (skill, reason) = (hidden.skill(), &hidden.reason);
            lines.push(format!("  {HINT}not{HINT:#} {skill}  {DIM}{reason}{DIM:#}"));
        }
        lines
    }
}
