//! `vault disable`: hides a skill from agents and keeps it in the vault.

use clap::Args;

use super::switch::{Switch, switch};
use crate::{context::Context, errors::Failure, output::Report};

/// Since 0.5.0.
#[derive(Args, Debug)]
#[command(after_help = "\
The skill stays in the vault, signed and published as before; on this machine no agent sees it,
or one agent does not.

Examples:
  vault disable code-review
  vault disable code-review --agent codex

Since 0.5.0.")]
pub struct Arguments {
    #[command(flatten)]
    switch: Switch,
}

/// Disables the skill.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    switch(context, &arguments.switch, false)
}
