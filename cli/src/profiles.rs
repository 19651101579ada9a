//! Agents' skill folders: updating them after a change, and reporting the result.

use std::path::PathBuf;

use serde_json::{Value, json};
use vault_library::{
    Vault,
    admit::variants::RenderedVariant,
    agents::{self, Machine, ProfileSyncError, ProfileSyncReport, RootMode, RootState},
};
use vault_skill::name::AgentId;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{
        BAD, BOLD, DIM, GOOD, HINT, Report, TICK, Table, Warning, clean, count,
        doctor::profile_warning, nearest, paint,
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
    match nearest(text, ids) {
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
            let warning = Warning::new("profiles_not_synced", failure(error).message);
            let hint = "vault sync-profiles, once that is mended";
            context.ui.warn(warning.hint(hint));
            None
        }
    }
}

fn warn(context: &Context, report: &ProfileSyncReport) {
    for line in rendered_lines(&report.rendered) {
        context.ui.note(line);
    }
    for warning in &report.warnings {
        let (message, hint) = profile_warning(warning);
        let warning = Warning::new(warning.code(), clean(&message, 400));
        context.ui.warn(warning.hint(hint));
    }
    for root in &report.roots {
        let path = root.path.display();
        if let Some(reason) = &root.failed {
            let warning = Warning::new("root_failed", format!("{path} was not changed: {reason}"));
            let hint = "give this user the right to write there, then vault sync-profiles";
            context.ui.warn(warning.hint(hint));
        }
        if !root.foreign.is_empty() {
            let (names, verb) = (
                list(&root.foreign),
                if root.foreign.len() == 1 { "is" } else { "are" },
            );
            let message = format!("{path}: {names} {verb} of your own, not from the vault");
            let hint = "vault setup --review imports them into the vault; vault disable <name> --agent <agent> ends this warning";
            context
                .ui
                .warn(Warning::new("foreign_skill", message).hint(hint));
        }
    }
}

/// Names the skills that were rendered for one agent and signed.
pub fn rendered_lines(rendered: &[RenderedVariant]) -> impl Iterator<Item = String> {
    rendered.iter().map(|variant| {
        let RenderedVariant { skill, agent } = variant;
        format!("{TICK} signed {BOLD}{skill}{BOLD:#} with its transforms for {agent}")
    })
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
    let text = if report.roots.is_empty() {
        "No agent's folder is linked yet.".to_owned()
    } else {
        let mut table = Table::new(&["folder", "agents", "skills", ""]);
        for root in &report.roots {
            table.row(row(context, root));
        }
        let result = if report.restart_required {
            paint(GOOD, "✓") + " Restart running agents to pick this up."
        } else {
            paint(DIM, "Nothing changed.")
        };
        format!("{}\n{result}", table.text())
    };
    if !report.unlinked_agents.is_empty() {
        context.ui.note(format!(
            "{} found and not linked: {}; {} links them",
            count(report.unlinked_agents.len(), "agent"),
            list(&report.unlinked_agents),
            paint(HINT, "vault sync-profiles --discover"),
        ));
    }
    let failed = report.roots.iter().any(|root| root.failed.is_some());
    let exit = if failed { Exit::Failed } else { Exit::Done };
    Report::new(json(report), text).exit(exit)
}

/// The JSON of a sync, with the text of its warnings.
fn json(report: &ProfileSyncReport) -> Value {
    let warnings = report.warnings.iter().map(|warning| {
        let (message, hint) = profile_warning(warning);
        let (code, path) = (warning.code(), warning.path());
        json!({ "code": code, "message": message, "hint": hint, "path": path })
    });
    let warnings: Vec<_> = warnings.collect();
    let mut data = json!(report);
    data["warnings"] = warnings.into();
    data
}

fn row(context: &Context, root: &RootState) -> [String; 4] {
    let number =
        |mark, names: &Vec<_>| (!names.is_empty()).then(|| format!("{mark}{}", names.len()));
    let word = |is: bool, word: &str| is.then(|| word.to_owned());
    let changes = [
        number('+', &root.added),
        number('~', &root.changed),
        number('-', &root.removed),
        word(root.created, "made"),
        word(root.mode == RootMode::Copy, "copies"),
        word(root.missing, "missing"),
        word(root.failed.is_some(), &paint(BAD, "not changed")),
    ];
    [
        paint(BOLD, context.process.short(&root.path)),
        list(&root.agents),
        root.skills.to_string(),
        changes.into_iter().flatten().collect::<Vec<_>>().join(" "),
    ]
}

/// Converts the error of a sync.
pub fn failure(error: ProfileSyncError) -> Failure {
    match error {
        ProfileSyncError::Vault(error) => error.into(),
        error @ (ProfileSyncError::Rules(_) | ProfileSyncError::Target(_)) => {
            fail!(ProfilesInvalid, "{error}")
                .hint("mend profiles.toml in the vault's folder; nothing was changed")
        }
    }
}
