//! `vault audit` and `vault audit-repo`: what the gate says of skills, for people and for machines. Nothing is changed or run.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::json;
use vault_library::add::{self, AddSkill};
use vault_skill::{
    finding::{Finding, Level},
    gate::report::{self, Audited},
    name::SkillName,
};

use super::{add as adding, lint};
use crate::{
    Context,
    error::{Exit, Failure},
    ui::{BAD, GOOD, HINT, Report, count, paint},
};

/// How findings are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// As compilers show them
    Text,
    /// One JSON value
    Json,
    /// One JSON object a line, one line a skill
    Jsonl,
    /// A page with a table for each skill
    Markdown,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// From which verdict on the exit code is 3.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum FailOn {
    /// What the gate would refuse
    Blocked,
    /// Any finding
    Warnings,
    /// Nothing
    Never,
}

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Reads, never runs. Exit 3 with findings at or above --fail-on, 2 where something could not be read.

Examples:
  vault audit ./code-review
  vault audit code-review
  vault audit ./code-review --format sarif > audit.sarif

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// A skill's folder, its SKILL.md, or the name of an installed skill; several at once
    #[arg(required = true, value_name = "PATH|NAME")]
    skills: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// Since 0.2.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Looks for SKILL.md six folders deep in at most 2,000 folders, past .git and node_modules, and follows no links. Reads, never
runs. Exit 3 with findings at or above --fail-on, 2 where something could not be read.

Examples:
  vault audit-repo
  vault audit-repo --format sarif > vault.sarif
  vault audit-repo --fail-on warnings --format markdown >> \"$GITHUB_STEP_SUMMARY\"

Since 0.2.0 (stable).")]
pub struct RepoArguments {
    /// The repository's folder
    #[arg(default_value = ".", hide_default_value = true)]
    path: String,
    /// The same, by name
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    repo: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct Output {
    /// How findings are written
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// From which verdict on the exit code is 3
    #[arg(long, value_enum, default_value = "blocked")]
    fail_on: FailOn,
}

/// What the gate said of one skill.
struct Looked {
    /// As the user named it.
    place: String,
    /// The folder that was read.
    folder: String,
    name: Option<String>,
    findings: Vec<Finding>,
    micros: u64,
}

/// Audits the given skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut looked = Vec::new();
    for given in &arguments.skills {
        let folder = folder_of(context, given)?;
        looked.push(look(given, &folder)?);
    }
    Ok(answer(&looked, &arguments.output))
}

/// Audits every skill below a folder.
pub fn run_repo(context: &Context, arguments: &RepoArguments) -> Result<Report, Failure> {
    let mut looked = Vec::new();
    let root = arguments.repo.as_ref().unwrap_or(&arguments.path);
    for folder in lint::find(context, Path::new(root)).map_err(unread)? {
        looked.push(look(&folder, &folder)?);
    }
    Ok(answer(&looked, &arguments.output))
}

/// A path as it is, or where the skill of a name is kept.
fn folder_of(context: &Context, given: &str) -> Result<String, Failure> {
    if !Path::new(given).exists()
        && let Ok(name) = given.parse::<SkillName>()
        && let Some(vault) = super::existing_vault(context)?
        && let Ok(folder) =
            std::fs::canonicalize(vault.paths().root.join("skills").join(name.as_str()))
    {
        return Ok(folder.display().to_string());
    }
    Ok(given.to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the report says how long the gate took"
)]
fn look(given: &str, folder: &str) -> Result<Looked, Failure> {
    let begun = Instant::now();
    let verdict = add::check_folder(&AddSkill::from_path(folder))
        .map_err(|error| unread(adding::refused_folder(given, error)))?;
    Ok(Looked {
        place: given.to_owned(),
        folder: folder.to_owned(),
        name: verdict
            .package
            .as_ref()
            .map(|package| package.name.to_string()),
        findings: verdict.findings,
        micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
    })
}

fn unread(mut failure: Failure) -> Failure {
    failure.exit = Exit::Usage;
    failure
}

fn answer(looked: &[Looked], output: &Output) -> Report {
    let skills: Vec<Audited<'_>> = looked
        .iter()
        .map(|skill| Audited {
            place: skill
                .place
                .strip_suffix("/SKILL.md")
                .unwrap_or(&skill.place),
            name: skill.name.as_deref(),
            micros: Some(skill.micros),
            findings: &skill.findings,
        })
        .collect();
    let data = report::json(&skills);
    let text = match output.format {
        Format::Text => text(looked, &skills),
        Format::Json => serde_json::to_string_pretty(&data).unwrap_or_default(),
        Format::Jsonl => report::json_lines(&skills).trim_end().to_owned(),
        Format::Markdown => report::markdown(&skills).trim_end().to_owned(),
        Format::Sarif => {
            serde_json::to_string_pretty(&report::sarif(&skills, env!("CARGO_PKG_VERSION")))
                .unwrap_or_default()
        }
    };
    let blocked = looked
        .iter()
        .flat_map(|skill| &skill.findings)
        .any(|finding| finding.level > Level::Warning);
    let said = looked.iter().any(|skill| !skill.findings.is_empty());
    let fails = match output.fail_on {
        FailOn::Blocked => blocked,
        FailOn::Warnings => said,
        FailOn::Never => false,
    };
    let report = Report::new(json!(data), text);
    if fails {
        report.exit(Exit::Differences)
    } else {
        report
    }
}

fn text(looked: &[Looked], skills: &[Audited<'_>]) -> String {
    let mut lines = Vec::new();
    for (skill, audited) in looked.iter().zip(skills) {
        lines.extend(
            skill
                .findings
                .iter()
                .map(|finding| adding::excerpt(&skill.folder, finding)),
        );
        let said = count(skill.findings.len() as u64, "finding");
        lines.push(match audited.verdict() {
            "blocked" => format!("{} {}: {said}", paint(BAD, "✗ blocked"), skill.place),
            "warnings" => format!("{} {}: {said}", paint(HINT, "! warnings"), skill.place),
            _ => format!("{} {}", paint(GOOD, "✓ accepted"), skill.place),
        });
    }
    let of = |verdict: &str| {
        skills
            .iter()
            .filter(|skill| skill.verdict() == verdict)
            .count()
    };
    lines.push(format!(
        "{}: {} accepted, {} with warnings, {} blocked",
        count(skills.len() as u64, "skill"),
        of("accepted"),
        of("warnings"),
        of("blocked"),
    ));
    lines.join("\n")
}
