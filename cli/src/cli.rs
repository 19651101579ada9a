//! The arguments of `vault`: the commands, the global flags and the grouped help.

use std::ffi::OsString;

use clap::{
    CommandFactory, FromArgMatches, Parser,
    builder::styling::{AnsiColor, Style, Styles},
};

use crate::{
    commands::Command,
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

/// Returns the complete clap command, with the commands grouped under headings in its help.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    let mut above = "";
    for (heading, sub) in Command::HEADINGS.iter().zip(command.get_subcommands()) {
        if above != *heading {
            let break_before = if above.is_empty() { "" } else { "\n" };
            let styled = paint(HEADING, format_args!("{heading}:"));
            groups.push_str(&format!("{break_before}{styled}\n"));
            above = heading;
        }
        groups.push_str(&format!(
            "  {}{}{}\n",
            paint(LITERAL, sub.get_name()),
            " ".repeat(15 - sub.get_name().len()),
            sub.get_about().map(ToString::to_string).unwrap_or_default()
        ));
    }
    groups.push_str(&format!(
        "\n{}\n  0 done  1 failed  2 wrong usage  3 differences found  4 not signed in or not allowed\n  5 refused by the gate  6 signature or digest wrong  7 network  8 subscription lapsed\n  130 interrupted\n\nRun {} to see how a command is used.",
        paint(HEADING, "Exit codes:"),
        paint(BOLD, "vault <command> --help")
    ));
    command.after_help(groups)
}

/// Parses the arguments. The error is clap's own, because clap also returns help and version as
/// errors and adds suggestions.
pub fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;
    use crate::commands::maintenance::completions::{ZSH_RUNS, script};

    #[test]
    fn clap_finds_nothing_wrong_with_the_commands() {
        command().debug_assert();
    }

    #[test]
    fn each_argument_that_takes_a_skill_is_completed_in_zsh() {
        let script = script(Shell::Zsh, command());
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
