//! `vault audit-repo`: finds every skill in a repository and scans it with the gate that `vault
//! add` uses, at a terminal or in continuous integration.

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use vault_gate::report::{Audit, Verdict, json::AuditView};
use vault_library::audit::{self as looking, Auditor, Bounds};
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::Failure,
    output::Report,
    tasks::{
        audit_accept::{AcceptList, Unmatched},
        audit_report::{self, Format, Location, ReportOptions},
    },
};

/// The arguments of `vault audit-repo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Finds every SKILL.md (in any case) below a folder and judges each skill by the gate that `vault \
add` uses. Runs nothing. Symbolic links are not followed, .git and node_modules are not searched, \
.gitignore is ignored. What `vault add --all` leaves out (skills inside other skills, links to \
skills, and what lies below target, .venv and __MACOSX) is named and not judged by itself. Blocking findings are shown with their lines, warnings in one line each \
(-v shows them in full, and the clean skills). VAULT_SECURITY_STRICT=false turns security flags \
into warnings. Skills below --exclude PATH are counted and named, and not judged. docs/audit.md has \
settings for CI.

Exit 5 if a skill is blocked, 2 if something could not be judged, 3 if there are warnings and \
--fail-on is warnings, else 0. With --fail-on never always 0.

Examples:
  vault audit-repo
  vault audit-repo ./skills --fail-on warnings
  vault audit-repo --accept audit-accept.toml
  vault audit-repo --exclude tests/fixtures
  vault audit-repo --format sarif --output skills.sarif")]
pub struct Arguments {
    /// The folder [default: the current one]
    #[arg(value_name = "PATH", conflicts_with = "repo")]
    path: Option<PathBuf>,
    /// The folder to search, as a flag
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    #[command(flatten)]
    options: ReportOptions,
    /// A list of findings that are accepted and of paths that are excluded, each with a reason and
    /// an expiry (docs/audit.md)
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,
    /// Do not judge the skills at and below this path of the folder; repeatable
    #[arg(long, value_name = "PATH")]
    exclude: Vec<String>,
    /// Write the report to this file; the counts are printed
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(
        help = "Stop below this many levels of folders",
        long,
        value_name = "N",
        value_parser = bounded_number(64)
    )]
    max_depth: Option<usize>,
    #[arg(
        help = "Stop after this many folders [default: 1000000]",
        long,
        value_name = "N",
        value_parser = bounded_number(10_000_000)
    )]
    max_folders: Option<usize>,
}

fn bounded_number(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {most}")),
    }
}

impl Arguments {
    /// Returns whether `--format json` requests the same output as `--json`: with `--output`, the
    /// JSON goes to a file instead.
    pub fn wants_json(&self) -> bool {
        self.options.format == Format::Json && self.output.is_none()
    }
}

/// The gate's verdicts on the skills of a repository.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RepositoryAudit<'a> {
    #[serde(flatten)]
    audit: AuditView<'a>,
    /// The entries of the list that accepted or excluded nothing; absent without a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    accept: Option<Unmatched>,
}

/// Runs the gate (vault's scanner) on every skill in the folder and prints the report. The verdicts
/// set the exit code; entries of the list of accepted findings do not count.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let options = &arguments.options;
    options.check_output(context, arguments.output.is_some())?;
    let root = arguments.path.as_ref().or(arguments.repo.as_ref());
    let root = root.map_or_else(|| Path::new("."), |path| skill_folder(path));
    let location = Location::of_folder(root);
    // Read the list first, so that a faulty one fails before the search, which may take long.
    let mut accepts = match &arguments.accept {
        Some(file) => AcceptList::read_list(file, SystemClock.now())?,
        None => AcceptList::default(),
    };
    accepts.exclude_paths(&arguments.exclude)?;
    let started = Instant::now();
    let clock = || audit_report::elapsed_micros(started);
    let spinner = context.ui.start_spinner("Finding skills");
    let progress = || spinner.advance(1);
    // The vault is optional here: audit the repository even if the vault of this machine cannot be
    // opened.
    let vault = context.existing_vault().unwrap_or_default();
    let default_bounds = Bounds::default();
    let publisher = origin_publisher(root);
    let auditor = Auditor {
        strict: context.is_strict()?,
        vault: vault.as_ref(),
        publisher: publisher.as_deref(),
        hints: context.ui.is_verbose(),
        accepted: &accepts.entries,
        accepted_errors: &accepts.errors,
        excluded: &accepts.excluded,
        bounds: Bounds {
            depth: arguments.max_depth.unwrap_or(default_bounds.depth),
            folders: arguments.max_folders.unwrap_or(default_bounds.folders),
        },
        clock: &clock,
        progress: &progress,
    };
    let audit_result = looking::audit_repository(root, &auditor);
    drop(spinner);
    let mut audit = audit_result
        .map_err(|error| audit_report::audit_not_started(&error, &root.display().to_string()))?;
    audit.base.clone_from(&location.base);
    let milliseconds = audit_report::elapsed_micros(started) / 1000;
    context.ui.detail(format!("judged in {milliseconds} ms"));
    audit_report::warn_about_bounds(context, &audit);
    let exit = options.exit_code(&audit);
    let unmatched = accepts.report_unmatched(context, arguments.accept.as_deref(), &audit);
    let view = RepositoryAudit {
        audit: AuditView::from(&audit),
        accept: arguments.accept.is_some().then_some(unmatched),
    };
    if let Some(file) = &arguments.output {
        let text = match options.format {
            Format::Json => context.ui.format_success(&json!(view)) + "\n",
            // Remove the escape codes for colours, which make no sense in a file.
            Format::Text => strip_styles(&repository_text(context, &location, &audit)) + "\n",
            _ => options.render_report(&audit).unwrap_or_default(),
        };
        std::fs::write(file, text).map_err(|error| Failure::io("writing", file, &error))?;
        return Ok(Report::view(view, audit_report::summary_line(&audit)).with_exit(exit));
    }
    let report = match options.render_report(&audit) {
        Some(text) => Report::raw_text(text),
        None => Report::view(view, repository_text(context, &location, &audit)),
    };
    Ok(report.with_exit(exit))
}

/// Returns the skill's folder if the path is its SKILL.md, and any other path unchanged.
fn skill_folder(path: &Path) -> &Path {
    let is_skill_file = path
        .file_name()
        .is_some_and(|name| name.eq_ignore_ascii_case("SKILL.md"));
    match path.parent() {
        // Audit the folder, which has all files of the skill.
        Some(parent) if is_skill_file && path.is_file() => {
            if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            }
        }
        _ => path,
    }
}

/// Returns the publisher of the repository that contains the folder, by the address of `origin` in
/// its `.git/config`. The gate compares names of skills with it.
fn origin_publisher(root: &Path) -> Option<String> {
    let root = root.canonicalize().ok()?;
    // Do not run `git`: the settings of an untrusted checkout can make it start programs.
    let settings = root
        .ancestors()
        .find_map(|folder| std::fs::read_to_string(folder.join(".git/config")).ok())?;
    let (_, origin) = settings.split_once("[remote \"origin\"]")?;
    // The next section, such as another remote, may have a `url` as well.
    let section = origin.split("\n[").next()?;
    let url = section.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "url").then(|| value.trim())
    })?;
    vault_gate::publisher_of_source(url)
}

fn strip_styles(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn repository_text(context: &Context, location: &Location, audit: &Audit) -> String {
    let mut lines = Vec::new();
    for skill in &audit.skills {
        if skill.verdict > Verdict::Accepted || context.ui.is_verbose() {
            let all = context.ui.is_verbose();
            lines.extend(audit_report::skill_lines(location, skill, all));
        }
    }
    let all = context.ui.is_verbose();
    lines.extend(audit_report::left_out_lines(location, &audit.left_out, all));
    lines.extend(audit_report::excluded_lines(location, audit));
    lines.extend(audit_report::skipped_lines(location, audit));
    lines.push(audit_report::summary_line(audit));
    lines.join("\n")
}
