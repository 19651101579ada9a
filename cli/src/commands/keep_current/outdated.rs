//! `vault outdated`: compares each skill with the source that it was added from (repository,
//! registry, web address or folder), and lists those that have changed there. Changes nothing.

use std::collections::BTreeMap;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_shelf::DriftState;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, DIM, Report, WARN, Warning, clean, join, paint},
    tasks::drift::{MODIFIED, UncheckedSkill, compare_sources, sort_targets, source_name},
};

/// The arguments of `vault outdated`.
#[derive(Args, Debug)]
#[command(after_help = "\
Compares each skill with its source: a repository by the commit and the skill's folder, a \
registry by the version, an address by the digest, a folder of this machine by its files. Changes \
nothing. Skills that cannot be compared are listed with the reason. Exit 3 if a skill is outdated \
or its source no longer has it, 6 if its files were modified after it was signed.

Examples:
  vault outdated
  vault outdated code-review --json")]
pub struct Arguments {
    /// Skills to compare [default: all of your own]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
}

/// Skills, compared with their sources.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SourceComparison {
    /// Skills whose source has changed.
    drifted: Vec<OutdatedSkill>,
    /// Names of skills that equal their source.
    up_to_date: Vec<SkillName>,
    /// Skills that their source no longer has.
    removed: Vec<UncheckedSkill>,
    /// Skills whose files are not the ones that were signed.
    modified: Vec<UncheckedSkill>,
    /// Skills that cannot be compared.
    unchecked: Vec<UncheckedSkill>,
    /// Skills whose source could not be read.
    errors: Vec<UncheckedSkill>,
}

/// A skill whose source has changed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct OutdatedSkill {
    /// Its name.
    name: SkillName,
    /// Its source: a recorded identifier, or a folder of this machine.
    source: String,
    /// The revision that was recorded.
    recorded: String,
    /// The source's revision now.
    upstream: String,
}

/// Compares the named skills, or all that have a source, and lists the outdated ones. The exit code
/// tells whether there are any.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let sorted = sort_targets(&vault, &arguments.names)?;
    // `None` if all sources are folders: then the command needs no network.
    let fetching = sorted.fetching(context)?;
    let states = compare_sources(context, &vault, fetching.as_ref(), &sorted.asked)?;
    let mut lines = Vec::new();
    let (mut drifted, mut up_to_date, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let (modified, mut unchecked): (Vec<_>, Vec<_>) = sorted
        .unchecked
        .into_iter()
        .partition(|skill| skill.reason == MODIFIED);
    let (mut removed, mut is_refused) = (Vec::new(), false);
    for (asked, state) in sorted.asked.into_iter().zip(states) {
        let (name, source) = (asked.name, source_name(&asked.source));
        is_refused |= matches!(state, DriftState::Refused(_));
        match state {
            DriftState::Drifted { recorded, upstream } => {
                lines.push(format!(
                    "{WARN}↑{WARN:#} {BOLD}{name}{BOLD:#}  {} → {}  {DIM}{source}{DIM:#}",
                    clean(&recorded, 60),
                    clean(&upstream, 60)
                ));
                drifted.push(OutdatedSkill {
                    name,
                    source,
                    recorded,
                    upstream,
                });
            }
            DriftState::UpToDate => up_to_date.push(name),
            DriftState::Unchecked(reason) => unchecked.push(UncheckedSkill { name, reason }),
            DriftState::Removed(reason) => {
                let why = clean(&reason, 400);
                lines.push(format!(
                    "{WARN}-{WARN:#} {BOLD}{name}{BOLD:#}  removed upstream  {DIM}{why}{DIM:#}"
                ));
                removed.push(UncheckedSkill { name, reason });
            }
            // If one source cannot be read, the results of the others are still shown.
            DriftState::Failed(reason) | DriftState::Refused(reason) => {
                context.ui.warn(Warning::new(
                    "source_failed",
                    format!("{name} could not be compared: {}", clean(&reason, 400)),
                ));
                errors.push(UncheckedSkill { name, reason });
            }
        }
    }
    lines.extend(unchecked_lines(&modified));
    lines.extend(unchecked_lines(&unchecked));
    let mut counts = format!(
        "{} outdated, {} up to date, {} unchecked",
        drifted.len(),
        up_to_date.len(),
        unchecked.len() + errors.len()
    );
    for (number, what) in [
        (removed.len(), "removed upstream"),
        (modified.len(), "modified"),
    ] {
        if number > 0 {
            counts.push_str(&format!(", {number} {what}"));
        }
    }
    lines.push(paint(DIM, counts));
    // Modified files outweigh every other result. A difference that was found outweighs a source
    // that could not be read, because scripts act on exit 3.
    let exit = if !modified.is_empty() {
        Exit::Integrity
    } else if !drifted.is_empty() || !removed.is_empty() {
        Exit::Differences
    } else if is_refused {
        // The policy refused the source. The exit code for a network failure would make scripts try
        // again in vain.
        Exit::Gate
    } else if !errors.is_empty() {
        Exit::Network
    } else {
        Exit::Done
    };
    let view = SourceComparison {
        drifted,
        up_to_date,
        removed,
        modified,
        unchecked,
        errors,
    };
    Ok(Report::view(view, lines.join("\n")).with_exit(exit))
}

/// Formats the skills that were not compared: one line for each reason, with the names of the
/// skills.
fn unchecked_lines(unchecked: &[UncheckedSkill]) -> Vec<String> {
    // Most of these skills share a reason. A line for each skill would bury the outdated ones.
    let mut by_reason: BTreeMap<&str, Vec<&SkillName>> = BTreeMap::new();
    for UncheckedSkill { name, reason } in unchecked {
        by_reason.entry(reason).or_default().push(name);
    }
    let line = |(reason, names): (&str, Vec<&SkillName>)| {
        format!(
            "{DIM}-{DIM:#} {}  {DIM}{}{DIM:#}",
            join(names),
            clean(reason, 300)
        )
    };
    by_reason.into_iter().map(line).collect()
}
