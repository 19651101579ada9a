//! `vault add`: through the gate, signed, kept.

use std::path::{Path, PathBuf};

use annotate_snippets::{Group, Level as Shown, Renderer};
use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    add::{self, AddError, AddReport, AddSkill, Admission},
    keys::KeyKind,
};
use vault_skill::{
    finding::{Finding, Level, View},
    gate::Outcome,
    name::{AgentId, SkillName},
    provenance::ProvenanceId,
};

use crate::{
    Context,
    error::{Exit, Failure, chain},
    excerpt::Line,
    ui::{self, BOLD, DIM, GOOD, HINT, Report, Warning, clean, count, paint, size},
};

/// Since 0.4.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
The gate reads every file; what passes is signed with this vault's key and kept byte for byte. What it refuses changes
nothing (exit 5). The first skill makes the vault and its keys.

Examples:
  vault add ./code-review
  vault add ./skills/* --agent claude-code
  vault add ./draft --dry-run
  vault add ./copy --provenance github:acme/skills/code-review

Since 0.4.0 (stable).")]
pub struct Arguments {
    /// A skill's folder, or its SKILL.md; several at once
    #[arg(required = true, value_name = "FOLDER")]
    sources: Vec<String>,
    /// The name in the vault, where the skill's own does not fit
    #[arg(long, value_name = "NAME")]
    name: Option<SkillName>,
    /// An agent that the skill is for; may be given several times
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<AgentId>,
    /// Record this source instead of the folder: for a staged copy of something else
    #[arg(long, value_name = "SOURCE")]
    provenance: Option<ProvenanceId>,
    /// Take the place of a skill of the same name that came from another source
    #[arg(long)]
    replace: bool,
    /// Say what the gate finds and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Admits the skills; each has an answer of its own.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.name.is_some() && arguments.sources.len() > 1 {
        return Err(Failure::usage(
            "name_needs_one_skill",
            "--name goes with one folder only",
        ));
    }
    let strict = context
        .settings()?
        .boolean("VAULT_SECURITY_STRICT")
        .unwrap_or(true);
    let requests: Vec<AddSkill> = arguments
        .sources
        .iter()
        .map(|source| AddSkill {
            name: arguments.name.clone(),
            agents: arguments.agents.clone(),
            provenance: arguments.provenance.clone(),
            replace: arguments.replace,
            strict,
            ..AddSkill::from_path(source)
        })
        .collect();
    if arguments.dry_run {
        return check(context, &requests);
    }
    // A folder that is not there, or that is refused, must not leave a new vault behind.
    if let [only] = &requests[..] {
        let checked = add::check_folder(only).and_then(|verdict| match verdict.package {
            Some(_) => Ok(()),
            None => Err(AddError::Blocked {
                findings: verdict.findings,
            }),
        });
        checked.map_err(|error| refused(context, &only.source, error))?;
    }
    let is_new = super::existing_vault(context)?.is_none();
    let vault = super::open_vault(context)?;
    if is_new {
        greet(context, &vault)?;
    }
    let results = if let [only] = &requests[..] {
        vec![add::add_skill(&vault, only)]
    } else {
        add::add_skills(&vault, &requests)
    };
    if results.iter().flatten().any(AddReport::is_change) {
        super::sync_profiles::refresh(context, &vault);
    }
    report(context, &requests, results)
}

/// What the owner of a new vault has to know once.
fn greet(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let keys = vault.keys();
    context.ui.note(format!(
        "Made a vault in {}, its key is {}",
        vault.paths().root.display(),
        paint(HINT, keys.public()?.fingerprint())
    ));
    context.ui.note(format!(
        "{} move {} to a safe place: it replaces a lost or stolen key",
        paint(HINT, "hint:"),
        keys.path(KeyKind::Recovery).display()
    ));
    Ok(())
}

fn report(
    context: &Context,
    requests: &[AddSkill],
    results: Vec<Result<AddReport, AddError>>,
) -> Result<Report, Failure> {
    let single = requests.len() == 1;
    let mut added = Vec::new();
    let mut failed = Vec::new();
    let mut first = None;
    for (request, result) in requests.iter().zip(results) {
        match result {
            Ok(report) => {
                findings(context, &request.source, &report.findings);
                context.ui.line(admitted_text(&report));
                added.push(admitted_json(&report));
            }
            Err(error) => {
                let failure = refused(context, &request.source, error);
                if single {
                    return Err(failure);
                }
                failed.push(json!({
                    "source": request.source, "code": failure.code, "message": failure.message, "hint": failure.hint,
                    "findings": failure.data.as_ref().map(|data| &data["findings"]),
                }));
                context.ui.note_failure(&failure);
                first.get_or_insert(failure);
            }
        }
    }
    let data = if single {
        added.pop().unwrap_or(Value::Null)
    } else {
        json!({ "added": added, "failed": failed })
    };
    match first {
        Some(first) => Err(Failure::new(
            first.exit,
            first.code.clone(),
            format!(
                "{} of {} {} not added",
                failed.len(),
                count(requests.len() as u64, "skill"),
                if failed.len() == 1 { "was" } else { "were" },
            ),
        )
        .data(data)),
        None => Ok(Report::new(data, "")),
    }
}

fn admitted_text(report: &AddReport) -> String {
    let what = match report.admission {
        Admission::Added => format!("{} added", paint(GOOD, "✓")),
        Admission::Updated { .. } => format!("{} updated", paint(GOOD, "✓")),
        Admission::Unchanged => format!("{} unchanged", paint(DIM, "=")),
    };
    let version = match report.admission {
        Admission::Updated { from } => format!("version {from} → {}", report.version),
        Admission::Added | Admission::Unchanged => format!("version {}", report.version),
    };
    format!(
        "{what} {}  {}",
        paint(BOLD, &report.name),
        paint(
            DIM,
            format_args!(
                "{version}, {}, {}",
                count(report.files as u64, "file"),
                size(report.bytes)
            )
        )
    )
}

fn admitted_json(report: &AddReport) -> Value {
    json!({
        "name": report.name,
        "version": report.version,
        "bundle_hash": report.bundle,
        "admission": match report.admission {
            Admission::Added => "added",
            Admission::Updated { .. } => "updated",
            Admission::Unchanged => "unchanged",
        },
        "outcome": report.outcome,
        "provenance": report.provenance,
        "files": report.files,
        "bytes": report.bytes,
        "findings": report.findings,
    })
}

/// Warnings of the gate about a skill that was admitted.
fn findings(context: &Context, source: &str, findings: &[Finding]) {
    for finding in findings {
        context.ui.warn(Warning {
            code: finding.rule.to_owned(),
            message: finding.message.clone(),
            hint: Some(finding.hint.clone()).filter(|hint| !hint.is_empty()),
            path: Some(shown_path(source, &finding.path)),
            line: finding.line,
        });
    }
}

fn check(context: &Context, requests: &[AddSkill]) -> Result<Report, Failure> {
    let mut data = Vec::new();
    let mut lines = Vec::new();
    let mut exit = Exit::Done;
    for request in requests {
        let verdict =
            add::check_folder(request).map_err(|error| refused(context, &request.source, error))?;
        let blocked = verdict.outcome == Outcome::Blocked;
        if blocked {
            exit = Exit::Gate;
        }
        for finding in &verdict.findings {
            lines.push(excerpt(&request.source, finding));
        }
        lines.push(format!(
            "{} {}",
            if blocked {
                paint(ui::BAD, "✗ would be refused")
            } else {
                paint(GOOD, "✓ would be added")
            },
            clean(&request.source, 200)
        ));
        data.push(json!({
            "source": request.source,
            "outcome": verdict.outcome,
            "name": verdict.package.as_ref().map(|package| package.name.clone()),
            "findings": verdict.findings,
        }));
    }
    let data = match <[Value; 1]>::try_from(data) {
        Ok([one]) => one,
        Err(several) => json!(several),
    };
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// The failure of one source, with the findings shown in the text of the file.
pub fn refused(_context: &Context, source: &str, error: AddError) -> Failure {
    let message = chain(&error);
    match error {
        AddError::Blocked { findings } => {
            let blocking = findings
                .iter()
                .filter(|finding| finding.level > Level::Warning)
                .count();
            Failure::new(
                Exit::Gate,
                "gate_blocked",
                format!(
                    "the gate refused {}: {}",
                    clean(source, 200),
                    count(blocking as u64, "finding")
                ),
            )
            .details(findings.iter().map(|finding| excerpt(source, finding)))
            .data(json!({ "source": source, "findings": findings }))
            .hint_if(below_hint(source))
        }
        AddError::NameTaken { name, .. } => Failure::failed("name_taken", message).hint(format!(
            "--replace takes its place, --name <other> keeps both; vault skill which {name} shows the installed one"
        )),
        AddError::SourceUnsupported { .. } => Failure::usage("source_unsupported", message),
        AddError::Source(_) => {
            Failure::failed("source_unreadable", message).hint_if(below_hint(source))
        }
        AddError::Provenance(_) => Failure::usage("provenance_invalid", message),
        AddError::Unsignable(_) => Failure::failed("not_signed", message),
        AddError::Twice(_) => Failure::failed("name_twice", message)
            .hint("add one of them by itself: vault add <folder> --name <other>"),
        AddError::Vault(error) => error.into(),
    }
}

/// A folder of skills was named in place of a skill.
fn below_hint(source: &str) -> Option<String> {
    let folder = Path::new(source);
    if folder.join("SKILL.md").exists() {
        return None;
    }
    let below = std::fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("SKILL.md").is_file())
        .count() as u64;
    (below > 0).then(|| {
        format!(
            "there {} {} below it: vault add {}/*",
            if below == 1 { "is" } else { "are" },
            count(below, "skill"),
            clean(source.trim_end_matches('/'), 200)
        )
    })
}

fn shown_path(source: &str, inner: &str) -> String {
    let folder = source_folder(source);
    clean(&folder.join(inner).display().to_string(), 300)
}

fn source_folder(source: &str) -> PathBuf {
    let path = Path::new(source);
    if path.is_file() {
        path.parent().unwrap_or(path).to_owned()
    } else {
        path.to_owned()
    }
}

/// A finding as compilers show them: the rule, the place, the line of the file, and what mends it.
pub fn excerpt(source: &str, finding: &Finding) -> String {
    let level = match finding.level {
        Level::Warning => Shown::WARNING,
        Level::Flag | Level::Error => Shown::ERROR,
    };
    let message = clean(&finding.message, 400);
    let path = shown_path(source, &finding.path);
    let title = level.primary_title(&message).id(finding.rule);
    let file = source_folder(source).join(&finding.path);
    let line = finding.line.and_then(|line| Line::of_file(&file, line));
    let mut group = match (&line, finding.path.is_empty()) {
        (Some(line), _) => title.element(line.snippet(path, finding.column)),
        (None, false) => title.element(annotate_snippets::Origin::path(path)),
        (None, true) => Group::with_title(title),
    };
    if finding.view != View::Raw {
        let text = format!("{}, it reads: {}", finding.view.as_str(), finding.excerpt);
        group = group.element(Shown::NOTE.message(clean(&text, 400)));
    }
    if !finding.why.is_empty() {
        let text = format!("{} ({}, {})", finding.why, finding.id, finding.category);
        group = group.element(Shown::NOTE.message(text));
    }
    if !finding.hint.is_empty() {
        group = group.element(Shown::HELP.message(clean(&finding.hint, 400)));
    }
    Renderer::styled().render(&[group])
}
