//! `vault disable`: hides a skill from agents and keeps it in the vault.

use clap::Args;

use super::switch::{Switch, switch_skill};
use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault disable`.
#[derive(Args, Debug)]
#[command(after_help = "\
The skill stays installed, signed and published. Agents on this machine, or one of them, no \
longer see it.

Examples:
  vault disable code-review
  vault disable code-review --agent codex")]
pub struct Arguments {
    #[command(flatten)]
    switch: Switch,
}

/// Hides the skill from all agents, or with `--agent` from one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    switch_skill(context, &arguments.switch, false)
}
