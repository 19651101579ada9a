//! `vault lint`: checks skills under development against the gate and the agent skills standard.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use vault_skill::{
    finding::{Finding, Level},
    lint,
};

use crate::{
    admission,
    context::Context,
    errors::{Exit, Failure},
    output::{Report, TICK, Warning, count},
};

/// The limits of the search for skills: levels below the path, and folders in total.
const DEPTH: usize = 6;
const FOLDERS: usize = 2_000;

/// The arguments of `vault lint`.
#[derive(Args, Debug)]
#[command(after_help = "\
For authors: reports the findings of the gate and advice from the Agent Skills standard, such as \
a name that differs from the folder, a description that does not say when to use the skill, \
broken links, and keys that strict agents reject. A folder of skills is searched. Exit 3: \
findings. `vault fmt` fixes the most common mistakes.

Examples:
  vault lint
  vault lint ./skills --json")]
pub struct Arguments {
    /// A skill's folder, its SKILL.md, or a folder of skills
    #[arg(default_value = ".", hide_default_value = true)]
    path: String,
}

/// Checks every skill at or below the path.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let skills = find(context, Path::new(&arguments.path))?;
    let mut lines = Vec::new();
    let mut data = Vec::new();
    let (mut found, mut unread) = (0, 0_u64);
    for skill in &skills {
        let findings = match lint_skill(skill) {
            Ok(findings) => findings,
            // A skill that cannot be read must not stop the others.
            Err(failure) if skills.len() > 1 => {
                context.ui.note_failure(&failure);
                unread += 1;
                data.push(json!({ "path": skill, "error": { "code": failure.code.word(), "message": failure.message } }));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        found += findings.len();
        lines.extend(
            findings
                .iter()
                .map(|finding| admission::excerpt(skill, finding)),
        );
        data.push(json!({ "path": skill, "findings": findings }));
    }
    let looked = count(skills.len() as u64, "skill");
    let errors = data
        .iter()
        .flat_map(|skill: &Value| skill["findings"].as_array().into_iter().flatten())
        .filter(|finding| finding["level"] != "warning")
        .count();
    lines.push(match (found, errors) {
        (0, _) => format!("{TICK} {looked}, nothing to say"),
        (_, 0) => format!("{looked}, {}", count(found as u64, "finding")),
        _ => format!(
            "{looked}, {}, of which the gate refuses {errors}",
            count(found as u64, "finding")
        ),
    });
    let data = json!({ "skills": data, "findings": found, "unread": unread });
    if unread > 0 {
        context.ui.line(lines.join("\n"));
        let message = format!("{} could not be read", count(unread, "skill"));
        return Err(fail!(SourceUnreadable, "{message}").data(data));
    }
    let report = Report::new(data, lines.join("\n"));
    Ok(if found == 0 {
        report
    } else {
        report.exit(Exit::Differences)
    })
}

fn lint_skill(source: &str) -> Result<Vec<Finding>, Failure> {
    let (mut findings, candidate) = admission::examine_folder(source)?;
    if let Some(package) = candidate.map(|candidate| candidate.package) {
        let folder = folder_name(source);
        // The gate warns when it derives a name. The lint advises the author about the same
        // problem, so drop the warning.
        findings.retain(|finding| {
            finding.level != Level::Warning || finding.rule != "frontmatter-name"
        });
        findings.extend(lint::lint(&package, folder.as_deref()));
    }
    Ok(findings)
}

fn folder_name(source: &str) -> Option<String> {
    let absolute = std::fs::canonicalize(source).ok()?;
    let folder = if absolute.is_file() {
        absolute.parent()?.to_owned()
    } else {
        absolute
    };
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Finds the skills at or below a path, sorted by path.
pub(super) fn find(context: &Context, path: &Path) -> Result<Vec<String>, Failure> {
    let shown = |path: &Path| path.display().to_string();
    if path.is_file() || path.join("SKILL.md").is_file() {
        return Ok(vec![shown(path)]);
    }
    if !path.is_dir() {
        return Err(Failure::no_such_path(path.display()));
    }
    let mut open: VecDeque<(PathBuf, usize)> = VecDeque::from([(path.to_owned(), 0)]);
    let (mut found, mut looked) = (Vec::new(), 0);
    while let Some((folder, depth)) = open.pop_front() {
        looked += 1;
        if looked > FOLDERS {
            let message = format!("more than {FOLDERS} folders; the rest was not looked through");
            context
                .ui
                .warn(Warning::new("too_many_folders", message).hint("name a folder further down"));
            break;
        }
        let entries =
            std::fs::read_dir(&folder).map_err(|error| Failure::io("listing", &folder, &error))?;
        for entry in entries.filter_map(Result::ok) {
            // Symlinks to folders are not followed. A skill behind one is found at its real path.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            if !is_folder || name == ".git" || name == "node_modules" {
                continue;
            }
            let below = entry.path();
            if below.join("SKILL.md").is_file() {
                found.push(shown(&below));
            } else if depth + 1 < DEPTH {
                open.push_back((below, depth + 1));
            }
        }
    }
    if found.is_empty() {
        return Err(fail!(
            SkillMdMissing,
            "there is no SKILL.md in or below {}",
            path.display()
        )
        .hint("vault new <name> makes one"));
    }
    found.sort_unstable();
    Ok(found)
}
