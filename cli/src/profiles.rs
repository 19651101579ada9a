//! Agents' skill folders: updating them after a change, and reporting the result.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vault_library::{
    Vault,
    agents::{self, Machine, ProfileSyncError, ProfileSyncReport, RootMode, RootState},
};
use vault_skill::name::AgentId;

use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure},
    output::{
        BAD, BOLD, DIM, GOOD, HINT, Report, Table, Warning, clean, count, doctor::profile_warning,
        paint,
    },
};

/// Parses `agent=/path` and makes the path absolute.
pub fn parse_link(text: &str) -> Result<(AgentId, PathBuf), String> {
    let (agent, path) = text
        .split_once('=')
        .filter(|(_, path)| !path.is_empty())
        .ok_or("give an agent and a folder: claude-code=/path/to/skills")?;
    let agent = agent_id(agent)?;
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    Ok((agent, path))
}

/// Parses an agent's id, including ids that other tools use. A misspelt id fails with the nearest
/// known one.
pub fn agent_id(text: &str) -> Result<AgentId, String> {
    if let Some(agent) = agents::by_name(text) {
        return Ok(agent.id.clone());
    }
    let id: AgentId = text
        .parse()
        .map_err(|error: vault_skill::name::BadName| error.to_string())?;
    let ids = agents::all().iter().map(|agent| agent.id.as_str());
    match crate::output::text::nearest(text, ids) {
        // Unknown agents are allowed, but an id this close to a known one is more likely a
        // misspelling.
        Some(near) => Err(format!("no agent is called `{id}`; did you mean `{near}`?")),
        None => Ok(id),
    }
}

/// Describes this machine. Fails without a home folder.
pub fn machine(context: &Context, project: Option<PathBuf>) -> Result<Machine, Failure> {
    context.process.machine(project).ok_or_else(|| {
        fail!(NoHome, "there is no home folder to look for agents in").hint("set HOME")
    })
}

/// Updates the existing links after a change. A problem with them is only a warning, because the
/// change itself succeeded. Returns `None` if nothing was synced.
pub fn refresh(context: &Context, vault: &Vault) -> Option<ProfileSyncReport> {
    let settings = context.settings().ok()?;
    if settings.text("VAULT_MODE") == Some("remote") {
        return None;
    }
    let machine = context.process.machine(None)?;
    match agents::refresh(vault, &machine) {
        Ok(report) => {
            let report = report?;
            warn(context, &report);
            Some(report)
        }
        Err(error) => {
            let failure = failure(error);
            context.ui.warn(
                Warning::new("profiles_not_synced", failure.message.clone())
                    .hint("vault sync-profiles, once that is mended"),
            );
            None
        }
    }
}

fn warn(context: &Context, report: &ProfileSyncReport) {
    for warning in &report.warnings {
        let (message, hint) = profile_warning(warning);
        context
            .ui
            .warn(Warning::new(warning.code(), clean(&message, 400)).hint(hint));
    }
    for root in &report.roots {
        if let Some(reason) = &root.failed {
            context.ui.warn(
                Warning::new(
                    "root_failed",
                    format!("{} was not changed: {reason}", root.path.display()),
                )
                .hint("give this user the right to write there, then vault sync-profiles"),
            );
        }
        if !root.foreign.is_empty() {
            context.ui.warn(
                Warning::new(
                    "foreign_skill",
                    format!(
                        "{}: {} {} of your own, not from the vault",
                        root.path.display(),
                        list(&root.foreign),
                        if root.foreign.len() == 1 { "is" } else { "are" },
                    ),
                )
                .hint("vault setup --review takes them into the vault; vault disable <name> --agent <agent> ends this warning"),
            );
        }
    }
}

fn list(names: &[impl ToString]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<_> = names.iter().take(SHOWN).map(ToString::to_string).collect();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    text.join(", ")
}

/// Creates the report of a sync for people and programs.
pub fn report_of(context: &Context, report: &ProfileSyncReport) -> Report {
    warn(context, report);
    let mut lines = Vec::new();
    if !report.roots.is_empty() {
        let mut table = Table::new(&["folder", "agents", "skills", ""]);
        for root in &report.roots {
            table.row(row(context, root));
        }
        lines.push(table.text());
    }
    if report.roots.is_empty() {
        lines.push("No agent's folder is linked yet.".to_owned());
    }
    if !report.unlinked_agents.is_empty() {
        context.ui.note(format!(
            "{} found and not linked: {}; {} links them",
            count(report.unlinked_agents.len(), "agent"),
            list(&report.unlinked_agents),
            paint(HINT, "vault sync-profiles --discover"),
        ));
    }
    if report.restart_required && !report.roots.is_empty() {
        lines.push(format!(
            "{} Agents that are running see it after a restart.",
            paint(GOOD, "✓")
        ));
    } else if !report.roots.is_empty() {
        lines.push(paint(DIM, "Nothing changed."));
    }
    let failed = report.roots.iter().any(|root| root.failed.is_some());
    Report::new(ReportJson::new(report), lines.join("\n")).exit(if failed {
        Exit::Failed
    } else {
        Exit::Done
    })
}

/// The JSON of a sync, with the text of its warnings.
#[derive(Serialize)]
struct ReportJson<'a> {
    #[serde(flatten)]
    report: &'a ProfileSyncReport,
    warnings: Vec<WarningJson<'a>>,
}

#[derive(Serialize)]
struct WarningJson<'a> {
    code: &'static str,
    message: String,
    hint: String,
    path: Option<&'a Path>,
}

impl<'a> ReportJson<'a> {
    fn new(report: &'a ProfileSyncReport) -> Self {
        let warnings = report.warnings.iter().map(|warning| {
            let (message, hint) = profile_warning(warning);
            WarningJson {
                code: warning.code(),
                message,
                hint,
                path: warning.path(),
            }
        });
        Self {
            report,
            warnings: warnings.collect(),
        }
    }
}

fn row(context: &Context, root: &RootState) -> [String; 4] {
    let mut what = Vec::new();
    for (mark, names) in [
        ("+", &root.added),
        ("~", &root.changed),
        ("-", &root.removed),
    ] {
        if !names.is_empty() {
            what.push(format!("{mark}{}", names.len()));
        }
    }
    if root.created {
        what.push("made".to_owned());
    }
    if root.mode == RootMode::Copy {
        what.push("copies".to_owned());
    }
    if root.missing {
        what.push("missing".to_owned());
    }
    if root.failed.is_some() {
        what.push(paint(BAD, "not changed"));
    }
    [
        paint(BOLD, context.process.short(&root.path)),
        list(&root.agents),
        root.skills.to_string(),
        what.join(" "),
    ]
}

/// Converts the error of a sync.
pub fn failure(error: ProfileSyncError) -> Failure {
    match error {
        ProfileSyncError::Vault(error) => error.into(),
        error @ (ProfileSyncError::Rules(_) | ProfileSyncError::Target(_)) => {
            Failure::new(ErrorCode::ProfilesInvalid, error.to_string())
                .hint("mend profiles.toml in the vault's folder; nothing was changed")
        }
    }
}
