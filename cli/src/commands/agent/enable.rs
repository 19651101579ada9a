//! `vault enable`: shows a disabled skill to agents again.

use clap::Args;

use super::switch::{Switch, switch_skill};
use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault enable`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows a disabled skill to all agents again, or to one of them. The agents' links are updated at \
once.

Examples:
  vault enable code-review
  vault enable code-review --agent codex")]
pub struct Arguments {
    #[command(flatten)]
    switch: Switch,
}

/// Shows the skill to all agents again, or with `--agent` to one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    switch_skill(context, &arguments.switch, true)
}
