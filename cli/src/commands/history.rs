//! `vault history` and `vault rollback`: the stored versions of a skill, and going back to one.

use clap::Args;
use serde_json::json;
use vault_library::{
    Vault,
    history::{self, PastVersion, RollbackError},
    shelf,
};
use vault_skill::name::SkillName;
use vault_sources::fetcher::short;

use super::add::{Texts, admitted_json, admitted_text, refused};
use crate::{
    Context,
    error::{Exit, Failure, chain},
    lock,
    ui::{BOLD, DIM, GOOD, Report, clean, count, paint, size},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
The versions that are still stored, newest first, with what was recorded of their source. `vault rollback` goes back to
one of them.

Examples:
  vault history code-review
  vault history code-review --json

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// The skill
    name: SkillName,
}

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
The earlier files pass the gate again and are signed as the next version, so that versions never fall. Rolling back twice
undoes the first. A project's vault.lock is not changed: `vault install` restores what it says.

Examples:
  vault rollback code-review
  vault rollback code-review --to 2

Since 0.5.0 (beta).")]
pub struct RollbackArguments {
    /// The skill
    name: SkillName,
    /// The version to go back to [default: the newest before the installed one with other files]
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
}

/// Shows the versions.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Err(super::no_vault(context));
    };
    let versions = history::history(&vault, &arguments.name)?;
    if versions.is_empty() {
        return Err(not_installed(&vault, &arguments.name)?);
    }
    let lines: Vec<String> = versions.iter().map(line).collect();
    let data: Vec<_> = versions
        .iter()
        .map(|past| {
            let manifest = &past.manifest;
            json!({
                "version": manifest.version,
                "bundle_hash": past.bundle,
                "installed": past.installed,
                "signed_at": manifest.signed_at,
                "provenance": manifest.provenance,
                "ref": past.upstream.as_ref().and_then(|upstream| upstream.reference.as_ref()),
                "tree": past.upstream.as_ref().and_then(|upstream| upstream.tree.as_ref()),
                "files": manifest.files.len(),
                "bytes": manifest.files.iter().map(|file| file.size).sum::<u64>(),
            })
        })
        .collect();
    Ok(Report::new(
        json!({ "name": arguments.name, "versions": data }),
        lines.join("\n"),
    ))
}

fn line(past: &PastVersion) -> String {
    let manifest = &past.manifest;
    let mark = if past.installed {
        paint(GOOD, "●")
    } else {
        " ".to_owned()
    };
    let revision = manifest
        .provenance
        .revision
        .as_deref()
        .map_or_else(String::new, |revision| {
            let text = revision.strip_prefix("sha256:").unwrap_or(revision);
            format!(" at {}", clean(short(text), 40))
        });
    let bytes: u64 = manifest.files.iter().map(|file| file.size).sum();
    format!(
        "{mark} {}  {}  {}",
        paint(BOLD, format_args!("version {}", manifest.version)),
        manifest.signed_at,
        paint(
            DIM,
            format_args!(
                "{}, {}, from {}{revision}",
                count(manifest.files.len() as u64, "file"),
                size(bytes),
                clean(manifest.provenance.identifier.as_str(), 200)
            )
        )
    )
}

/// Goes back.
pub fn roll_back(context: &Context, arguments: &RollbackArguments) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Err(super::no_vault(context));
    };
    let name = &arguments.name;
    let strict = super::strict(context)?;
    let report = match history::roll_back(&vault, name, arguments.to, strict) {
        Ok(report) => report,
        Err(RollbackError::NotInstalled(_)) => return Err(not_installed(&vault, name)?),
        Err(error) => return Err(failure(name, error)),
    };
    super::sync_profiles::refresh(context, &vault);
    if let Ok(Some(lock)) = lock::Lock::find(context)
        && lock.skills.iter().any(|locked| locked.name == *name)
    {
        context.ui.note(format!(
            "{} names {name} as it was; vault install would bring that back",
            lock.path.display()
        ));
    }
    Ok(Report::new(admitted_json(&report), admitted_text(&report)))
}

/// The failure for a name that is no own skill's.
pub fn not_installed(vault: &Vault, name: &SkillName) -> Result<Failure, Failure> {
    let names: Vec<String> = shelf::list(vault)?
        .skills
        .into_iter()
        .map(|skill| skill.name.to_string())
        .collect();
    Ok(super::not_listed(
        Failure::failed(
            "skill_not_found",
            format!("{name} is not installed from this vault"),
        ),
        name.as_str(),
        names
            .iter()
            .map(String::as_str)
            .filter(|other| *other != name.as_str()),
        "vault skill list",
    ))
}

fn failure(name: &SkillName, error: RollbackError) -> Failure {
    let message = chain(&error);
    let shows = format!("vault history {name} shows what is stored");
    match error {
        RollbackError::NotInstalled(_) => Failure::failed("skill_not_found", message),
        RollbackError::NothingEarlier(_) | RollbackError::NoSuchVersion { .. } => {
            Failure::failed("version_not_stored", message).hint(shows)
        }
        RollbackError::Damaged { damage, .. } => {
            let exit = if damage.is_tampering() {
                Exit::Integrity
            } else {
                Exit::Failed
            };
            Failure::new(exit, "skill_damaged", message).hint(shows)
        }
        RollbackError::Add(error) => {
            let texts = Texts::of_fetched(name.as_str(), &[]);
            refused(name.as_str(), &texts, error)
        }
        RollbackError::Vault(error) => error.into(),
    }
}
