//! `vault update`: admits the current versions of skills from their sources.
//!
//! Sources are compared by commit and tree, version, digest or files, never by time. A skill that a
//! rollback holds is updated only if it is named. `--diff` changes nothing.

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
        drift::{self, DriftCheck, HELD, MODIFIED, UncheckedSkill, compare_sources, sort_targets},
        fetch::{self, Fetching},
        profiles,
        project_lock::{self, LockEntry},
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
a new one. Skills without a source to update from are skipped. The project's vault.lock is updated too.

Examples:
  vault update
  vault update code-review
  vault update code-review --diff")]
pub struct Arguments {
    /// Skills to update [default: all that have a source]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
    /// Show what would change, and change nothing (exit 3 if something would)
    #[arg(long)]
    diff: bool,
}

/// Skills, brought up to date with their sources.
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
        /// Its name.
        name: SkillName,
        /// The commit, version or digest at the source; null if the source has none.
        revision: Option<String>,
        /// The lines of the difference; only with `--diff`.
        diff: Vec<String>,
    },
}

/// Updates the skills that changed, or shows the differences.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let sorted = sort_targets(&vault, &arguments.names)?;
    let is_named = !arguments.names.is_empty();
    // With one name, the reason is the failure of the command and not one entry of a list.
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
    // A modified skill must not pass as one without a source: its files are not the signed ones.
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
    // A named skill that cannot be compared is a failure. Without names, such skills are only
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

/// Formats the counts below the updated skills.
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

/// The failure of a skill that was named and has no source to update from.
fn without_source(message: &str) -> Failure {
    fail!(SourceUnknown, "{}", clean(message, 600))
        .hint("add it again from where it is: vault add <source>")
}

/// The failure of a skill whose files are not the ones that were signed.
fn modified_failure() -> Failure {
    fail!(
        SkillDamaged,
        "it was modified after it was signed, so it was not updated"
    )
    .hint("vault verify <name> shows the files; keep yours elsewhere, then add the skill again from its source")
}

struct SkillUpdater<'a> {
    context: &'a Context,
    vault: &'a Vault,
    /// `None` if no skill is fetched.
    fetching: Option<&'a Fetching>,
    strict: bool,
    /// Whether differences are shown and nothing is changed.
    only_diff: bool,
    /// Whether a difference was printed. An empty line separates it from the next one.
    has_shown: bool,
}

impl SkillUpdater<'_> {
    /// Updates a skill, or shows the difference. Returns `None` if it equals its source.
    fn update_skill(
        &mut self,
        asked: &DriftCheck,
        state: DriftState,
        is_named: bool,
    ) -> Result<Option<ChangedSkill>, Failure> {
        let outcome = match state {
            DriftState::UpToDate => {
                if !self.only_diff {
                    self.complete_lock(asked)?;
                }
                None
            }
            DriftState::Drifted { .. } => {
                let (candidate, before) = self.examine_source(asked)?;
                if self.only_diff {
                    return Ok(Some(self.show_difference(&candidate, &before)));
                }
                self.admit_candidate(asked, &candidate)?
            }
            // `run` handles unchecked skills itself, so this is a source that could not be read.
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
        // Naming a held skill asks for its newest version, so the hold ends even if nothing
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
                // A registry's version tells nothing of the folders in its repository.
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

    /// Reads the current version at the source and runs the gate on it. Returns it with the
    /// installed version.
    fn examine_source(&self, asked: &DriftCheck) -> Result<(Candidate, Examined), Failure> {
        let (context, name) = (self.context, &asked.name);
        let before = history::read_installed(self.vault, name)
            .map_err(|error| fail!(SkillDamaged, "{}", message_chain(&error)))?
            .ok_or_else(|| fail!(SkillNotFound, "{name} is no longer installed"))?;
        let source = self.read_source(asked)?;
        let options = Options {
            name: Some(name.clone()),
            // The agents were chosen at `vault add`. An update changes only the files.
            agents: before.manifest.agents.clone(),
            // The user has taken these files before. A new one that looks like a secret is left
            // out.
            include: secrets::paths_of(&before.files),
            strict: self.strict,
            copy_links: match &asked.source {
                CurrentSource::Folder(_) => folders::copies_links(self.vault, name)?,
                CurrentSource::Fetched(_) => false,
            },
            // The skill may be removed while its source is read, and must not come back then.
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

    fn admit_candidate(
        &self,
        asked: &DriftCheck,
        candidate: &Candidate,
    ) -> Result<Option<ChangedSkill>, Failure> {
        let name = candidate.package.name.as_str();
        let report = admit_one(self.vault, candidate)
            .map_err(|error| admission_failure(name, &Texts::of_fetched(name, &[]), error))?;
        if report.is_change() {
            self.context.ui.print_line(admitted_text(&report));
        }
        // Also without a change: an update that was killed may not have written the lock.
        self.record_in_lock(asked, &report, candidate)?;
        if !report.is_change() {
            return Ok(None);
        }
        Ok(Some(ChangedSkill::Updated {
            report: Box::new(report),
            revision: candidate.provenance.revision.clone(),
        }))
    }

    /// Updates the skill's entry in the project's lock if it does not match the installed version.
    /// This happens if an earlier update was killed before it wrote the lock.
    fn complete_lock(&self, asked: &DriftCheck) -> Result<(), Failure> {
        let Some(mut lock) = project_lock::Lock::find_lock(self.context)? else {
            return Ok(());
        };
        let CurrentSource::Fetched(upstream) = &asked.source else {
            return Ok(());
        };
        let name = &asked.name;
        let source = upstream.identifier.as_str();
        // An entry with another source is about another skill of this name.
        let is_same = |locked: &&LockEntry| locked.name == *name && locked.source == source;
        let Some(locked) = lock.skills.iter().find(is_same) else {
            return Ok(());
        };
        let installed = project_lock::installed_content(self.vault, name)?;
        if locked.digest == installed.0 {
            return Ok(());
        }
        let agents = locked.agents.clone();
        lock.put_entry(project_lock::of_upstream(
            name.clone(),
            upstream,
            installed,
            agents,
        ));
        lock.write_file()
    }

    /// Updates the skill's entry in the project's lock, if the lock has one.
    fn record_in_lock(
        &self,
        asked: &DriftCheck,
        report: &AdmitReport,
        candidate: &Candidate,
    ) -> Result<(), Failure> {
        let Some(mut lock) = project_lock::Lock::find_lock(self.context)? else {
            return Ok(());
        };
        let mut entries = lock.skills.iter();
        let Some(entry) = entries.find(|locked| locked.name == report.name) else {
            return Ok(());
        };
        // The lock may name another source for the skill: then the entry stays.
        match &asked.source {
            CurrentSource::Fetched(upstream) if entry.source == upstream.identifier.as_str() => {
                let agents = entry.agents.clone();
                if let Some(locked) = project_lock::locked_entry(candidate) {
                    lock.put_entry(LockEntry { agents, ..locked });
                    lock.write_file()?;
                }
                Ok(())
            }
            CurrentSource::Folder(path) if entry.names_folder(lock.folder(), path) => {
                let agents = entry.agents.clone();
                let folder = path.to_string_lossy();
                project_lock::note_folder(self.context, self.vault, &folder, &report.name, &agents)
            }
            CurrentSource::Fetched(_) | CurrentSource::Folder(_) => Ok(()),
        }
    }

    fn show_difference(&mut self, candidate: &Candidate, before: &Examined) -> ChangedSkill {
        let name = &candidate.package.name;
        let difference = diff::diff_files(
            &diff::by_path(&before.files),
            &diff::by_path(&candidate.package.files),
            diff::Detail::Full,
        );
        // Differences are printed as they are found, so a separator comes before each but the
        // first.
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
