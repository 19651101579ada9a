//! The folders from which agents read skills. A *profile sync* makes each such folder contain links
//! to the vault's skills (or copies, where links do not work). This module runs it after a change
//! and reports the result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_format::name::AgentId;
use vault_library::{
    Vault,
    admit::variants::RenderedVariant,
    agents::{
        self, AgentView, Machine, ProfileSyncError, ProfileSyncReport, ProfileWarning, RootMode,
        RootState, SyncProfilesInput, sync_profiles,
    },
};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{
        BAD, BOLD, Column, DIM, HINT, Report, TICK, Table, WARN, Warning, clean, count,
        doctor::{HiddenSkill, THROUGH_FOLDER, profile_warning, variant_maker},
        join, nearest_name, paint,
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
    let id = AgentId::named(text).map_err(|error| error.to_string())?;
    let ids = agents::known_agents().iter().map(|agent| agent.id.as_str());
    match nearest_name(text, ids) {
        // Unknown agents are allowed, but an id this close to a known one is more likely a
        // misspelling.
        Some(near) => Err(format!("no agent is called `{id}`; did you mean `{near}`?")),
        None => Ok(id),
    }
}

/// Like [`agent_id`], but rejects agents that vault does not know. For a skill that is added for
/// one agent: under a wrong id, no agent would see it.
pub fn known_agent_id(text: &str) -> Result<AgentId, String> {
    let id = agent_id(text)?;
    if agents::by_name(id.as_str()).is_some() {
        return Ok(id);
    }
    Err(format!(
        "no agent is called `{id}`; `vault agents --all` lists the agents that vault knows"
    ))
}

/// Describes this machine to the library: the home folder, the environment and the project. Fails
/// without a home folder.
pub fn find_machine(context: &Context, project: Option<PathBuf>) -> Result<Machine, Failure> {
    context.process.describe_machine(project).ok_or_else(|| {
        fail!(NoHome, "there is no home folder to look for agents in").hint("set HOME")
    })
}

/// Updates the folders that are already linked, after a change of skills. A problem is only a
/// warning, because the change itself succeeded. Returns `None` if no folder is linked or the sync
/// failed.
pub fn refresh_links(context: &Context, vault: &Vault) -> Option<ProfileSyncReport> {
    let machine = local_machine(context)?;
    let report = agents::sync_linked_folders(vault, &machine).unwrap_or_else(|error| {
        warn_not_synced(context, error);
        None
    })?;
    warn_about_sync(context, &report);
    Some(report)
}

/// Returns this machine, if its agents read the vault's skills from folders; otherwise `None`.
fn local_machine(context: &Context) -> Option<Machine> {
    let settings = context.settings().ok()?;
    // In remote mode, agents read skills from a service and not from folders.
    let is_remote = settings.text("VAULT_MODE") == Some("remote");
    context
        .process
        .describe_machine(None)
        .filter(|_| !is_remote)
}

fn warn_not_synced(context: &Context, error: ProfileSyncError) {
    context.ui.warn_with(
        "profiles_not_synced",
        sync_failure(error).message,
        "fix that, then: vault sync-profiles",
    );
}

/// The result of a profile sync after a change of skills.
#[derive(Default)]
pub struct AgentLinks {
    report: Option<ProfileSyncReport>,
    /// Whether the user was asked and agreed to link further agents.
    pub linked_now: bool,
    /// Whether the change itself has removed links of skills.
    pub unlinked: bool,
    /// A line that names the command for linking further agents, if the user could not be asked.
    pub next: Option<String>,
}

impl AgentLinks {
    /// Returns whether agents see other skills than before.
    pub fn restart_required(&self) -> bool {
        let mut reports = self.report.iter();
        self.unlinked || reports.any(|report| report.restart_required)
    }

    /// Returns the result in the form that a command prints as JSON.
    pub fn to_shown(&self) -> ShownLinks {
        ShownLinks {
            restart_required: self.restart_required(),
            profiles: self.report.clone().map(ProfileSync::of_report),
        }
    }

    /// Adds [`ShownLinks`] to the JSON of a change.
    pub fn add_to(&self, data: &mut Value) {
        let shown = serde_json::to_value(self.to_shown());
        if let (Value::Object(members), Ok(Value::Object(shown))) = (data, shown) {
            members.extend(shown);
        }
    }

    /// Formats a line with the agents that see other skills than before, and the advice to restart
    /// them; `None` if no agent does.
    pub fn links_line(&self) -> Option<String> {
        let report = self
            .report
            .as_ref()
            .filter(|report| report.restart_required)?;
        let has_changed = |root: &&RootState| {
            !(root.added.is_empty() && root.changed.is_empty() && root.removed.is_empty())
        };
        let roots = report.roots.iter().filter(has_changed);
        // Agents share folders, and some read several.
        let names: BTreeSet<_> = roots
            .flat_map(|root| &root.agents)
            .map(agent_name)
            .collect();
        let names: Vec<_> = names.into_iter().collect();
        (!names.is_empty()).then(|| format!("{TICK} linked for {}. {RESTART}", short_list(&names)))
    }

    /// Formats the table of the linked folders, if any agent sees other skills than before.
    pub fn links_table(&self, context: &Context) -> Option<String> {
        let report = self.report.as_ref()?;
        let restart = self.restart_required();
        restart.then(|| table_text(context, report, restart))
    }
}

/// What the agents of this machine see after a change, as `--json` prints it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ShownLinks {
    /// Whether running agents must be restarted to see the change.
    restart_required: bool,
    /// The linked folders of agents; null if none is linked.
    profiles: Option<ProfileSync>,
}

/// The linked folders of agents, and what changed in them.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProfileSync {
    #[serde(flatten)]
    report: ProfileSyncReport,
    /// Problems that hide skills from agents.
    warnings: Vec<ProfileWarningText>,
}

/// A problem that hides skills from agents.
#[derive(Debug, JsonSchema, Serialize)]
struct ProfileWarningText {
    /// Stable code of the problem.
    code: &'static str,
    /// What is wrong.
    message: String,
    /// What to do about it.
    hint: String,
    /// The file or folder that it concerns.
    path: Option<PathBuf>,
}

impl ProfileSync {
    fn of_report(report: ProfileSyncReport) -> Self {
        let text = |warning: &ProfileWarning| {
            let (message, hint) = profile_warning(warning);
            ProfileWarningText {
                code: warning.code(),
                message,
                hint,
                path: warning.path().map(Path::to_owned),
            }
        };
        let warnings = report.warnings.iter().map(text).collect();
        Self { report, warnings }
    }
}

/// Runs a profile sync after skills have arrived. If this machine has agents whose folders are not
/// linked, asks once on a terminal whether to link them; without a terminal, the result names the
/// command.
pub fn show_to_agents(context: &Context, vault: &Vault) -> AgentLinks {
    let mut links = AgentLinks {
        report: refresh_links(context, vault),
        ..AgentLinks::default()
    };
    let Some(machine) = local_machine(context) else {
        return links;
    };
    let unlinked = match agents::list_unlinked(vault, &machine) {
        Ok(unlinked) if !unlinked.is_empty() => unlinked,
        // `refresh_links` has already reported a failure that concerns a linked folder.
        _ => return links,
    };
    let names = join(unlinked.iter().map(|agent| &agent.display_name));
    let ids: Vec<_> = unlinked.iter().map(|agent| agent.id.clone()).collect();
    if !context.ui.may_ask() {
        // Where some folders are linked, the bare command updates only those.
        let command = match links.report {
            Some(_) => "vault sync-profiles --discover",
            None => "vault sync-profiles",
        };
        let command = paint(HINT, command);
        links.next = Some(format!("Next: {command} links the skills for {names}"));
        return links;
    }
    let question = format!("Link the vault's skills for {names}?");
    // Skills that no agent sees are of no use, so yes is the default.
    match context.ui.confirm_default(&question, true) {
        Ok(true) => match sync_profiles(vault, &discover_input(machine, ids)) {
            Ok(report) => {
                warn_about_sync(context, &report);
                links.linked_now = true;
                links.report = Some(report);
            }
            Err(error) => warn_not_synced(context, error),
        },
        Ok(false) => {
            // Remember the answer, so that the same question does not come with every change.
            if let Err(error) = agents::decline_agents(vault, &ids) {
                warn_not_synced(context, error.into());
            }
            let command = paint(HINT, "vault sync-profiles --discover");
            context
                .ui
                .note(format!("Not linked. To link later: {command}"));
        }
        // The change itself is done. After the next change, the user is asked again.
        Err(_) => {}
    }
    links
}

/// The skills that one agent gets, and those that it does not get.
#[derive(Debug, JsonSchema, Serialize)]
pub struct AgentProfile {
    #[serde(flatten)]
    view: AgentView,
    /// The skills that it does not get.
    hidden: Vec<HiddenSkill>,
}

impl From<AgentView> for AgentProfile {
    fn from(view: AgentView) -> Self {
        let hidden = view.hidden.iter();
        let hidden = hidden.map(|hidden| HiddenSkill::new(&view.agent, hidden));
        Self {
            hidden: hidden.collect(),
            view,
        }
    }
}

impl AgentProfile {
    pub const fn agent(&self) -> &AgentId {
        &self.view.agent
    }

    /// Whether any folder that the agent reads is linked.
    pub const fn is_linked(&self) -> bool {
        self.view.linked
    }

    /// Formats the agent, with at most `most` of the skills that it gets as a variant or not at
    /// all.
    pub fn describe(&self, context: &Context, most: usize) -> Vec<String> {
        let view = &self.view;
        let folders = view
            .roots
            .iter()
            .map(|root| context.process.short_path(root));
        let folders = if view.linked {
            join(folders)
        } else {
            format!("{WARN}not linked{WARN:#}, vault sync-profiles --discover links it")
        };
        let sees = count(view.sees.len(), "skill");
        let mut lines = vec![format!("{BOLD}{}{BOLD:#}  {sees}  {folders}", view.agent)];
        for variant in &view.variants {
            let by = variant_maker(variant.by);
            let skill = &variant.skill;
            lines.push(format!("  {skill}  {DIM}as a variant, made by {by}{DIM:#}"));
        }
        for skill in &view.through_folder {
            lines.push(format!("  {skill}  {DIM}{THROUGH_FOLDER}{DIM:#}"));
        }
        for hidden in &self.hidden {
            let (skill, reason) = (hidden.skill(), &hidden.reason);
            lines.push(format!("  {HINT}not{HINT:#} {skill}  {DIM}{reason}{DIM:#}"));
        }
        // The first line names the agent.
        let more = (lines.len() - 1).saturating_sub(most);
        if more > 0 {
            lines.truncate(most + 1);
            let command = paint(HINT, format!("vault profiles {}", view.agent));
            lines.push(format!("  {more} more: {command}"));
        }
        lines
    }
}

/// Returns what each agent of this machine gets, and why.
pub fn agent_profiles(vault: &Vault, machine: &Machine) -> Result<Vec<AgentProfile>, Failure> {
    let views = agents::view_agents(vault, machine).map_err(sync_failure)?;
    Ok(views.agents.into_iter().map(AgentProfile::from).collect())
}

/// Creates the input of a profile sync that links the folders of these agents.
pub fn discover_input(machine: Machine, agents: Vec<AgentId>) -> SyncProfilesInput {
    SyncProfilesInput {
        machine,
        discover: true,
        only: Some(agents),
        ..SyncProfilesInput::default()
    }
}

/// Returns the display name of an agent, or its id if vault does not know the agent.
pub fn agent_name(agent: &AgentId) -> String {
    agents::by_name(agent.as_str())
        .map_or_else(|| agent.to_string(), |agent| agent.display_name.clone())
}

fn warn_about_sync(context: &Context, report: &ProfileSyncReport) {
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
            let hint = "give this user the right to write there, then vault sync-profiles";
            context.ui.warn_with(
                "root_failed",
                format!("{path} was not changed: {reason}"),
                hint,
            );
        }
        // Warn only once; `vault doctor` keeps listing them.
        if !root.newly_foreign.is_empty() {
            let names = short_list(&root.newly_foreign);
            let path = context.process.short_path(&root.path);
            let message = match root.newly_foreign.len() {
                1 => format!("skipped {names}: {path} has another entry of that name"),
                _ => format!("skipped {names}: {path} has other entries of those names"),
            };
            let hint = "vault setup --review imports them into the vault";
            context.ui.warn_with("foreign_skill", message, hint);
        }
    }
}

/// Formats a line for each skill that was rendered for an agent (changed by the owner's transforms)
/// and signed.
pub fn rendered_lines(rendered: &[RenderedVariant]) -> impl Iterator<Item = String> {
    rendered.iter().map(|variant| {
        let RenderedVariant { skill, agent } = variant;
        format!("{TICK} signed {BOLD}{skill}{BOLD:#} with its transforms for {agent}")
    })
}

fn short_list(names: &[impl ToString]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<_> = names.iter().take(SHOWN).map(ToString::to_string).collect();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    text.join(", ")
}

/// Creates the report of `vault sync-profiles`, and prints the warnings of the sync.
pub fn report_of(context: &Context, report: &ProfileSyncReport) -> Report {
    warn_about_sync(context, report);
    let text = if report.roots.is_empty() {
        "No agent's folder is linked.".to_owned()
    } else {
        table_text(context, report, report.restart_required)
    };
    if !report.unlinked_agents.is_empty() {
        let names = join(report.unlinked_agents.iter().map(agent_name));
        let command = paint(HINT, "vault sync-profiles --discover");
        context
            .ui
            .note(format!("Not linked: {names}. To link: {command}"));
    }
    // Exit with a failure, so that scripts notice a folder that could not be changed.
    let failed = report.roots.iter().any(|root| root.failed.is_some());
    let exit = if failed { Exit::Failed } else { Exit::Done };
    Report::view(ProfileSync::of_report(report.clone()), text).with_exit(exit)
}

/// Formats the linked folders and their changes as a table.
fn table_text(context: &Context, report: &ProfileSyncReport, restart: bool) -> String {
    let mut table = Table::new([
        Column::new("folder").shrinks_to(20),
        Column::new("agents").shrinks_to(12),
        Column::new("skills"),
        Column::new("").shrinks_to(10),
    ]);
    for root in &report.roots {
        table.push_row(root_row(context, root));
    }
    let result = if restart {
        format!("{TICK} {RESTART}")
    } else {
        paint(DIM, "No agent's folder changed.")
    };
    format!("{}\n{result}", context.ui.format_table(&table))
}

/// The advice after a change of the skills that agents see.
pub const RESTART: &str = "Restart running agents to pick this up.";

fn root_row(context: &Context, root: &RootState) -> [String; 4] {
    let number =
        |mark, names: &Vec<_>| (!names.is_empty()).then(|| format!("{mark}{}", names.len()));
    let word = |is: bool, word: &str| is.then(|| word.to_owned());
    let changes = [
        number('+', &root.added),
        number('~', &root.changed),
        number('-', &root.removed),
        word(root.created, "created"),
        word(root.mode == RootMode::Copy, "copies"),
        word(root.missing, "missing"),
        word(root.failed.is_some(), &paint(BAD, "not changed")),
    ];
    [
        paint(BOLD, context.process.short_path(&root.path)),
        short_list(&root.agents),
        root.skills.to_string(),
        changes.into_iter().flatten().collect::<Vec<_>>().join(" "),
    ]
}

/// Converts the error of a profile sync. Faulty rules in `profiles.toml` get a code and a hint of
/// their own.
pub fn sync_failure(error: ProfileSyncError) -> Failure {
    match error {
        ProfileSyncError::Vault(error) => error.into(),
        error @ (ProfileSyncError::Rules(_) | ProfileSyncError::Target(_)) => {
            fail!(ProfilesInvalid, "{error}")
                .hint("fix profiles.toml in the vault's folder; nothing was changed")
        }
    }
}
