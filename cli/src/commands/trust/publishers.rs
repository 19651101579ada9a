//! `vault publishers`: shows and changes the publishers of this vault, the keys that may sign its
//! skills and releases.

mod add;
pub mod list;
mod remove;
pub mod request;
mod threshold;

use clap::{Args, Subcommand};

use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault publishers`.
#[derive(Args, Debug)]
#[command(after_help = "\
A publisher is a key that signs skills and releases, on a machine of its own. Somebody who wants \
to publish links the vault and runs `request` there; an owner compares the fingerprint and runs \
`add`. Only the recovery key can change who is a publisher. docs/team.md describes it step by step.

Examples:
  vault publishers list
  vault publishers request https://vault.example/v/team --name bob
  vault publishers add <fingerprint> --root-key /media/stick/vault.recovery
  vault publishers threshold 2 --root-key /media/stick/vault.recovery
  vault publishers remove bob --root-key /media/stick/vault.recovery")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List every key of the vault, what it may do, the revoked keys, and who asks to publish
    List,
    /// Ask the owner of a linked vault to let this machine publish
    Request(request::Arguments),
    /// Make a key a publisher
    Add(add::Arguments),
    /// Take a key out of the vault's keys; what it signed stays valid
    Remove(remove::Arguments),
    /// Set how many publishers must sign each release
    Threshold(threshold::Arguments),
}

impl Arguments {
    /// Returns whether the command works without a vault: a request creates one.
    pub const fn may_create_vault(&self) -> bool {
        matches!(self.action, Action::Request(_))
    }
}

/// Shows or changes the publishers.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    match &arguments.action {
        Action::List => list::run(context, &context.open_vault()?),
        Action::Request(arguments) => request::run(context, arguments),
        Action::Add(arguments) => add::run(context, &context.open_vault()?, arguments),
        Action::Remove(arguments) => remove::run(context, &context.open_vault()?, arguments),
        Action::Threshold(arguments) => threshold::run(context, &context.open_vault()?, arguments),
    }
}
