//! Writes the numbered states of a linked vault and switches from one state to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vault_skill::hash::Digest;
use vault_skill::json;
use vault_skill::name::SkillName;

use super::error::LinkError;
use crate::disk::{self, Batch, FileError};
use crate::installed::linked::{Link, Pin, SetRecord};
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// What a link installs: its `set.json` and its symlinks into the store.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct InstalledSet {
    pub(super) record: SetRecord,
    pub(super) skills: BTreeMap<SkillName, Digest>,
}

/// A state to switch a link to.
pub(super) struct NewState<'a> {
    pub(super) pin: &'a Pin,
    pub(super) catalog: Option<&'a [u8]>,
    pub(super) set: SetChange<'a>,
}

/// Whether the new state reuses the current set or writes a new one.
pub(super) enum SetChange<'a> {
    /// Reuse the set of this link's current state.
    Keep(&'a Link),
    /// Write this set.
    Write(&'a InstalledSet),
}

/// Writes the set and the state under new numbers, flushes them, switches the `current` symlink,
/// and removes all but the last two states.
pub(super) fn switch(
    vault: &Vault,
    change: &mut Change<'_>,
    folder: &Path,
    state: &NewState<'_>,
) -> Result<(), LinkError> {
    let (states, sets) = (folder.join("states"), folder.join("sets"));
    disk::make_dirs(&states, 0o700)?;
    disk::make_dirs(&sets, 0o700)?;
    let aside = vault.scratch()?;
    let (staged_set, staged_state) = (aside.path().join("set"), aside.path().join("state"));
    let mut batch = Batch::default();
    let set_number = match &state.set {
        SetChange::Keep(link) => current_set(link)?,
        SetChange::Write(set) => {
            write_set(&mut batch, &staged_set, set)?;
            next_number(&sets)?
        }
    };
    write_state(&mut batch, &staged_state, state, set_number)?;
    batch.flush(aside.path())?;
    if matches!(state.set, SetChange::Write(_)) {
        disk::rename(&staged_set, &sets.join(set_number.to_string()))?;
        disk::sync_dir(&sets)?;
    }
    let number = next_number(&states)?;
    disk::rename(&staged_state, &states.join(number.to_string()))?;
    disk::sync_dir(&states)?;
    // Readers see nothing of the new state until `current` is switched.
    change.switching()?;
    disk::switch_link(
        &folder.join("current"),
        &Path::new("states").join(number.to_string()),
        aside.path(),
    )?;
    disk::sync_dir(folder)?;
    remove_old_states(folder, number)
}

fn write_set(batch: &mut Batch, folder: &Path, set: &InstalledSet) -> Result<(), LinkError> {
    batch.folder(folder, 0o700)?;
    batch.file(
        &folder.join("set.json"),
        &json::to_bytes(&set.record),
        0o600,
    )?;
    let links = folder.join("skills");
    batch.folder(&links, 0o755)?;
    for (name, hash) in &set.skills {
        disk::new_link(&links.join(name.as_str()), &store::link_target(hash, 5))?;
    }
    Ok(())
}

fn write_state(
    batch: &mut Batch,
    folder: &Path,
    state: &NewState<'_>,
    set_number: u64,
) -> Result<(), LinkError> {
    batch.folder(folder, 0o700)?;
    batch.file(&folder.join("pin.json"), &json::to_bytes(state.pin), 0o600)?;
    if let Some(bytes) = state.catalog {
        batch.file(&folder.join("catalog.json"), bytes, 0o600)?;
    }
    let set = Path::new("../../sets").join(set_number.to_string());
    Ok(disk::new_link(&folder.join("set"), &set)?)
}

fn current_set(link: &Link) -> Result<u64, LinkError> {
    let path = link.state.join("set");
    linked_number(&path)?.ok_or_else(|| {
        LinkError::Vault(VaultError::Damaged {
            path,
            reason: "it names no set".to_owned(),
        })
    })
}

/// The number at the end of a symlink to a numbered folder.
fn linked_number(link: &Path) -> Result<Option<u64>, FileError> {
    Ok(disk::link_target(link)?.and_then(|target| target.file_name()?.to_str()?.parse().ok()))
}

fn numbers(folder: &Path) -> Result<Vec<u64>, FileError> {
    Ok(disk::list(folder)?
        .into_iter()
        .filter_map(|(name, _)| name.to_str()?.parse().ok())
        .collect())
}

fn next_number(folder: &Path) -> Result<u64, FileError> {
    Ok(numbers(folder)?.into_iter().max().unwrap_or(0) + 1)
}

/// Removes all states except the current and the previous one, and the sets that neither uses. The
/// previous state stays because a reader may still have it open.
fn remove_old_states(folder: &Path, current: u64) -> Result<(), LinkError> {
    let (states, sets) = (folder.join("states"), folder.join("sets"));
    let mut kept = numbers(&states)?;
    kept.retain(|number| *number <= current);
    kept.sort_unstable();
    let kept: BTreeSet<_> = kept.into_iter().rev().take(2).collect();
    let mut kept_sets = BTreeSet::new();
    for number in &kept {
        kept_sets.extend(linked_number(&states.join(number.to_string()).join("set"))?);
    }
    for (folder, kept) in [(&states, &kept), (&sets, &kept_sets)] {
        for number in numbers(folder)? {
            if !kept.contains(&number) {
                disk::remove_tree(&folder.join(number.to_string()))?;
            }
        }
    }
    Ok(())
}
