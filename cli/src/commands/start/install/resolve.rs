//! `vault install --resolve`: puts the two sides of a merge together that left conflict markers in
//! `vault.lock`.

use std::{collections::BTreeSet, path::PathBuf};

use clap::ValueEnum;

use crate::{
    context::Context,
    errors::Failure,
    output::clean,
    tasks::{
        drift::shown_revision,
        project_install::{ProjectInstaller, Wanted},
        project_lock::{
            Lock, LockEntry, candidate_digest,
            conflict::{Clash, Sides, merge_entries},
        },
    },
};

/// The side that counts where both sides have other entries for one skill.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Resolution {
    /// A question for each skill.
    Ask,
    /// The side of the branch that is checked out.
    Ours,
    /// The side of the branch that is merged.
    Theirs,
}

/// Writes the lock with the skills of both sides. Does nothing if the lock has no conflict.
pub fn resolve_conflict(
    context: &Context,
    path: PathBuf,
    resolution: Resolution,
) -> Result<(), Failure> {
    // Write only where a project may be, and not beside another command.
    let folder = Lock::project_folder(context, &path)?;
    let _change = folder.begin_change()?;
    let Some((sides, mut lock)) = Lock::read_conflict(path)? else {
        return Ok(());
    };
    let ours = sides.ours.read_entries()?;
    let names: BTreeSet<_> = ours.iter().map(|locked| locked.name.clone()).collect();
    let merged = merge_entries(ours, sides.theirs.read_entries()?);
    lock.skills = merged.entries;
    let mut install = ProjectInstaller::new(context, folder)?;
    for clash in merged.clashes {
        if clash.is_same_folder() {
            // Git merged the files of the folder, so neither digest is right.
            lock.put_entry(current_entry(&mut install, clash.ours)?);
            continue;
        }
        let is_ours = match resolution {
            Resolution::Ask => ask_for_side(context, &sides, &clash)?,
            resolution => resolution == Resolution::Ours,
        };
        lock.put_entry(if is_ours { clash.ours } else { clash.theirs });
    }
    lock.skills.sort_by(|a, b| a.name.cmp(&b.name));
    for locked in &merged.single {
        // The other side may have removed such a skill, which the markers do not tell.
        let (name, ours, theirs) = (&locked.name, sides.ours.shown(), sides.theirs.shown());
        let (has, lacks) = if names.contains(name) {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        context.ui.note(format!(
            "only {has} has {name}: kept; if {lacks} removed it: vault remove {name} --project"
        ));
    }
    lock.record(context)
}

/// Returns the entry of a folder of the project, with the digest of its files as they are now.
fn current_entry(
    install: &mut ProjectInstaller<'_>,
    entry: LockEntry,
) -> Result<LockEntry, Failure> {
    let candidate = install.judge_entry(&entry, Wanted::Current)?;
    let document = String::from_utf8_lossy(candidate.package.document());
    let mut lines = document.lines();
    if lines.any(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ")) {
        let source = clean(&entry.source, 200);
        return Err(
            fail!(LockInvalid, "{source}/SKILL.md has conflict markers, too")
                .hint("resolve that file first, then run this again"),
        );
    }
    let digest = Some(candidate_digest(&candidate));
    Ok(LockEntry { digest, ..entry })
}

/// Asks which side counts for a skill. Fails without a terminal, and names the flags that answer.
fn ask_for_side(context: &Context, sides: &Sides, clash: &Clash) -> Result<bool, Failure> {
    let name = &clash.ours.name;
    let option = |side: String, locked: &LockEntry| {
        let source = clean(&locked.source, 200);
        let reference = locked.reference.as_ref();
        let reference = reference.map(|name| format!(" {}", clean(name, 60)));
        let digest = locked.digest.map(|digest| format!("sha256:{digest}"));
        let revision = locked.revision.clone().or(digest).unwrap_or_default();
        let (reference, revision) = (reference.unwrap_or_default(), shown_revision(&revision));
        format!("{side}  {source}{reference} ({revision})")
    };
    let ours = option(sides.ours.shown(), &clash.ours);
    let mut theirs = option(sides.theirs.shown(), &clash.theirs);
    if theirs.split_once("  ").map(|side| side.1) == ours.split_once("  ").map(|side| side.1) {
        theirs.push_str(", with other agents, files or signer");
    }
    let options = vec![ours.clone(), theirs];
    let question = format!("Both sides changed {name}. Which one counts?");
    let flags = "vault install --resolve=ours` or `--resolve=theirs";
    Ok(context.ui.choose_one(&question, flags, options)? == ours)
}
