//! `vault mcp install` and `uninstall`: this vault's server in an agent's own configuration, and out of it again.
//!
//! All files are read and all changes worked out before the first is written. A file that cannot be read is left alone.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};

use super::places::{Folders, KNOWN, Known, Server, is_ours};
use crate::{
    context::Context,
    errors::{Failure, Place},
    mcp_config::EditError,
    output::{BOLD, DIM, GOOD, HINT, Report, clean, nearest, paint},
};

/// The largest configuration that is read.
const MOST: u64 = 32 << 20;
/// The ending of the copy that is made before a file is changed.
const BACKUP: &str = "before-vault";

#[derive(Args, Debug)]
pub struct Arguments {
    /// An agent; may be given several times
    #[arg(long = "agent", value_name = "AGENT", required = true)]
    agents: Vec<String>,
    #[arg(
        help = "The name of the server in the agent's list",
        long,
        value_name = "NAME",
        default_value = "vault"
    )]
    name: String,
    #[arg(
        help = "Use the agent's file in this project in place of the user's own",
        long
    )]
    project: bool,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// One file that is to be changed, and how.
struct Step {
    known: &'static Known,
    file: PathBuf,
    /// The file as it is; `None` where there is none.
    before: Option<String>,
    /// The file as it will be; `None` where it goes.
    after: Option<String>,
    entry: Value,
    word: &'static str,
}

/// Registers the server.
pub fn install(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let server = server(context, arguments.project)?;
    let steps = plan(context, arguments, |known, file, text| {
        let entry = known.entry(&server);
        let old = text.as_deref().unwrap_or_default();
        let there = known
            .format()
            .entry(old, known.path, &arguments.name)
            .map_err(|error| unreadable(known, file, &error))?;
        if let Some(there) = there
            .as_ref()
            .filter(|there| !is_ours(there, &server.command))
        {
            return Err(Failure::failed(
                "mcp_name_taken",
                format!(
                    "{} has another server named `{}`: {}",
                    known.label,
                    clean(&arguments.name, 60),
                    clean(&there.to_string(), 200)
                ),
            )
            .at(place(file, None))
            .hint("--name <other> registers this one beside it"));
        }
        let after = known
            .format()
            .put(old, known.path, &arguments.name, &entry)
            .map_err(|error| unreadable(known, file, &error))?;
        let word = match there {
            None => "added",
            Some(there) if there == entry => "unchanged",
            Some(_) => "updated",
        };
        Ok((Some(after), entry, word))
    })?;
    if !arguments.dry_run {
        for step in &steps {
            if step.word == "added" {
                back_up(step)?;
            }
            write(step)?;
        }
    }
    Ok(report(arguments, &steps))
}

/// Takes the server out again.
pub fn uninstall(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let server = server(context, arguments.project)?;
    let steps = plan(context, arguments, |known, file, text| {
        let Some(old) = text else {
            return Ok((None, Value::Null, "absent"));
        };
        let format = known.format();
        let failed = |error: &EditError| unreadable(known, file, error);
        let there = format
            .entry(old, known.path, &arguments.name)
            .map_err(|error| failed(&error))?;
        let Some(there) = there.filter(|there| is_ours(there, &server.command)) else {
            return Ok((Some(old.clone()), Value::Null, "absent"));
        };
        // Where nobody touched the file since, it becomes what it was, to the byte.
        let again = |original: &str| {
            format
                .put(original, known.path, &arguments.name, &there)
                .ok()
        };
        let backup = read(&backup_of(file))?;
        let after = match backup {
            Some(backup) if again(&backup).as_deref() == Some(old) => Some(backup),
            None if again("").as_deref() == Some(old) => None,
            _ => Some(
                format
                    .take(old, known.path, &arguments.name)
                    .map_err(|error| failed(&error))?,
            ),
        };
        Ok((after, there, "removed"))
    })?;
    if !arguments.dry_run {
        for step in steps.iter().filter(|step| step.word == "removed") {
            write(step)?;
            // Its work is done.
            let _absent = std::fs::remove_file(backup_of(&step.file));
        }
    }
    Ok(report(arguments, &steps))
}

/// What is started, and with what. A file of the user names this very program: applications have no `PATH` of a shell.
fn server(context: &Context, project: bool) -> Result<Server, Failure> {
    let mut args = vec!["mcp".to_owned()];
    let mut env = Vec::new();
    if project {
        return Ok(Server {
            command: "vault".to_owned(),
            args,
            env,
        });
    }
    let program =
        std::env::current_exe().map_err(|error| Failure::io("finding", "vault", &error))?;
    let settings = context.settings()?;
    if context.global.vault.is_some() || settings.text("VAULT_STORAGE_PATH").is_some() {
        let root = context.paths()?.root;
        args.extend(["--vault".to_owned(), root.display().to_string()]);
    }
    let default = context.process.home().map(|home| home.join(".config"));
    if let Some(config) = context
        .process
        .variable("XDG_CONFIG_HOME")
        .filter(|config| default.as_deref() != Some(Path::new(config)))
    {
        env.push(("XDG_CONFIG_HOME".to_owned(), config.to_owned()));
    }
    Ok(Server {
        command: program.display().to_string(),
        args,
        env,
    })
}

type Change = (Option<String>, Value, &'static str);

fn plan(
    context: &Context,
    arguments: &Arguments,
    change: impl Fn(&'static Known, &Path, &Option<String>) -> Result<Change, Failure>,
) -> Result<Vec<Step>, Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if arguments.name.is_empty() || arguments.name.len() > 64 || !arguments.name.chars().all(good) {
        return Err(Failure::usage(
            "name_invalid",
            "a server's name has letters, digits, hyphens and underscores, at most 64",
        ));
    }
    let machine = context.process.machine(None).ok_or_else(|| {
        Failure::usage(
            "no_home",
            "there is no home folder in which agents keep their settings",
        )
        .hint("set HOME")
    })?;
    let folders = Folders::of(machine);
    let project = std::env::current_dir().map_err(|error| Failure::io("finding", ".", &error))?;
    let mut steps: Vec<Step> = Vec::new();
    for word in &arguments.agents {
        let known = find(word, &folders)?;
        if steps.iter().any(|step| step.known.id == known.id) {
            continue;
        }
        let file = if arguments.project {
            known.project_file(&project).ok_or_else(|| {
                Failure::usage(
                    "mcp_no_project_file",
                    format!("{} reads no file of a project", known.label),
                )
                .hint("leave --project out")
            })?
        } else {
            known.found(&folders).ok_or_else(|| {
                Failure::failed(
                    "agent_not_found",
                    format!(
                        "{} is not on this machine: {} is not there",
                        known.label,
                        known.sought()
                    ),
                )
                .hint("vault agents shows the agents of this machine")
            })?;
            known.file(&folders)
        };
        // A link, as keepers of dot files make them, stays one: what it points at is changed.
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        let before = read(&file)?;
        let (after, entry, word) = change(known, &file, &before)?;
        steps.push(Step {
            known,
            file,
            before,
            after,
            entry,
            word,
        });
    }
    Ok(steps)
}

fn find(word: &str, folders: &Folders) -> Result<&'static Known, Failure> {
    if let Some(known) = KNOWN.iter().find(|known| known.id == word) {
        return Ok(known);
    }
    if let Some(agent) = vault_library::agents::by_name(word) {
        if let Some(known) = KNOWN.iter().find(|known| known.id == agent.id.as_str()) {
            return Ok(known);
        }
        return Err(Failure::usage(
            "agent_unsupported",
            format!(
                "where {} keeps its MCP servers is not known here",
                agent.display_name
            ),
        )
        .hint("add a server with the command `vault` and the argument `mcp` to its settings"));
    }
    let failure = Failure::usage(
        "agent_unknown",
        format!("there is no agent `{}`", clean(word, 60)),
    );
    let here: Vec<&str> = KNOWN
        .iter()
        .filter(|known| known.found(folders).is_some())
        .map(|known| known.id)
        .collect();
    Err(match nearest(word, KNOWN.iter().map(|known| known.id)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None if here.is_empty() => {
            failure.hint(format!("known: {}", KNOWN.map(|known| known.id).join(", ")))
        }
        None => failure.hint(format!("on this machine: {}", here.join(", "))),
    })
}

fn place(file: &Path, line: Option<u32>) -> Place {
    Place {
        path: file.display().to_string(),
        line,
        column: None,
    }
}

fn unreadable(known: &Known, file: &Path, error: &EditError) -> Failure {
    let (line, reason) = match error {
        EditError::Syntax { line, reason } => (Some(*line), reason.clone()),
        other => (None, other.to_string()),
    };
    Failure::failed(
        "mcp_config_unreadable",
        format!(
            "the settings of {} are left as they are: {}",
            known.label,
            clean(&reason, 300)
        ),
    )
    .at(place(file, line))
    .hint("mend the file, or make the entry there by hand")
}

fn read(file: &Path) -> Result<Option<String>, Failure> {
    let opened = match std::fs::File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::io("reading", file, &error)),
    };
    let failed = |error: std::io::Error| Failure::io("reading", file, &error);
    if !opened.metadata().map_err(failed)?.is_file() {
        return Err(Failure::failed(
            "not_a_file",
            format!("{} is no plain file", file.display()),
        ));
    }
    let mut bytes = Vec::new();
    opened
        .take(MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MOST {
        return Err(Failure::failed(
            "mcp_config_unreadable",
            format!("{} is larger than 32 MiB", file.display()),
        ));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| {
        Failure::failed(
            "mcp_config_unreadable",
            format!("{} is not UTF-8", file.display()),
        )
    })
}

fn backup_of(file: &Path) -> PathBuf {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    file.with_file_name(format!("{}.{BACKUP}", name.unwrap_or_default()))
}

fn back_up(step: &Step) -> Result<(), Failure> {
    let Some(before) = &step.before else {
        return Ok(());
    };
    put(&backup_of(&step.file), before, Some(&step.file))
}

fn write(step: &Step) -> Result<(), Failure> {
    if step.before == step.after {
        return Ok(());
    }
    // The agent may be writing too: what was changed meanwhile is not written over.
    if read(&step.file)? != step.before {
        return Err(Failure::failed(
            "mcp_config_changed",
            format!("{} was changed meanwhile", step.file.display()),
        )
        .hint("try again; close the agent if it happens again"));
    }
    match &step.after {
        Some(after) => put(&step.file, after, Some(&step.file)),
        None => std::fs::remove_file(&step.file)
            .map_err(|error| Failure::io("removing", &step.file, &error)),
    }
}

/// Writes a file whole or not at all, with the permissions of another, else for the user alone.
fn put(file: &Path, text: &str, like: Option<&Path>) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mode = like.and_then(|like| Some(like.metadata().ok()?.permissions().mode() & 0o777));
        let mut aside = tempfile::NamedTempFile::new_in(folder)?;
        aside.write_all(text.as_bytes())?;
        aside
            .as_file()
            .set_permissions(std::fs::Permissions::from_mode(mode.unwrap_or(0o600)))?;
        aside.as_file().sync_all()?;
        aside.persist(file)?;
        Ok(())
    };
    write().map_err(|error| Failure::io("writing", file, &error))
}

fn report(arguments: &Arguments, steps: &[Step]) -> Report {
    let mut lines = Vec::new();
    for step in steps {
        let (mark, text) = match (step.word, arguments.dry_run) {
            ("unchanged", _) => (paint(DIM, "="), "is registered already".to_owned()),
            ("absent", _) => (paint(DIM, "="), "was not registered".to_owned()),
            ("removed", false) => (paint(GOOD, "✓"), "no longer starts vault".to_owned()),
            ("removed", true) => (paint(DIM, "-"), "would no longer start vault".to_owned()),
            (_, false) => (
                paint(GOOD, "✓"),
                "starts vault from its next start on".to_owned(),
            ),
            (_, true) => (
                paint(DIM, "+"),
                format!("would start {}", clean(&step.entry.to_string(), 400)),
            ),
        };
        lines.push(format!(
            "{mark} {} {text}  {}",
            paint(BOLD, step.known.label),
            paint(DIM, step.file.display())
        ));
    }
    let added: Vec<&str> = steps
        .iter()
        .filter(|step| step.word == "added")
        .map(|step| step.known.id)
        .collect();
    if !arguments.dry_run && !added.is_empty() {
        let agents: Vec<String> = added.iter().map(|id| format!("--agent {id}")).collect();
        lines.push(format!(
            "{} vault mcp uninstall {}",
            paint(HINT, "undo:"),
            agents.join(" ")
        ));
    }
    let data: Vec<Value> = steps
        .iter()
        .map(|step| {
            json!({
                "agent": step.known.id, "file": step.file, "name": arguments.name, "change": step.word,
                "entry": step.entry, "written": !arguments.dry_run && step.before != step.after,
            })
        })
        .collect();
    Report::new(data, lines.join("\n"))
}
