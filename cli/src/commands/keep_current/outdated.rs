//! `vault outdated`: compares each skill with the source that it was added from (repository,
//! registry, web address or folder), and lists those that have changed there. Changes nothing.

mod project;

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
    tasks::{
        drift::{
            DriftCheck, MODIFIED, UncheckedSkill, compare_sources, shown_revision, sort_targets,
            source_name, warn_of_rewritten,
        },
        project_scope::ProjectScope,
    },
};

/// The arguments of `vault outdated`.
#[derive(Args, Debug)]
#[command(after_help = "\
Compares each skill with its source: a repository by the commit and the skill's folder, a \
registry by the version, an address by the digest, a folder of this machine by its files. Changes \
nothing. Skills that cannot be compared are listed with the reason. Exit 3 if a skill is outdated \
or its source no longer has it, 6 if its files were modified after it was signed.

--project compares the entries of this project's vault.lock instead, installed or not.

Examples:
  vault outdated
  vault outdated code-review --json
  vault outdated --project --json")]
pub struct Arguments {
    /// Skills to compare [default: all of your own]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
    #[command(flatten)]
    scope: ProjectScope,
}

/// The output of `vault outdated`.
#[derive(Debug, Default, JsonSchema, Serialize)]
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
    /// Installed name.
    name: SkillName,
    /// Source of the skill: a recorded identifier, or a folder of this machine.
    source: String,
    /// Commit, version or digest of the source that the manifest records.
    recorded: String,
    /// Commit, version or digest of the source at this check.
    upstream: String,
    /// Whether the source's history no longer contains the recorded revision.
    is_rewritten: bool,
}

/// Compares the named skills, or all that have a source, and lists the outdated ones. The exit code
/// tells whether there are any.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(project) = arguments.scope.existing_project(context)? {
        return project::compare_project(context, project, &arguments.names);
    }
    let vault = context.open_vault()?;
    let sorted = sort_targets(&vault, &arguments.names)?;
    // `None` if all sources are folders: then the command needs no network.
    let fetching = sorted.fetching(context)?;
    let states = compare_sources(context, &vault, fetching.as_ref(), &sorted.asked)?;
    let (modified, unchecked) = sorted
        .unchecked
        .into_iter()
        .partition(|skill| skill.reason == MODIFIED);
    let mut comparison = SourceComparison {
        modified,
        unchecked,
        ..SourceComparison::default()
    };
    let (mut lines, mut is_refused) = (Vec::new(), false);
    for (asked, state) in sorted.asked.into_iter().zip(states) {
        is_refused |= matches!(state, DriftState::Refused(_));
        lines.extend(comparison.add_state(context, asked, state));
    }
    lines.extend(unchecked_lines(&comparison.modified));
    lines.extend(unchecked_lines(&comparison.unchecked));
    lines.push(paint(DIM, comparison.count_line()));
    let exit = comparison.exit(is_refused);
    Ok(Report::view(comparison, lines.join("\n")).with_exit(exit))
}

impl SourceComparison {
    /// Adds the state of one skill. Returns a line about it if it differs from its source.
    fn add_state(
        &mut self,
        context: &Context,
        asked: DriftCheck,
        state: DriftState,
    ) -> Option<String> {
        let (name, source) = (asked.name, source_name(&asked.source));
        match state {
            DriftState::Drifted {
                recorded,
                upstream,
                is_rewritten,
            } => {
                if is_rewritten {
                    warn_of_rewritten(context, &name, &recorded, false);
                }
                let line = format!(
                    "{WARN}↑{WARN:#} {BOLD}{name}{BOLD:#}  {} → {}  {DIM}{source}{DIM:#}",
                    shown_revision(&recorded),
                    shown_revision(&upstream)
                );
                self.drifted.push(OutdatedSkill {
                    name,
                    source,
                    recorded,
                    upstream,
                    is_rewritten,
                });
                return Some(line);
            }
            DriftState::UpToDate => self.up_to_date.push(name),
            DriftState::Unchecked(reason) => self.unchecked.push(UncheckedSkill { name, reason }),
            DriftState::Removed(reason) => {
                let why = clean(&reason, 400);
                let line = format!(
                    "{WARN}-{WARN:#} {BOLD}{name}{BOLD:#}  removed upstream  {DIM}{why}{DIM:#}"
                );
                self.removed.push(UncheckedSkill { name, reason });
                return Some(line);
            }
            // If one source cannot be read, the results of the others are still shown.
            DriftState::Failed(reason) | DriftState::Refused(reason) => {
                context.ui.warn(Warning::new(
                    "source_failed",
                    format!("{name} could not be compared: {}", clean(&reason, 400)),
                ));
                self.errors.push(UncheckedSkill { name, reason });
            }
        }
        None
    }

    fn count_line(&self) -> String {
        let mut counts = format!(
            "{} outdated, {} up to date, {} unchecked",
            self.drifted.len(),
            self.up_to_date.len(),
            self.unchecked.len() + self.errors.len()
        );
        for (number, what) in [
            (self.removed.len(), "removed upstream"),
            (self.modified.len(), "modified"),
        ] {
            if number > 0 {
                counts.push_str(&format!(", {number} {what}"));
            }
        }
        counts
    }

    /// Returns the exit code. Modified files outweigh every other result. A difference that was found
    /// outweighs a source that could not be read, because scripts act on exit 3.
    const fn exit(&self, is_refused: bool) -> Exit {
        if !self.modified.is_empty() {
            Exit::Integrity
        } else if !self.drifted.is_empty() || !self.removed.is_empty() {
            Exit::Differences
        } else if is_refused {
            // The policy refused the source. The exit code for a network failure would make
            // scripts try again in vain.
            Exit::Gate
        } else if !self.errors.is_empty() {
            Exit::Network
        } else {
            Exit::Done
        }
    }
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
