//! `vault mcp install` and `uninstall`: add this vault's MCP server to the settings files of coding
//! agents, and remove it. An *entry* is the part of such a file that tells the agent how to start
//! one MCP server.
//!
//! The new texts of all files are computed before the first one is written, so a file that cannot
//! be parsed stops the command before it changes anything. The first install keeps a copy of each
//! file beside it, from which `uninstall` restores the original.

use std::{
    cell::OnceCell,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::places::{AGENTS, AgentSettings, ServerCommand, SettingsFolders, starts_vault};
use crate::{
    context::Context,
    errors::{Failure, Place},
    mcp_config::EditError,
    output::{BOLD, DIM, HINT, Report, TICK, clean, join, nearest_name, paint},
    tasks::agent_writes,
};

/// The largest settings file that is read, in bytes.
const MAX_BYTES: u64 = 32 << 20;
/// The suffix of the copy that is kept of a settings file as it was before the install.
const BACKUP_SUFFIX: &str = "before-vault";

#[derive(Args, Debug)]
pub struct Arguments {
    /// An agent; repeatable
    #[arg(long = "agent", value_name = "AGENT", required = true)]
    agents: Vec<String>,
    #[arg(
        help = "The name of the server in the agent's settings",
        long,
        value_name = "NAME",
        default_value = "vault"
    )]
    name: String,
    #[arg(
        help = "Use the agent's settings file in this project instead of your own",
        long
    )]
    project: bool,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
}

/// The arguments of `vault mcp install`.
#[derive(Args, Debug)]
pub struct InstallArguments {
    #[command(flatten)]
    common: Arguments,
    /// Sign the agents' changes at once (`sign`), or keep them until you accept them with
    /// `vault drafts` (`draft`) [default: ask on a terminal, unless your settings have `mcp_writes`]
    #[arg(long, value_name = "MODE", value_parser = ["draft", "sign"])]
    writes: Option<String>,
}

/// What the command does to the entry in one settings file.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "McpChange")]
enum Outcome {
    Added,
    Updated,
    Unchanged,
    Removed,
    Absent,
}

/// A settings file of an agent, with the entry of the server.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "McpRegistration")]
pub struct FileChange {
    /// The id of the agent.
    agent: &'static str,
    /// The name of the agent for people.
    #[serde(skip)]
    label: &'static str,
    /// Path of the settings file.
    file: PathBuf,
    /// The current text; `None` if the file does not exist.
    #[serde(skip)]
    before: Option<String>,
    /// The new text; `None` if the file is to be removed.
    #[serde(skip)]
    after: Option<String>,
    /// The name of the server in the file.
    name: String,
    /// The entry, in the form of the agent; null if there was none to remove.
    entry: Value,
    /// The outcome for the entry.
    #[serde(rename = "change")]
    outcome: Outcome,
    /// Whether the file was written.
    written: bool,
}

/// Adds the entry of vault's MCP server to the settings files of the given agents, or updates it.
/// With `--dry-run` it only shows the entries. Fails if another server has the entry's name.
pub fn install_server(context: &Context, given: &InstallArguments) -> Result<Report, Failure> {
    let arguments = &given.common;
    let (server, name) = (server_command(context, arguments.project)?, &arguments.name);
    // The user's answer to what becomes of the agents' changes. It is asked for once, by the first
    // agent whose file has no answer yet.
    let answer = OnceCell::new();
    let changes = plan_changes(context, arguments, |known, file, text| {
        let failed = |error: EditError| unreadable_settings(known, file, &error);
        // A file that does not exist yet is edited like an empty one.
        let old = text.as_deref().unwrap_or_default();
        let present = known
            .format
            .find_entry(old, known.path, name)
            .map_err(failed)?;
        // Only an entry that starts vault is replaced. A server of the user with this name stays.
        if let Some(other) = present
            .as_ref()
            .filter(|entry| !starts_vault(entry, &server.command))
        {
            let (label, other) = (known.label, clean(&other.to_string(), 200));
            return Err(fail!(
                McpNameTaken,
                "{label} has another server named `{name}`: {other}"
            )
            .at(place_in_file(file, None))
            .hint("--name <other> registers this one beside it"));
        }
        // An entry that exists already keeps its choice between drafts and signed changes, unless
        // `--writes` gives another one.
        let kept = present.as_ref().and_then(find_writes_setting);
        let writes = match (&given.writes, kept) {
            (None, Some(kept)) => Some(kept.to_owned()),
            (Some(writes), _) => Some(writes.clone()),
            (None, None) => {
                if answer.get().is_none() {
                    let _first = answer.set(choose_writes(context, given)?);
                }
                answer.get().cloned().flatten()
            }
        };
        let mut server = server.clone();
        let writes = writes.map(|writes| (agent_writes::VARIABLE.to_owned(), writes));
        server.env.extend(writes);
        let entry = known.server_entry(&server);
        let after = known
            .format
            .put_entry(old, known.path, name, &entry)
            .map_err(failed)?;
        let outcome = match present {
            None => Outcome::Added,
            Some(present) if present == entry => Outcome::Unchanged,
            Some(_) => Outcome::Updated,
        };
        Ok((Some(after), entry, outcome))
    })?;
    if !arguments.dry_run {
        for change in &changes {
            // The backup is made only when the entry is new. Later the file has the entry already,
            // and would overwrite the copy of the original.
            if let (Outcome::Added, Some(before)) = (change.outcome, &change.before) {
                replace_file(&backup_of(&change.file), before, Some(&change.file))?;
            }
            write_change(change)?;
        }
    }
    Ok(report_changes(arguments, changes))
}

/// Returns the value of [`agent_writes::VARIABLE`] in an entry. Agents put environment variables
/// under different keys, so every object in the entry is searched.
fn find_writes_setting(entry: &Value) -> Option<&str> {
    match entry {
        Value::Object(members) => members
            .get(agent_writes::VARIABLE)
            .and_then(Value::as_str)
            .or_else(|| members.values().find_map(find_writes_setting)),
        _ => None,
    }
}

/// Returns the value of `--writes`, or on a terminal the user's answer: whether agents' changes are
/// kept as drafts or signed at once. `None` writes nothing into the entry, so that vault's own
/// setting decides.
fn choose_writes(context: &Context, given: &InstallArguments) -> Result<Option<String>, Failure> {
    let ui = &context.ui;
    if given.writes.is_some() || given.common.dry_run || !ui.may_ask() || ui.is_yes() {
        return Ok(given.writes.clone());
    }
    // A value in the entry would override the setting that the user has made for all agents.
    if agent_writes::is_chosen(context)? {
        return Ok(None);
    }
    let writes = agent_writes::ask_writes(context)?;
    Ok((writes != "sign").then(|| writes.to_owned()))
}

/// Removes the entry of vault's MCP server from the settings files of the given agents. Files
/// without the entry, or in which its name belongs to another server, are left as they are.
pub fn uninstall_server(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let (server, name) = (server_command(context, arguments.project)?, &arguments.name);
    let changes = plan_changes(context, arguments, |known, file, text| {
        let Some(old) = text else {
            return Ok((None, Value::Null, Outcome::Absent));
        };
        let failed = |error: EditError| unreadable_settings(known, file, &error);
        let (format, path) = (known.format, known.path);
        let present = format.find_entry(old, path, name).map_err(failed)?;
        // An entry of this name that starts another program belongs to the user and stays.
        let Some(entry) = present.filter(|entry| starts_vault(entry, &server.command)) else {
            return Ok((Some(old.clone()), Value::Null, Outcome::Absent));
        };
        // The file is the backup with the entry added if nothing else changed it since the install.
        // Then the backup is restored byte for byte.
        let is_old = |original: &str| {
            let with_entry = format.put_entry(original, path, name, &entry);
            with_entry.is_ok_and(|text| text == *old)
        };
        let after = match read_settings(&backup_of(file))? {
            Some(backup) if is_old(&backup) => Some(backup),
            None if is_old("") => None,
            _ => Some(format.remove_entry(old, path, name).map_err(failed)?),
        };
        Ok((after, entry, Outcome::Removed))
    })?;
    if !arguments.dry_run {
        let is_removed = |change: &&FileChange| change.outcome == Outcome::Removed;
        for change in changes.iter().filter(is_removed) {
            write_change(change)?;
            // The backup is no longer needed.
            let _absent = std::fs::remove_file(backup_of(&change.file));
        }
    }
    Ok(report_changes(arguments, changes))
}

/// Returns the command that the entry starts. In a project's file, which several people share, the
/// program is `vault`. In a user's file it is the path of this program, because desktop
/// applications may not have the `PATH` of a shell.
fn server_command(context: &Context, project: bool) -> Result<ServerCommand, Failure> {
    let mut args = vec!["mcp".to_owned()];
    let mut env = Vec::new();
    if project {
        return Ok(ServerCommand {
            command: "vault".to_owned(),
            args,
            env,
        });
    }
    let program =
        std::env::current_exe().map_err(|error| Failure::io("finding", "vault", &error))?;
    let settings = context.settings()?;
    // The agent starts the server without this shell's flags and variables, so the entry names the
    // vault if it is not the default one.
    if context.global.vault.is_some() || settings.text("VAULT_STORAGE_PATH").is_some() {
        let root = context.vault_paths()?.root;
        args.extend(["--vault".to_owned(), root.display().to_string()]);
    }
    let default = context.process.home().map(|home| home.join(".config"));
    // The trust folder (the user's keys and pins) lies below `XDG_CONFIG_HOME`. A server with
    // another value would find neither.
    let config = context.process.variable("XDG_CONFIG_HOME");
    if let Some(config) = config.filter(|config| default.as_deref() != Some(Path::new(config))) {
        env.push(("XDG_CONFIG_HOME".to_owned(), config.to_owned()));
    }
    Ok(ServerCommand {
        command: program.display().to_string(),
        args,
        env,
    })
}

/// The new text of a settings file (`None` removes the file), the entry, and the outcome for the
/// entry.
type PlannedEdit = (Option<String>, Value, Outcome);

/// Finds the settings file of each agent that the arguments name, and calls `edit` with its current
/// text, which is `None` if the file does not exist. Writes nothing.
fn plan_changes(
    context: &Context,
    arguments: &Arguments,
    edit: impl Fn(&'static AgentSettings, &Path, &Option<String>) -> Result<PlannedEdit, Failure>,
) -> Result<Vec<FileChange>, Failure> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if arguments.name.is_empty()
        || arguments.name.len() > 64
        || !arguments.name.chars().all(is_name_char)
    {
        return Err(fail!(
            NameInvalid,
            "a server's name has letters, digits, hyphens and underscores, at most 64"
        ));
    }
    let machine = context.process.describe_machine(None).ok_or_else(|| {
        fail!(
            NoHome,
            "there is no home folder in which agents keep their settings"
        )
        .hint("set HOME")
    })?;
    let folders = SettingsFolders::new(machine);
    let project = std::env::current_dir().map_err(|error| Failure::io("finding", ".", &error))?;
    let mut changes: Vec<FileChange> = Vec::new();
    for word in &arguments.agents {
        let settings = find_agent(word, &folders)?;
        // An agent may be named twice, or by two names. A second edit of its file would start from
        // the old text and lose the first.
        if changes.iter().any(|change| change.agent == settings.id) {
            continue;
        }
        let label = settings.label;
        let file = if arguments.project {
            settings.project_file(&project).ok_or_else(|| {
                fail!(McpNoProjectFile, "{label} reads no settings of a project")
                    .hint("leave --project out")
            })?
        } else if settings.installed_mark(&folders).is_some() {
            settings.user_file(&folders)
        } else {
            let mark = settings.mark_name();
            return Err(fail!(
                AgentNotFound,
                "{label} is not on this machine: there is no {mark}"
            )
            .hint("vault agents shows the agents of this machine"));
        };
        // Edit the target of a symlink, so that links made by dotfile managers stay.
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        let before = read_settings(&file)?;
        let (after, entry, outcome) = edit(settings, &file, &before)?;
        changes.push(FileChange {
            agent: settings.id,
            label,
            file,
            written: !arguments.dry_run && before != after,
            before,
            after,
            name: arguments.name.clone(),
            entry,
            outcome,
        });
    }
    Ok(changes)
}

/// Finds an agent by its id or another of its names. Fails with a suggestion if there is no such
/// agent, or if vault does not know its settings file.
fn find_agent(word: &str, folders: &SettingsFolders) -> Result<&'static AgentSettings, Failure> {
    // `agents::by_name` also knows the names that other tools use for an agent.
    let agent = vault_library::agents::by_name(word);
    let id = agent.map_or(word, |agent| agent.id.as_str());
    if let Some(known) = AGENTS
        .iter()
        .find(|known| known.id == word || known.id == id)
    {
        return Ok(known);
    }
    if let Some(agent) = agent {
        let name = &agent.display_name;
        return Err(fail!(
            AgentUnsupported,
            "vault does not know where {name} keeps its MCP servers"
        )
        .hint("add a server with the command `vault` and the argument `mcp` to its settings"));
    }
    let ids = || AGENTS.iter().map(|known| known.id);
    let here = AGENTS
        .iter()
        .filter(|known| known.installed_mark(folders).is_some());
    let here = join(here.map(|known| known.id));
    let hint = match nearest_name(word, ids()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if here.is_empty() => format!("known: {}", join(ids())),
        None => format!("on this machine: {here}"),
    };
    Err(fail!(AgentUnknown, "there is no agent `{}`", clean(word, 60)).hint(hint))
}

fn place_in_file(file: &Path, line: Option<u32>) -> Place {
    Place {
        path: file.display().to_string(),
        line,
        column: None,
    }
}

fn unreadable_settings(known: &AgentSettings, file: &Path, error: &EditError) -> Failure {
    let (line, reason) = match error {
        EditError::Syntax { line, reason } => (Some(*line), reason.clone()),
        other => (None, other.to_string()),
    };
    let (label, reason) = (known.label, clean(&reason, 300));
    fail!(
        McpConfigUnreadable,
        "the settings of {label} are left as they are: {reason}"
    )
    .at(place_in_file(file, line))
    .hint("fix the file, or add the entry by hand")
}

/// Reads a settings file; `None` if it does not exist. Fails if it is not a regular file, is larger
/// than [`MAX_BYTES`], or is not UTF-8.
fn read_settings(file: &Path) -> Result<Option<String>, Failure> {
    let failed = |error: std::io::Error| Failure::io("reading", file, &error);
    let file_text = file.display();
    let opened = match std::fs::File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    // The opened file is checked and not the path, because another file could take the path after
    // the check.
    if !opened.metadata().map_err(failed)?.is_file() {
        return Err(fail!(NotAFile, "{file_text} is not a regular file"));
    }
    let mut bytes = Vec::new();
    opened
        // One byte more than the limit tells a file that is too large from one that just fits.
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail!(
            McpConfigUnreadable,
            "{file_text} is larger than 32 MiB"
        ));
    }
    let text = String::from_utf8(bytes);
    text.map(Some)
        .map_err(|_| fail!(McpConfigUnreadable, "{file_text} is not UTF-8"))
}

fn backup_of(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{name}.{BACKUP_SUFFIX}"))
}

/// Writes the new text of a settings file, or removes the file. Fails if the file changed after it
/// was read.
fn write_change(change: &FileChange) -> Result<(), Failure> {
    if change.before == change.after {
        return Ok(());
    }
    // The agent may have written the file in the meantime. Its changes must not be lost.
    if read_settings(&change.file)? != change.before {
        return Err(fail!(
            McpConfigChanged,
            "{} changed in the meantime",
            change.file.display()
        )
        .hint("try again; close the agent if it happens again"));
    }
    match &change.after {
        Some(after) => replace_file(&change.file, after, Some(&change.file)),
        None => std::fs::remove_file(&change.file)
            .map_err(|error| Failure::io("removing", &change.file, &error)),
    }
}

/// Replaces a file atomically. The new file gets the permissions of the file `like`, or 0600 if
/// there is none.
fn replace_file(file: &Path, text: &str, like: Option<&Path>) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mode = like.and_then(|like| Some(like.metadata().ok()?.permissions().mode() & 0o777));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        // Settings may hold tokens, so the permissions are set before the file gets its final name.
        let permissions = std::fs::Permissions::from_mode(mode.unwrap_or(0o600));
        new.as_file().set_permissions(permissions)?;
        // The bytes are on disk before the rename, so that a crash cannot leave an empty file.
        new.as_file().sync_all()?;
        new.persist(file)?;
        Ok(())
    };
    write().map_err(|error| Failure::io("writing", file, &error))
}

fn report_changes(arguments: &Arguments, changes: Vec<FileChange>) -> Report {
    let mut lines = Vec::new();
    for change in &changes {
        let (mark, text) = match (change.outcome, arguments.dry_run) {
            (Outcome::Unchanged, _) => (paint(DIM, "="), "is registered already"),
            (Outcome::Absent, _) => (paint(DIM, "="), "was not registered"),
            (Outcome::Removed, false) => (TICK.to_owned(), "no longer starts vault"),
            (Outcome::Removed, true) => (paint(DIM, "-"), "would no longer start vault"),
            (_, false) => (
                TICK.to_owned(),
                "has the vault MCP server now; restart it to use it",
            ),
            (_, true) => {
                let entry = clean(&change.entry.to_string(), 400);
                (paint(DIM, "+"), &*format!("would start {entry}"))
            }
        };
        let (label, file) = (change.label, change.file.display());
        lines.push(format!(
            "{mark} {BOLD}{label}{BOLD:#} {text}  {DIM}{file}{DIM:#}"
        ));
    }
    let added = changes
        .iter()
        .filter(|change| change.outcome == Outcome::Added);
    let agents: Vec<_> = added
        .map(|change| format!("--agent {}", change.agent))
        .collect();
    if !arguments.dry_run && !agents.is_empty() {
        let agents = agents.join(" ");
        lines.push(format!("{HINT}undo:{HINT:#} vault mcp uninstall {agents}"));
    }
    Report::view(changes, lines.join("\n"))
}
