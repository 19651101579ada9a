//! The command `vault`: admit, sign, publish, link, pull and serve skills.
//!
//! This file starts and ends the process. Each command is a file `commands/<group>/<command>.rs`.

// First, since its macro `fail!` is in scope only below it.
#[macro_use]
mod errors;

mod cli;
mod commands;
mod context;
mod flags;
mod habits;
#[cfg(test)]
mod json_page_tests;
mod lookup;
mod mcp_config;
mod output;
mod passphrases;
#[cfg(test)]
mod printed_commands;
mod process;
mod server;
mod service;
mod settings;
mod tasks;
mod text;

use std::{ffi::OsString, process::ExitCode};

use clap::error::ErrorKind;
use vault_format::credentials::hide_credentials;
use vault_library::agents;

use crate::{
    cli::Cli,
    commands::Command,
    context::Context,
    errors::{Exit, Failure},
    flags::{ColourChoice, Global},
    output::{Report, Ui, clean},
    process::Process,
    service::step_up::ask_for_scope,
    settings::{Settings, layers::user_file},
};

fn main() -> ExitCode {
    output::set_command_list(cli::command_names);
    let process = Process::read();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if is_bare_local(&arguments, &process) {
        // Agents start `vault` without arguments, as an MCP server on standard input and output.
        let cli = cli::parse_arguments(&["vault", "mcp"].map(OsString::from));
        if let Ok(cli) = cli {
            return ExitCode::from(run_command(cli, process).code());
        }
    }
    let exit = match cli::parse_arguments(&arguments) {
        Ok(cli) => run_command(cli, process),
        Err(error) => print_usage(&error, &arguments, &process),
    };
    ExitCode::from(exit.code())
}

/// Returns whether to act as an MCP server: `vault` was started without arguments, standard input
/// is not a terminal, and the settings name the local mode.
fn is_bare_local(arguments: &[OsString], process: &Process) -> bool {
    if arguments.len() != 1 || process.stdin_is_terminal {
        return false;
    }
    Settings::load(process, user_file(process).as_deref())
        .is_ok_and(|settings| settings.text("VAULT_MODE") == Some("local"))
}

fn run_command(mut cli: Cli, process: Process) -> Exit {
    // An option of the command, such as `--format json`, may request JSON output too.
    cli.global.json |= cli.command.wants_json();
    let ui = Ui::new(&cli.global, &process);
    let context = Context::new(process, cli.global, ui, cli::full_command);
    end_abandoned_trials(&context);
    let named = if cli.command.needs_vault_folder() {
        context.require_named_vault()
    } else {
        Ok(())
    };
    let done = named.and_then(|()| cli.command.run(&context));
    let done = match done {
        Err(failure) => run_with_scope(&cli.command, &context, failure),
        done => done,
    };
    match done {
        Ok(report) => {
            context.warn_about_project();
            context.ui.print_report(&report)
        }
        Err(failure) => context.ui.print_failure(&failure),
    }
}

/// Ends the trials of `vault try` whose commands were killed.
fn end_abandoned_trials(context: &Context) {
    let Some(config) = context.process.config_folder() else {
        return;
    };
    for link in agents::end_abandoned_trials(&config) {
        let link = clean(&context.process.short_path(&link), 200);
        let note = format!("{link} was removed: a `vault try` that was killed had left it");
        context.ui.note(note);
    }
}

/// Handles the failure of a command. If its sign-in lacks a scope, asks the user for the scope in
/// the browser, and runs the command again. Otherwise returns the failure.
fn run_with_scope(
    command: &Command,
    context: &Context,
    failure: Failure,
) -> Result<Report, Failure> {
    let Some(missing) = failure.wanted_scope() else {
        return Err(failure);
    };
    if context.block_on(ask_for_scope(context, missing))? {
        // Run it again only once, or a service that keeps refusing would ask the user forever.
        context.ui.begin_again();
        command.run(context)
    } else {
        Err(failure)
    }
}

/// Prints the help, version or usage error that clap returned, and returns the exit code.
fn print_usage(error: &clap::Error, arguments: &[OsString], process: &Process) -> Exit {
    // Arguments after `--` belong to another program, such as a skill's action.
    let before_dashes = || arguments.iter().take_while(|argument| *argument != "--");
    let global = Global {
        // Parsing failed, so search the arguments for the flags that decide the output format.
        json: before_dashes().any(|argument| argument == "--json"),
        color: if before_dashes().any(|argument| argument == "--color=never") {
            ColourChoice::Never
        } else {
            ColourChoice::Auto
        },
        ..Global::default()
    };
    let ui = Ui::new(&global, process);
    if let Some(command) = habit_command(error.kind(), arguments) {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or("wrong usage");
        let message = message.trim_start_matches("error: ");
        return ui.print_failure(&fail!(Usage, "{message}").hint(command));
    }
    // The text quotes arguments, such as an address with a password.
    let styled = hide_credentials(&error.render().ansi().to_string());
    match error.kind() {
        // Requested help and version are results and go to standard output.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            ui.print_report(&Report::text(styled.trim_end()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ui.must_see(cli::overview_text());
            Exit::Usage
        }
        _ if global.json => {
            let text = error.render().to_string();
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let message = lines
                .next()
                .unwrap_or("wrong usage")
                .trim_start_matches("error: ");
            let hint = lines.find_map(|line| line.strip_prefix("tip: "));
            ui.print_failure(&fail!(Usage, "{message}").hint_if(hint))
        }
        _ => {
            ui.must_see(styled.trim_end());
            Exit::Usage
        }
    }
}

/// Returns the command to suggest if the arguments are a command of another tool.
fn habit_command(kind: ErrorKind, arguments: &[OsString]) -> Option<String> {
    if !matches!(
        kind,
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    ) {
        return None;
    }
    let words = arguments.iter().skip(1).map(|word| word.to_str());
    let words: Option<Vec<&str>> = words.collect();
    habits::command_for(&words?)
}
