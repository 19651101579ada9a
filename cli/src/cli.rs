//! The command line of `vault`: the clap command with all commands and global flags, and the text
//! of the help.

use std::ffi::OsString;

use clap::{
    Arg, CommandFactory, FromArgMatches, Parser,
    builder::styling::{AnsiColor, Style, Styles},
};
use vault_format::since::{Since, Stability};

use crate::{
    commands::{Command, SUBCOMMANDS},
    flags::Global,
    output::{BOLD, paint},
};

const HEADING: Style = AnsiColor::Green.on_default().bold();
const LITERAL: Style = AnsiColor::Cyan.on_default().bold();
const STYLES: Styles = Styles::styled()
    .header(HEADING)
    .usage(HEADING)
    .literal(LITERAL)
    .placeholder(AnsiColor::Cyan.on_default());

/// Scan, sign and distribute AI-agent skills.
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
    /// The command to run, with its own arguments.
    #[command(subcommand)]
    pub command: Command,
}

/// The most used commands, grouped by task, which `vault` without arguments lists.
const OVERVIEW: [(&str, &[&str]); 5] = [
    ("Start", &["demo", "setup"]),
    (
        "Use skills",
        &[
            "find",
            "try",
            "add",
            "list",
            "update",
            "remove",
            "sync-profiles",
        ],
    ),
    ("Write and check skills", &["new", "audit", "verify"]),
    ("Share skills", &["link", "cloud", "sync", "status"]),
    ("Run and repair", &["serve", "doctor"]),
];

const ALL_COMMANDS: &str = "vault --help";

/// Returns the names of all commands, without subcommands.
pub fn command_names() -> Vec<String> {
    let command = full_command();
    let names = command.get_subcommands().map(clap::Command::get_name);
    names.map(str::to_owned).collect()
}

/// Returns the complete clap command, with the commands grouped under headings in its help.
pub fn full_command() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    let mut above = "";
    // `HEADINGS` and `SINCE` have an entry for each command, in the same order as clap's
    // subcommands.
    for (heading, sub) in Command::HEADINGS.iter().zip(command.get_subcommands()) {
        if above != *heading {
            let break_before = if above.is_empty() { "" } else { "\n" };
            let styled = paint(HEADING, format_args!("{heading}:"));
            groups.push_str(&format!("{break_before}{styled}\n"));
            above = heading;
        }
        groups.push_str(&command_row(sub));
    }
    groups.push_str(&format!(
        "\n{}\n  0 done  1 failed  2 wrong usage  3 differences found\n  4 not signed in or not allowed  5 refused by the gate\n  6 signature or digest wrong  7 network  8 subscription lapsed  130 interrupted\n\nHelp for one command: {}",
        paint(HEADING, "Exit codes:"),
        paint(BOLD, "vault <command> --help")
    ));
    // By default, the help of each command repeats the global options. Hidden copies of them keep
    // it short; its last line says where they are described.
    let global: Vec<Arg> = command
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .map(|argument| argument.clone().hide(true))
        .collect();
    let mut since = Command::SINCE.iter();
    command
        .mut_subcommands(|sub| {
            let name = sub.get_name().to_owned();
            with_footer(sub, &global, &name, *since.next().unwrap_or(&Since::NEW))
        })
        .after_help(groups)
}

/// Formats one line of a list of commands: the name and what the command does.
fn command_row(command: &clap::Command) -> String {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string);
    format!(
        "  {}{}{}\n",
        paint(LITERAL, name),
        " ".repeat(15_usize.saturating_sub(name.len())),
        about.unwrap_or_default()
    )
}

/// Adds a last line to the help of a command and its subcommands: how stable the command is, since
/// which version it exists, and where the global options are described. Clap adds a global option
/// only where a command does not have it yet, so hidden copies stay hidden.
fn with_footer(command: clap::Command, global: &[Arg], words: &str, since: Since) -> clap::Command {
    let label = match since.stability() {
        Stability::Stable => "Stable",
        Stability::Beta => "Beta",
    };
    let mut help = command.get_after_help().cloned().unwrap_or_default();
    let break_before = if help.ansi().to_string().is_empty() {
        ""
    } else {
        "\n\n"
    };
    help.push_str(&format!(
        "{break_before}{label} since {since}. Global options: see `{ALL_COMMANDS}`."
    ));
    command
        .args(global)
        .after_help(help)
        .mut_subcommands(|sub| {
            // A subcommand that is newer than its command has its own entry in the table.
            let words = format!("{words} {}", sub.get_name());
            let own = SUBCOMMANDS.iter().find(|(name, _)| *name == words);
            with_footer(sub, global, &words, own.map_or(since, |(_, since)| *since))
        })
}

/// Returns what `vault` prints without arguments: the most used commands by task.
pub fn overview_text() -> String {
    let command = Cli::command();
    let about = command.get_about().map(ToString::to_string);
    let mut text = format!(
        "{}\n\n{} vault <COMMAND>\n",
        about.unwrap_or_default(),
        paint(HEADING, "Usage:")
    );
    for (heading, names) in OVERVIEW {
        text.push_str(&format!(
            "\n{}\n",
            paint(HEADING, format_args!("{heading}:"))
        ));
        for name in names {
            text.extend(command.find_subcommand(name).map(command_row));
        }
    }
    text.push_str(&format!(
        "\nAll commands, global options and exit codes: {}\nHelp for one command: {}",
        paint(BOLD, ALL_COMMANDS),
        paint(BOLD, "vault <command> --help")
    ));
    text
}

/// Parses the arguments. The error is clap's own, because clap also returns help and version as
/// errors and adds suggestions.
pub fn parse_arguments(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = full_command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    // Format the error with the command, or it would lack the usage text.
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;
    use crate::commands::maintenance::completions::{ZSH_RUNS, generate_script};

    #[test]
    fn clap_finds_nothing_wrong_with_the_commands() {
        full_command().debug_assert();
    }

    /// Calls `check` with the name and the help of every command, wrapped at `width` columns.
    fn each_help(width: usize, check: &mut dyn FnMut(&str, &str)) {
        fn walk(command: &mut clap::Command, path: &str, check: &mut dyn FnMut(&str, &str)) {
            check(path, &command.render_long_help().to_string());
            for sub in command.get_subcommands_mut() {
                walk(sub, &format!("{path} {}", sub.get_name()), check);
            }
        }
        let mut command = full_command().term_width(width);
        command.build();
        walk(&mut command, "vault", check);
    }

    /// At this width nothing is wrapped, so each line is a line of the source.
    const UNWRAPPED: usize = 100_000;

    #[test]
    fn each_paragraph_of_a_help_is_one_line_of_its_source() {
        each_help(UNWRAPPED, &mut |path, help| {
            let lines: Vec<&str> = help.lines().collect();
            let is_text = |line: &&str| !line.is_empty() && !line.starts_with(' ');
            for pair in lines.windows(2) {
                let torn = pair.iter().all(is_text);
                assert!(!torn, "{path}: {pair:?}");
            }
            assert!(!help.contains("Since "), "{path}");
            let foot = lines.last().unwrap();
            let folded = foot.ends_with("Global options: see `vault --help`.");
            assert_eq!(folded, path != "vault", "{path}: {foot}");
            assert_eq!(help.contains("--no-input"), path == "vault", "{path}");
        });
    }

    #[test]
    fn examples_fit_78_columns() {
        let mut examples = 0;
        each_help(UNWRAPPED, &mut |path, help| {
            let Some((_, below)) = help.split_once("Examples:\n") else {
                return;
            };
            for line in below.lines().take_while(|line| line.starts_with(' ')) {
                assert!(line.chars().count() < 78, "{path}: {line}");
                examples += 1;
            }
        });
        assert!(examples > 100, "{examples}");
    }

    #[test]
    fn each_help_is_wrapped_at_words() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut unwrapped = Vec::new();
        each_help(UNWRAPPED, &mut |_, help| unwrapped.push(words(help)));
        for width in [60, 80, 100] {
            let mut pages = unwrapped.iter();
            each_help(width, &mut |path, help| {
                assert_eq!(&words(help), pages.next().unwrap(), "{path} at {width}");
                // Clap never wraps a usage line, and a word longer than the line cannot be wrapped.
                let (_, below) = help.split_once("\n\nUsage:").unwrap();
                let (_, below) = below.split_once("\n\n").unwrap();
                for line in below.lines() {
                    let fits = line.chars().count() <= width || !line.trim().contains(' ');
                    assert!(fits, "{path} at {width}: {line}");
                }
            });
        }
    }

    #[test]
    fn the_overview_fits_a_small_terminal() {
        let text = anstream::adapter::strip_str(&overview_text()).to_string();
        assert!(text.lines().count() <= 40, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for name in OVERVIEW.iter().flat_map(|(_, names)| names.iter()) {
            assert!(Cli::command().find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn each_help_says_since_when_there_is_the_command() {
        let mut words = Vec::new();
        each_help(UNWRAPPED, &mut |path, help| {
            let foot = help.lines().last().unwrap().to_owned();
            words.push((path.to_owned(), foot));
        });
        for (path, expected) in [
            ("vault add", "Stable since 0.4.0."),
            ("vault doctor", "Stable since 0.2.0."),
            ("vault audit-repo", "Stable since 0.2.0."),
            ("vault serve", "Stable since 0.2.1."),
            ("vault skill", "Stable since 0.2.0."),
            ("vault skill which", "Stable since 0.2.0."),
            ("vault skill search", "Stable since 0.2.1."),
            ("vault skill list", "Beta since 0.5.0."),
            ("vault list", "Beta since 0.5.0."),
            ("vault search", "Beta since 0.5.0."),
            ("vault config list", "Beta since 0.5.0."),
            ("vault drafts list", "Beta since 0.5.0."),
            ("vault link", "Beta since 0.5.0."),
        ] {
            let (_, foot) = words.iter().find(|(known, _)| known == path).unwrap();
            assert!(foot.starts_with(expected), "{path}: {foot}");
        }
        // Every name in the table must be that of a command, or an entry of a removed command would
        // stay.
        for (name, _) in SUBCOMMANDS {
            let path = format!("vault {name}");
            assert!(words.iter().any(|(known, _)| *known == path), "{path}");
        }
    }

    #[test]
    fn each_argument_that_takes_a_skill_is_completed_in_zsh() {
        let script = generate_script(Shell::Zsh, full_command());
        assert_eq!(script.matches("_vault_skills() {").count(), 1);
        let defined = script.find("_vault_skills() {").unwrap();
        assert!(defined < script.find(ZSH_RUNS).unwrap());
        let skills = "remove enable disable doctor outdated update history rollback which zip";
        let skills = skills.split(' ').map(|command| (command, "_vault_skills'"));
        let files = ["show", "verify", "audit", "lint"];
        let files = files.map(|command| (command, "_vault_skills_or_files'"));
        for (command, names) in skills.chain(files) {
            let name = format!("\n({command})\n");
            // A nested command may have the same name, so every section of that name is checked.
            let mut sections = script.split(&name).skip(1);
            let taken = |section: &str| section[..section.find("\n;;").unwrap()].contains(names);
            assert!(sections.any(taken), "{command}");
        }
        // Arguments that take no skill keep the default completion.
        assert!(script.contains("-- What to look for:_default'"));
    }
}
