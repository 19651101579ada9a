//! `vault install --resolve`: puts the two sides of a merge together that left conflict markers in
//! `vault.lock`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{
    context::Context,
    errors::Failure,
    output::{clean, join},
    tasks::project_lock::{
        Lock, LockEntry,
        conflict::{Clash, Sides, merge_entries},
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
    let Some(sides) = Lock::read_conflict(&path)? else {
        return Ok(());
    };
    let merged = merge_entries(sides.ours.read_entries()?, sides.theirs.read_entries()?);
    let mut lock = Lock {
        path,
        skills: merged.entries,
    };
    // Write only where a project may be.
    lock.project_folder(context)?;
    for clash in merged.clashes {
        let is_ours = match resolution {
            Resolution::Ask => ask_for_side(context, &sides, &clash)?,
            resolution => resolution == Resolution::Ours,
        };
        lock.put_entry(if is_ours { clash.ours } else { clash.theirs });
    }
    lock.skills.sort_by(|a, b| a.name.cmp(&b.name));
    if !merged.single.is_empty() {
        // The other side may have removed such a skill, which the markers do not tell.
        let names = join(merged.single.iter().map(|locked| &locked.name));
        context.ui.note(format!("kept from one side each: {names}"));
    }
    lock.record(context)
}

/// Asks which side counts for a skill. Fails without a terminal, and names the flags that answer.
fn ask_for_side(context: &Context, sides: &Sides, clash: &Clash) -> Result<bool, Failure> {
    let name = &clash.ours.name;
    let option = |side: String, locked: &LockEntry| {
        let source = clean(&locked.source, 200);
        let at = match (&locked.revision, &locked.digest) {
            (Some(revision), _) => format!(" at {}", clean(revision, 40)),
            (None, Some(digest)) => format!(" with sha256 {digest}"),
            (None, None) => String::new(),
        };
        format!("{side}  {source}{at}")
    };
    let ours = option(sides.ours.shown(), &clash.ours);
    let options = vec![ours.clone(), option(sides.theirs.shown(), &clash.theirs)];
    let question = format!("Both sides changed {name}. Which one counts?");
    let flags = "vault install --resolve=ours, or --resolve=theirs";
    Ok(context.ui.choose_one(&question, flags, options)? == ours)
}
