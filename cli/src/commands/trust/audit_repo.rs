//! `vault audit-repo`: runs the gate on every SKILL.md of a repository, for interactive use and for
//! continuous integration.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::time::Instant;
use vault_library::audit::{self as looking, Auditor, Bounds};
use vault_skill::{
    finding::printable,
    report::{Audit, Audited, Verdict, json},
};

use crate::{
    audit_report::{self, Format, Location, ReportOptions},
    context::Context,
    errors::Failure,
    output::{BOLD, Report, clean},
};

/// The arguments of `vault audit-repo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Finds each SKILL.md (upper or lower case) in a folder and judges each skill as `vault add` does; \
it runs nothing. It does not follow links, skips .git and node_modules, and ignores .gitignore. \
Blocking findings are shown with their line, warnings in one line each; -v shows everything, \
clean skills included.

Exit 0: no findings; 3: findings at or above --fail-on; 2: something could not be read. With \
VAULT_SECURITY_STRICT=false, security flags become warnings. Skills in this vault's own store are \
judged with the exceptions that were signed with them. docs/audit.md has settings for CI.

Examples:
  vault audit-repo
  vault audit-repo ./skills --fail-on warnings
  vault audit-repo --format sarif --output skills.sarif
  vault audit-repo --format jsonl | jq 'select(.verdict == \"blocked\")'")]
pub struct Arguments {
    /// The folder to search [default: the current folder]
    #[arg(value_name = "PATH", conflicts_with = "repo")]
    path: Option<PathBuf>,
    /// The folder to search, as a flag
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    #[command(flatten)]
    options: ReportOptions,
    /// Write the report to this file and print only the counts
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(
        help = "The maximum depth of folders to search [default: 6]",
        long,
        value_name = "N",
        default_value_t = 6,
        hide_default_value = true,
        value_parser = bounded(64)
    )]
    max_depth: usize,
    #[arg(
        help = "The maximum number of folders to search [default: 2000]",
        long,
        value_name = "N",
        default_value_t = 2_000,
        hide_default_value = true,
        value_parser = bounded(10_000_000)
    )]
    max_folders: usize,
}

fn bounded(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {most}")),
    }
}

impl Arguments {
    /// Whether standard output is the JSON envelope.
    pub fn wants_json(&self) -> bool {
        self.options.format == Format::Json && self.output.is_none()
    }
}

/// Audits a repository.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let options = &arguments.options;
    options.check(context, arguments.output.is_some())?;
    let root = arguments.path.as_ref().or(arguments.repo.as_ref());
    let root = root.map_or_else(|| Path::new("."), PathBuf::as_path);
    let location = Location::of(root);
    let started = Instant::now();
    let clock = || audit_report::micros(started);
    let spinner = context.ui.spinner("looking for skills");
    let progress = || spinner.inc(1);
    // The vault is optional here: audit the repository even if the vault of this machine cannot be
    // opened.
    let vault = context.existing_vault().unwrap_or_default();
    let auditor = Auditor {
        strict: context.strict()?,
        vault: vault.as_ref(),
        bounds: Bounds {
            depth: arguments.max_depth,
            folders: arguments.max_folders,
        },
        clock: &clock,
        progress: &progress,
    };
    let looked = looking::audit_repository(root, &auditor);
    spinner.finish_and_clear();
    let mut found =
        looked.map_err(|error| audit_report::not_started(&error, &root.display().to_string()))?;
    found.base.clone_from(&location.base);
    let milliseconds = audit_report::micros(started) / 1000;
    context
        .ui
        .detail(format!("looked and judged in {milliseconds} ms"));
    audit_report::warn_about_bounds(context, &found);
    let exit = options.exit(&found);
    let value = json::value(&found);
    if let Some(file) = &arguments.output {
        let text = match options.format {
            Format::Json => context.ui.enveloped(&value) + "\n",
            Format::Text => plain(&text(context, &location, &found)) + "\n",
            _ => options.rendered(&found).unwrap_or_default(),
        };
        std::fs::write(file, text).map_err(|error| Failure::io("writing", file, &error))?;
        return Ok(Report::new(value, audit_report::summary(&found)).exit(exit));
    }
    let report = match options.rendered(&found) {
        Some(text) => Report::raw(text),
        None => Report::new(value, text(context, &location, &found)),
    };
    Ok(report.exit(exit))
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn text(context: &Context, location: &Location, audit: &Audit) -> String {
    let mut lines = Vec::new();
    for skill in &audit.skills {
        if skill.verdict > Verdict::Accepted || context.ui.is_verbose() {
            lines.extend(rendered(context, location, skill));
        }
    }
    lines.extend(audit_report::skipped_lines(location, audit));
    lines.push(audit_report::summary(audit));
    lines.join("\n")
}

/// Formats a skill: its findings, then the verdict.
fn rendered(context: &Context, location: &Location, skill: &Audited) -> Vec<String> {
    let mut lines = audit_report::finding_lines(location, skill, context.ui.is_verbose());
    let shown = match (skill.path.as_str(), location.prefix.trim_end_matches('/')) {
        (".", "") => ".".to_owned(),
        (".", prefix) => prefix.to_owned(),
        (path, _) => format!("{}{path}", location.prefix),
    };
    lines.push(format!(
        "{} {BOLD}{}{BOLD:#}  {}",
        audit_report::mark(skill.verdict),
        clean(&printable(&shown), 300),
        audit_report::verdict(location, skill)
    ));
    lines
}
