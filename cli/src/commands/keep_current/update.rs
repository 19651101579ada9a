//! `vault update`: reads skills that changed at their sources, and takes each through the gate
//! (vault's scanner) into the vault as its next version.
//!
//! Sources are compared by commit and tree, version, digest or files, never by time. A skill that a
//! rollback holds (keeps at its version) is updated only if it is named. `--diff` shows the changes
//! and makes none.

pub mod project;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_gate::secrets;
use vault_library::{
    Examined, Vault,
    admit::{
        AdmitReport, Candidate, Neighbours, Options, Source, admit_one, examine_candidate, history,
    },
    drift::CurrentSource,
    folders,
};
use vault_shelf::DriftState;
use vault_sources::FetchError;

use crate::{
    context::Context,
    errors::{Exit, Failure, message_chain},
    output::{BOLD, DIM, GOOD, Report, clean, count, diff, either, join, paint},
    tasks::{
        admission::{
            admission_failure, admitted_text,
            outcomes::{FailedSkill, Outcomes},
            texts::Texts,
        },
        drift::{
            self, DriftCheck, HELD, MODIFIED, UncheckedSkill, compare_sources, sort_targets,
            warn_of_rewritten,
        },
        fetch::{self, Fetching},
        profiles,
        project_scope::ProjectScope,
    },
};

/// The arguments of `vault update`.
#[derive(Args, Debug)]
#[command(after_help = "\
Takes each skill that changed at its source, at the branch or version line that it was added \
with, or in its folder on this machine, through the gate as the next version. A skill that was \
added at a full commit stays there, and one that was rolled back stays until you name it. A skill \
whose files were modified after it was signed is not updated (exit 6), and one that its source no \
longer has stays as it is (exit 3). A file \
that looks like a secret is taken only if the installed version has it: vault add --include takes \
a new one. Skills without a source to update from are skipped.

--project brings the entries of this project's vault.lock to what their sources have now, and \
installs them. Your own skills stay as they are.

Examples:
  vault update
  vault update code-review
  vault update code-review --diff
  vault update --project
  vault update code-review --project --diff")]
pub struct Arguments {
    /// Skills to update [default: all that have a source]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
    #[command(flatten)]
    scope: ProjectScope,
    /// Show what would change, and change nothing (exit 3 if something would)
    #[arg(long)]
    diff: bool,
}

/// The output of `vault update`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct UpdatedSkills {
    #[serde(flatten)]
    changed: ChangedSkills,
    /// Names of skills that equal their source.
    up_to_date: Vec<SkillName>,
    /// Skills that could not be updated.
    failed: Vec<FailedSkill>,
    /// Skills that were not compared.
    unchecked: Vec<UncheckedSkill>,
}

/// The skills that changed at their sources.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum ChangedSkills {
    /// Skills that were updated; absent with `--diff`.
    Updated(Vec<ChangedSkill>),
    /// Skills that would be updated; only with `--diff`.
    Drifted(Vec<ChangedSkill>),
}

/// A skill that changed at its source.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
enum ChangedSkill {
    Updated {
        #[serde(flatten)]
        report: Box<AdmitReport>,
        /// The commit, version or digest at the source; null if the source has none.
        revision: Option<String>,
    },
    Compared {
        /// Name of the skill that would be updated.
        name: SkillName,
        /// The commit, version or digest at the source; null if the source has none.
        revision: Option<String>,
        /// The lines of the difference; only with `--diff`.
        diff: Vec<String>,
    },
}

/// Compares the named skills, or all that have a source, and updates those that changed there; with
/// `--diff` shows the differences instead. A skill that fails does not stop the others.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(project) = arguments.scope.project_to_change(context)? {
        return project::update_project(context, project, &arguments.names, arguments.diff);
    }
    let vault = context.open_vault()?;
    let sorted = sort_targets(&vault, &arguments.names)?;
    let is_named = !arguments.names.is_empty();
    // If only one skill was named and cannot be compared, the reason is the failure of the whole
    // command.
    if let (true, [], [skill]) = (is_named, &sorted.asked[..], &sorted.unchecked[..])
        && skill.reason != MODIFIED
    {
        let UncheckedSkill { name, reason } = skill;
        return Err(without_source(&format!(
            "{name} cannot be updated: {reason}"
        )));
    }
    let fetching = sorted.fetching(context)?;
    let states = compare_sources(context, &vault, fetching.as_ref(), &sorted.asked)?;
    let mut update = SkillUpdater {
        context,
        vault: &vault,
        fetching: fetching.as_ref(),
        strict: context.is_strict()?,
        only_diff: arguments.diff,
        has_shown: false,
    };
    let mut outcomes = Outcomes::new(context);
    // A skill whose files were modified after signing is a failure, and must not be counted among
    // those without a source.
    let (modified, mut unchecked): (Vec<_>, Vec<_>) = sorted
        .unchecked
        .into_iter()
        .partition(|skill| skill.reason == MODIFIED);
    for skill in modified {
        outcomes.record_result(&skill.name, Err(modified_failure()));
    }
    for (asked, state) in sorted.asked.iter().zip(states) {
        match state {
            DriftState::Unchecked(reason) => {
                let name = asked.name.clone();
                unchecked.push(UncheckedSkill { name, reason });
            }
            state => {
                outcomes.record_result(&asked.name, update.update_skill(asked, state, is_named));
            }
        }
    }
    // Skills that cannot be compared are failures if the user named them. Otherwise they are only
    // counted.
    if is_named {
        for skill in &unchecked {
            let failure = without_source(&skill.reason);
            outcomes.record_result(&skill.name, Err(failure));
        }
    }
    if !arguments.diff {
        profiles::refresh_links(context, &vault);
    }
    let (changed, same) = (outcomes.done.len(), outcomes.unchanged.len());
    let changed_skills = if arguments.diff {
        ChangedSkills::Drifted
    } else {
        ChangedSkills::Updated
    };
    let view = outcomes.into_result("updated", |skills, up_to_date, failed| UpdatedSkills {
        changed: changed_skills(skills),
        up_to_date,
        failed,
        unchecked,
    })?;
    let text = format_summary(changed, same, &view.unchecked);
    let differs = arguments.diff && changed > 0;
    Ok(Report::view(view, text).with_exit(either(differs, Exit::Differences, Exit::Done)))
}

/// Formats the lines below the list of updated skills: how many are up to date, held, or without a
/// source.
fn format_summary(changed: usize, same: usize, unchecked: &[UncheckedSkill]) -> String {
    let mut lines = Vec::new();
    if changed == 0 {
        lines.push(format!("{} up to date", count(same, "skill")));
    }
    let held_skills = unchecked.iter().filter(|skill| skill.reason == HELD);
    let held: Vec<&SkillName> = held_skills.map(|skill| &skill.name).collect();
    if !held.is_empty() {
        let names = join(&held);
        lines.push(format!(
            "held by vault rollback: {names}  (vault update <name> takes the newest version)"
        ));
    }
    let skipped = unchecked.len() - held.len();
    if skipped > 0 {
        let skills = count(skipped, "skill");
        lines.push(format!(
            "{skills} without a source to update from  (vault outdated lists them)"
        ));
    }
    let lines = lines.into_iter().map(|line| paint(DIM, line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Creates the failure for a skill that was named and has no source to update from.
fn without_source(message: &str) -> Failure {
    fail!(SourceUnknown, "{}", clean(message, 600))
        .hint("add it again from where it is: vault add <source>")
}

/// Creates the failure for a skill whose files were modified after it was signed.
fn modified_failure() -> Failure {
    fail!(
        SkillDamaged,
        "it was modified after it was signed, so it was not updated"
    )
    .hint("vault verify <name> shows the files; keep yours elsewhere, then add the skill again from its source")
}

/// Updates one skill after another, or shows the difference of each.
struct SkillUpdater<'a> {
    context: &'a Context,
    vault: &'a Vault,
    /// The fetcher with the policy for sources; `None` if all sources are folders of this machine.
    fetching: Option<&'a Fetching>,
    strict: bool,
    /// Whether differences are shown and nothing is changed.
    only_diff: bool,
    /// Whether a difference was printed. An empty line separates it from the next one.
    has_shown: bool,
}

impl SkillUpdater<'_> {
    /// Updates a skill, or shows the difference, after the comparison gave `state`. Returns `None`
    /// if the skill equals its source. If the user named the skill, a hold on it ends.
    fn update_skill(
        &mut self,
        asked: &DriftCheck,
        state: DriftState,
        is_named: bool,
    ) -> Result<Option<ChangedSkill>, Failure> {
        let outcome = match state {
            DriftState::UpToDate => None,
            DriftState::Drifted {
                recorded,
                is_rewritten,
                ..
            } => {
                if is_rewritten {
                    let is_installed = !self.only_diff;
                    warn_of_rewritten(self.context, &asked.name, &recorded, is_installed);
                }
                let (candidate, before) = self.examine_source(asked)?;
                if self.only_diff {
                    return Ok(Some(self.show_difference(&candidate, &before)));
                }
                self.admit_candidate(&candidate)?
            }
            // `run` handles skills that cannot be compared, so only failures to read a source are
            // left.
            DriftState::Removed(reason) => {
                return Err(fail!(SourceRemoved, "{}", clean(&reason, 400)));
            }
            DriftState::Refused(reason) => {
                return Err(fail!(SourceRefused, "{}", clean(&reason, 400)));
            }
            DriftState::Unchecked(reason) | DriftState::Failed(reason) => {
                return Err(fail!(SourceFailed, "{}", clean(&reason, 400)));
            }
        };
        // A user who names a held skill wants its newest version, so the hold ends even if nothing
        // changed.
        if is_named && !self.only_diff {
            history::end_hold(self.vault, &asked.name)?;
        }
        Ok(outcome)
    }

    /// Reads the current content of a skill from its source.
    fn read_source(&self, asked: &DriftCheck) -> Result<Source, Failure> {
        let upstream = match &asked.source {
            CurrentSource::Folder(path) => return Ok(Source::folder(path)),
            CurrentSource::Fetched(upstream) => upstream,
        };
        let Some(Fetching {
            fetcher, policy, ..
        }) = self.fetching
        else {
            return Err(fail!(Internal, "{} could not be fetched", asked.name));
        };
        let (context, name) = (self.context, &asked.name);
        let bar = context.ui.start_spinner(format!("Fetching {name}"));
        let fetched = context.block_on(async {
            let again = fetcher.fetch_recorded(upstream, policy);
            again.await.map_err(|error| match &error {
                // The comparison by a registry's version does not look at the folders in its
                // repository, so only now it shows that the skill is gone.
                FetchError::NoSkill(gone) | FetchError::NoneOffered { message: gone, .. } => {
                    fail!(SourceRemoved, "{}", clean(gone, 400))
                }
                FetchError::Link {
                    is_copyable: true, ..
                } => fetch::fetch_failure(&error).hint(
                    "to take a copy of the file in its place: vault add <source> --copy-links --replace",
                ),
                error => fetch::fetch_failure(error),
            })
        });
        drop(bar);
        Ok(Source::Fetched(Box::new(fetched?)))
    }

    /// Reads the skill at its source and runs the gate on it. Returns the result, which can be
    /// admitted, and the installed version to compare it with.
    fn examine_source(&self, asked: &DriftCheck) -> Result<(Candidate, Examined), Failure> {
        let (context, name) = (self.context, &asked.name);
        let before = history::read_installed(self.vault, name)
            .map_err(|error| fail!(SkillDamaged, "{}", message_chain(&error)))?
            .ok_or_else(|| fail!(SkillNotFound, "{name} is no longer installed"))?;
        let source = self.read_source(asked)?;
        let options = Options {
            name: Some(name.clone()),
            // An update changes only the files. The agents that see the skill stay as they were
            // chosen at `vault add`.
            agents: before.manifest.agents.clone(),
            // The user has accepted the installed files that look like secrets. A new file of this
            // kind is left out.
            include: secrets::paths_of(&before.files),
            strict: self.strict,
            copy_links: match &asked.source {
                CurrentSource::Folder(_) => folders::copies_links(self.vault, name)?,
                CurrentSource::Fetched(_) => false,
            },
            // If the skill is removed while its source is read, the update must not bring it back.
            require_installed: true,
            ..Options::default()
        };
        let source_label = drift::source_name(&asked.source);
        let texts = Texts::of_source(&source_label, &source);
        let candidate = examine_candidate(source, &options, &mut Neighbours::for_vault(self.vault))
            .map_err(|error| admission_failure(&source_label, &texts, error))?;
        texts.warn_about_findings(context, &candidate.package.findings);
        Ok((candidate, before))
    }

    /// Admits what was read from the source as the next version of the skill. Returns `None` if the
    /// installed version has the same content.
    fn admit_candidate(&self, candidate: &Candidate) -> Result<Option<ChangedSkill>, Failure> {
        let name = candidate.package.name.as_str();
        let report = admit_one(self.vault, candidate)
            .map_err(|error| admission_failure(name, &Texts::of_fetched(name, &[]), error))?;
        if !report.is_change() {
            return Ok(None);
        }
        self.context.ui.print_line(admitted_text(&report));
        Ok(Some(ChangedSkill::Updated {
            report: Box::new(report),
            revision: candidate.provenance.revision.clone(),
        }))
    }

    /// Prints the difference between the installed files and those at the source.
    fn show_difference(&mut self, candidate: &Candidate, before: &Examined) -> ChangedSkill {
        let name = &candidate.package.name;
        let difference = diff::diff_files(
            &diff::by_path(&before.files),
            &diff::by_path(&candidate.package.files),
            diff::Detail::Full,
        );
        // Each difference is printed as soon as it is found, so an empty line goes before each but
        // the first.
        if std::mem::replace(&mut self.has_shown, true) {
            self.context.ui.print_line("");
        }
        let version = before.manifest.version;
        self.context.ui.print_line(format!(
            "{GOOD}↑{GOOD:#} {BOLD}{name}{BOLD:#}  version {version} → {}",
            version + 1
        ));
        for line in &difference.lines {
            self.context.ui.print_line(line);
        }
        ChangedSkill::Compared {
            name: name.clone(),
            revision: candidate.provenance.revision.clone(),
            diff: difference.plain_lines(),
        }
    }
}
