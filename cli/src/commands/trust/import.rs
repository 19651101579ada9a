//! `vault import`: imports the skills of a vault with an earlier format into this vault. Each is
//! scanned and signed like a new skill.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    commands::start::add,
    context::Context,
    errors::Failure,
    output::{Report, clean},
};

/// The arguments of `vault import`.
#[derive(Args, Debug)]
#[command(after_help = "\
This version cannot open vaults that were created before keys were listed in signed root \
versions. This command imports their skills into a new vault: each passes the gate and is signed \
with the new vault's key. Earlier versions of skills, links to services and keys are not \
imported. An entry that leads out of the earlier vault through a symbolic link is refused and \
named; the others are imported.

Examples:
  mv ~/.vault ~/vault-before
  vault import --from-vault ~/vault-before")]
pub struct Arguments {
    /// The folder of the earlier vault
    #[arg(long, value_name = "PATH")]
    from_vault: PathBuf,
}

/// Adds every skill in the folder `skills` of the earlier vault that lies in that vault, and
/// refuses links that lead out of it.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let from = &arguments.from_vault;
    let fail = |error: &std::io::Error| Failure::io("reading", from, error);
    if !from.join("vault.json").is_file() {
        return Err(fail!(NoVault, "there is no vault at {}", from.display()));
    }
    // The folder may be a symbolic link itself, so the entries are compared with its real path.
    let real = from.canonicalize().map_err(|error| fail(&error))?;
    let (mut sources, mut refused) = (Vec::new(), Vec::new());
    let skills = from.join("skills");
    for entry in fs::read_dir(&skills).map_err(|error| fail(&error))? {
        let path = entry.map_err(|error| fail(&error))?.path();
        // The entries are links into the store of that vault.
        match path.canonicalize() {
            // A planted link could lead to any folder of this machine, so accept only folders of
            // that vault.
            Ok(folder) if folder.starts_with(&real) => sources.push(folder.display().to_string()),
            led => {
                let entry_path = path.display().to_string();
                let failure = outside_failure(&entry_path, led.ok().as_deref());
                refused.push((entry_path, failure));
            }
        }
    }
    // `read_dir` has no order, and the report must be the same each time.
    sources.sort();
    refused.sort_by(|(a, _), (b, _)| a.cmp(b));
    let is_empty = sources.is_empty() && refused.is_empty();
    let mut report = add::run_with(context, &add::Arguments::of_folders(sources), refused)?;
    if is_empty {
        report.text = format!("{} has no skills of its own.", from.display());
    }
    Ok(report)
}

/// Creates the failure for an entry that links out of the earlier vault, or to nothing.
fn outside_failure(entry: &str, target: Option<&Path>) -> Failure {
    let entry = clean(entry, 300);
    match target {
        Some(target) => {
            let target = clean(&target.display().to_string(), 300);
            fail!(
                Symlink,
                "{entry} is a symbolic link that leads out of that vault, to {target}"
            )
            .hint("read that skill; if you want it: vault add <folder>")
        }
        None => fail!(Symlink, "{entry} is a symbolic link that leads nowhere")
            .hint("its files are missing from that vault; restore them from a backup"),
    }
}
