//! `vault skill ACTION NAME`: runs an action, a command that the skill declares. The skill's files
//! are verified first, signals are forwarded to the action's process, and its exit code becomes
//! that of vault.

use std::{ffi::OsString, os::unix::process::ExitStatusExt, path::PathBuf, process::ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use vault_format::name::{ActionName, SkillRef};
use vault_library::{
    Vault,
    run::{self, Environment, Run, RunError, Scope},
};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    habits,
    lookup::{parse_installed_name, suggest_name},
    output::{Report, clean, either, nearest_name},
};

/// Runs an action. `words` are the name of the action, the name of the skill, and the arguments of
/// the action. `scope` decides which environment variables it gets.
pub fn run(
    context: &Context,
    vault: Option<&Vault>,
    words: &[OsString],
    scope: Scope,
) -> Result<Report, Failure> {
    let word = |index: usize| words.get(index).and_then(|word| word.to_str());
    let action = word(0).unwrap_or_default();
    let Some(name) = word(1) else {
        if let Some(command) = habits::command_for(&["skill", action]) {
            return Err(no_subcommand(action).hint(command));
        }
        let failure = fail!(Usage, "`{}` of which skill?", clean(action, 32));
        return Err(
            match nearest_name(action, ["list", "search", "which"].into_iter()) {
                Some(near) => failure.hint(format!(
                    "did you mean `vault skill {near}`? An action needs the name of its skill"
                )),
                None => failure.hint("vault skill <action> <name>"),
            },
        );
    };
    let action: ActionName = action.parse().map_err(|_| {
        fail!(
            ActionNameInvalid,
            "`{}` cannot be the name of an action",
            clean(action, 32)
        )
        .hint("actions are lower-case words; options of vault stand before the action")
    })?;
    let (vault, name) = parse_installed_name(vault, name)?;
    // A leading `--` separates vault's arguments from the action's. Do not pass it on.
    let extra = words.get(2..).unwrap_or_default();
    let extra = match extra.first() {
        Some(first) if first == "--" => &extra[1..],
        _ => extra,
    };
    let environment = Environment {
        variables: context.process.environment().to_vec(),
        scope,
    };
    let project = super::project_here(vault)?;
    let prepared = run::prepare_run(vault, project.as_ref(), &name, &action, &environment);
    let mut prepared = prepared.map_err(|error| explain_refusal(vault, &action, &name, error))?;
    prepared.command.args(extra);
    check_prerequisites(context, &prepared, &format!("{action} of {name}"))?;
    // The action starts in a copy of the skill, which is deleted when the action ends. These
    // variables name the user's current folder and the folder for results.
    if let Ok(folder) = std::env::current_dir() {
        prepared.command.env("VAULT_CALLED_FROM", folder);
    }
    if let Some(folder) = output_folder(context)? {
        prepared.command.env("VAULT_OUTPUT", folder);
    }
    let status = context.block_on(async { Ok(run_and_forward_signals(&mut prepared).await?) })?;
    // Like a shell, report 128 + n for a process that signal n killed.
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok(Report::silent(Exit::Action(code)))
}

/// Returns the folder in which an action puts what must outlive it: `VAULT_OUTPUT` if it is set,
/// otherwise the current folder; `None` if the current folder was removed.
pub(super) fn output_folder(context: &Context) -> Result<Option<PathBuf>, Failure> {
    let Some(given) = context.process.variable("VAULT_OUTPUT") else {
        return Ok(std::env::current_dir().ok());
    };
    let folder = std::path::absolute(given).unwrap_or_else(|_| PathBuf::from(given));
    if folder.is_dir() {
        return Ok(Some(folder));
    }
    let shown = clean(&folder.display().to_string(), 200);
    Err(
        fail!(SettingInvalid, "VAULT_OUTPUT is not a folder: {shown}")
            .hint("create the folder, or unset VAULT_OUTPUT to use the current one"),
    )
}

/// Converts the error of an action that cannot run. If possible, the hint is the command that was
/// probably meant.
fn explain_refusal(
    vault: &Vault,
    action: &ActionName,
    name: &SkillRef,
    error: RunError,
) -> Failure {
    let habit = habits::command_for(&["skill", action.as_str(), &name.to_string()]);
    if let (Some(command), RunError::UnknownSkill(_) | RunError::UnknownAction { .. }) =
        (habit, &error)
    {
        return no_subcommand(action.as_str()).hint(command);
    }
    // People often write the skill first. Exchange the words only in the hint, because an action
    // must not run by a guess.
    let swapped = matches!(error, RunError::UnknownSkill(_))
        && action.as_str().parse().is_ok_and(|skill: SkillRef| {
            run::find_skill(vault, skill).is_ok_and(|found| found.is_some())
        });
    if swapped {
        fail!(
            Usage,
            "`{action}` is a skill, and the action stands before it"
        )
        .hint(format!("vault skill {name} {action}"))
    } else {
        suggest_name(vault, error)
    }
}

/// Creates the failure for a word that is neither a command of `vault skill` nor an action of the
/// skill.
fn no_subcommand(word: &str) -> Failure {
    fail!(Usage, "`vault skill` has no command `{}`", clean(word, 32))
}

/// Checks before the start of an action that there is a terminal, if the skill needs one, and that
/// every required variable is set. Does not look at the values.
fn check_prerequisites(context: &Context, prepared: &Run, what: &str) -> Result<(), Failure> {
    let process = &context.process;
    if prepared.requires_tty && !(process.stdin_is_terminal && process.stdout_is_terminal) {
        return Err(
            fail!(NoTty, "NoTtyError: {what} needs a terminal to ask on")
                .hint("run it from a terminal, without redirection"),
        );
    }
    let missing: Vec<_> = prepared
        .environment
        .iter()
        .filter(|declared| declared.required && process.variable(&declared.name).is_none())
        .collect();
    let Some(first) = missing.first() else {
        return Ok(());
    };
    let lines = missing
        .iter()
        .map(|declared| match &declared.description {
            Some(description) => format!("{}  {}", declared.name, clean(description, 200)),
            None => declared.name.clone(),
        })
        .collect::<Vec<_>>();
    let names: Vec<_> = missing.iter().map(|declared| &declared.name).collect();
    Err(fail!(
        EnvironmentMissing,
        "{what} needs {} that {} not set",
        either(missing.len() == 1, "a variable", "variables"),
        if missing.len() == 1 { "is" } else { "are" }
    )
    .details(lines)
    .data(serde_json::json!({ "missing": names }))
    .hint(format!("export {}=…", first.name)))
}

/// The signals that are forwarded: as this process receives them, and as they are sent to the
/// action.
const FORWARDED_SIGNALS: [(SignalKind, Signal); 6] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// Starts the action and waits for it to end, forwarding signals.
async fn run_and_forward_signals(prepared: &mut Run) -> Result<ExitStatus, run::RunError> {
    // Register the handlers before the action starts. Otherwise a signal could end this process and
    // leave the action running.
    let (sender, mut signals) = tokio::sync::mpsc::unbounded_channel();
    for (kind, passed) in FORWARDED_SIGNALS {
        let mut stream = signal(kind).map_err(|cause| prepared.start_error(cause))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(passed).is_ok() {}
        });
    }
    let command = std::mem::replace(&mut prepared.command, std::process::Command::new(""));
    let mut child = tokio::process::Command::from(command)
        .spawn()
        .map_err(|cause| prepared.start_error(cause))?;
    loop {
        tokio::select! {
            status = child.wait() => return status.map_err(|cause| prepared.start_error(cause)),
            Some(passed) = signals.recv() => {
                let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(pid) = pid.filter(|_| !came_from_terminal(passed)) {
                    // Ignore an error: the process may have just ended, and `wait` then returns its
                    // status.
                    let _ended = kill_process(pid, passed);
                }
            }
        }
    }
}

/// Returns whether the terminal has sent this signal to the action as well, so that it must not be
/// forwarded. A terminal sends the signals of its keys (`Ctrl-C`, `Ctrl-\`) to every process of its
/// foreground process group.
fn came_from_terminal(passed: Signal) -> bool {
    if passed != Signal::INT && passed != Signal::QUIT {
        return false;
    }
    let ours = rustix::process::getpgrp();
    [
        rustix::termios::tcgetpgrp(std::io::stdin()),
        rustix::termios::tcgetpgrp(std::io::stderr()),
    ]
    .into_iter()
    .any(|group| group == Ok(ours))
}
