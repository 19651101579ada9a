//! `vault install`: installs the skills of a project exactly as its `vault.lock` records them.

mod resolve;

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::SkillName;
use vault_library::{admit::AdmitReport, agents::ProjectLinks};

use self::resolve::{Resolution, resolve_conflict};
use crate::{
    commands::start::add::project::linked_text,
    context::Context,
    errors::Failure,
    output::{DIM, Report, count, join},
    tasks::{
        admission::{
            admitted_text,
            outcomes::{FailedSkill, Outcomes},
        },
        project_drift::check_addresses,
        project_install::{self, ProjectInstaller, Wanted},
        project_lock::Lock,
        project_scope::LockedProject,
        requirements::{self, RequiredSkill, ShownRequirement},
    },
};

/// The arguments of `vault install`.
#[derive(Args, Debug)]
#[command(after_help = "\
Installs every skill in the nearest vault.lock at the commit or version listed there, and refuses \
content with another digest (exit 6). Skills that are already installed with that content need no \
network. Skills that the lock no longer lists are removed.

The skills belong to the project. They are linked in its .vault/skills and in the folders where \
agents read a project's skills. They replace none of your own skills and are not published.

An entry that names only a source is resolved and written to the lock. With --frozen this is an \
error (exit 3), and the lock is never written.

If two branches changed vault.lock and git left conflict markers in it, --resolve keeps the skills \
of both, and asks where they differ.

Examples:
  vault install
  vault install --frozen
  vault install --resolve
  vault list --project")]
pub struct Arguments {
    /// Never write the lock; fail if it is incomplete
    #[arg(long)]
    frozen: bool,
    /// Put the two sides of an unfinished merge together: ask where they differ, or take one
    #[arg(
        long,
        value_name = "SIDE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "ask",
        conflicts_with = "frozen"
    )]
    resolve: Option<Resolution>,
    /// The project's folder [default: that of the nearest vault.lock]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    // Accepted because the other commands for projects need it; this one has no other scope.
    #[arg(long = "project", hide = true)]
    _project: bool,
}

/// The skills of a project after `vault install`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Installation {
    /// Skills that were installed or changed.
    installed: Vec<AdmitReport>,
    /// Names of the skills that had the locked content already.
    unchanged: Vec<SkillName>,
    /// Skills that could not be installed.
    failed: Vec<FailedSkill>,
    /// Skills that came along because a resolved entry requires them.
    required: Vec<ShownRequirement>,
    #[serde(flatten)]
    links: ProjectLinks,
}

/// Installs the skills in the project's lock.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(resolution) = arguments.resolve {
        let path = Lock::find_existing(context, arguments.root.as_deref())?;
        resolve_conflict(context, path, resolution)?;
    }
    let project = LockedProject::read_to_change(context, arguments.root.as_deref())?;
    install_project(context, project, arguments.frozen)
}

/// Installs the skills of a project. With `is_frozen`, the lock is never written.
pub fn install_project(
    context: &Context,
    project: LockedProject,
    is_frozen: bool,
) -> Result<Report, Failure> {
    let LockedProject {
        mut lock, folder, ..
    } = project;
    // Check this before the first request: reviewers read the source of an entry, but vault fetches
    // its address.
    check_addresses(context, &lock)?;
    requirements::check_lock(context, &lock)?;
    let stale = lock.skills.iter().filter(|locked| locked.digest.is_none());
    let stale = join(stale.map(|locked| &locked.name));
    // `--frozen` installs only what was reviewed. An entry without a digest would install whatever
    // its source has today.
    if is_frozen && !stale.is_empty() {
        return Err(
            fail!(LockStale, "{} is out of date: {stale}", lock.path.display())
                .hint("run vault install without --frozen, and commit the lock"),
        );
    }
    let mut install = ProjectInstaller::new(context, folder)?;
    let mut outcomes = Outcomes::new(context);
    // Ask before anything is installed, written or removed.
    let required = confirm_required(context, &mut install, &lock)?;
    let mut is_changed = !required.is_empty();
    let required = install_required(context, &mut install, &mut lock, required, &mut outcomes)?;
    // A copy, because the loop replaces entries of the lock.
    for locked in lock.skills.clone() {
        let result = install
            .install_entry(&locked, Wanted::Locked)
            .map(|(outcome, settled)| {
                if let Some(entry) = settled.filter(|entry| *entry != locked) {
                    is_changed = true;
                    lock.put_entry(entry);
                }
                outcome
            });
        outcomes.record_result(&locked.name, result);
    }
    // Write the lock even if some skills failed, so that the next run need not resolve the others
    // again.
    if is_changed {
        lock.record(context)?;
    }
    // Pass all names of the lock, because links of other names are removed. A skill that failed
    // keeps the link to its earlier version.
    let links = install.link_skills(&lock.names())?;
    requirements::warn_of_unmet(context, &lock)?;
    let (done, unchanged) = (outcomes.done.len(), outcomes.unchanged.len());
    let done = count(done, "skill");
    let mut text = format!("{DIM}{done} installed, {unchanged} unchanged{DIM:#}");
    if !outcomes.done.is_empty() {
        text = format!("{text}\n{}", linked_text(&links));
    }
    let view = outcomes.into_result("installed", |installed, unchanged, failed| Installation {
        installed,
        unchanged,
        failed,
        required,
        links,
    })?;
    Ok(Report::view(view, text))
}

/// Returns the skills that the entries without a digest require and the lock lacks, after a
/// question. Changes nothing.
fn confirm_required(
    context: &Context,
    install: &mut ProjectInstaller<'_>,
    lock: &Lock,
) -> Result<Vec<RequiredSkill>, Failure> {
    let none = BTreeSet::new();
    let mut after = lock.clone();
    let mut resolved = Vec::new();
    for locked in lock.skills.iter().filter(|locked| locked.digest.is_none()) {
        // The installation reports what cannot be fetched or is refused.
        if let Ok(candidate) = install.judge_entry(locked, Wanted::Locked) {
            let entry = project_install::resolved_entry(context, locked, &candidate);
            after.put_entry(entry.clone());
            resolved.push(entry);
        }
    }
    let mut required = Vec::new();
    for entry in resolved {
        for skill in requirements::confirm_required(context, install, &after, &entry, &none)? {
            after.put_entry(skill.entry.clone());
            required.push(skill);
        }
    }
    Ok(required)
}

/// Installs the skills that the user confirmed, and puts their entries into the lock in memory.
fn install_required(
    context: &Context,
    install: &mut ProjectInstaller<'_>,
    lock: &mut Lock,
    required: Vec<RequiredSkill>,
    outcomes: &mut Outcomes<'_, AdmitReport>,
) -> Result<Vec<ShownRequirement>, Failure> {
    let mut shown = Vec::new();
    for skill in required {
        let report = install.install_candidate(&skill.candidate)?;
        context.ui.print_line(admitted_text(&report));
        shown.push(skill.to_shown());
        outcomes.record_result(&skill.entry.name, Ok(Some(report)));
        lock.put_entry(skill.entry);
    }
    Ok(shown)
}
