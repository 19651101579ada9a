//! `vault history`: lists the stored versions of a skill.

use clap::Args;
use serde_json::json;
use vault_format::name::SkillRef;
use vault_library::admit::history::{self, PastVersion};
use vault_sources::short;

use crate::{
    context::Context,
    errors::Failure,
    lookup,
    output::{BOLD, DIM, GOOD, Report, clean, count, paint, size},
};

/// The arguments of `vault history`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows the versions that are still stored, newest first, with their recorded source. `vault \
rollback` goes back to one of them.

Examples:
  vault history code-review
  vault history code-review --json")]
pub struct Arguments {
    /// The skill
    name: SkillRef,
}

/// Lists the versions.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let name = lookup::own(&vault, &arguments.name)?;
    let versions = history::history(&vault, &name)?;
    if versions.is_empty() {
        return Err(lookup::not_own(&vault, &name)?);
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
        json!({ "name": name, "versions": data }),
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
        "{mark} {BOLD}version {}{BOLD:#}  {}  {DIM}{}, {}, from {}{revision}{DIM:#}",
        manifest.version,
        manifest.signed_at,
        count(manifest.files.len() as u64, "file"),
        size(bytes),
        clean(manifest.provenance.identifier.as_str(), 200)
    )
}
