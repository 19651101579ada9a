//! The command `vault`: admit, sign, publish, link, pull, and serve.
//!
//! This file knows the order in which a process starts and ends; what a command does stands in `commands/<command>.rs`.

mod args;
mod client;
mod commands;
mod diff;
mod edit;
mod env;
mod error;
mod excerpt;
mod fetching;
mod findings;
mod lock;
mod serve;
mod settings;
mod starter;
mod ui;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::error::ErrorKind;
use vault_library::VaultPaths;

use crate::{
    args::{Cli, ColourChoice, Global},
    env::Process,
    error::{Exit, Failure},
    settings::Settings,
    ui::{Report, Ui},
};

/// What every command gets: the process, the flags, and where to print.
#[derive(Debug)]
pub struct Context {
    /// Variables and terminals.
    pub process: Process,
    /// The flags that every command takes.
    pub global: Global,
    /// The two streams.
    pub ui: Ui,
}

fn main() -> ExitCode {
    let process = Process::read();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if is_bare_local(&arguments, &process) {
        // An agent that was told to start `vault` and no more.
        let cli = args::parse(&["vault", "mcp"].map(OsString::from));
        if let Ok(cli) = cli {
            return ExitCode::from(run(cli, process).code());
        }
    }
    let exit = match args::parse(&arguments) {
        Ok(cli) => run(cli, process),
        Err(error) => usage(&error, &arguments, &process),
    };
    ExitCode::from(exit.code())
}

/// Whether this is `vault` without arguments in local mode with a program at the other end: then it speaks MCP.
fn is_bare_local(arguments: &[OsString], process: &Process) -> bool {
    if arguments.len() != 1 || process.stdin_is_terminal {
        return false;
    }
    Settings::load(process, user_file(process).as_deref())
        .is_ok_and(|settings| settings.text("VAULT_MODE") == Some("local"))
}

/// The user's own settings, when there are any: `config.toml` in the vault's folder where `VAULT_STORAGE_PATH` names one,
/// else the one in the configuration folder.
fn user_file(process: &Process) -> Option<PathBuf> {
    let beside = process
        .variable("VAULT_STORAGE_PATH")
        .map(|folder| expand(process, folder).join("config.toml"))
        .filter(|file| file.is_file());
    beside.or_else(|| {
        process
            .config_folder()
            .map(|folder| folder.join("config.toml"))
            .filter(|file| file.exists())
    })
}

/// A path out of a setting, where `~/` is the home folder: a file has no shell to expand it.
fn expand(process: &Process, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), process.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

fn run(mut cli: Cli, process: Process) -> Exit {
    cli.global.json |= cli.command.wants_json();
    let ui = Ui::new(&cli.global, &process);
    let context = Context {
        process,
        global: cli.global,
        ui,
    };
    match commands::run(&context, cli.command) {
        Ok(report) => context.ui.report(&report),
        Err(failure) => context.ui.fail(&failure),
    }
}

/// Help and version are results; everything else that clap says is wrong usage, in the envelope where `--json` stands.
fn usage(error: &clap::Error, arguments: &[OsString], process: &Process) -> Exit {
    let before_dashes = || arguments.iter().take_while(|argument| *argument != "--");
    let global = Global {
        json: before_dashes().any(|argument| argument == "--json"),
        color: if before_dashes().any(|argument| argument == "--color=never") {
            ColourChoice::Never
        } else {
            ColourChoice::Auto
        },
        ..Global::default()
    };
    let ui = Ui::new(&global, process);
    let styled = error.render().ansi().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            ui.report(&Report::text(styled.trim_end()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ui.must_see(styled.trim_end());
            Exit::Usage
        }
        _ if global.json => {
            let text = error.render().to_string();
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let message = lines
                .next()
                .unwrap_or("wrong usage")
                .trim_start_matches("error: ")
                .to_owned();
            let hint = lines
                .find_map(|line| line.strip_prefix("tip: "))
                .map(str::to_owned);
            let mut failure = Failure::usage("usage", message);
            failure.hint = hint;
            ui.fail(&failure)
        }
        _ => {
            ui.must_see(styled.trim_end());
            Exit::Usage
        }
    }
}

impl Context {
    /// The user's folder of keys, tokens and settings. Fails where there is neither `XDG_CONFIG_HOME` nor a home.
    pub fn config_folder(&self) -> Result<PathBuf, Failure> {
        self.process.config_folder().ok_or_else(|| {
            Failure::usage("no_home", "there is no home folder to keep keys in")
                .hint("set HOME or XDG_CONFIG_HOME")
        })
    }

    /// The settings of this run: flags over environment over the project's file over the user's own. A file that `--config`
    /// names stands in the place of both.
    pub fn settings(&self) -> Result<Settings, Failure> {
        if let Some(file) = &self.global.config {
            return Settings::load(&self.process, Some(file));
        }
        let project = std::env::current_dir()
            .ok()
            .and_then(|folder| settings::project_file(&self.process, &folder));
        let user = user_file(&self.process);
        Settings::layered(&self.process, user.as_deref(), project.as_deref())
    }

    /// Where the vault and its keys are.
    pub fn paths(&self, settings: &Settings) -> Result<VaultPaths, Failure> {
        let root = match (&self.global.vault, settings.text("VAULT_STORAGE_PATH")) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) => expand(&self.process, path),
            (None, None) => self
                .process
                .home()
                .ok_or_else(|| {
                    Failure::usage("no_home", "there is no home folder to keep the vault in")
                        .hint("set HOME, or name a folder with --vault")
                })?
                .join(".vault"),
        };
        let root =
            std::path::absolute(&root).map_err(|error| Failure::io("resolving", &root, &error))?;
        let mut paths = VaultPaths::new(root, self.config_folder()?);
        paths.index = settings
            .text("VAULT_DB_PATH")
            .map(|path| expand(&self.process, path));
        Ok(paths)
    }

    /// Runs something asynchronous to its end on this thread.
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                Failure::failed("io", format!("no event loop can be made: {error}"))
            })?;
        let result = runtime.block_on(work);
        // A thread may still wait for a line that nobody will type.
        runtime.shutdown_background();
        result
    }
}
