//! `vault doctor --project`: checks the skills of one project, and the links to them.

use schemars::JsonSchema;
use serde::Serialize;
use vault_library::{
    agents::wrong_links,
    doctor::{DoctorFinding, Severity},
    project,
};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BAD, DIM, Report, TICK, WARN, clean, count, doctor::FindingText},
    tasks::{
        project_scope::LockedProject,
        project_state::{LockState, ProjectSkills},
        requirements,
    },
};

/// The health of a project on this machine.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProjectHealth {
    /// Whether nothing was found.
    healthy: bool,
    #[serde(flatten)]
    state: ProjectSkills,
    /// The findings, worst first.
    findings: Vec<FindingText>,
}

/// Checks the skills of a project against its lock, and the links in its `.vault/skills`.
pub fn examine_project(context: &Context, project: &LockedProject) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let state = ProjectSkills::read_skills(vault.as_ref(), project)?;
    let mut findings = Vec::new();
    for skill in state
        .skills
        .iter()
        .filter(|skill| !matches!(skill.state, LockState::Installed | LockState::Hidden))
    {
        let is_damaged = skill.state == LockState::Damaged;
        let difference = match &skill.damage {
            Some(damage) => clean(damage, 400),
            None => skill.state.difference().to_owned(),
        };
        findings.push(FindingText {
            code: if is_damaged {
                "skill_damaged"
            } else {
                "lock_stale"
            },
            severity: if is_damaged {
                Severity::Error
            } else {
                Severity::Warning
            },
            message: format!("{}: {difference}", skill.name),
            hint: "vault install".to_owned(),
            skill: Some(skill.name.clone()),
            path: Some(project.lock.path.clone()),
        });
    }
    let installed = match &vault {
        Some(vault) => project::find_project(vault, &project.folder)?.map(|found| (vault, found)),
        None => None,
    };
    if let Some((vault, found)) = installed {
        let wrong = wrong_links(vault, &found)?;
        if !wrong.is_empty() {
            let project = found.path().to_owned();
            findings.push(FindingText::new(&DoctorFinding::ProjectLinks {
                project,
                wrong,
            }));
        }
    }
    findings.extend(requirement_findings(context, project)?);
    let is_damaged = state.is_damaged();
    findings.sort_by_key(|finding| finding.severity != Severity::Error);
    let mut lines: Vec<String> = Vec::new();
    if findings.is_empty() {
        let skills = count(state.skills.len(), "skill");
        lines.push(format!(
            "{TICK} {skills} of {}, no problems",
            clean(&state.project.display().to_string(), 400)
        ));
    }
    for finding in &findings {
        let mark = match finding.severity {
            Severity::Error => format!("{BAD}✗{BAD:#}"),
            _ => format!("{WARN}!{WARN:#}"),
        };
        lines.push(format!(
            "{mark} {}  {DIM}{}{DIM:#}",
            finding.message, finding.hint
        ));
    }
    let exit = match (is_damaged, findings.is_empty()) {
        (true, _) => Exit::Integrity,
        (false, false) => Exit::Differences,
        (false, true) => Exit::Done,
    };
    let health = ProjectHealth {
        healthy: findings.is_empty(),
        state,
        findings,
    };
    Ok(Report::view(health, lines.join("\n")).with_exit(exit))
}

/// Returns the requirements that the project does not fulfil.
fn requirement_findings(
    context: &Context,
    project: &LockedProject,
) -> Result<Vec<FindingText>, Failure> {
    let unmet = requirements::unmet_requirements(context, &project.lock)?.into_iter();
    let findings = unmet.map(|(code, message, hint)| FindingText {
        code,
        severity: Severity::Warning,
        message,
        hint,
        skill: None,
        path: Some(project.lock.path.clone()),
    });
    Ok(findings.collect())
}
