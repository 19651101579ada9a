//! `vault completions`.

use clap::Args;
use clap_complete::Shell;

use crate::{Context, error::Failure, ui::Report};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault completions bash > ~/.local/share/bash-completion/completions/vault
  vault completions fish > ~/.config/fish/completions/vault.fish

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script for the shell.
#[expect(clippy::unnecessary_wraps, reason = "commands share one signature")]
pub fn run(_context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut crate::args::command(),
        "vault",
        &mut script,
    );
    Ok(Report::text(String::from_utf8_lossy(&script)))
}
