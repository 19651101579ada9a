//! `vault profiles`: prints which skills each agent of this machine gets from the vault, which it
//! does not get, and why. `profiles.toml` decides this; a *variant* is a skill that a transform
//! changed for one agent.

use clap::Args;
use vault_format::name::AgentId;

use crate::{
    context::Context,
    errors::Failure,
    output::Report,
    tasks::profiles::{agent_id, agent_profiles, find_machine},
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
    /// Show only this agent [default: all agents]
    #[arg(value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
}

/// Prints the skills of each agent on this machine, or of the one that the arguments name.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let machine = find_machine(context, None)?;
    let mut profiles = agent_profiles(&vault, &machine)?;
    if let Some(wanted) = &arguments.agent {
        profiles.retain(|profile| profile.agent() == wanted);
        if profiles.is_empty() {
            return Err(fail!(AgentUnknown, "{wanted} is not on this machine")
                .hint("vault agents lists those that are"));
        }
    }
    let mut lines = Vec::new();
    for profile in &profiles {
        lines.extend(profile.describe(context, usize::MAX));
    }
    if profiles.is_empty() {
        context.ui.note("No agent was found on this machine.");
    }
    Ok(Report::view(profiles, lines.join("\n")))
}
