//! `vault cloud`: connects to a service, pulls from it, rolls back to an earlier release, and resets the pin.

mod connect;
pub mod pull;
mod reset_pin;
mod rollback;

use clap::{Args, Subcommand};

use crate::{context::Context, errors::Failure, output::Report};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault cloud connect https://vault.example/v/team
  vault cloud pull
  vault cloud rollback 41
  vault cloud reset-pin team

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Sign in at a service and remember it as this vault's own
    Connect(connect::Arguments),
    /// Install what the linked vault publishes, all or nothing
    Pull(pull::Arguments),
    /// Publish the skills of an earlier release again
    Rollback(rollback::Arguments),
    /// Make the service forget which vault publishes there, for a new vault
    ResetPin(reset_pin::Arguments),
}

/// Runs the subcommand.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    match &arguments.action {
        Action::Connect(arguments) => connect::run(context, arguments),
        Action::Pull(arguments) => pull::run(context, arguments),
        Action::Rollback(arguments) => rollback::run(context, arguments),
        Action::ResetPin(arguments) => reset_pin::run(context, arguments),
    }
}
