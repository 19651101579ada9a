//! The arguments of `vault`: every command, its flags, and the help in groups.

use std::{ffi::OsString, ops::Deref, path::PathBuf};

use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    builder::{
        Resettable,
        styling::{AnsiColor, Styles},
    },
};

use crate::{
    commands::{
        add, agents, audit, audit_log, audit_repo, clients, cloud, completions, config, demo,
        devices, doctor, enable, export, fmt, history, install, key, link, lint, man, mcp, new,
        operator, policy, remove, resolve, serve, setup, show, skill, status, sync, sync_profiles,
        transform, update, users, verify, version,
    },
    ui::{BOLD, paint},
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The groups of the top-level help, in the order in which a new user meets them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["setup", "demo", "add", "remove", "install"]),
    (
        "Keep current",
        &["outdated", "update", "history", "rollback"],
    ),
    ("Find and run", &["skill", "show", "resolve"]),
    (
        "Agents",
        &["agents", "sync-profiles", "enable", "disable", "transform"],
    ),
    ("Write", &["new", "lint", "fmt", "export"]),
    ("Share", &["cloud", "sync", "status", "link", "devices"]),
    ("Administer", &["users", "clients", "audit-log"]),
    ("Trust", &["audit", "audit-repo", "verify", "key", "policy"]),
    ("Server", &["serve", "mcp", "operator"]),
    (
        "Maintenance",
        &["doctor", "config", "version", "completions", "man"],
    ),
];

/// Keep agent skills that were checked and signed, and hand them to people, agents and machines unchanged.
#[derive(Debug, Parser)]
#[command(
    name = "vault",
    version,
    styles = STYLES,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    infer_long_args = false,
    help_template = "{about}\n\n{usage-heading} {usage}{after-help}\n\nGlobal options:\n{options}"
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Global {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print the result and errors only
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Say more about what happens
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colour: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColourChoice,
    /// Never ask a question
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Answer yes to every question
    #[arg(long, short, global = true)]
    pub yes: bool,
    /// Refuse to use the network
    #[arg(long, global = true)]
    pub offline: bool,
    #[arg(
        help = "The vault's folder [default: ~/.vault, or VAULT_STORAGE_PATH]",
        long,
        global = true,
        value_name = "PATH"
    )]
    pub vault: Option<PathBuf>,
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Admit a skill: check it, sign it, keep it
    Add(Later<add::Arguments>),
    /// Take skills out of the vault
    Remove(Later<remove::Arguments>),
    /// Show the coding agents of this machine and where they read skills
    Agents(Later<agents::Arguments>),
    /// Link the vault's skills into the agents' folders
    SyncProfiles(Later<sync_profiles::Arguments>),
    /// Show a skill to agents again
    Enable(Later<enable::EnableArguments>),
    /// Hide a skill from agents and keep it in the vault
    Disable(Later<enable::DisableArguments>),
    /// Change a skill for one agent, on top of what was signed
    Transform(Later<transform::Arguments>),
    /// Look for everything that can be wrong here, and say what mends it
    Doctor(Later<doctor::Arguments>),
    /// Install the skills of this project's vault.lock
    Install(Later<install::Arguments>),
    /// Say which skills have changed at their sources
    Outdated(Later<update::OutdatedArguments>),
    /// Take in what has changed at the sources
    Update(Later<update::Arguments>),
    /// Show the stored versions of a skill
    History(Later<history::Arguments>),
    /// Go back to an earlier version of a skill
    Rollback(Later<history::RollbackArguments>),
    /// Find the agents and skills of this machine and take them in, step by step
    Setup(Later<setup::Arguments>),
    /// List, search, inspect and run skills
    Skill(Later<skill::Arguments>),
    /// Connect to a service, install from it, roll back
    Cloud(Later<cloud::Arguments>),
    /// Publish this vault's skills to the connected service
    Sync(Later<sync::Arguments>),
    /// Show the connected service, counts and the last push
    Status(Later<status::Arguments>),
    /// Enrol this machine in a vault and pin its key
    Link(Later<link::Arguments>),
    /// Admit, deny and revoke machines
    Devices(Later<devices::Arguments>),
    /// Show, invite, change and remove the people of a vault
    Users(Later<users::Arguments>),
    /// Show and end the apps that people connected
    Clients(Later<clients::Arguments>),
    /// Show what was done and refused on a vault
    AuditLog(Later<audit_log::Arguments>),
    /// Serve this vault's tools to an agent on standard input and output
    Mcp(Later<mcp::Arguments>),
    /// Run the service
    Serve(Later<serve::Arguments>),
    /// Make and look at namespaces of a service
    Operator(Later<operator::Arguments>),
    /// Show, rotate and recover this vault's keys
    Key(Later<key::Arguments>),
    /// Check the policy, and see what it grants to whom
    Policy(Later<policy::Arguments>),
    /// Show everything that is known of a skill, installed or not
    Show(Later<show::Arguments>),
    /// Tell whether skills, archives and sites are exactly what was signed
    Verify(Later<verify::Arguments>),
    /// Make a folder that is a skill
    New(Later<new::Arguments>),
    /// Judge one skill: what the gate finds, where, and what mends it
    Audit(Later<audit::Arguments>),
    /// Judge every skill of a repository, for CI
    AuditRepo(Later<audit_repo::Arguments>),
    /// Look at skills that are being written
    Lint(Later<lint::Arguments>),
    /// Mend the commonest slips of a SKILL.md
    Fmt(Later<fmt::Arguments>),
    /// Write skills as archives, or as a site for other tools
    Export(Later<export::Arguments>),
    /// Show the settings and who set them
    Config(Later<config::Arguments>),
    /// Print what a caller may use, as JSON
    Resolve(Later<resolve::Arguments>),
    /// See the whole of it work in a temporary folder
    Demo(Later<demo::Arguments>),
    /// Print a completion script for a shell
    Completions(Later<completions::Arguments>),
    /// Print the manual page, or write all pages to a folder
    Man(Later<man::Arguments>),
    /// Print the version
    Version(Later<version::Arguments>),
}

/// The arguments of a command, which clap hears of when that command is given or shown: to describe those of all the others
/// takes longer than many a command.
#[derive(Clone, Debug)]
pub struct Later<T>(Box<T>);

impl<T> Later<T> {
    /// The arguments, to take apart.
    pub fn into_inner(self) -> T {
        *self.0
    }
}

impl<T> Deref for Later<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Later<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Box::new).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches_mut(matches).map(Box::new).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Later<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| {
            // What the list of commands says stands; a type's own docs are for its readers.
            let about = Resettable::from(command.get_about().cloned());
            let long = Resettable::from(command.get_long_about().cloned());
            // Without its arguments a command says which is missing; with a subcommand missing it lists them.
            T::augment_args(command)
                .about(about)
                .long_about(long)
                .arg_required_else_help(false)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        T::augment_args_for_update(command)
    }
}

impl Command {
    /// Whether the command was asked for the JSON envelope by a flag of its own.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Audit(arguments) => arguments.wants_json(),
            Self::AuditRepo(arguments) => arguments.wants_json(),
            _ => false,
        }
    }
}

/// The whole command line as clap knows it, with the grouped help.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        if !groups.is_empty() {
            groups.push('\n');
        }
        groups.push_str(&format!(
            "{}\n",
            paint(
                AnsiColor::Green.on_default().bold(),
                format_args!("{heading}:")
            )
        ));
        for name in *names {
            let about = command
                .find_subcommand(name)
                .and_then(|sub| sub.get_about().map(ToString::to_string))
                .unwrap_or_default();
            groups.push_str(&format!(
                "  {}{}{about}\n",
                paint(AnsiColor::Cyan.on_default().bold(), name),
                " ".repeat(15 - name.len())
            ));
        }
    }
    groups.push_str(&format!(
        "\n{}\n  0 done  1 failed  2 wrong usage  3 differences found  4 not signed in or not allowed\n  5 refused by the gate  6 signature or digest wrong  7 network  8 subscription lapsed\n  130 interrupted\n\nRun {} to see how a command is used.",
        paint(AnsiColor::Green.on_default().bold(), "Exit codes:"),
        paint(BOLD, "vault <command> --help")
    ));
    command.after_help(groups)
}

/// Parses the arguments; the error is clap's own, which knows help, version and suggestions.
pub fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some(cli) = parse_alone(arguments) {
        return Ok(cli);
    }
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Parses the arguments where the first is a command and nothing is wrong with the others: all other commands, each of which would
/// get the global flags as well, are left out then, which is most of the work. Whatever else it is, the whole command line says.
fn parse_alone(arguments: &[OsString]) -> Option<Cli> {
    let name = arguments.get(1)?.to_str()?;
    if name.starts_with('-') {
        return None;
    }
    let commands = Command::augment_subcommands(clap::Command::new("vault"));
    let alone = clap::Command::new("vault")
        .disable_help_subcommand(true)
        .subcommand(commands.find_subcommand(name)?.clone());
    let mut matches = Global::augment_args(alone)
        .try_get_matches_from(arguments)
        .ok()?;
    Cli::from_arg_matches_mut(&mut matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_by_itself_is_understood_as_the_whole_command_line_would() {
        let whole = |arguments: &[OsString]| {
            let mut matches = command().try_get_matches_from(arguments).ok()?;
            Cli::from_arg_matches_mut(&mut matches).ok()
        };
        let (mut understood, mut refused) = (0, 0);
        for sub in command().get_subcommands() {
            for more in [
                "",
                "x",
                "x y --json -vv --color never --vault /v",
                "--help",
                "help",
                "-V",
                "--nope",
                "list",
                "list --json",
                "help list",
                "--skill a --skill=b x --yes",
                "-- --json",
                "x --config",
                "run -- --yes",
            ] {
                let arguments: Vec<OsString> = ["vault", sub.get_name()]
                    .into_iter()
                    .chain(more.split_whitespace())
                    .map(OsString::from)
                    .collect();
                let told = |cli: Option<Cli>| cli.map(|cli| format!("{cli:?}"));
                let alone = told(parse_alone(&arguments));
                assert_eq!(alone, told(whole(&arguments)), "{arguments:?}");
                match alone {
                    Some(_) => understood += 1,
                    None => refused += 1,
                }
            }
        }
        assert!(understood > 100 && refused > 100, "{understood} {refused}");
        for other in [
            &["vault"][..],
            &["vault", "--json", "version"],
            &["vault", "ad"],
        ] {
            let arguments: Vec<OsString> = other.iter().map(OsString::from).collect();
            assert!(parse_alone(&arguments).is_none());
        }
    }

    #[test]
    fn clap_finds_nothing_wrong_with_the_commands() {
        command().debug_assert();
    }

    #[test]
    fn every_command_stands_in_one_group() {
        let command = command();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        grouped.sort_unstable();
        let mut all: Vec<&str> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn every_command_shows_an_example_and_since_when_it_exists() {
        let mut command = command();
        command.build();
        for sub in command.get_subcommands() {
            let help = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Examples:"), "{}: no example", sub.get_name());
            assert!(
                help.contains("Since "),
                "{}: no since-version",
                sub.get_name()
            );
        }
    }
}
