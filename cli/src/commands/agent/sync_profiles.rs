//! `vault sync-profiles`: links the vault's skills into the agents' folders.

use std::path::PathBuf;

use clap::Args;
use vault_library::{
    AuthoredFile,
    agents::{SyncProfilesInput, sync_profiles},
};
use vault_skill::name::AgentId;

use crate::{
    approval,
    context::Context,
    errors::Failure,
    output::Report,
    profiles::{failure, machine, parse_link, report_of},
};

/// The arguments of `vault sync-profiles`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each skill becomes one link in an agent's own folder. Everything else in that folder is left \
untouched. Without flags, this command updates the folders that are already linked; --discover \
adds the folders of every agent on this machine. profiles.toml in the vault decides which agent \
sees which skill; changes to it take effect with `vault approve`.

Examples:
  vault sync-profiles --discover
  vault sync-profiles --link claude-code=/srv/agent/skills
  vault sync-profiles --discover --project .
  vault sync-profiles --json")]
pub struct Arguments {
    /// Link into the folders of every agent on this machine
    #[arg(long)]
    discover: bool,
    /// Link into this folder for an agent and remember it; repeatable
    #[arg(long = "link", value_name = "AGENT=PATH", value_parser = parse_link)]
    links: Vec<(AgentId, PathBuf)>,
    /// Link into the agents' folders in this project instead of your own
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,
    /// Copy instead of linking, for folders that are read where links cannot be resolved
    #[arg(long)]
    copy: bool,
}

/// Updates the links.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    refuse_remote(context)?;
    let project = match &arguments.project {
        Some(path) => Some(
            std::fs::canonicalize(path)
                .map_err(|error| Failure::io("finding the project", path, &error))?,
        ),
        None => None,
    };
    let vault = context.vault()?;
    let input = SyncProfilesInput {
        machine: machine(context, project)?,
        discover: arguments.discover,
        only: None,
        project: arguments.project.is_some(),
        profile_roots: arguments.links.clone(),
        copy: arguments.copy,
    };
    let approvals = approval::ask(context, &vault, |file| *file != AuthoredFile::Policy)?;
    let report = sync_profiles(&vault, &input).map_err(failure)?;
    Ok(approvals.add_to(report_of(context, &report)))
}

/// Rejects `VAULT_MODE=remote`. The clients of a remote vault fetch its skills themselves, so this
/// machine cannot create their links.
fn refuse_remote(context: &Context) -> Result<(), Failure> {
    if context.settings()?.text("VAULT_MODE") == Some("remote") {
        return Err(fail!(
            RemoteModeError,
            "RemoteModeError: profiles are not synced in remote mode"
        )
        .hint("run it where the agents are, with VAULT_MODE=local"));
    }
    Ok(())
}
