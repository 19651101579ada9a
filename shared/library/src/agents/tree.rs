//! The link trees in the vault: `profiles/<profile>/<skill>`, one symlink for each skill that a
//! profile shows.
//!
//! Symlinks in an agent's folder point to these trees, not into the store. As soon as
//! `skills/<name>` is switched, all agents see the new version of a skill.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use vault_format::name::SkillName;

use super::profiles::PlannedProfile;
use crate::disk::{self, FileError, HeldPath, Kind, Location};
use crate::installed::agent_links::entries::{LinkEntry, list_entries};
use crate::installed::agent_links::record::link_trees_folder;
use crate::vault::{Vault, VaultError};

/// The changes to the links of one profile.
#[derive(Debug, Default)]
pub(super) struct TreeChange {
    /// The tree's folder, `profiles/<profile>`.
    folder: HeldPath,
    /// Symlinks to create or to point to another target.
    links_to_set: Vec<(SkillName, PathBuf)>,
    links_to_remove: Vec<OsString>,
    /// Whether the folder itself is removed, because no profile has this name any more.
    is_removed: bool,
}

impl TreeChange {
    /// Returns whether the entry of a skill in this tree has to change.
    pub(super) fn changes_entry(&self, folder: &str, name: &SkillName) -> bool {
        self.folder.path_below().ends_with(folder)
            && self.links_to_set.iter().any(|(changed, _)| changed == name)
    }

    /// Returns whether the tree stays as it is.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_removed && self.links_to_set.is_empty() && self.links_to_remove.is_empty()
    }
}

/// Compares the trees with the wanted profiles. An entry that is not a symlink was not made by the
/// vault: its path is added to `strange`, and it is left alone.
pub(super) fn compare_trees(
    vault: &Vault,
    wanted: &[PlannedProfile],
    strange: &mut Vec<PathBuf>,
) -> Result<Vec<TreeChange>, VaultError> {
    let root = link_trees_folder(vault);
    let nothing = BTreeMap::new();
    let mut changes = Vec::new();
    let mut wanted_folders = BTreeSet::new();
    for profile in wanted {
        wanted_folders.insert(profile.folder.as_str());
        let folder = root.join(&profile.folder);
        changes.push(compare_one(&folder, &profile.skills, strange)?);
    }
    for (name, kind) in disk::list(&root)? {
        let is_known = name
            .to_str()
            .is_some_and(|name| wanted_folders.contains(name));
        if is_known {
            continue;
        }
        if kind != Kind::Dir {
            strange.push(root.join(name).path());
            continue;
        }
        // No profile has this tree any more, so remove all its links, then the folder.
        let mut change = compare_one(&root.join(name), &nothing, strange)?;
        change.is_removed = true;
        changes.push(change);
    }
    changes.retain(|change| !change.is_empty());
    Ok(changes)
}

/// Compares one tree with the skills that its profile shows.
fn compare_one(
    folder: &HeldPath,
    wanted: &BTreeMap<SkillName, super::profiles::ShownSkill>,
    strange: &mut Vec<PathBuf>,
) -> Result<TreeChange, VaultError> {
    let mut change = TreeChange {
        folder: folder.clone(),
        ..TreeChange::default()
    };
    let mut seen = BTreeSet::new();
    for (name, entry) in list_entries(folder)? {
        let skill = name.to_str().and_then(|name| wanted.get_key_value(name));
        match (entry, skill) {
            (LinkEntry::Link(target), Some((name, shown))) => {
                seen.insert(name);
                if target != shown.target.as_os_str().as_encoded_bytes() {
                    change
                        .links_to_set
                        .push((name.clone(), shown.target.clone()));
                }
            }
            (LinkEntry::Link(_), None) => change.links_to_remove.push(name),
            // Vault makes only links here, so this entry is not its own and is neither replaced nor
            // removed.
            (LinkEntry::Folder | LinkEntry::Other, skill) => {
                seen.extend(skill.map(|(name, _)| name));
                strange.push(folder.join(name).path());
            }
        }
    }
    let missing = wanted.iter().filter(|(name, _)| !seen.contains(name));
    change
        .links_to_set
        .extend(missing.map(|(name, shown)| (name.clone(), shown.target.clone())));
    Ok(change)
}

/// Applies the changes. `kept` are links that must stay although no profile shows them: an agent's
/// folder that could not be changed still leads to them.
pub(super) fn apply_trees(
    changes: &[TreeChange],
    aside: &HeldPath,
    kept: &BTreeSet<PathBuf>,
) -> Result<(), FileError> {
    for change in changes {
        let folder = &change.folder;
        if !change.is_removed {
            disk::make_dirs(folder, 0o755)?;
        }
        for (name, target) in &change.links_to_set {
            disk::switch_link(&folder.join(name.as_str()), target, aside)?;
        }
        let mut keeps_links = false;
        for name in &change.links_to_remove {
            let path = folder.join(name);
            if kept.contains(&path.path()) {
                keeps_links = true;
            } else {
                disk::remove_file(&path)?;
            }
        }
        // One flush covers all links of the folder.
        disk::sync_dir(folder)?;
        // A link that stays still needs its folder.
        if change.is_removed && !keeps_links {
            disk::remove_empty(folder)?;
        }
    }
    Ok(())
}
