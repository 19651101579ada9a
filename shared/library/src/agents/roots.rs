//! Compares the agents' skill folders with the profiles and applies the difference.
//!
//! Only three kinds of entries are ever changed there: symlinks into the vault's `profiles/`,
//! copies whose content still matches its record, and temporary entries with the vault's own name
//! prefix. Everything else belongs to the user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::name::SkillName;

use super::copies::{self, VerifiedCopy};
use super::profiles::{PlannedProfile, ShownSkill};
use super::report::RootState;
use crate::disk::{self, FileError, Location};
use crate::installed::agent_links::copies::{ASIDE, hash_copy_folder, remove_copy};
use crate::installed::agent_links::entries::{LinkEntry, is_ours, list_entries, own_link_targets};
use crate::installed::agent_links::record::{
    CopyRecord, RootMode, RootRecord, RootScope, link_trees_folder,
};
use crate::vault::Vault;

/// The changes to one agent's folder, and the entries that stay.
#[derive(Debug, Default)]
pub(super) struct RootChange {
    /// The folder as the record will describe it, with its path as the user knows it.
    pub(super) record: RootRecord,
    /// The path with every symlink resolved. All changes are made there.
    real: PathBuf,
    /// Whether the folder is missing and will be created.
    create: bool,
    /// Whether the folder is missing and will not be created.
    pub(super) missing: bool,
    links_to_make: Vec<(SkillName, PathBuf)>,
    links_to_switch: Vec<(SkillName, PathBuf)>,
    links_to_drop: Vec<OsString>,
    /// Copies to create or replace; always empty in a folder of symlinks.
    copies_to_make: Vec<(SkillName, ShownSkill)>,
    /// Verified files for the copies above, added by [`Self::prepare_copies`].
    verified: Vec<(SkillName, VerifiedCopy)>,
    remove_copies: Vec<SkillName>,
    /// Temporary entries of a killed sync.
    leftovers: Vec<OsString>,
    /// Skills that are not shown because an entry of the user has their name.
    pub(super) foreign: Vec<SkillName>,
    /// Entries of `foreign` that no sync has reported yet.
    newly_foreign: Vec<SkillName>,
    /// The bundle of each skill that the folder shows, or will show.
    pub(super) shows: BTreeMap<SkillName, Digest>,
    /// The skills that are already up to date.
    pub(super) up_to_date: Vec<SkillName>,
    /// Symlinks that do not belong to the vault.
    foreign_links: Vec<OsString>,
    /// Error that kept the folder from being changed, for messages.
    pub(super) failed: Option<String>,
}

impl RootChange {
    /// Returns whether the sync leaves the folder as it is.
    pub(super) fn is_empty(&self) -> bool {
        !self.create
            && self.links_to_make.is_empty()
            && self.links_to_switch.is_empty()
            && self.links_to_drop.is_empty()
            && self.copies_to_make.is_empty()
            && self.remove_copies.is_empty()
            && self.leftovers.is_empty()
    }

    pub(super) fn into_state(self) -> RootState {
        let text = |name: &SkillName| name.to_string();
        let is_new = |name: &&SkillName| !self.record.copies.contains_key(*name);
        let (new, replaced): (Vec<_>, Vec<_>) = self
            .copies_to_make
            .iter()
            .map(|(name, _)| name)
            .partition(is_new);
        let added = self.links_to_make.iter().map(|(name, _)| name).chain(new);
        let changed = self
            .links_to_switch
            .iter()
            .map(|(name, _)| name)
            .chain(replaced);
        let dropped = self
            .links_to_drop
            .iter()
            .map(|name| name.to_string_lossy().into_owned());
        let (added, changed): (Vec<_>, Vec<_>) =
            (added.map(text).collect(), changed.map(text).collect());
        RootState {
            skills: self.up_to_date.len() + added.len() + changed.len(),
            added,
            changed,
            removed: dropped.chain(self.remove_copies.iter().map(text)).collect(),
            path: self.record.path,
            agents: self.record.agents.into_iter().collect(),
            scope: self.record.scope,
            mode: self.record.mode,
            foreign: self.foreign,
            newly_foreign: self.newly_foreign,
            created: self.create,
            missing: self.missing,
            failed: self.failed,
        }
    }
}

/// Returns whether the folder shows the skills of a profile.
pub(super) fn shows_profile(root: &RootRecord, profile: &PlannedProfile) -> bool {
    match &root.scope {
        RootScope::Profile(name) => profile.name == *name,
        _ => profile.target.is_none() && root.agents.contains(&profile.agent),
    }
}

/// Compares a folder with the skills that its agents' profiles show. `create` allows a missing
/// folder to be created; a folder of an agent is created together with its first skill, not before.
pub(super) fn compare_folder(
    vault: &Vault,
    root: RootRecord,
    profiles: &[PlannedProfile],
    create: bool,
) -> Result<RootChange, FileError> {
    // Two agents may read the same folder, which has one entry for each name. A variant is
    // preferred, because it was made for one of the agents; otherwise the first profile that shows
    // the name decides.
    let mut entries_to_show: BTreeMap<SkillName, (PathBuf, &ShownSkill)> = BTreeMap::new();
    let trees = link_trees_folder(vault);
    for profile in profiles
        .iter()
        .filter(|profile| shows_profile(&root, profile))
    {
        let folder = trees.join(&profile.folder);
        for (name, shown) in &profile.skills {
            let entry = || (folder.join(name.as_str()).path(), shown);
            let first = entries_to_show.entry(name.clone()).or_insert_with(entry);
            if shown.is_variant && !first.1.is_variant {
                *first = entry();
            }
        }
    }
    let shows = entries_to_show.iter();
    let shows = shows.map(|(name, (_, shown))| (name.clone(), shown.bundle));
    let shows = shows.collect();
    let is_there = disk::is_folder(&root.path);
    let is_given = root.scope == RootScope::Given;
    let mut change = RootChange {
        real: root.path.clone(),
        create: create && !is_there && (is_given || !entries_to_show.is_empty()),
        record: root,
        shows,
        ..RootChange::default()
    };
    if is_there {
        change.real = disk::resolve(&change.real)?;
        change.compare_entries(&own_link_targets(vault), entries_to_show)?;
    } else if change.create {
        for (name, (target, shown)) in entries_to_show {
            change.add_entry(name, target, shown);
        }
    } else {
        // A folder that was chosen while there were no skills awaits the first one, and does not
        // count as missing.
        let chosen = create && change.record.scope == RootScope::User;
        change.missing = !chosen && !change.record.awaits_skill;
    }
    change.record.awaits_skill = !is_there && !change.create && !change.missing;
    let reported: BTreeSet<_> = change.foreign.iter().cloned().collect();
    let news = reported.difference(&change.record.reported).cloned();
    change.newly_foreign = news.collect();
    change.record.reported = reported;
    Ok(change)
}

impl RootChange {
    /// Adds a skill that the folder lacks, as a symlink or as a copy.
    fn add_entry(&mut self, name: SkillName, target: PathBuf, shown: &ShownSkill) {
        match self.record.mode {
            RootMode::Link => self.links_to_make.push((name, target)),
            RootMode::Copy => self.copies_to_make.push((name, shown.clone())),
        }
    }

    /// Compares each entry of the folder with the wanted skills, and decides what happens to it.
    fn compare_entries(
        &mut self,
        homes: &[PathBuf],
        mut wanted: BTreeMap<SkillName, (PathBuf, &ShownSkill)>,
    ) -> Result<(), FileError> {
        for (name, entry) in list_entries(&self.real)? {
            let skill = name.to_str().and_then(|name| wanted.remove_entry(name));
            if matches!(&entry, LinkEntry::Link(target) if !is_ours(target, homes)) {
                self.foreign_links.push(name.clone());
            }
            let copy = name
                .to_str()
                .and_then(|name| self.record.copies.get_key_value(name));
            let copy = copy.map(|(name, record)| (name.clone(), record.clone()));
            match (entry, skill, copy) {
                (LinkEntry::Link(linked_to), skill, _) if is_ours(&linked_to, homes) => match skill
                {
                    // The folder was switched to copies, so the vault's own links are replaced.
                    Some((name, (_, shown))) if self.record.mode == RootMode::Copy => {
                        self.links_to_drop.push(OsString::from(name.as_str()));
                        self.copies_to_make.push((name, shown.clone()));
                    }
                    Some((name, (target, _)))
                        if target.as_os_str().as_encoded_bytes() == linked_to =>
                    {
                        self.up_to_date.push(name);
                    }
                    Some((name, (target, _))) => self.links_to_switch.push((name, target)),
                    None => self.links_to_drop.push(name),
                },
                // Only a folder that is recorded can be a copy by the vault. Any other folder
                // belongs to the user.
                (LinkEntry::Folder, skill, Some((name, record))) => {
                    self.compare_copy(name, &record, skill.map(|(_, (_, shown))| shown));
                }
                (_, None, _) if name.as_encoded_bytes().starts_with(ASIDE.as_bytes()) => {
                    self.leftovers.push(name);
                }
                (_, Some((name, _)), _) => self.foreign.push(name),
                (_, None, _) => {}
            }
        }
        for (name, (target, shown)) in wanted {
            self.add_entry(name, target, shown);
        }
        // Forget the records of copies that the user deleted.
        let real = &self.real;
        self.record
            .copies
            .retain(|name, _| disk::is_folder(&real.join(name.as_str())));
        Ok(())
    }

    /// Decides about a recorded copy: it stays, is replaced or is removed, or belongs to the user
    /// because they edited it.
    fn compare_copy(&mut self, name: SkillName, record: &CopyRecord, skill: Option<&ShownSkill>) {
        let actual = hash_copy_folder(&self.real.join(name.as_str()));
        let untouched = actual.is_some_and(|found| record.contents.contains(&found));
        let newest = actual.is_some() && actual.as_ref() == record.contents.last();
        match skill {
            // The user edited the copy, so it belongs to the user from now on.
            _ if !untouched => {
                self.record.copies.remove(&name);
                self.foreign.push(name);
            }
            Some(shown) if newest && record.bundle == shown.bundle => self.up_to_date.push(name),
            Some(shown) => self.copies_to_make.push((name, shown.clone())),
            None => self.remove_copies.push(name),
        }
    }

    /// Returns whether the folder holds the skill as its profile shows it, and the symlink leads to
    /// files.
    pub(super) fn holds_current(&self, name: &SkillName) -> bool {
        self.up_to_date.contains(name) && disk::is_there(&self.real.join(name.as_str()))
    }

    /// Returns the paths of symlinks that may dangle, each with whether it belongs to the vault.
    pub(super) fn doubtful_links(&self) -> impl Iterator<Item = (PathBuf, bool)> + '_ {
        let switched = self
            .links_to_switch
            .iter()
            .map(|(name, _)| OsStr::new(name.as_str()));
        let ours = self
            .links_to_drop
            .iter()
            .map(OsString::as_os_str)
            .chain(switched);
        ours.map(|name| (name, true))
            .chain(
                self.foreign_links
                    .iter()
                    .map(|name| (name.as_os_str(), false)),
            )
            .map(|(name, ours)| (self.real.join(name), ours))
    }

    /// First step of a sync: removes entries that must no longer be visible. Runs before the trees
    /// lose their targets, so that no symlink dangles.
    pub(super) fn remove_hidden(&self, homes: &[PathBuf]) -> Result<(), FileError> {
        for name in &self.leftovers {
            disk::remove_tree(&self.real.join(name))?;
        }
        for name in &self.links_to_drop {
            // The user may have replaced the entry since the comparison.
            let path = self.real.join(name);
            let target = disk::link_target(&path)?;
            if target.is_some_and(|target| is_ours(target.as_os_str().as_encoded_bytes(), homes)) {
                disk::remove_file(&path)?;
            }
        }
        for name in &self.remove_copies {
            remove_copy(&self.real, name.as_str())?;
        }
        // Flush before the trees change, so that a power failure brings back no link to a removed
        // skill.
        if !self.links_to_drop.is_empty() {
            disk::sync_dir(&self.real)?;
        }
        Ok(())
    }

    /// Verifies the copies to make and records their content. The caller writes that record before
    /// [`Self::write_entries`] creates the copies. Returns the skills that fail verification.
    pub(super) fn prepare_copies(&mut self, vault: &Vault) -> Vec<SkillName> {
        let mut damaged = Vec::new();
        for name in &self.remove_copies {
            self.record.copies.remove(name);
        }
        for (name, shown) in &self.copies_to_make {
            let Some(read) = copies::read_verified(vault, shown) else {
                damaged.push(name.clone());
                continue;
            };
            let before = self.record.copies.remove(name);
            // The old copy stays in place until the rename. If the sync is killed before, the vault
            // must still recognise that copy as its own, so record both contents.
            let last = before.and_then(|before| before.contents.last().copied());
            let last = last.filter(|last| *last != read.content);
            let record = CopyRecord {
                bundle: shown.bundle,
                contents: last.into_iter().chain([read.content]).collect(),
            };
            self.record.copies.insert(name.clone(), record);
            self.verified.push((name.clone(), read));
        }
        damaged
    }

    /// Makes copies in place of the planned symlinks, for a file system that does not support
    /// symlinks.
    fn without_links(&mut self, profiles: &[PlannedProfile]) {
        self.record.mode = RootMode::Copy;
        for (name, _) in std::mem::take(&mut self.links_to_make) {
            let profiles = profiles
                .iter()
                .filter(|profile| shows_profile(&self.record, profile));
            let shown = profiles.filter_map(|profile| profile.skills.get(&name));
            // As in `compare_folder`: a variant wins, otherwise the first profile.
            if let Some(shown) = shown.min_by_key(|shown| !shown.is_variant) {
                self.copies_to_make.push((name, shown.clone()));
            }
        }
    }

    /// Creates the folder if needed, and switches to copies if it does not support symlinks.
    pub(super) fn create_folder(&mut self, profiles: &[PlannedProfile]) -> Result<(), FileError> {
        if self.create {
            disk::make_dirs(&self.record.path, 0o755)?;
            self.real = disk::resolve(&self.record.path)?;
        }
        if self.record.mode == RootMode::Link
            && !self.links_to_make.is_empty()
            && !disk::supports_links(&self.real)
        {
            self.without_links(profiles);
        }
        Ok(())
    }

    /// Last step of a sync: adds new and changed entries. Runs after the trees have their targets.
    pub(super) fn write_entries(&self) -> Result<(), FileError> {
        // `new_link` fails if an entry took the name since the comparison, because that entry
        // belongs to the user.
        for (name, target) in &self.links_to_make {
            disk::new_link(&self.real.join(name.as_str()), target)?;
        }
        for (name, target) in &self.links_to_switch {
            // Create the new symlink in the same folder: another folder may be on another file
            // system.
            disk::switch_link(&self.real.join(name.as_str()), target, &self.real)?;
        }
        for (name, verified) in &self.verified {
            copies::place_copy(&self.real, name.as_str(), verified)?;
        }
        if !self.links_to_make.is_empty() || !self.links_to_switch.is_empty() {
            disk::sync_dir(&self.real)?;
        }
        Ok(())
    }

    /// Returns the paths in the vault's trees to which the symlinks that are to be removed lead.
    pub(super) fn removed_targets(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.links_to_drop
            .iter()
            .filter_map(|name| disk::link_target(&self.real.join(name)).ok().flatten())
    }
}
