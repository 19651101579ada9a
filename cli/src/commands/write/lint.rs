//! `vault lint`: checks skills under development. It shows what the *gate* (vault's scanner, which
//! every skill must pass) finds, and for skills that pass it also *advice*: notes and warnings by
//! the agent skills standard.

use std::path::Path;

use clap::Args;
use vault_gate::{
    finding::Level,
    lint,
    report::{Audit, Audited, Located, Verdict, json::AuditView},
};
use vault_library::audit::{Auditor, audit_repository, audit_skill};

use crate::{
    context::Context,
    errors::Failure,
    lookup::folder_of,
    output::{Report, finding},
    tasks::{
        admission,
        audit_report::{
            Format, Location, ReportOptions, audit_not_started, skill_lines, skipped_lines,
            summary_line,
        },
    },
};

/// The arguments of `vault lint`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows what the gate finds, and advice by the agent skills standard: folder and name, a \
description that says when to use the skill, broken links, keys that strict agents refuse. In a \
folder of skills it checks each. `vault fmt` fixes the most common mistakes.

Exit 5 if the gate blocks a skill, 2 if something could not be judged, 3 if there are warnings or \
advice and --fail-on is warnings, else 0. With --fail-on never always 0.

Examples:
  vault lint
  vault lint ./skills --fail-on warnings
  vault lint ./skills --json")]
pub struct Arguments {
    /// A skill's folder, its SKILL.md, or a folder of skills
    #[arg(default_value = ".", hide_default_value = true)]
    path: String,
    #[command(flatten)]
    options: ReportOptions,
}

impl Arguments {
    /// Returns whether the report is the JSON envelope (`--format json`), as with the global
    /// `--json`.
    pub fn wants_json(&self) -> bool {
        self.options.format == Format::Json
    }
}

/// Checks every skill at or below the path, and prints a report in the format that the options
/// name. The verdicts set the exit code.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let (options, root) = (&arguments.options, Path::new(&arguments.path));
    options.check_output(context, false)?;
    if !root.exists() {
        return Err(Failure::no_such_path(root.display()));
    }
    let mut audit = audit_path(context, root)?;
    // A search that stopped at a limit may have missed skills. Then the report tells of the limit,
    // and "no skill" would be wrong.
    if audit.skills.is_empty() && audit.is_complete() {
        let folder = root.display();
        return Err(
            fail!(SkillMdMissing, "there is no SKILL.md in or below {folder}")
                .hint("vault new <name> makes a skill"),
        );
    }
    let top = folder_of(root);
    for skill in &mut audit.skills {
        add_advice(&top, skill)?;
    }
    let exit = options.exit_code(&audit);
    let report = match options.render_report(&audit) {
        Some(text) => Report::raw_text(text),
        None => Report::view(
            AuditView::from(&audit),
            lint_text(&Location::of_folder(&top), &audit),
        ),
    };
    Ok(report.with_exit(exit))
}

/// Runs the gate on the skill at the path, or on each skill below it.
fn audit_path(context: &Context, root: &Path) -> Result<Audit, Failure> {
    let auditor = Auditor {
        hints: context.ui.is_verbose(),
        ..Auditor::new(context.is_strict()?)
    };
    let failed = |error| audit_not_started(&error, &root.display().to_string());
    // Skills inside a skill's folder are files of that skill, so only the outer one is checked.
    if !root.is_dir() || root.join("SKILL.md").is_file() {
        let skill = audit_skill(root, &auditor).map_err(failed)?;
        return Ok(Audit {
            root: root.display().to_string(),
            base: String::new(),
            strict: auditor.strict,
            skills: vec![skill],
            skipped: Vec::new(),
            left_out: Vec::new(),
            excluded: Vec::new(),
            bounds: Vec::new(),
            folders: 1,
        });
    }
    audit_repository(root, &auditor).map_err(failed)
}

/// Adds the advice to the findings of a skill that the gate accepts, and computes its verdict
/// again. `top` is the folder from which the skill's path is relative.
fn add_advice(top: &Path, skill: &mut Audited) -> Result<(), Failure> {
    // A skill with a symbolic link (finding `file-kind`) cannot be read for the advice. The finding
    // is enough.
    let has_link = |at: &Located| at.finding.rule == "file-kind";
    if skill.verdict > Verdict::Warnings || skill.findings.iter().any(has_link) {
        return Ok(());
    }
    let folder = top.join(&skill.path);
    let (_, candidate) = admission::examine_folder(&folder.to_string_lossy())?;
    let Some(candidate) = candidate else {
        return Ok(());
    };
    // The gate warns when a skill's name is missing and it derives one. The advice reports the same
    // problem better, so the warning is dropped.
    let is_name = |at: &Located| at.finding.rule == "frontmatter-name";
    let findings = &mut skill.findings;
    findings.retain(|at| at.finding.level > Level::Warning || !is_name(at));
    // The advice compares the names of the folder and the skill. A path such as `.` shows no folder
    // name, so it is made absolute.
    let name = std::fs::canonicalize(&folder).ok();
    let name = name.as_deref().and_then(Path::file_name);
    let advice = lint::lint(&candidate.package, name.and_then(|name| name.to_str()));
    findings.extend(advice.into_iter().map(|advice| Located {
        source: finding::excerpt_on_disk(&folder.join(&advice.path), &advice),
        finding: advice,
    }));
    skill.verdict = if findings.iter().all(|at| at.finding.level == Level::Note) {
        Verdict::Accepted
    } else {
        Verdict::Warnings
    };
    Ok(())
}

fn lint_text(location: &Location, audit: &Audit) -> String {
    let mut lines = Vec::new();
    for skill in &audit.skills {
        if skill.verdict > Verdict::Accepted || audit.skills.len() == 1 {
            lines.extend(skill_lines(location, skill, true));
        }
    }
    lines.extend(skipped_lines(location, audit));
    if audit.skills.len() > 1 {
        lines.push(summary_line(audit));
    }
    lines.join("\n")
}
