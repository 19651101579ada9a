//! Removes skills from the agents' folders before they leave the vault.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use vault_format::name::SkillName;

use super::copies;
use super::entries::{LinkEntry, is_ours, list_entries, own_link_targets, removed_link_targets};
use super::record::{AgentFolders, CopyRecord, link_trees_folder};
use crate::disk::{self, FileError, Kind};
use crate::vault::{Change, Vault, VaultError};

/// Removes skills from the agents' folders and from the link trees, before they leave the vault, so
/// that no link dangles. `further` are agents' folders that are not recorded. Returns the folders
/// that showed the skills, with the names that were removed there. Fails while the skills are still
/// complete if an agent's folder can't be changed.
pub(crate) fn withdraw_from_agents(
    vault: &Vault,
    change: &mut Change<'_>,
    names: &[SkillName],
    further: &[PathBuf],
) -> Result<Vec<(PathBuf, Vec<SkillName>)>, VaultError> {
    let mut record = AgentFolders::read(vault)?;
    let homes = removed_link_targets(vault);
    let mut removed = Vec::new();
    for root in &mut record.roots {
        let names = unlink_skills(&root.path, names, &homes, &mut root.copies)?;
        removed.push((root.path.clone(), names));
    }
    for path in further {
        if record.roots.iter().all(|root| root.path != *path) {
            let names = unlink_skills(path, names, &homes, &mut BTreeMap::new())?;
            removed.push((path.clone(), names));
        }
    }
    removed.retain(|(_, names)| !names.is_empty());
    // Most removals touch no copies, and then the record needs no write.
    if record != AgentFolders::read(vault)? {
        record.write(vault, change)?;
    }
    unlink_trees(vault, names)?;
    Ok(removed)
}

/// Removes the links to these skills and the unedited copies of them from a folder. Copies also
/// leave the record `copies_there`. Returns the names that the folder showed.
pub(crate) fn unlink_skills(
    root: &Path,
    names: &[SkillName],
    homes: &[PathBuf],
    copies_there: &mut BTreeMap<SkillName, CopyRecord>,
) -> Result<Vec<SkillName>, FileError> {
    let mut removed = Vec::new();
    if !disk::is_folder(root) {
        return Ok(removed);
    }
    let real = disk::resolve(root)?;
    for (entry_name, entry) in list_entries(&real)? {
        let LinkEntry::Link(target) = &entry else {
            continue;
        };
        // Match links by target, not by name. This also finds links under other names and those
        // that a killed process left, so that no link is left dangling.
        let aimed = names.iter().find(|name| {
            is_ours(target, homes)
                && target
                    .rsplit(|byte| *byte == b'/')
                    .next()
                    .is_some_and(|last| last == name.as_str().as_bytes())
        });
        if let Some(name) = aimed {
            disk::remove_file(&real.join(&entry_name))?;
            if !removed.contains(name) {
                removed.push(name.clone());
            }
        }
    }
    if !removed.is_empty() {
        disk::sync_dir(&real)?;
    }
    for name in names {
        let Some(record) = copies_there.remove(name) else {
            continue;
        };
        let copy_hash = copies::hash_copy_folder(&real.join(name.as_str()));
        // A copy that the user edited is theirs: it stays, and its record is dropped.
        if copy_hash.is_some_and(|found| record.contents.contains(&found)) {
            copies::remove_copy(&real, name.as_str())?;
            removed.push(name.clone());
        }
    }
    Ok(removed)
}

/// Removes the entries of the link trees that have one of these targets, and the links of the
/// agents' folders to these entries, before the targets disappear. Copies stay until the next sync,
/// because they do not dangle. Returns the agents' folders with the names that were removed there.
pub(crate) fn withdraw_targets(
    vault: &Vault,
    targets: &BTreeSet<PathBuf>,
) -> Result<Vec<(PathBuf, Vec<SkillName>)>, VaultError> {
    let trees = link_trees_folder(vault);
    let lost: HashSet<&[u8]> = targets
        .iter()
        .map(|target| target.as_os_str().as_encoded_bytes())
        .collect();
    let mut entries = Vec::new();
    for (folder, kind) in disk::list(&trees)? {
        if targets.is_empty() || kind != Kind::Dir {
            continue;
        }
        for (name, entry) in list_entries(&trees.join(&folder))? {
            if matches!(&entry, LinkEntry::Link(target) if lost.contains(&target[..])) {
                entries.push(Path::new(&folder).join(name));
            }
        }
    }
    let mut removed = Vec::new();
    if entries.is_empty() {
        return Ok(removed);
    }
    let homes = own_link_targets(vault);
    let places: HashSet<PathBuf> = homes
        .iter()
        .flat_map(|home| entries.iter().map(|entry| home.join(entry)))
        .collect();
    let places: HashSet<&[u8]> = places
        .iter()
        .map(|place| place.as_os_str().as_encoded_bytes())
        .collect();
    for root in AgentFolders::read(vault)?.roots {
        if !disk::is_folder(&root.path) {
            continue;
        }
        let real = disk::resolve(&root.path)?;
        let mut names = Vec::new();
        for (entry_name, entry) in list_entries(&real)? {
            let LinkEntry::Link(target) = &entry else {
                continue;
            };
            if places.contains(&target[..]) {
                disk::remove_file(&real.join(&entry_name))?;
                names.extend(entry_name.to_string_lossy().parse::<SkillName>());
            }
        }
        if !names.is_empty() {
            disk::sync_dir(&real)?;
            removed.push((root.path, names));
        }
    }
    for entry in entries {
        let path = trees.join(entry);
        disk::remove_file(&path)?;
        if let Some(folder) = path.parent() {
            disk::sync_dir(&folder)?;
        }
    }
    Ok(removed)
}

/// Removes the links to these skills from every link tree. Returns whether there were any.
pub(crate) fn unlink_trees(vault: &Vault, names: &[SkillName]) -> Result<bool, FileError> {
    let root = link_trees_folder(vault);
    let mut any = false;
    for (folder, kind) in disk::list(&root)? {
        if kind != Kind::Dir {
            continue;
        }
        let folder = root.join(folder);
        let mut changed = false;
        for name in names {
            let path = folder.join(name.as_str());
            // The vault puts only links here, so any other entry is the user's.
            if disk::kind_at(&path)? == Some(Kind::Link) {
                changed |= disk::remove_file(&path)?;
            }
        }
        if changed {
            disk::sync_dir(&folder)?;
        }
        any |= changed;
    }
    Ok(any)
}
