//! `vault approve`: approves changes to the files that the owner edits by hand, such as
//! `policy.toml`. They take effect only then, because other programs may be able to write to the
//! vault's folder.

use std::path::{Path, PathBuf};

use clap::Args;
use vault_library::{AuthoredFile, Vault};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{Report, TICK, count, either},
    tasks::approval,
};

/// The arguments of `vault approve`.
#[derive(Args, Debug)]
#[command(after_help = "\
policy.toml, profiles.toml and the files in transforms/ are in the vault's folder, where other \
programs may be able to write. Changes to them therefore take effect only after you approve them \
here, or when `vault sync` or `vault sync-profiles` asks. Without a terminal, only --yes \
approves; otherwise the earlier version stays in effect and the exit code is 3.

Examples:
  vault approve
  vault approve policy.toml
  vault approve --yes")]
pub struct Arguments {
    /// One file: its path, or its name in the vault's folder [default: all changed files]
    file: Option<PathBuf>,
}

/// Shows the changes of each file that waits for approval, and asks.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    vault.require_trust()?;
    let file = arguments.file.as_deref();
    let file = file
        .map(|path| authored_file_at(&vault, path))
        .transpose()?;
    let is_named = |other: &AuthoredFile| file.as_ref().is_none_or(|file| file == other);
    let approvals = approval::ask_for_approvals(context, &vault, is_named)?;
    let text = match (approvals.approved.len(), approvals.pending.len()) {
        (0, 0) => format!("{TICK} nothing to approve: every file is approved"),
        (approved, 0) => format!("{TICK} {} approved", files_are(approved)),
        (0, pending) => format!("{} not approved", files_are(pending)),
        (approved, pending) => {
            format!(
                "{} approved, {} not approved",
                files_are(approved),
                files_are(pending)
            )
        }
    };
    // Exit with 3, so that scripts notice a change that has no effect yet.
    let exit = either(approvals.pending.is_empty(), Exit::Done, Exit::Differences);
    Ok(Report::view(approvals, text).with_exit(exit))
}

fn files_are(files: usize) -> String {
    let verb = if files == 1 { "is" } else { "are" };
    format!("{} {verb}", count(files, "file"))
}

/// Finds the file that needs approval at a path, which is relative to the vault's folder or to the
/// current folder. Fails for any other path.
fn authored_file_at(vault: &Vault, path: &Path) -> Result<AuthoredFile, Failure> {
    let root = &vault.paths().root;
    // Do not resolve the path on disk, because the deletion of a file can be approved too.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let inside = absolute.strip_prefix(root).ok();
    // First try the path as a name in the vault's folder, so that `policy.toml` works in any
    // current folder.
    let authored_file = AuthoredFile::from_path(path).or_else(|| AuthoredFile::from_path(inside?));
    authored_file.ok_or_else(|| {
        fail!(
            NotAuthored,
            "{} is not a file that needs approval in the vault {}",
            path.display(),
            root.display()
        )
        .hint("name policy.toml, profiles.toml or transforms/<skill>/<name>.md")
    })
}
