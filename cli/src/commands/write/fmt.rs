//! `vault fmt`: fixes the two most common mistakes in a SKILL.md.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use vault_format::manifest::MAX_SKILL_MD_BYTES;
use vault_gate::document::{self, Change};

use crate::{
    admission,
    context::Context,
    errors::{Exit, Failure},
    output::{BAD, DIM, GOOD, Report, TICK, clean, count, paint},
};

/// The arguments of `vault fmt`.
#[derive(Args, Debug)]
#[command(after_help = "\
Quotes values that contain `: `, and changes a name to lower-case letters, digits and hyphens. \
Every other byte stays as it is. The command shows the changes and writes nothing without \
--write.

Examples:
  vault fmt SKILL.md
  vault fmt skills/*/SKILL.md --check
  vault fmt SKILL.md --write")]
pub struct Arguments {
    /// SKILL.md files, or their folders
    #[arg(required = true, value_name = "SKILL.md")]
    files: Vec<PathBuf>,
    /// Exit with 3 if something would change; write nothing
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the changes
    #[arg(long)]
    write: bool,
}

/// Fixes the files, or without `--write` shows the changes.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut data = Vec::new();
    let mut lines = Vec::new();
    let mut fixed = 0;
    let mut failed = Vec::new();
    for file in &arguments.files {
        let file = if file.is_dir() {
            file.join("SKILL.md")
        } else {
            file.clone()
        };
        match fix(&file, arguments.write) {
            Ok(changes) => {
                if !changes.is_empty() {
                    fixed += 1;
                    lines.extend(difference(&file, &changes));
                }
                data.push(json!({
                    "path": file,
                    "changes": changes.iter().map(change).collect::<Vec<_>>(),
                    "written": arguments.write && !changes.is_empty(),
                }));
            }
            Err(failure) if arguments.files.len() == 1 => return Err(failure),
            // A file that cannot be fixed must not stop the others.
            Err(failure) => {
                context.ui.note_failure(&failure);
                data.push(json!({ "path": file, "error": { "code": failure.code.word(), "message": failure.message } }));
                failed.push(failure);
            }
        }
    }
    let files = count(arguments.files.len() as u64, "file");
    lines.push(match (fixed, arguments.write) {
        (0, _) => format!("{TICK} {files}, nothing to fix"),
        (_, true) => format!("{TICK} fixed {fixed} of {files}"),
        (_, false) => format!("{fixed} of {files} would be fixed; --write writes the changes"),
    });
    let data = json!({ "files": data, "mended": fixed });
    if let Some(first) = failed.first() {
        if fixed > 0 {
            context.ui.line(lines.join("\n"));
        }
        let message = format!("{} could not be fixed", count(failed.len() as u64, "file"));
        return Err(Failure::new(first.code.clone(), message).data(data));
    }
    let report = Report::new(data, lines.join("\n"));
    Ok(if arguments.check && fixed > 0 {
        report.exit(Exit::Differences)
    } else {
        report
    })
}

/// Computes the fixes for one file and returns them. Writes the file if `put` is set.
fn fix(file: &Path, put: bool) -> Result<Vec<Change>, Failure> {
    let bytes = read(file)?;
    let result = document::mend(&bytes).map_err(|error| {
        let shown = file.display().to_string();
        let shown_findings = error
            .findings()
            .iter()
            .map(|finding| admission::excerpt(&shown, finding));
        fail!(NotMended, "{shown} cannot be fixed")
            .excerpts(shown_findings)
            .data(json!({ "path": file, "findings": error.findings() }))
    })?;
    if put && !result.changes.is_empty() {
        write(file, result.text.as_bytes())?;
    }
    Ok(result.changes)
}

fn change(change: &Change) -> Value {
    json!({ "line": change.line, "before": change.before, "after": change.after, "why": change.why })
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: &std::io::Error| Failure::io("reading", file, error);
    let found = std::fs::symlink_metadata(file).map_err(|error| failed(&error))?;
    if !found.is_file() {
        return Err(fail!(NotAFile, "{} is not a regular file", file.display()));
    }
    if found.len() > MAX_SKILL_MD_BYTES {
        return Err(fail!(
            SkillMdSize,
            "{} is too large for a SKILL.md",
            file.display()
        ));
    }
    std::fs::read(file).map_err(|error| failed(&error))
}

/// Replaces the file atomically and keeps its permissions.
fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let put = || -> std::io::Result<()> {
        let permissions = std::fs::metadata(file)?.permissions();
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(bytes)?;
        new.as_file().set_permissions(permissions)?;
        new.as_file().sync_all()?;
        new.persist(file)?;
        Ok(())
    };
    put().map_err(|error| Failure::io("writing", file, &error))
}

fn difference(file: &Path, changes: &[Change]) -> Vec<String> {
    let mut lines = vec![
        paint(DIM, format_args!("--- {}", file.display())),
        paint(DIM, format_args!("+++ {}", file.display())),
    ];
    for change in changes {
        lines.push(paint(
            DIM,
            format_args!("@@ line {}: {} @@", change.line, change.why),
        ));
        lines.push(paint(
            BAD,
            format_args!("-{}", clean(&change.before, 1_000)),
        ));
        lines.push(paint(
            GOOD,
            format_args!("+{}", clean(&change.after, 1_000)),
        ));
    }
    lines
}
