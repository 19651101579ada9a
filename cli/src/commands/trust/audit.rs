//! `vault audit`: scans skills with the gate that `vault add` uses, installed or not, and reports
//! each finding.

use clap::Args;
use tokio::time::Instant;
use vault_format::text::printable;
use vault_gate::report::{Audit, Audited, Skipped, json::AuditView};
use vault_library::{
    audit::{self, Auditor},
    run,
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{self, Target, folder_of},
    output::{BOLD, Report, clean},
    tasks::{
        admission::allow_hint,
        audit_report::{
            Format, Location, ReportOptions, audit_not_started, describe_verdict, elapsed_micros,
            finding_lines, skipped_lines, verdict_counts, verdict_mark,
        },
    },
};

/// The arguments of `vault audit`.
#[derive(Args, Debug)]
#[command(after_help = "\
Judges each skill by the gate that `vault add` uses, and shows each finding with its line, the \
reason and the fix. Runs nothing and changes nothing. An installed skill is judged from its \
verified bytes, with the exceptions that were signed with it.

Exit 5 if a skill is blocked, 2 if something could not be judged, 3 if there are warnings and \
--fail-on is warnings, else 0. With --fail-on never always 0.

Examples:
  vault audit ./code-review
  vault audit code-review pdf --fail-on warnings
  vault audit ./draft/SKILL.md --json")]
pub struct Arguments {
    #[arg(
        help = "A skill's folder, SKILL.md files or installed skills (`./name` is always a path)",
        required = true,
        value_name = "PATH|NAME"
    )]
    what: Vec<String>,
    #[command(flatten)]
    options: ReportOptions,
}

impl Arguments {
    /// Returns whether `--format json` requests the same output as `--json`.
    pub fn wants_json(&self) -> bool {
        self.options.format == Format::Json
    }
}

/// Audits the named skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let options = &arguments.options;
    options.check_output(context, false)?;
    let strict = context.is_strict()?;
    let started = Instant::now();
    let clock = || elapsed_micros(started);
    // The vault is optional, because folders can be audited without one.
    let vault = context.existing_vault()?;
    let auditor = Auditor {
        vault: vault.as_ref(),
        hints: context.ui.is_verbose(),
        clock: &clock,
        ..Auditor::new(strict)
    };
    let mut audit = Audit {
        root: ".".to_owned(),
        base: String::new(),
        strict,
        skills: Vec::with_capacity(arguments.what.len()),
        skipped: Vec::new(),
        left_out: Vec::new(),
        excluded: Vec::new(),
        bounds: Vec::new(),
        folders: arguments.what.len(),
    };
    for what in &arguments.what {
        match audit_target(what, &auditor) {
            Ok(audited) => audit.skills.push(audited),
            Err(failure) if arguments.what.len() == 1 => return Err(failure),
            // If one of several targets cannot be read, still report the findings of the others.
            Err(failure) => audit.skipped.push(Skipped {
                path: what.clone(),
                reason: failure.message.clone(),
            }),
        }
    }
    // The arguments may name the same skill twice, for example as a copy.
    audit.mark_duplicates();
    let exit = options.exit_code(&audit);
    let report = match options.render_report(&audit) {
        Some(text) => Report::raw_text(text),
        None => Report::view(AuditView::from(&audit), audit_text(&audit)),
    };
    Ok(report.with_exit(exit))
}

/// Audits one skill. The report shows it under the name or path that the user gave.
fn audit_target(what: &str, auditor: &Auditor<'_>) -> Result<Audited, Failure> {
    match lookup::resolve_target(auditor.vault, what).map_err(|failure| as_unreadable(&failure))? {
        Target::Installed(name) => {
            let Some(vault) = auditor.vault else {
                return Err(as_unreadable(&lookup::not_installed(None, what)));
            };
            let inspected = run::inspect_skill(vault, &name)
                .map_err(|error| lookup::suggest_name(vault, error))?;
            let mut audited = audit::audit_installed(inspected.examined, auditor);
            // The path is that of the bundle in the store, so replace it by the name that the user
            // gave.
            audited.path = inspected.name.to_string();
            audited.uri = vault_gate::report::percent_encoded(audited.path.as_bytes());
            Ok(audited)
        }
        Target::Path(path) => {
            let mut audited = audit::audit_skill(&path, auditor)
                .map_err(|error| audit_not_started(&error, what))?;
            let location = Location::of_folder(&folder_of(&path));
            audited.path = match location.prefix.strip_suffix('/') {
                // The prefix of the root folder is only a slash.
                Some("") => "/".to_owned(),
                Some(named) => named.to_owned(),
                None => ".".to_owned(),
            };
            location
                .base
                .trim_end_matches('/')
                .clone_into(&mut audited.uri);
            Ok(audited)
        }
    }
}

/// Converts any failure to find a target into `source_unreadable`, which exits with 2.
fn as_unreadable(failure: &Failure) -> Failure {
    Failure::new(ErrorCode::SourceUnreadable, &failure.message).hint_if(failure.hint.clone())
}

/// Formats each skill in full and, if there are several, a count of the verdicts.
fn audit_text(audit: &Audit) -> String {
    let location = Location::default();
    let mut lines = Vec::new();
    for skill in &audit.skills {
        lines.extend(finding_lines(&location, skill, true));
        // The author of the skill chose this name, so it may contain control characters.
        let name = skill.name.as_deref().unwrap_or(&skill.path);
        lines.push(format!(
            "{} {BOLD}{}{BOLD:#}  {}",
            verdict_mark(skill.verdict),
            clean(&printable(name), 64),
            describe_verdict(&location, skill)
        ));
        let findings = skill.findings.iter().map(|at| &at.finding);
        lines.extend(allow_hint(findings).map(|hint| format!("  with `vault add`: {hint}")));
    }
    lines.extend(skipped_lines(&location, audit));
    if audit.skills.len() + audit.skipped.len() > 1 {
        let skipped = match audit.skipped.len() {
            0 => String::new(),
            some => format!("; {some} not judged"),
        };
        lines.push(verdict_counts(audit) + &skipped);
    }
    lines.join("\n")
}
