//! `vault update --project`: brings the entries of a project's `vault.lock` to what their sources
//! have now, and installs them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    hash::Digest,
    name::{SkillName, SkillRef},
};
use vault_library::agents::ProjectLinks;
use vault_shelf::DriftState;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, DIM, GOOD, Report, clean, count, diff, either},
    tasks::{
        admission::outcomes::{FailedSkill, Outcomes},
        drift::warn_of_rewritten,
        project_drift::{check_addresses, compare_entries, find_entries},
        project_install::{ProjectInstaller, Wanted},
        project_lock::{self, Lock, LockEntry},
        project_scope::LockedProject,
        requirements,
    },
};

/// The output of `vault update --project`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct UpdatedProject {
    #[serde(flatten)]
    changed: ChangedEntries,
    /// Names of skills that equal their source.
    up_to_date: Vec<SkillName>,
    /// Skills that could not be updated.
    failed: Vec<FailedSkill>,
    /// Path of the folder that contains the project's `vault.lock`.
    project: PathBuf,
    #[serde(flatten)]
    links: ProjectLinks,
}

/// The entries of the lock whose sources changed.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum ChangedEntries {
    /// Entries that were updated; absent with `--diff`.
    Updated(Vec<ChangedEntry>),
    /// Entries that would be updated; only with `--diff`.
    Drifted(Vec<ChangedEntry>),
}

/// An entry of the lock whose source changed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ChangedEntry {
    /// Name of the skill.
    name: SkillName,
    /// Source of the entry.
    source: String,
    /// The commit, version or digest that the lock named before; null if it named none.
    recorded: Option<String>,
    /// The commit, version or digest at the source now; null if the source has none.
    revision: Option<String>,
    /// SHA-256 over the files of the skill at the source now.
    digest: Digest,
    /// The lines of the difference; only with `--diff`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diff: Vec<String>,
}

/// Updates the named entries, or all; with `only_diff` shows the differences instead. A skill that
/// fails does not stop the others.
pub fn update_project(
    context: &Context,
    project: LockedProject,
    names: &[SkillRef],
    only_diff: bool,
) -> Result<Report, Failure> {
    let LockedProject { lock, folder, .. } = project;
    check_addresses(context, &lock)?;
    let entries = find_entries(&lock, names)?;
    let path = folder.path().to_owned();
    let mut install = ProjectInstaller::new(context, folder)?;
    let states = compare_entries(context, &mut install, &entries)?;
    let before = lock.skills.clone();
    let mut update = EntryUpdater {
        context,
        install,
        lock,
        only_diff,
        has_shown: false,
    };
    let mut outcomes = Outcomes::new(context);
    for (locked, state) in entries.iter().zip(states) {
        outcomes.record_result(&locked.name, update.update_entry(locked, state));
    }
    let EntryUpdater { install, lock, .. } = update;
    // Write the lock even if some skills failed: the others are installed.
    if lock.skills != before {
        lock.record(context)?;
    }
    let links = if only_diff {
        ProjectLinks::default()
    } else {
        install.link_skills(&lock.names())?
    };
    // A new version may require other skills, or exclude those that are there.
    if !only_diff {
        requirements::warn_of_unmet(context, &lock)?;
        requirements::warn_of_unneeded(context, &lock);
    }
    let (changed, same) = (outcomes.done.len(), outcomes.unchanged.len());
    let entries = if only_diff {
        ChangedEntries::Drifted
    } else {
        ChangedEntries::Updated
    };
    let view = outcomes.into_result("updated", |done, up_to_date, failed| UpdatedProject {
        changed: entries(done),
        up_to_date,
        failed,
        project: path,
        links,
    })?;
    let text = if changed == 0 {
        format!("{DIM}{} up to date{DIM:#}", count(same, "skill"))
    } else {
        String::new()
    };
    let differs = only_diff && changed > 0;
    Ok(Report::view(view, text).with_exit(either(differs, Exit::Differences, Exit::Done)))
}

struct EntryUpdater<'a> {
    context: &'a Context,
    install: ProjectInstaller<'a>,
    lock: Lock,
    /// Whether differences are shown and nothing is changed.
    only_diff: bool,
    /// Whether a difference was printed. An empty line separates it from the next one.
    has_shown: bool,
}

impl EntryUpdater<'_> {
    /// Updates one entry, or shows the difference. Returns `None` if it equals its source.
    fn update_entry(
        &mut self,
        locked: &LockEntry,
        state: DriftState,
    ) -> Result<Option<ChangedEntry>, Failure> {
        match state {
            DriftState::UpToDate => return Ok(None),
            DriftState::Drifted {
                recorded,
                is_rewritten: true,
                ..
            } => warn_of_rewritten(self.context, &locked.name, &recorded, !self.only_diff),
            // An entry that is not resolved has nothing to compare, and gets what the source has.
            DriftState::Unchecked(_) if locked.digest.is_none() => {}
            DriftState::Drifted { .. } => {}
            DriftState::Removed(reason) => {
                return Err(fail!(SourceRemoved, "{}", clean(&reason, 400)));
            }
            DriftState::Refused(reason) => {
                return Err(fail!(SourceRefused, "{}", clean(&reason, 400)));
            }
            DriftState::Unchecked(reason) | DriftState::Failed(reason) => {
                return Err(fail!(SourceFailed, "{}", clean(&reason, 400)));
            }
        }
        if self.only_diff {
            return self.show_difference(locked).map(Some);
        }
        let (_, settled) = self.install.install_entry(locked, Wanted::Current)?;
        let Some(entry) = settled.filter(|entry| entry != locked) else {
            return Ok(None);
        };
        self.lock.put_entry(entry.clone());
        Ok(entry
            .digest
            .map(|digest| changed_entry(locked, entry.revision, digest)))
    }

    /// Prints the difference between the locked files and those at the source.
    fn show_difference(&mut self, locked: &LockEntry) -> Result<ChangedEntry, Failure> {
        let before = self.install.locked_files(locked)?;
        let candidate = self.install.examine_entry(locked, Wanted::Current)?;
        let difference = diff::diff_files(
            &diff::by_path(&before),
            &diff::by_path(&candidate.package.files),
            diff::Detail::Full,
        );
        // Each difference is printed as soon as it is found, so an empty line goes before each but
        // the first.
        if std::mem::replace(&mut self.has_shown, true) {
            self.context.ui.print_line("");
        }
        let name = &locked.name;
        let line = format!("{GOOD}↑{GOOD:#} {BOLD}{name}{BOLD:#}");
        self.context.ui.print_line(line);
        for line in &difference.lines {
            self.context.ui.print_line(line);
        }
        let digest = project_lock::candidate_digest(&candidate);
        let mut entry = changed_entry(locked, candidate.provenance.revision, digest);
        entry.diff = difference.plain_lines();
        Ok(entry)
    }
}

fn changed_entry(locked: &LockEntry, revision: Option<String>, digest: Digest) -> ChangedEntry {
    let recorded = locked.revision.clone();
    ChangedEntry {
        name: locked.name.clone(),
        source: locked.source.clone(),
        recorded: recorded.or_else(|| Some(format!("sha256:{}", locked.digest?))),
        revision,
        digest,
        diff: Vec::new(),
    }
}
