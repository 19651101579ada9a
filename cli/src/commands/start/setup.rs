//! `vault setup`: a wizard that finds agents and their skills on this machine, imports skills into
//! the vault, and links the vault's skills into the agents' folders.
//!
//! Nothing changes before the user confirms the summary. The report lists commands that undo the
//! changes.

mod project;
mod questions;

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    hash::Digest,
    name::{AgentId, SkillName},
    provenance::ProvenanceId,
};
use vault_gate::secrets::is_named;
use vault_library::{
    AuthoredFile, Vault, add_folder,
    admit::{
        AdmitError, Options, Secrets,
        approve::{self, ApproveError},
    },
    agents::setup::{self, AdoptNativeError, Adopted, AdoptionMode, NativeSkill, Scan},
    agents::{self, Machine, ProfileSyncReport, SyncProfilesInput, sync_profiles},
};

use self::questions::{
    SetupPlan, agents_with_skill, ask_advanced, ask_sharing, choose_adoptions, choose_starters,
    show_overview, show_summary,
};
use crate::{
    context::Context,
    errors::{Exit, Failure},
    lookup::installed_names,
    output::{BOLD, HINT, Report, TICK, Warning, clean, paint, shell_path},
    tasks::{
        admission::include_unknown,
        agent_writes, key_changes,
        profiles::{self, AgentProfile},
        project_scope::LockedProject,
        starter,
    },
};

/// The arguments of `vault setup`.
#[derive(Args, Debug)]
#[command(after_help = "\
A wizard for the terminal: it finds the agents on this machine and the skills in their folders, \
checks those skills, asks what to do with them, shows the plan, and carries it out when you agree. \
A skill that you import goes into the vault without the files that look like secrets (.env, \
private keys, *.key, *.pem), unless --include names one by its path in the skill. What the vault \
does not hold is never deleted: it moves to <folder>.bak, and setup names it. Scripts use `vault \
add` and `vault sync-profiles` instead.

In a repository it first asks whether to set up vault for you or for this project. For a project, it \
installs what vault.lock names, or records skills of the repository in a new vault.lock.

Examples:
  vault setup
  vault setup --review
  vault setup --advanced
  vault setup --project")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Arguments {
    /// Ask about each skill and show how it differs from the vault's copy
    #[arg(long)]
    review: bool,
    /// Also ask about agents, other folders, tags and strictness
    #[arg(long)]
    advanced: bool,
    /// Do not offer starter skills
    #[arg(long)]
    no_starters: bool,
    /// Set up this project; in a repository, the wizard asks which of the two
    #[arg(long, conflicts_with_all = ["personal", "review", "advanced", "no_starters", "include"])]
    project: bool,
    /// Set up your own vault, also in a repository
    #[arg(long)]
    personal: bool,
    /// Import this file although it looks like a secret; repeatable
    #[arg(long, value_name = "FILE")]
    include: Vec<String>,
}

/// The result of a setup.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Setup {
    /// Whether the plan was carried out. If not, the other members are absent.
    changed: bool,
    #[serde(flatten)]
    completed: Option<CompletedSetup>,
}

/// Maximum number of skills for each agent that it gets as a variant or not at all, in the text.
const SHOWN_EXCEPTIONS: usize = 10;

/// A plan that was carried out.
#[derive(Debug, Default, JsonSchema, Serialize)]
struct CompletedSetup {
    /// The starter skills that were added.
    added: Vec<String>,
    /// The skills that were imported from the folders of agents.
    adopted: Vec<ImportedSkill>,
    /// The skills that were not imported.
    failed: Vec<FailedImport>,
    /// The commands that undo the changes, in this order.
    undo: Vec<String>,
    /// The linked folders of agents.
    profiles: ProfileSyncReport,
    /// The linked agents, each with the skills that it gets.
    agents: Vec<AgentProfile>,
    /// Whether running agents must be restarted to see the change.
    restart_required: bool,
}

/// A skill that was imported from the folder of an agent.
#[derive(Debug, JsonSchema, Serialize)]
struct ImportedSkill {
    /// Name of the skill in the vault.
    name: SkillName,
    /// Path of the agent's folder that it was in.
    path: PathBuf,
    /// What became of that folder.
    mode: AdoptionMode,
    /// Version number in its signed manifest.
    version: u64,
    /// SHA-256 of its bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Source that the vault records for it.
    provenance: ProvenanceId,
    #[serde(flatten)]
    secrets: Secrets,
    /// The folder that holds what was moved away; null if nothing was.
    backup: Option<PathBuf>,
    /// Paths in that folder that the vault does not hold.
    not_stored: Vec<String>,
}

/// A skill that was not imported. Its folder stays as it was.
#[derive(Debug, JsonSchema, Serialize)]
struct FailedImport {
    /// Name of the skill.
    name: SkillName,
    /// Path of the folder, which was not changed.
    path: PathBuf,
    /// Why it was not imported: a message without a full stop.
    reason: String,
}

/// Scans the machine, asks the questions, shows the plan, and carries it out after a confirmation.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let is_for_project = arguments.project
        || !arguments.personal && context.ui.may_ask() && project::ask_for_project(context)?;
    if is_for_project {
        let project = LockedProject::read_or_new(context, None)?;
        return project::set_up_project(context, &project);
    }
    if !context.ui.may_ask() {
        return Err(fail!(
            NoTtyError,
            "NoTtyError: setup asks questions and needs a terminal"
        )
        .hint("in scripts: vault add <folder>, then vault sync-profiles; for a project: vault install"));
    }
    // In remote mode the agents read skills from a service, so there is no folder to link.
    if context.settings()?.text("VAULT_MODE") == Some("remote") {
        let message = "RemoteModeError: setup is for the machine that the agents are on";
        return Err(fail!(RemoteModeError, "{message}").hint("run it with VAULT_MODE=local"));
    }
    let project = std::path::absolute(".").ok();
    let machine = profiles::find_machine(context, project)?;
    let vault = context.existing_vault()?;
    // Skills are linked for all projects of the user, so leave out agents that are found only in
    // the current project.
    let user = Machine {
        project: None,
        ..machine.clone()
    };
    let mut plan = SetupPlan {
        strict: context.is_strict()?,
        agents: agents::detect_agents(&user)
            .into_iter()
            .map(|agent| agent.id.clone())
            .collect(),
        ..SetupPlan::default()
    };
    // Ask before the scan, which depends on the answers.
    if arguments.advanced {
        ask_advanced(context, &mut plan, vault.as_ref())?;
    }
    let include = &arguments.include;
    let scan = setup::scan_with(
        vault.as_ref(),
        &machine,
        &plan.folders,
        plan.strict,
        include,
    )?;
    // Reject a misspelt `--include` before asking about the skills.
    require_included(&scan, include)?;
    let installed = vault
        .as_ref()
        .map(installed_names)
        .transpose()?
        .unwrap_or_default();
    show_overview(context, vault.as_ref(), installed.len(), &plan, &scan);
    if !arguments.no_starters {
        plan.starters = choose_starters(context, &installed, scan.skills.is_empty())?;
    }
    plan.adopt = choose_adoptions(context, arguments.review, vault.as_ref(), &scan)?;
    plan.share = ask_sharing(context, &plan)?;
    if !plan.agents.is_empty() && !agent_writes::is_chosen(context)? {
        context.ui.must_see("");
        plan.writes = Some(agent_writes::ask_writes(context)?);
    }
    show_summary(context, &user, vault.is_none(), &plan);
    if !context.ui.confirm_default("Go ahead?", true)? {
        context.ui.note("Nothing was changed.");
        let (changed, completed) = (false, None);
        return Ok(Report::view(Setup { changed, completed }, ""));
    }
    carry_out(context, &user, &plan)
}

/// Fails if `--include` names a file that none of the skills has.
fn require_included(scan: &Scan, include: &[String]) -> Result<(), Failure> {
    let is_unknown = |name: &&String| {
        let named = std::slice::from_ref(*name);
        let mut included = scan.skills.iter().flat_map(|skill| &skill.included);
        !included.any(|path| is_named(path, named))
    };
    let unknown: Vec<&str> = include
        .iter()
        .filter(is_unknown)
        .map(String::as_str)
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(include_unknown(&unknown.join(", ")))
}

fn carry_out(context: &Context, user: &Machine, plan: &SetupPlan) -> Result<Report, Failure> {
    let vault = context.vault_or_new()?;
    let mut done = CompletedSetup::default();
    // Write this setting first, so that it holds before any agent is linked.
    if let Some(writes) = plan.writes {
        agent_writes::write_setting(context, writes)?;
    }
    add_starters(context, &vault, plan, &mut done)?;
    // Restrict the skills before they are added, so that a run that is killed in between never
    // shows them to other agents.
    if !plan.share {
        keep_to_their_agents(&vault, plan)?;
    }
    let profile_roots = adopt_skills(context, &vault, plan, &mut done);
    write_tags(&vault, plan)?;
    // Record the refusal, or later commands would offer these agents again.
    if !plan.declined.is_empty() {
        agents::decline_agents(&vault, &plan.declined)?;
    }
    let input = SyncProfilesInput {
        machine: user.clone(),
        discover: true,
        only: Some(plan.agents.clone()),
        profile_roots,
        ..SyncProfilesInput::default()
    };
    let mut report = sync_profiles(&vault, &input).map_err(profiles::sync_failure)?;
    // The user has just decided about the skills in these folders, so do not warn of them.
    for root in &mut report.roots {
        root.newly_foreign.clear();
    }
    let linked = profiles::report_of(context, &report);
    let mut lines = vec![linked.text.clone()];
    done.agents = profiles::agent_profiles(&vault, user)?;
    done.agents.retain(AgentProfile::is_linked);
    lines.extend(agent_lines(context, &done.agents));
    if !done.undo.is_empty() {
        lines.push(String::new());
        lines.push(paint(BOLD, "To undo"));
        lines.extend(done.undo.iter().map(|line| format!("  {line}")));
    }
    if key_changes::all_root_keys_here(&vault)? {
        lines.push(String::new());
        lines.push(format!(
            "Make a recovery key: {HINT}{}{HINT:#}, on a USB stick. It brings the vault back if \
             this machine is lost or stolen.",
            context.own_command(true, "key recovery create <file>")
        ));
    }
    lines.push(String::new());
    let (add, doctor) = (
        paint(HINT, context.own_command(true, "add <folder>")),
        paint(HINT, context.own_command(true, "doctor")),
    );
    lines.push(format!(
        "Next: {add} adds a skill, {doctor} checks everything and suggests fixes."
    ));
    // The rest of the plan was carried out, but a skill that failed sets the exit code.
    let exit = if done.failed.is_empty() && done.added.len() == plan.starters.len() {
        linked.exit
    } else {
        Exit::Failed
    };
    done.restart_required = report.restart_required;
    done.profiles = report;
    let (changed, completed) = (true, Some(done));
    Ok(Report::view(Setup { changed, completed }, lines.join("\n")).with_exit(exit))
}

/// Formats the skills that each linked agent gets, as `vault profiles` prints them. An agent gets
/// at most `SHOWN_EXCEPTIONS` lines about variants and hidden skills.
fn agent_lines(context: &Context, agents: &[AgentProfile]) -> Vec<String> {
    let mut lines = Vec::new();
    if !agents.is_empty() {
        lines.extend([String::new(), paint(BOLD, "Who sees what")]);
    }
    for agent in agents {
        lines.extend(agent.describe(context, SHOWN_EXCEPTIONS));
    }
    lines
}

/// Imports the chosen skills from the agents' folders. A failure does not stop the others, unless
/// the vault itself cannot be written. Returns the folders to link into: those of the imported
/// skills, and those that the user named.
fn adopt_skills(
    context: &Context,
    vault: &Vault,
    plan: &SetupPlan,
    setup: &mut CompletedSetup,
) -> Vec<(AgentId, PathBuf)> {
    let mut roots = plan.folders.clone();
    for (skill, mode, replace) in &plan.adopt {
        let name = &skill.name;
        match setup::adopt_skill(vault, skill, *mode, *replace, plan.strict) {
            Ok(done) => {
                setup.undo.extend(undo_lines(context, skill, *mode, &done));
                // Agents that share a folder see the same link, so one of them suffices.
                let agent = skill.agents.first().cloned();
                roots.extend(agent.map(|agent| (agent, skill.root.clone())));
                let line = format!("{TICK} imported {BOLD}{name}{BOLD:#}");
                context.ui.must_see(line);
                for line in describe_secret_files(&done.report.secrets) {
                    context.ui.must_see(line);
                }
                if let (Some(backup), false) = (&done.backup, done.not_stored.is_empty()) {
                    let backup = clean(&context.process.short_path(backup), 300);
                    let files = clean(&done.not_stored.join(", "), 400);
                    let line = format!("  the vault does not hold {files}; moved to {backup}");
                    context.ui.must_see(line);
                }
                setup.adopted.push(ImportedSkill {
                    name: name.clone(),
                    path: skill.path.clone(),
                    mode: *mode,
                    version: done.report.version,
                    bundle_hash: done.report.bundle,
                    provenance: done.report.provenance,
                    secrets: done.report.secrets,
                    backup: done.backup,
                    not_stored: done.not_stored,
                });
            }
            Err(error) => {
                let text = format!("{name} stays as it is: {error}");
                let path = shell_path(skill.path.display());
                let audit = context.own_command(true, format!("audit {path}"));
                let hint = format!("{audit} shows why");
                context.ui.warn_with("not_adopted", text, hint);
                setup.failed.push(FailedImport {
                    name: name.clone(),
                    path: skill.path.clone(),
                    reason: error.to_string(),
                });
                // The vault cannot be written, or another process holds the writer lock. Every
                // other skill would fail too.
                if matches!(
                    error,
                    AdoptNativeError::Vault(_) | AdoptNativeError::Admit(AdmitError::Vault(_))
                ) {
                    break;
                }
            }
        }
    }
    roots
}

/// Formats lines about the files of an imported skill that look like secrets.
fn describe_secret_files(secrets: &Secrets) -> Vec<String> {
    let line = |text: &str, files: &[String]| {
        let files = clean(&files.join(", "), 400);
        (!files.is_empty()).then(|| format!("  {text}: {files}"))
    };
    let left_out = line(
        "left out, because they look like secrets",
        &secrets.left_out,
    );
    let included = line("taken, as --include asks", &secrets.included);
    left_out.into_iter().chain(included).collect()
}

/// Returns the shell commands that restore the folder of an imported skill, in this order.
fn undo_lines(
    context: &Context,
    skill: &NativeSkill,
    mode: AdoptionMode,
    done: &Adopted,
) -> Vec<String> {
    let short = context.process.short_path(&skill.path);
    let remove = context.own_command(true, format!("remove {}", skill.name));
    let path = shell_path(&short);
    let backup = done.backup.as_ref();
    let backup = backup.map(|backup| shell_path(context.process.short_path(backup)));
    match (mode, backup) {
        (AdoptionMode::InPlace, backup) => {
            // In place of the folder is a link into the vault. Copy what it points to before `vault
            // remove` deletes that.
            let copy = shell_path(format!("{short}.tmp"));
            // The vault's files are read-only, so the copy must be made writable.
            let copied = format!("cp -rL {path} {copy} && chmod -R u+w {copy}");
            let mut lines = vec![format!("{copied} && {remove} && mv {copy} {path}")];
            lines.extend(backup.map(|backup| format!("cp -RpP {backup}/. {path}/")));
            lines
        }
        (_, Some(backup)) => vec![format!("{remove} && mv {backup} {path}")],
        (_, None) => vec![remove],
    }
}

/// Restricts each new skill of the plan to the agents in whose folders it was found.
fn keep_to_their_agents(vault: &Vault, plan: &SetupPlan) -> Result<(), Failure> {
    for (skill, ..) in &plan.adopt {
        if skill.is_new() {
            agents::keep_to(vault, &skill.name, &agents_with_skill(plan, skill))?;
        }
    }
    Ok(())
}

fn add_starters(
    context: &Context,
    vault: &Vault,
    plan: &SetupPlan,
    setup: &mut CompletedSetup,
) -> Result<(), Failure> {
    if plan.starters.is_empty() {
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|error| fail!(Io, "no temporary folder: {error}"))?;
    starter::unpack_all(folder.path())
        .map_err(|error| Failure::io("writing", folder.path(), &error))?;
    for (name, left_by_installer) in &plan.starters {
        let source = left_by_installer
            .clone()
            .unwrap_or_else(|| folder.path().join(name));
        let is_unpacked = left_by_installer.is_none();
        let recorded = is_unpacked.then(|| format!("local:{name}").parse().ok());
        let options = Options {
            // Record `local:<name>` instead of the path of the temporary folder.
            provenance: recorded.flatten(),
            strict: plan.strict,
            ..Options::default()
        };
        match add_folder(vault, &source, &options) {
            Ok(_) => setup.added.push(name.clone()),
            Err(error) => {
                let text = format!("{name} was not added: {error}");
                context.ui.warn(Warning::new("not_added", text));
                // As in `adopt_skills`: if the vault cannot be written, every other skill fails too.
                if matches!(error, AdmitError::Vault(_)) {
                    break;
                }
            }
        }
    }
    let added = &setup.added;
    if !added.is_empty() {
        let line = format!("{TICK} added {}", added.join(", "));
        context.ui.must_see(line);
        let remove = format!("remove {}", added.join(" "));
        setup.undo.push(context.own_command(true, remove));
    }
    Ok(())
}

fn write_tags(vault: &Vault, plan: &SetupPlan) -> Result<(), Failure> {
    if plan.tags.is_empty() {
        return Ok(());
    }
    let tags = toml::Value::from(plan.tags.clone());
    let profile = |agent: &AgentId| {
        format!("[[profile]]\nname = \"{agent}\"\nagent = \"{agent}\"\ninclude_tags = {tags}\n\n")
    };
    let text: String = plan.agents.iter().map(profile).collect();
    // Approve the file at once, because the user has just chosen these tags.
    let written = approve::write_approved(vault, &AuthoredFile::Profiles, text.as_bytes());
    written.map_err(|error| match error {
        ApproveError::Vault(error) => error.into(),
        error => fail!(ProfilesInvalid, "profiles.toml: {error}"),
    })
}
