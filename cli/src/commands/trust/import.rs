//! `vault import`: takes the skills of a vault of an earlier format into this one, through the
//! gate.

use std::{fs, path::PathBuf};

use clap::Args;
use serde_json::json;

use crate::{commands::start::add, context::Context, errors::Failure, output::Report};

/// The arguments of `vault import`.
#[derive(Args, Debug)]
#[command(after_help = "\
This version cannot open vaults that were created before keys were listed in signed root \
versions. This command imports their skills into a new vault: each passes the gate and is signed \
with the new vault's key. Earlier versions of skills, links to services and keys are not \
imported.

Examples:
  mv ~/.vault ~/vault-before
  vault import --from-vault ~/vault-before")]
pub struct Arguments {
    /// The folder of the earlier vault
    #[arg(long, value_name = "PATH")]
    from_vault: PathBuf,
}

/// Adds every own skill of the earlier vault.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let from = &arguments.from_vault;
    let fail = |error: &std::io::Error| Failure::io("reading", from, error);
    if !from.join("vault.json").is_file() {
        return Err(fail!(NoVault, "there is no vault at {}", from.display()));
    }
    let mut sources = Vec::new();
    let skills = from.join("skills");
    for entry in fs::read_dir(&skills).map_err(|error| fail(&error))? {
        let path = entry.map_err(|error| fail(&error))?.path();
        // The entries are links into the store; a dangling one holds no skill.
        if let Ok(folder) = path.canonicalize() {
            sources.push(folder.display().to_string());
        }
    }
    sources.sort();
    if sources.is_empty() {
        let text = format!("{} has no skills of its own.", from.display());
        return Ok(Report::new(json!({ "added": [], "failed": [] }), text));
    }
    add::run(context, &add::Arguments::of_folders(sources))
}
