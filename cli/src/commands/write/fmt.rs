//! `vault fmt`: fixes the two most common mistakes in the frontmatter of a SKILL.md: values with `:
//! ` that are not quoted, and names that are not lower-case letters, digits and hyphens.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use vault_format::manifest::MAX_SKILL_MD_BYTES;
use vault_gate::document::{self, Change};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BAD, DIM, GOOD, Report, TICK, clean, count, either, paint},
    tasks::admission,
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

/// SKILL.md files, with their fixes.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FixedFiles {
    /// The files, in the order in which they were named.
    files: Vec<FixedFile>,
    /// The number of files with fixes.
    #[serde(rename = "mended")]
    fixed: usize,
}

/// A SKILL.md with its fixes.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FixedFile {
    /// Path of the SKILL.md.
    path: PathBuf,
    #[serde(flatten)]
    result: FixResult,
}

/// The fixes of a file, or the reason why it could not be fixed.
#[derive(Debug, JsonSchema, Serialize)]
enum FixResult {
    /// The reason why it could not be fixed, with its `code` and `message`; absent if it could.
    #[serde(rename = "error")]
    Failed {
        /// Error code, as `vault help errors` lists it.
        code: String,
        /// The message: one sentence without a full stop.
        message: String,
    },
    #[serde(untagged)]
    Fixed {
        /// The lines that change.
        changes: Vec<Change>,
        /// Whether the changes were written.
        written: bool,
    },
}

/// Computes the fixes for each file and shows them; writes them with `--write`. With `--check` the
/// exit code tells whether something would change.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut files = Vec::new();
    let mut lines = Vec::new();
    let mut fixed = 0;
    let mut failed = Vec::new();
    for file in &arguments.files {
        let path = if file.is_dir() {
            file.join("SKILL.md")
        } else {
            file.clone()
        };
        let result = match fix_file(&path, arguments.write) {
            Ok(changes) => {
                if !changes.is_empty() {
                    fixed += 1;
                    lines.extend(difference_lines(&path, &changes));
                }
                FixResult::Fixed {
                    written: arguments.write && !changes.is_empty(),
                    changes,
                }
            }
            Err(failure) if arguments.files.len() == 1 => return Err(failure),
            // One of several files that cannot be fixed is noted, and the others go on.
            Err(failure) => {
                context.ui.note_failure(&failure);
                let (code, message) = (failure.code.word().to_owned(), failure.message.clone());
                failed.push(failure);
                FixResult::Failed { code, message }
            }
        };
        files.push(FixedFile { path, result });
    }
    let number = count(files.len(), "file");
    lines.push(match (fixed, arguments.write) {
        (0, _) => format!("{TICK} {number}, nothing to fix"),
        (_, true) => format!("{TICK} fixed {fixed} of {number}"),
        (_, false) => format!("{fixed} of {number} would be fixed; --write writes the changes"),
    });
    let view = FixedFiles { files, fixed };
    if let Some(first) = failed.first() {
        // The report of a failure shows no lines about the fixed files, so they are printed here.
        if fixed > 0 {
            context.ui.print_line(lines.join("\n"));
        }
        let message = format!("{} could not be fixed", count(failed.len() as u64, "file"));
        // The files may have failed for different reasons. The first failure sets the error code.
        return Err(Failure::new(first.code.clone(), message).data(view));
    }
    let differs = arguments.check && fixed > 0;
    let exit = either(differs, Exit::Differences, Exit::Done);
    Ok(Report::view(view, lines.join("\n")).with_exit(exit))
}

/// Returns the lines of a SKILL.md that have to change. Writes the fixed file if `put` is set.
/// Fails if the file has another mistake, which cannot be fixed without guessing.
fn fix_file(file: &Path, put: bool) -> Result<Vec<Change>, Failure> {
    let bytes = read_skill_md(file)?;
    let result = document::repair_document(&bytes).map_err(|error| {
        let shown = file.display().to_string();
        let shown_findings = error
            .findings()
            .iter()
            .map(|finding| admission::render_folder_finding(&shown, finding));
        fail!(NotMended, "{shown} cannot be fixed")
            .excerpts(shown_findings)
            .data(json!({ "path": file, "findings": error.findings() }))
    })?;
    if put && !result.changes.is_empty() {
        replace_file(file, result.text.as_bytes())?;
    }
    Ok(result.changes)
}

/// Reads a SKILL.md. Fails if it is a symbolic link or no file, or larger than the gate accepts.
fn read_skill_md(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: &std::io::Error| Failure::io("reading", file, error);
    // A symbolic link is refused, because `--write` would replace the link with a file.
    let metadata = std::fs::symlink_metadata(file).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(fail!(NotAFile, "{} is not a regular file", file.display()));
    }
    // The gate rejects a larger file anyway, and reading it could exhaust the memory.
    if metadata.len() > MAX_SKILL_MD_BYTES {
        return Err(fail!(
            SkillMdSize,
            "{} is too large for a SKILL.md",
            file.display()
        ));
    }
    std::fs::read(file).map_err(|error| failed(&error))
}

/// Replaces the file atomically and keeps its permissions.
fn replace_file(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = match file.parent() {
        // The parent of a bare file name is the empty path, which is not a folder.
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let put = || -> std::io::Result<()> {
        let permissions = std::fs::metadata(file)?.permissions();
        // A rename works within one file system only, so the new file is in the same folder.
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(bytes)?;
        // A temporary file is readable only by its owner, so it gets the permissions of the file
        // that it replaces.
        new.as_file().set_permissions(permissions)?;
        // The bytes must be on disk before the rename, or a crash could leave an empty SKILL.md.
        new.as_file().sync_all()?;
        new.persist(file)?;
        Ok(())
    };
    put().map_err(|error| Failure::io("writing", file, &error))
}

/// Formats the changes of a file in the style of a unified diff, with the reason of each.
fn difference_lines(file: &Path, changes: &[Change]) -> Vec<String> {
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
