//! `vault search`: searches the installed skills by words.

use clap::Args;

use super::skill::{TopK, search_skills};
use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault search`.
#[derive(Args, Debug)]
#[command(after_help = "\
Searches the names, descriptions, tags, categories and when-to-use texts of the installed skills.

Examples:
  vault search \"flaky tests\"
  vault search review --top-k 3")]
pub struct Arguments {
    /// What to look for; several words are one search
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    #[command(flatten)]
    top_k: TopK,
}

/// Searches the installed skills for the words, and prints the best matches.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    search_skills(vault.as_ref(), &arguments.words.join(" "), &arguments.top_k)
}
