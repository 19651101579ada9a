//! `vault enable` and `vault disable`: which agent sees a skill that stays in the vault.

use clap::Args;
use serde_json::json;
use vault_library::profiles::set_enabled;
use vault_skill::name::{AgentId, SkillName};

use super::sync_profiles::agent_id;
use crate::{
    Context,
    error::Failure,
    ui::{BOLD, DIM, GOOD, Report, clean, paint},
};

/// Since 0.5.0.
#[derive(Args, Debug)]
#[command(after_help = "\
A skill that was disabled is shown again, to all agents or to one. Links are brought up to date
at once.

Examples:
  vault enable code-review
  vault enable code-review --agent codex

Since 0.5.0.")]
pub struct EnableArguments {
    #[command(flatten)]
    switch: Switch,
}

/// Since 0.5.0.
#[derive(Args, Debug)]
#[command(after_help = "\
The skill stays in the vault, signed and published as before; on this machine no agent sees it,
or one agent does not.

Examples:
  vault disable code-review
  vault disable code-review --agent codex

Since 0.5.0.")]
pub struct DisableArguments {
    #[command(flatten)]
    switch: Switch,
}

#[derive(Args, Debug)]
struct Switch {
    /// The skill
    #[arg(value_name = "NAME")]
    name: String,
    /// One agent instead of all
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
}

/// Switches a skill on.
pub fn enable(context: &Context, arguments: &EnableArguments) -> Result<Report, Failure> {
    switch(context, &arguments.switch, true)
}

/// Switches a skill off.
pub fn disable(context: &Context, arguments: &DisableArguments) -> Result<Report, Failure> {
    switch(context, &arguments.switch, false)
}

fn switch(context: &Context, switch: &Switch, on: bool) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Err(super::no_vault(context));
    };
    let listing = vault_library::shelf::list(&vault)?;
    let installed: Vec<&str> = listing
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .chain(listing.damaged.iter().map(|(name, ..)| name.as_str()))
        .collect();
    let name = switch
        .name
        .parse::<SkillName>()
        .ok()
        .filter(|name| installed.contains(&name.as_str()))
        .ok_or_else(|| {
            super::not_listed(
                Failure::failed(
                    "not_installed",
                    format!("`{}` is not installed", clean(&switch.name, 64)),
                ),
                &switch.name,
                installed.iter().copied(),
                "vault skill list",
            )
        })?;
    let changed = set_enabled(&vault, &name, switch.agent.as_ref(), on)?;
    let report = super::sync_profiles::refresh(context, &vault);
    let restart = report.is_some_and(|report| report.restart_required);
    let whom = switch
        .agent
        .as_ref()
        .map_or_else(|| "all agents".to_owned(), ToString::to_string);
    let word = if on { "enabled" } else { "disabled" };
    let line = if changed {
        format!(
            "{} {word} {} for {whom}",
            paint(GOOD, "✓"),
            paint(BOLD, &name)
        )
    } else {
        format!(
            "{} {} was {word} for {whom} already",
            paint(DIM, "="),
            paint(BOLD, &name)
        )
    };
    if restart {
        context
            .ui
            .note("Agents that are running see it after a restart.");
    }
    Ok(Report::new(
        json!({
            "name": name, "agent": switch.agent, "enabled": on, "changed": changed,
            "restart_required": restart,
        }),
        line,
    ))
}
