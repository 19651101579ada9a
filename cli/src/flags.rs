//! The global flags, which every command takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Global {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only the result and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Verbose output
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colour: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColourChoice,
    /// Do not prompt
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Answer yes to every prompt
    #[arg(long, short, global = true)]
    pub yes: bool,
    /// Do not use the network
    #[arg(long, global = true)]
    pub offline: bool,
    #[arg(
        help = "The vault's folder [default: VAULT_STORAGE_PATH, or ~/.vault]",
        long,
        global = true,
        value_name = "PATH"
    )]
    pub vault: Option<PathBuf>,
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
