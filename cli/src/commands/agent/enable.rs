//! `vault enable`: shows a disabled skill to agents again.

use clap::Args;

use super::switch::{Switch, switch};
use crate::{context::Context, errors::Failure, output::Report};

/// Since 0.5.0.
#[derive(Args, Debug)]
#[command(after_help = "\
A skill that was disabled is shown again, to all agents or to one. Links are brought up to date
at once.

Examples:
  vault enable code-review
  vault enable code-review --agent codex

Since 0.5.0.")]
pub struct Arguments {
    #[command(flatten)]
    switch: Switch,
}

/// Enables the skill.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    switch(context, &arguments.switch, true)
}
