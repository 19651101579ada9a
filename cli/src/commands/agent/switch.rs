//! The shared part of `vault enable` and `vault disable`: controls which agents see a skill that
//! stays in the vault.

use clap::Args;
use serde_json::json;
use vault_format::name::{AgentId, SkillRef};
use vault_library::{agents::set_enabled, run};

use crate::{
    context::Context,
    errors::Failure,
    lookup,
    output::{BOLD, DIM, Report, TICK},
    profiles::{self, agent_id},
};

/// What to switch.
#[derive(Args, Debug)]
pub struct Switch {
    /// The skill
    #[arg(value_name = "NAME")]
    name: String,
    /// Only this agent
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
}

/// Enables or disables a skill and updates the links in the agents' folders.
pub fn switch(context: &Context, switch: &Switch, on: bool) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let installed = lookup::installed_names(&vault)?;
    let skill = switch.name.parse::<SkillRef>();
    let is_there = match &skill {
        Ok(skill) => run::find(&vault, skill)?.is_some(),
        Err(_) => false,
    };
    if !is_there {
        return Err(lookup::not_there(&switch.name, &installed));
    }
    let name = lookup::bare(&vault, &switch.name)?;
    let changed = set_enabled(&vault, &name, switch.agent.as_ref(), on)?;
    let report = profiles::refresh(context, &vault);
    let restart = report.is_some_and(|report| report.restart_required);
    let whom = switch
        .agent
        .as_ref()
        .map_or_else(|| "all agents".to_owned(), ToString::to_string);
    let word = if on { "enabled" } else { "disabled" };
    let line = if changed {
        format!("{TICK} {word} {BOLD}{name}{BOLD:#} for {whom}")
    } else {
        format!("{DIM}={DIM:#} {BOLD}{name}{BOLD:#} was {word} for {whom} already")
    };
    if restart {
        context.ui.note(profiles::RESTART);
    }
    Ok(Report::new(
        json!({
            "name": name, "agent": switch.agent, "enabled": on, "changed": changed,
            "restart_required": restart,
        }),
        line,
    ))
}
