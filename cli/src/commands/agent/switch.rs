//! The shared part of `vault enable` and `vault disable`, which show a skill to agents or hide it.
//! The skill itself stays in the vault.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{AgentId, SkillName, SkillRef};
use vault_library::{agents::set_enabled, run};

use crate::{
    context::Context,
    errors::Failure,
    lookup,
    output::{BOLD, DIM, Report, TICK},
    tasks::profiles::{self, agent_id},
};

/// The arguments of `vault enable` and `vault disable`.
#[derive(Args, Debug)]
pub struct Switch {
    /// The skill
    #[arg(value_name = "NAME")]
    name: String,
    /// Change what this agent sees [default: all agents]
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
}

/// The output of `vault enable` and `vault disable`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SkillVisibility {
    /// Installed name of the skill that was enabled or disabled.
    name: SkillName,
    /// The only agent concerned; null for all agents.
    agent: Option<AgentId>,
    /// True after `vault enable`, false after `vault disable`.
    enabled: bool,
    /// False if the skill was in that state already.
    changed: bool,
    /// Whether agents that are running show the change only after a restart.
    restart_required: bool,
}

/// Enables the skill (`on`) or disables it, for all agents or one, and updates the links in the
/// agents' folders.
pub fn switch_skill(context: &Context, switch: &Switch, on: bool) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let installed = lookup::installed_names(&vault)?;
    let skill = switch.name.parse::<SkillRef>();
    let is_there = match &skill {
        Ok(skill) => run::find_skill(&vault, skill)?.is_some(),
        // A name that is not valid is reported like one that is not installed, with a suggestion.
        Err(_) => false,
    };
    if !is_there {
        return Err(lookup::not_installed_among(&switch.name, &installed));
    }
    let name = lookup::find_bare_name(&vault, &switch.name)?;
    let changed = set_enabled(&vault, &name, switch.agent.as_ref(), on)?;
    let report = profiles::refresh_links(context, &vault);
    let restart_required = report.is_some_and(|report| report.restart_required);
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
    if restart_required {
        context.ui.note(profiles::RESTART);
    }
    let view = SkillVisibility {
        name,
        agent: switch.agent.clone(),
        enabled: on,
        changed,
        restart_required,
    };
    Ok(Report::view(view, line))
}
