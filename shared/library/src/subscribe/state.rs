//! The numbered states of a linked vault on disk, and the switch between two of them.

use std::collections::BTreeSet;
use std::path::Path;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use super::error::LinkError;
use crate::files::{self, Batch, FileError};
use crate::installed::linked::{Link, Pin, SetRecord};
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// A state to switch a link to.
pub(super) struct NewState<'a> {
    pub(super) pin: &'a Pin,
    pub(super) catalog: Option<&'a [u8]>,
    pub(super) set: Set<'a>,
}

pub(super) enum Set<'a> {
    /// The set that this state of the link names.
    Kept(&'a Link),
    /// A new one.
    Written(&'a SetRecord, &'a [(SkillName, Digest)]),
}

/// Writes set and state under fresh numbers, flushes, switches `current`, and removes those before the last.
pub(super) fn switch(
    vault: &Vault,
    change: &mut Change<'_>,
    folder: &Path,
    state: &NewState<'_>,
) -> Result<(), LinkError> {
    let (states, sets) = (folder.join("states"), folder.join("sets"));
    files::make_dirs(&states, 0o700)?;
    files::make_dirs(&sets, 0o700)?;
    let aside = vault.scratch()?;
    let mut batch = Batch::default();
    let set_number = match &state.set {
        Set::Kept(link) => current_set(link)?,
        Set::Written(record, skills) => {
            let number = next_number(&sets)?;
            let staged = aside.path().join("set");
            batch.folder(&staged, 0o700)?;
            batch.file(
                &staged.join("set.json"),
                &vault_skill::json::to_bytes(record),
                0o600,
            )?;
            let links = staged.join("skills");
            batch.folder(&links, 0o755)?;
            for (name, hash) in *skills {
                files::new_link(&links.join(name.as_str()), &store::link_target(hash, 5))?;
            }
            number
        }
    };
    let staged = aside.path().join("state");
    batch.folder(&staged, 0o700)?;
    batch.file(
        &staged.join("pin.json"),
        &vault_skill::json::to_bytes(state.pin),
        0o600,
    )?;
    if let Some(bytes) = state.catalog {
        batch.file(&staged.join("catalog.json"), bytes, 0o600)?;
    }
    files::new_link(
        &staged.join("set"),
        &Path::new("../../sets").join(set_number.to_string()),
    )?;
    batch.flush(aside.path())?;
    if matches!(state.set, Set::Written(..)) {
        files::rename(
            &aside.path().join("set"),
            &sets.join(set_number.to_string()),
        )?;
        files::sync_dir(&sets)?;
    }
    let number = next_number(&states)?;
    files::rename(&staged, &states.join(number.to_string()))?;
    files::sync_dir(&states)?;
    change.switching()?;
    files::switch_link(
        &folder.join("current"),
        &Path::new("states").join(number.to_string()),
        aside.path(),
    )?;
    files::sync_dir(folder)?;
    tidy(folder, number)
}

fn current_set(link: &Link) -> Result<u64, LinkError> {
    files::link_target(&link.state.join("set"))?
        .and_then(|target| target.file_name()?.to_str()?.parse().ok())
        .ok_or_else(|| {
            LinkError::Vault(VaultError::Damaged {
                path: link.state.join("set"),
                reason: "it names no set".to_owned(),
            })
        })
}

fn numbers(folder: &Path) -> Result<Vec<u64>, FileError> {
    Ok(files::list(folder)?
        .into_iter()
        .filter_map(|(name, _)| name.to_str()?.parse().ok())
        .collect())
}

fn next_number(folder: &Path) -> Result<u64, FileError> {
    Ok(numbers(folder)?.into_iter().max().unwrap_or(0) + 1)
}

/// Removes states and sets that neither the current state nor the one before it names: a reader may be in that one.
fn tidy(folder: &Path, current: u64) -> Result<(), LinkError> {
    let states = folder.join("states");
    let mut kept: Vec<_> = numbers(&states)?
        .into_iter()
        .filter(|number| *number <= current)
        .collect();
    kept.sort_unstable();
    let kept = kept.split_off(kept.len().saturating_sub(2));
    let mut sets = BTreeSet::new();
    for number in &kept {
        let target = files::link_target(&states.join(number.to_string()).join("set"))?;
        sets.extend(target.and_then(|target| target.file_name()?.to_str()?.parse::<u64>().ok()));
    }
    for number in numbers(&states)? {
        if !kept.contains(&number) {
            files::remove_tree(&states.join(number.to_string()))?;
        }
    }
    for number in numbers(&folder.join("sets"))? {
        if !sets.contains(&number) {
            files::remove_tree(&folder.join("sets").join(number.to_string()))?;
        }
    }
    Ok(())
}
