//! The numbered sets of a linked vault: each is a folder with links to the skills of one pull.
//! Writes a new set and switches to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vault_format::name::{AgentId, SkillName};

use super::error::LinkError;
use crate::disk::{self, Batch, FileError, HeldPath};
use crate::installed::linked_agents::{self, AGENTS, AgentFolderEntries, write_agent_folder};
use crate::installed::linked_pins::{AgentSkills, LinkedSkill, Selection};
use crate::store;
use crate::vault::{Change, Vault};

/// The skills that a link installs together.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct InstalledSet {
    pub(super) selection: Selection,
    /// Skills, by the names under which they are installed.
    pub(super) skills: BTreeMap<SkillName, LinkedSkill>,
    /// Agents that get something else than these skills.
    pub(super) agents: BTreeMap<AgentId, AgentSkills>,
}

/// Writes a set with a new number, flushes it, switches the `current` symlink to it, and removes
/// all sets except the last two.
pub(super) fn switch_set(
    vault: &Vault,
    change: &mut Change<'_>,
    folder: &HeldPath,
    set: &InstalledSet,
    agents: &AgentFolderEntries,
) -> Result<(), LinkError> {
    let sets = folder.join("sets");
    disk::make_dirs(&sets, 0o700)?;
    // This path stays the same and follows the `current` symlink to the newest set.
    let skills = folder.join("skills");
    if disk::kind_at(&skills)?.is_none() {
        disk::new_link(&skills, Path::new("current/skills"))?;
    }
    linked_agents::make_constant_link(folder)?;
    let aside = vault.new_scratch()?;
    let staged = aside.path().join("set");
    let mut batch = Batch::default();
    write_set(&mut batch, &staged, set, agents)?;
    batch.flush(aside.path())?;
    // Use a new number each time, so that a reader that followed `current` before the switch still
    // finds a complete set.
    let number = set_numbers(&sets)?.into_iter().max().unwrap_or(0) + 1;
    disk::rename(&staged, &sets.join(number.to_string()))?;
    disk::sync_dir(&sets)?;
    // Readers see nothing of the new set before `current` is switched.
    change.mark_changing()?;
    disk::switch_link(
        &folder.join("current"),
        &Path::new("sets").join(number.to_string()),
        aside.path(),
    )?;
    disk::sync_dir(folder)?;
    remove_old_sets(&sets, number)
}

fn write_set(
    batch: &mut Batch,
    folder: &HeldPath,
    set: &InstalledSet,
    agents: &AgentFolderEntries,
) -> Result<(), LinkError> {
    batch.make_folder(folder, 0o700)?;
    let links = folder.join("skills");
    batch.make_folder(&links, 0o755)?;
    for (name, skill) in &set.skills {
        let target = store::link_target(&skill.bundle, 5);
        disk::new_link(&links.join(name.as_str()), &target)?;
    }
    let folders = folder.join(AGENTS);
    batch.make_folder(&folders, 0o755)?;
    let plain = set.skills.iter();
    let plain = plain.map(|(name, skill)| (name.clone(), skill.bundle));
    let plain = plain.collect();
    for (agent, bundles) in agents {
        write_agent_folder(batch, &folders.join(agent.as_str()), bundles, &plain)?;
    }
    Ok(())
}

fn set_numbers(folder: &HeldPath) -> Result<Vec<u64>, FileError> {
    Ok(disk::list(folder)?
        .into_iter()
        .filter_map(|(name, _)| name.to_str()?.parse().ok())
        .collect())
}

/// Removes all sets except the current one and the one before, which a reader may still use.
fn remove_old_sets(sets: &HeldPath, current: u64) -> Result<(), LinkError> {
    let mut kept = set_numbers(sets)?;
    kept.retain(|number| *number <= current);
    kept.sort_unstable();
    let kept: BTreeSet<_> = kept.into_iter().rev().take(2).collect();
    for number in set_numbers(sets)? {
        if !kept.contains(&number) {
            disk::remove_tree(&sets.join(number.to_string()))?;
        }
    }
    Ok(())
}
