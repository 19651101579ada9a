//! `vault cloud`: connects this vault to a service, pulls linked vaults, publishes an earlier
//! release again, and resets the service's pin of the vault.

pub mod connect;
pub mod every;
mod fetch;
mod pending;
pub mod pull;
pub mod reset_pin;
pub mod rollback;
mod time_limit;

use clap::{Args, Subcommand};

use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault cloud`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault cloud connect https://vault.example/v/team
  vault cloud pull
  vault cloud pull --pending
  vault cloud rollback 41
  vault cloud reset-pin team")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Sign in to a service and connect this vault to it
    Connect(connect::Arguments),
    /// Install the skills that linked vaults publish, all or none
    Pull(pull::Arguments),
    /// Publish the skills of an earlier release again
    Rollback(rollback::Arguments),
    /// Let a new vault publish in place of the one that the service has pinned
    ResetPin(reset_pin::Arguments),
}

pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    match &arguments.action {
        Action::Connect(arguments) => connect::run(context, arguments),
        Action::Pull(arguments) => pull::run(context, arguments),
        Action::Rollback(arguments) => rollback::run(context, arguments),
        Action::ResetPin(arguments) => reset_pin::run(context, arguments),
    }
}
