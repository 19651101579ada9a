//! The reports of `vault audit` and `vault audit-repo`: output formats, exit codes, the paths under
//! which findings are shown, and the verdicts in words.

use std::collections::HashSet;
use std::path::Path;

use clap::{Args, ValueEnum};
use tokio::time::Instant;
use vault_format::{manifest::SKILL_MD, text::printable};
use vault_gate::{
    Outcome, RawFile,
    finding::{Finding, Level},
    package::Package,
    report::{Audit, Audited, LeftOutFolder, Located, Verdict, json, markdown, sarif},
    similar,
};
use vault_library::audit::{AuditError, content_hash};

use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure, message_chain},
    output::{BAD, BOLD, DIM, GOOD, HINT, WARN, clean, count, finding, paint},
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
        help = "What fails: blocked skills (the default), warnings too, or never",
        long,
        value_name = "VERDICT",
        default_value = "blocked",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub fail_on: FailOn,
}

/// How an audit prints its report (`--format`).
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
    pub fn check_output(&self, context: &Context, has_output: bool) -> Result<(), Failure> {
        let is_other = !matches!(self.format, Format::Text | Format::Json);
        // With an output file, the report goes there and the JSON envelope to standard output.
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
    pub fn render_report(&self, audit: &Audit) -> Option<String> {
        match self.format {
            Format::Text | Format::Json => None,
            Format::Jsonl => Some(json::render_lines(audit)),
            Format::Markdown => Some(markdown::render(audit)),
            Format::Sarif => Some(sarif::render(audit, env!("CARGO_PKG_VERSION")) + "\n"),
        }
    }

    /// Returns the exit code: 5 if a skill is blocked, else 2 if something was not judged, else 3
    /// if warnings fail and there are any.
    pub fn exit_code(&self, audit: &Audit) -> Exit {
        let has = |wanted| audit.skills.iter().any(|skill| skill.verdict == wanted);
        match self.fail_on {
            FailOn::Never => Exit::Done,
            _ if has(Verdict::Blocked) => Exit::Gate,
            // An incomplete audit may have missed findings, so it must not pass as clean.
            _ if !audit.is_complete() => Exit::Usage,
            FailOn::Warnings if has(Verdict::Warnings) => Exit::Differences,
            FailOn::Blocked | FailOn::Warnings => Exit::Done,
        }
    }
}

/// Returns the exit code for the verdict on a single skill: 5 if it is blocked, 2 if it cannot be
/// read, else 0. Warnings do not fail.
pub const fn exit_of(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Accepted | Verdict::Warnings => Exit::Done,
        Verdict::Blocked => Exit::Gate,
        Verdict::Unreadable => Exit::Usage,
    }
}

/// Creates the audit entry of a single skill from the outcome of the gate (vault's scanner).
/// `package` is absent if the files could not be read; the entry then has no name and no content
/// hash.
pub fn audited_skill(
    source: &str,
    outcome: Outcome,
    package: Option<&Package>,
    findings: &[Finding],
) -> Audited {
    let files = package.map(|package| package.files.iter().cloned().map(RawFile::from));
    let hash = files.map(|files| content_hash(&files.collect::<Vec<_>>()));
    let located = findings.iter().map(|finding| Located {
        finding: finding.clone(),
        source: None,
    });
    Audited {
        path: source.to_owned(),
        uri: String::new(),
        document: SKILL_MD.to_owned(),
        name: package.map(|package| package.name.to_string()),
        verdict: Verdict::of(outcome),
        hash,
        findings: located.collect(),
        accepted: Vec::new(),
        sketch: None,
        duplicate_of: None,
        likeness: None,
        microseconds: 0,
    }
}

/// Formats a skill of an audited folder: its findings, then the verdict.
pub fn skill_lines(location: &Location, skill: &Audited, all: bool) -> Vec<String> {
    let mut lines = finding_lines(location, skill, all);
    // The audited folder itself has the path `.`, which reads oddly behind a prefix.
    let shown = match (skill.path.as_str(), location.prefix.trim_end_matches('/')) {
        (".", "") => ".".to_owned(),
        (".", prefix) => prefix.to_owned(),
        (path, _) => format!("{}{path}", location.prefix),
    };
    lines.push(format!(
        "{} {BOLD}{}{BOLD:#}  {}",
        verdict_mark(skill.verdict),
        clean(&printable(&shown), 300),
        describe_verdict(location, skill)
    ));
    lines
}

pub fn elapsed_micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The prefix of paths in an audited folder, as text and as a URI. The default is that of the
/// current folder: no prefix.
#[derive(Clone, Debug, Default)]
pub struct Location {
    /// Prefix of paths in text: empty, or ending with `/`.
    pub prefix: String,
    /// The same prefix as a relative URI reference, percent-encoded. Empty if the folder is not
    /// below the current one.
    pub base: String,
}

impl Location {
    /// Creates the location of an audited folder from the path that the user typed.
    pub fn of_folder(folder: &Path) -> Self {
        let named: std::path::PathBuf = folder
            .components()
            .filter(|part| *part != std::path::Component::CurDir)
            .collect();
        // Locations in SARIF are relative to the current folder, which is usually the repository's
        // root.
        let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
        let below = std::fs::canonicalize(folder)
            .ok()
            .and_then(|folder| Some(folder.strip_prefix(here?).ok()?.to_owned()));
        let reference = below.unwrap_or_default();
        let slashed = |text: String| if text.is_empty() { text } else { text + "/" };
        Self {
            // The root folder already ends with a slash.
            prefix: slashed(named.display().to_string()).replace("//", "/"),
            base: slashed(vault_gate::report::percent_encoded(
                std::os::unix::ffi::OsStrExt::as_bytes(reference.as_os_str()),
            )),
        }
    }
}

/// Converts the error of an audit that could not start. `named` is the folder as the user typed it.
pub fn audit_not_started(error: &AuditError, named: &str) -> Failure {
    let message = clean(&message_chain(error), 600);
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
        let reason = format!("not judged: {}", clean(&printable(&skipped.reason), 200));
        path_line(location, &paint(BAD, "?"), &skipped.path, &reason)
    })
}

/// Formats one line for each skill that was not judged because its path is excluded.
pub fn excluded_lines<'a>(
    location: &'a Location,
    audit: &'a Audit,
) -> impl Iterator<Item = String> + 'a {
    audit.excluded.iter().map(|excluded| {
        let reason = format!("excluded: {}", clean(&printable(&excluded.reason), 200));
        path_line(location, &paint(DIM, "-"), &excluded.path, &reason)
    })
}

/// Formats one line for each folder that is left out as `vault add --all` leaves it out. Without
/// `all`, names only the first ones.
pub fn left_out_lines(location: &Location, left_out: &[LeftOutFolder], all: bool) -> Vec<String> {
    let total = left_out.len();
    let most = if all { total } else { MOST_LEFT_OUT };
    let named = left_out.iter().take(most).map(|left| {
        let reason = format!("left out: {}", clean(&printable(&left.message), 300));
        path_line(location, &paint(DIM, "-"), &left.path, &reason)
    });
    let mut lines: Vec<String> = named.collect();
    if total > most {
        let more = total - most;
        lines.push(format!(
            "{} {more} more left out (-v names them)",
            paint(DIM, "-")
        ));
    }
    lines
}

/// Maximum number of left-out folders that are named without `-v`, as for `vault add`.
const MOST_LEFT_OUT: usize = 20;

/// Formats a path that was not judged: a mark, the path below the audited folder, and the reason.
fn path_line(location: &Location, mark: &str, path: &str, reason: &str) -> String {
    let folder = clean(&printable(&location.prefix), 300);
    let path = clean(&printable(path), 300);
    format!("{mark} {folder}{path}  {reason}")
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
        if !all && finding.level == Level::Note {
            continue;
        }
        // Warnings do not block, so one line each keeps the report short.
        if !all && finding.level <= Level::Warning {
            lines.push(finding::render_line(&path, finding));
            continue;
        }
        let here = Some((&finding.path, finding.line, finding.column));
        // Quote a source line once, even if several findings point at the same place.
        let source = at.source.as_ref().filter(|_| here != last);
        last = here;
        lines.push(if explained.insert((finding.rule, &finding.hint)) {
            finding::render_finding(&path, finding, source)
        } else {
            finding::render_again(&path, finding, source)
        });
    }
    lines
}

/// Returns the coloured mark before a verdict: `✓`, `!` for warnings, `✗` if blocked, `?` if
/// unreadable.
pub fn verdict_mark(verdict: Verdict) -> String {
    match verdict {
        Verdict::Accepted => paint(GOOD, "✓"),
        Verdict::Warnings => paint(WARN, "!"),
        Verdict::Blocked => paint(BAD, "✗"),
        Verdict::Unreadable => paint(BAD, "?"),
    }
}

/// Describes the verdict on a skill in words.
pub fn describe_verdict(place: &Location, skill: &Audited) -> String {
    let blocking = skill.blocking_count();
    let is_warning = |at: &&Located| at.finding.level == Level::Warning;
    let warnings = skill.findings.iter().filter(is_warning).count();
    let finding_counts = match (
        count(blocking as u64, "finding"),
        count(warnings as u64, "warning"),
    ) {
        (findings, more) if blocking > 0 && warnings > 0 => format!("{findings}, {more}"),
        (findings, _) => findings,
    };
    let text = match skill.verdict {
        Verdict::Accepted => "accepted, no findings".to_owned(),
        Verdict::Warnings => format!("accepted with {}", count(warnings as u64, "warning")),
        Verdict::Blocked => format!("blocked by {finding_counts}"),
        Verdict::Unreadable => format!("not all of it could be read: {finding_counts}"),
    };
    let text = match skill.accepted.len() {
        0 => text,
        some => format!("{text}; {} accepted by the list", count(some, "finding")),
    };
    let (Some(path), Some(likeness)) = (&skill.duplicate_of, skill.likeness) else {
        return text;
    };
    let path = clean(&printable(&format!("{}{path}", place.prefix)), 300);
    let path = paint(HINT, path);
    let mut rules = skill.findings.iter().map(|at| at.finding.rule);
    // Mention equal bytes only if no rule has reported the duplicate already.
    if likeness >= 1.0 && rules.all(|rule| rule != "duplicate") {
        format!("{text}; same bytes as {path}")
    } else {
        let much = similar::format_percent(likeness);
        format!("{text}; {much} of its text is that of {path}")
    }
}

/// Warns about each limit on folders or depth that stopped the search for skills.
pub fn warn_about_bounds(context: &Context, audit: &Audit) {
    for bound in &audit.bounds {
        let flag = match bound.unit {
            "folders" => "--max-folders",
            _ => "--max-depth",
        };
        let message = format!(
            "the audit stopped at {} {}; skills beyond them were not judged",
            bound.limit, bound.unit
        );
        let hint = format!("raise {flag}, or audit a folder further down");
        context.ui.warn_with("bound_reached", message, hint);
    }
}

/// Summarises the audit of a repository in one line.
pub fn summary_line(audit: &Audit) -> String {
    let skipped = match audit.skipped.len() {
        0 => String::new(),
        some => format!("; {} not judged", count(some as u64, "folder")),
    };
    let taken: usize = audit.skills.iter().map(|skill| skill.accepted.len()).sum();
    let taken = match taken {
        0 => String::new(),
        some => format!("; {} accepted by the list", count(some as u64, "finding")),
    };
    let excluded = match audit.excluded.len() {
        0 => String::new(),
        some => format!("; {some} excluded"),
    };
    let left_out = match audit.left_out.len() {
        0 => String::new(),
        some => format!("; {some} left out"),
    };
    let folders = format!("({} read)", count(audit.folders as u64, "folder"));
    format!(
        "{}{excluded}{skipped}{left_out}{taken} {}",
        verdict_counts(audit),
        paint(DIM, folders)
    )
}

/// Formats the number of skills for each verdict.
pub fn verdict_counts(audit: &Audit) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use vault_gate::report::{Bound, Skipped};

    /// An audit of skills with these verdicts.
    fn audit(verdicts: &[Verdict]) -> Audit {
        let skill = |verdict: &Verdict| Audited {
            verdict: *verdict,
            ..audited_skill("s", Outcome::Accepted, None, &[])
        };
        Audit {
            root: String::new(),
            base: String::new(),
            strict: true,
            skills: verdicts.iter().map(skill).collect(),
            left_out: Vec::new(),
            skipped: Vec::new(),
            excluded: Vec::new(),
            bounds: Vec::new(),
            folders: 1,
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_first_reason_that_fails() {
        use Exit::{Differences, Done, Gate, Usage};
        use Verdict::{Accepted, Blocked, Unreadable, Warnings};
        let skipped = Skipped {
            path: "closed".to_owned(),
            reason: "permission denied".to_owned(),
        };
        let bound = Bound {
            unit: "levels",
            limit: 2,
        };
        // Verdicts; whether a folder was skipped and a bound was reached; the exit codes for
        // `blocked` and `warnings`.
        let rows: [(&[Verdict], bool, bool, Exit, Exit); 8] = [
            (&[Accepted], false, false, Done, Done),
            (&[Accepted, Warnings], false, false, Done, Differences),
            (&[Warnings, Blocked], false, false, Gate, Gate),
            (&[Blocked, Unreadable], true, true, Gate, Gate),
            (&[Warnings, Unreadable], false, false, Usage, Usage),
            (&[Warnings], true, false, Usage, Usage),
            (&[Accepted], false, true, Usage, Usage),
            (&[], false, false, Done, Done),
        ];
        for (verdicts, is_skipped, is_bounded, blocked, warnings) in rows {
            let mut audit = audit(verdicts);
            audit.skipped.extend(is_skipped.then(|| skipped.clone()));
            audit.bounds.extend(is_bounded.then_some(bound));
            let exit = |fail_on| {
                let format = Format::Text;
                ReportOptions { format, fail_on }.exit_code(&audit)
            };
            assert_eq!(exit(FailOn::Blocked), blocked, "{verdicts:?}");
            assert_eq!(exit(FailOn::Warnings), warnings, "{verdicts:?}");
            assert_eq!(exit(FailOn::Never), Done, "{verdicts:?}");
        }
    }
}
