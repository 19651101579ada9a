//! Audit reports: their formats, the locations of findings, and the verdicts in words.

use std::collections::HashSet;
use std::path::Path;

use clap::{Args, ValueEnum};
use tokio::time::Instant;
use vault_library::audit::AuditError;
use vault_skill::{
    finding::{Level, printable},
    gate::similar,
    report::{Audit, Audited, Verdict, json, markdown, sarif},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure, chain},
    output::{BAD, DIM, GOOD, HINT, WARN, Warning, clean, count, finding, paint},
};

/// The format of the report and what makes the command fail.
#[derive(Args, Debug)]
pub struct ReportOptions {
    #[arg(
        help = "text, json, jsonl (a line for each skill), markdown or sarif (2.1.0)",
        long,
        value_name = "FORM",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub format: Format,
    #[arg(
        help = "What ends with 3: blocked (the default), warnings too, or never",
        long,
        value_name = "VERDICT",
        default_value = "blocked",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub fail_on: FailOn,
}

/// A format of the report.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// The envelope.
    Json,
    /// A line for each skill.
    Jsonl,
    /// A comment for a code host.
    Markdown,
    /// For code scanning services.
    Sarif,
}

/// From which verdict on an audit fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum FailOn {
    /// Refused skills.
    Blocked,
    /// Skills with warnings too.
    Warnings,
    /// Nothing: the report is all that is wanted.
    Never,
}

impl ReportOptions {
    /// Rejects `--json` together with a format that is not JSON, unless the report goes to a file.
    pub fn check(&self, context: &Context, has_output: bool) -> Result<(), Failure> {
        let is_other = !matches!(self.format, Format::Text | Format::Json);
        if !context.ui.is_json() || has_output || !is_other {
            return Ok(());
        }
        Err(
            fail!(Usage, "--json and another --format cannot both be printed")
                .hint("leave out --json, or write the report to a file: --output <file>"),
        )
    }

    /// Renders the report as JSON lines, Markdown or SARIF. Returns `None` for the text format and
    /// for the JSON envelope.
    pub fn rendered(&self, audit: &Audit) -> Option<String> {
        match self.format {
            Format::Text | Format::Json => None,
            Format::Jsonl => Some(json::lines(audit)),
            Format::Markdown => Some(markdown::render(audit)),
            Format::Sarif => Some(sarif::render(audit, env!("CARGO_PKG_VERSION")) + "\n"),
        }
    }

    /// Returns the exit code. A file or folder that could not be read outweighs every finding.
    pub fn exit(&self, audit: &Audit) -> Exit {
        let fails = match self.fail_on {
            FailOn::Blocked => Some(Verdict::Blocked),
            FailOn::Warnings => Some(Verdict::Warnings),
            FailOn::Never => None,
        };
        // An incomplete audit may have missed findings, so it must not pass as clean.
        if !audit.is_complete() {
            Exit::Usage
        } else if fails.is_some_and(|fails| audit.worst() >= fails) {
            Exit::Differences
        } else {
            Exit::Done
        }
    }
}

/// Microseconds since `started`.
pub fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// How the paths of an audited folder are displayed. The default is the current folder.
#[derive(Clone, Debug, Default)]
pub struct Location {
    /// Prefix of paths in text: empty, or ending with `/`.
    pub prefix: String,
    /// The same prefix as a relative URI reference, percent-encoded. Empty if the folder is not
    /// below the current one.
    pub base: String,
}

impl Location {
    /// Creates the location of a folder from the path that the user typed.
    pub fn of(folder: &Path) -> Self {
        let named: std::path::PathBuf = folder
            .components()
            .filter(|part| *part != std::path::Component::CurDir)
            .collect();
        let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
        let below = std::fs::canonicalize(folder)
            .ok()
            .and_then(|folder| Some(folder.strip_prefix(here?).ok()?.to_owned()));
        let reference = below.unwrap_or_default();
        let slashed = |text: String| if text.is_empty() { text } else { text + "/" };
        Self {
            prefix: slashed(named.display().to_string()).replace("//", "/"),
            base: slashed(vault_skill::report::percent_encoded(
                std::os::unix::ffi::OsStrExt::as_bytes(reference.as_os_str()),
            )),
        }
    }
}

/// Converts the error of an audit that could not start.
pub fn not_started(error: &AuditError, named: &str) -> Failure {
    let message = clean(&chain(error), 600);
    match error {
        AuditError::NoSkill(_) => Failure::new(ErrorCode::SkillMdMissing, message).hint(format!(
            "vault audit-repo {} looks for skills below it",
            clean(named, 200)
        )),
        AuditError::NotASkill(_) => Failure::new(ErrorCode::SourceUnreadable, message)
            .hint("name the skill's folder: every file of it is judged"),
        AuditError::File(_) => Failure::new(ErrorCode::SourceUnreadable, message),
    }
}

/// Formats one line for each folder that could not be read.
pub fn skipped_lines<'a>(
    location: &'a Location,
    audit: &'a Audit,
) -> impl Iterator<Item = String> + 'a {
    audit.skipped.iter().map(|skipped| {
        let folder = clean(&printable(&location.prefix), 300);
        let path = clean(&printable(&skipped.path), 300);
        let reason = clean(&printable(&skipped.reason), 200);
        format!(
            "{} {folder}{path}  could not be looked into: {reason}",
            paint(BAD, "?")
        )
    })
}

/// Formats the findings of a skill: blocking ones in full, warnings as one line each unless `all`
/// is set. A source line with several findings is quoted once, and a rule with several findings is
/// explained once.
pub fn finding_lines(place: &Location, skill: &Audited, all: bool) -> Vec<String> {
    let mut last = None;
    let mut explained = HashSet::new();
    let mut lines = Vec::with_capacity(skill.findings.len());
    for at in &skill.findings {
        let finding = &at.finding;
        let path = format!("{}{}", place.prefix, skill.path_of(finding));
        // Warnings do not block, so one line each keeps the report short.
        if !all && finding.level == Level::Warning {
            lines.push(finding::line(&path, finding));
            continue;
        }
        let here = Some((&finding.path, finding.line, finding.column));
        // Quote a source line once, even if several findings point at the same place.
        let source = at.source.as_ref().filter(|_| here != last);
        last = here;
        lines.push(if explained.insert((finding.rule, &finding.hint)) {
            finding::render(&path, finding, source)
        } else {
            finding::render_again(&path, finding, source)
        });
    }
    lines
}

/// Returns the symbol for a verdict.
pub fn mark(verdict: Verdict) -> String {
    match verdict {
        Verdict::Accepted => paint(GOOD, "✓"),
        Verdict::Warnings => paint(WARN, "!"),
        Verdict::Blocked => paint(BAD, "✗"),
        Verdict::Unreadable => paint(BAD, "?"),
    }
}

/// Describes the verdict on a skill in words.
pub fn verdict(place: &Location, skill: &Audited) -> String {
    let blocking = skill.blocking();
    let warnings = skill.findings.len() - blocking;
    let found = match (
        count(blocking as u64, "finding"),
        count(warnings as u64, "warning"),
    ) {
        (findings, more) if blocking > 0 && warnings > 0 => format!("{findings}, {more}"),
        (findings, _) => findings,
    };
    let text = match skill.verdict {
        Verdict::Accepted => "accepted, nothing to say".to_owned(),
        Verdict::Warnings => format!("accepted with {}", count(warnings as u64, "warning")),
        Verdict::Blocked => format!("blocked by {found}"),
        Verdict::Unreadable => format!("not all of it could be read: {found}"),
    };
    let (Some(path), Some(likeness)) = (&skill.duplicate_of, skill.likeness) else {
        return text;
    };
    let path = clean(&printable(&format!("{}{path}", place.prefix)), 300);
    let path = paint(HINT, path);
    let mut rules = skill.findings.iter().map(|at| at.finding.rule);
    if likeness >= 1.0 && rules.all(|rule| rule != "duplicate") {
        format!("{text}; same bytes as {path}")
    } else {
        let much = similar::percent(likeness);
        format!("{text}; {much} of its text is that of {path}")
    }
}

/// Warns about each limit that stopped the search.
pub fn warn_about_bounds(context: &Context, audit: &Audit) {
    for bound in &audit.bounds {
        let flag = match bound.unit {
            "folders" => "--max-folders",
            _ => "--max-depth",
        };
        let message = format!(
            "only the first {} {} were looked through; skills beyond them are not in this report",
            bound.limit, bound.unit
        );
        let hint = format!("{flag} <number> looks further, or name a folder further down");
        context
            .ui
            .warn(Warning::new("bound_reached", message).hint(hint));
    }
}

/// Summarises the audit of a repository in one line.
pub fn summary(audit: &Audit) -> String {
    let skipped = match audit.skipped.len() {
        0 => String::new(),
        some => format!(
            "; {} could not be looked into",
            count(some as u64, "folder")
        ),
    };
    let folders = format!("({} looked through)", count(audit.folders as u64, "folder"));
    format!("{}{skipped} {}", counts(audit), paint(DIM, folders))
}

/// Formats the number of skills for each verdict.
pub fn counts(audit: &Audit) -> String {
    let sum = audit.summary();
    let parts = [
        (sum.accepted, GOOD, "accepted"),
        (sum.warnings, WARN, "with warnings"),
        (sum.blocked, BAD, "blocked"),
        (sum.unreadable, BAD, "unreadable"),
    ];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let parts: Vec<_> = parts
        .map(|(number, style, what)| paint(style, format_args!("{number} {what}")))
        .collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    format!(
        "{}{colon}{}",
        count(sum.skills as u64, "skill"),
        parts.join(", ")
    )
}
