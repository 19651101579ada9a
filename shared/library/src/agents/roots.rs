//! Compares the agents' skill folders with the profiles and applies the difference.
//!
//! Only three kinds of entries are ever changed there: symlinks into the vault's `profiles/`,
//! copies whose content still matches its record, and temporary entries with the vault's own name
//! prefix. Everything else belongs to the user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use vault_skill::name::{AgentId, SkillName};

use super::copies::{self, VerifiedCopy};
use super::profiles::{PlannedProfile, ShownSkill};
use crate::disk::{self, FileError};
use crate::installed::agent_links::copies::{ASIDE, content, remove};
use crate::installed::agent_links::entries::{Entry, entries, homes, is_ours};
use crate::installed::agent_links::record::{CopyRecord, RootMode, RootRecord, RootScope, trees};
use crate::vault::Vault;

/// The changes to one folder, and the entries that stay.
#[derive(Debug)]
pub(super) struct RootChange {
    /// The path as it is recorded and shown.
    pub(super) path: PathBuf,
    /// The path with every symlink resolved. All changes are made there.
    real: PathBuf,
    pub(super) agents: BTreeSet<AgentId>,
    pub(super) scope: RootScope,
    pub(super) mode: RootMode,
    /// The folder is missing and will be created.
    pub(super) create: bool,
    /// The folder is missing and will not be created.
    pub(super) missing: bool,
    pub(super) make: Vec<(SkillName, PathBuf)>,
    pub(super) switch: Vec<(SkillName, PathBuf)>,
    pub(super) drop: Vec<OsString>,
    /// Copies to create or replace; always empty in a folder of symlinks.
    copy: Vec<(SkillName, ShownSkill)>,
    remove_copies: Vec<SkillName>,
    leftovers: Vec<OsString>,
    /// Skills that are not shown because an entry of the user has their name.
    pub(super) foreign: Vec<SkillName>,
    /// The number of skills that are already up to date.
    pub(super) kept: usize,
    copies: BTreeMap<SkillName, CopyRecord>,
    /// Symlinks that do not belong to the vault.
    elsewhere: Vec<OsString>,
}

/// The outcome of preparing the copies for a folder.
#[derive(Debug, Default)]
pub(super) struct CopyOutcome {
    pub(super) copies: BTreeMap<SkillName, CopyRecord>,
    /// The mode of the folder; [`RootMode::Copy`] if it does not support symlinks.
    pub(super) mode: RootMode,
    /// Skills that were not copied because they fail verification.
    pub(super) damaged: Vec<SkillName>,
}

impl RootChange {
    /// Whether nothing has to change.
    pub(super) fn is_empty(&self) -> bool {
        !self.create
            && self.make.is_empty()
            && self.switch.is_empty()
            && self.drop.is_empty()
            && self.copy.is_empty()
            && self.remove_copies.is_empty()
            && self.leftovers.is_empty()
    }

    /// The names that agents see as added, changed and removed.
    pub(super) fn changed_names(&self) -> (Vec<String>, Vec<String>, Vec<String>) {
        let text = |name: &SkillName| name.to_string();
        let is_new = |name: &&SkillName| !self.copies.contains_key(*name);
        let copied = || self.copy.iter().map(|(name, _)| name);
        let added = self.make.iter().map(|(name, _)| name);
        let changed = self.switch.iter().map(|(name, _)| name);
        (
            added.chain(copied().filter(is_new)).map(text).collect(),
            changed
                .chain(copied().filter(|name| !is_new(name)))
                .map(text)
                .collect(),
            self.drop
                .iter()
                .map(|name| name.to_string_lossy().into_owned())
                .chain(self.remove_copies.iter().map(text))
                .collect(),
        )
    }
}

/// Compares a folder with the skills that its agents' profiles show. `create` allows a missing
/// folder to be created.
pub(super) fn compare(
    vault: &Vault,
    root: &RootRecord,
    profiles: &[PlannedProfile],
    create: bool,
) -> Result<RootChange, FileError> {
    let here = |profile: &&PlannedProfile| match &root.scope {
        RootScope::Profile(name) => profile.name == *name,
        _ => profile.target.is_none() && root.agents.contains(&profile.agent),
    };
    let is_there = disk::is_folder(&root.path);
    let mut change = RootChange {
        path: root.path.clone(),
        real: if is_there {
            disk::resolve(&root.path)?
        } else {
            root.path.clone()
        },
        agents: root.agents.clone(),
        scope: root.scope.clone(),
        mode: root.mode,
        create: false,
        missing: !is_there,
        make: Vec::new(),
        switch: Vec::new(),
        drop: Vec::new(),
        copy: Vec::new(),
        remove_copies: Vec::new(),
        leftovers: Vec::new(),
        foreign: Vec::new(),
        kept: 0,
        copies: root.copies.clone(),
        elsewhere: Vec::new(),
    };
    // Two agents may read the same folder: the first profile that shows a name wins.
    let mut wanted: BTreeMap<SkillName, (PathBuf, &ShownSkill)> = BTreeMap::new();
    let trees = trees(vault);
    for profile in profiles.iter().filter(here) {
        let folder = trees.join(&profile.folder);
        for (name, shown) in &profile.skills {
            wanted
                .entry(name.clone())
                .or_insert_with(|| (folder.join(name.as_str()), shown));
        }
    }
    if !is_there {
        if create && !wanted.is_empty() {
            change.create = true;
            change.missing = false;
            for (name, (target, shown)) in &wanted {
                change.add(name, target.clone(), shown);
            }
        }
        return Ok(change);
    }
    change.look(&homes(vault), wanted)?;
    Ok(change)
}

impl RootChange {
    fn add(&mut self, name: &SkillName, target: PathBuf, shown: &ShownSkill) {
        match self.mode {
            RootMode::Link => self.make.push((name.clone(), target)),
            RootMode::Copy => self.copy.push((name.clone(), shown.clone())),
        }
    }

    fn look(
        &mut self,
        homes: &[PathBuf],
        mut wanted: BTreeMap<SkillName, (PathBuf, &ShownSkill)>,
    ) -> Result<(), FileError> {
        for (name, entry) in entries(&self.real)? {
            let skill = name.to_str().and_then(|name| wanted.remove_entry(name));
            if matches!(&entry, Entry::Link(found) if !is_ours(found, homes)) {
                self.elsewhere.push(name.clone());
            }
            match (entry, skill) {
                (Entry::Link(found), skill) if is_ours(&found, homes) => match skill {
                    Some((name, (_, shown))) if self.mode == RootMode::Copy => {
                        self.drop.push(OsString::from(name.as_str()));
                        self.copy.push((name, shown.clone()));
                    }
                    Some((_, (target, _))) if target.as_os_str().as_encoded_bytes() == found => {
                        self.kept += 1;
                    }
                    Some((name, (target, _))) => self.switch.push((name, target)),
                    None => self.drop.push(name),
                },
                (Entry::Folder, skill) if self.is_copy(&name) => {
                    self.look_at_copy(&name, skill.map(|(_, (_, shown))| shown));
                }
                (_, None) if name.as_encoded_bytes().starts_with(ASIDE.as_bytes()) => {
                    self.leftovers.push(name);
                }
                (_, Some((name, _))) => self.foreign.push(name),
                (_, None) => {}
            }
        }
        for (name, (target, shown)) in &wanted {
            self.add(name, target.clone(), shown);
        }
        // Forget the records of copies that the user removed.
        let there: BTreeSet<_> = self
            .copies
            .keys()
            .filter(|name| disk::is_folder(&self.real.join(name.as_str())))
            .cloned()
            .collect();
        self.copies.retain(|name, _| there.contains(name));
        Ok(())
    }

    fn is_copy(&self, name: &OsString) -> bool {
        name.to_str()
            .is_some_and(|name| self.copies.contains_key(name))
    }

    fn look_at_copy(&mut self, name: &OsString, skill: Option<&ShownSkill>) {
        let Some((name, record)) = name
            .to_str()
            .and_then(|name| self.copies.get_key_value(name))
        else {
            return;
        };
        let name = name.clone();
        let found = content(&self.real.join(name.as_str()));
        let untouched = found.is_some_and(|found| record.contents.contains(&found));
        let newest = found.is_some() && found.as_ref() == record.contents.last();
        match skill {
            _ if !untouched => {
                self.copies.remove(&name);
                self.foreign.push(name);
            }
            Some(shown) if newest && record.bundle == shown.bundle => self.kept += 1,
            Some(shown) => self.copy.push((name, shown.clone())),
            None => self.remove_copies.push(name),
        }
    }

    /// Symlinks that may dangle, each with whether it belongs to the vault.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = (PathBuf, bool)> + '_ {
        let switched = self.switch.iter().map(|(name, _)| name.as_str().as_ref());
        self.drop
            .iter()
            .map(|name| (name.as_os_str(), true))
            .chain(switched.map(|name: &std::ffi::OsStr| (name, true)))
            .chain(self.elsewhere.iter().map(|name| (name.as_os_str(), false)))
            .map(|(name, ours)| (self.real.join(name), ours))
    }

    /// First step: removes entries that must no longer be visible. Must run before the trees lose
    /// their targets.
    pub(super) fn withdraw(&self, homes: &[PathBuf]) -> Result<(), FileError> {
        for name in &self.leftovers {
            disk::remove_tree(&self.real.join(name))?;
        }
        for name in &self.drop {
            // The user may have replaced the entry since the comparison.
            let path = self.real.join(name);
            let target = disk::link_target(&path)?;
            if target.is_some_and(|target| is_ours(target.as_os_str().as_encoded_bytes(), homes)) {
                disk::remove_file(&path)?;
            }
        }
        for name in &self.remove_copies {
            remove(&self.real, name.as_str())?;
        }
        if !self.drop.is_empty() {
            disk::sync_dir(&self.real)?;
        }
        Ok(())
    }

    /// Verifies the copies to make and records their content. The record must be written before
    /// [`RootChange::show`] creates the copies.
    pub(super) fn prepare(
        &mut self,
        vault: &Vault,
        done: &mut CopyOutcome,
    ) -> Vec<(SkillName, VerifiedCopy)> {
        let mut ready = Vec::new();
        for name in &self.remove_copies {
            self.copies.remove(name);
        }
        for (name, shown) in &self.copy {
            let Some(read) = copies::ready(vault, shown) else {
                done.damaged.push(name.clone());
                continue;
            };
            let record = self.copies.entry(name.clone()).or_insert(CopyRecord {
                bundle: shown.bundle,
                contents: Vec::new(),
            });
            record.bundle = shown.bundle;
            let last = record.contents.pop();
            record.contents.clear();
            record
                .contents
                .extend(last.filter(|last| *last != read.content));
            record.contents.push(read.content);
            ready.push((name.clone(), read));
        }
        done.copies.clone_from(&self.copies);
        done.mode = self.mode;
        ready
    }

    /// Switches to copies of the same skills, for a file system without symlinks.
    fn without_links(&mut self, profiles: &[PlannedProfile]) {
        self.mode = RootMode::Copy;
        let names: Vec<_> = self.make.drain(..).map(|(name, _)| name).collect();
        for name in names {
            let shown = profiles
                .iter()
                .filter(|profile| match &self.scope {
                    RootScope::Profile(own) => profile.name == *own,
                    _ => profile.target.is_none() && self.agents.contains(&profile.agent),
                })
                .find_map(|profile| profile.skills.get(&name));
            if let Some(shown) = shown {
                self.copy.push((name, shown.clone()));
            }
        }
    }

    /// Creates the folder if needed, and switches to copies if it does not support symlinks.
    pub(super) fn open(&mut self, profiles: &[PlannedProfile]) -> Result<(), FileError> {
        if self.create {
            disk::make_dirs(&self.path, 0o755)?;
            self.real = disk::resolve(&self.path)?;
        }
        if self.mode == RootMode::Link && !self.make.is_empty() && !disk::holds_links(&self.real) {
            self.without_links(profiles);
        }
        Ok(())
    }

    /// Last step: adds new and changed entries. Must run after the trees have their targets.
    pub(super) fn show(&self, ready: &[(SkillName, VerifiedCopy)]) -> Result<(), FileError> {
        for (name, target) in &self.make {
            disk::new_link(&self.real.join(name.as_str()), target)?;
        }
        for (name, target) in &self.switch {
            // Create the new symlink in the same folder: another folder may be on another file
            // system.
            disk::switch_link(&self.real.join(name.as_str()), target, &self.real)?;
        }
        for (name, ready) in ready {
            copies::put(&self.real, name.as_str(), ready)?;
        }
        if !self.make.is_empty() || !self.switch.is_empty() {
            disk::sync_dir(&self.real)?;
        }
        Ok(())
    }

    /// The symlinks in the vault's trees that this folder's entries to remove point to.
    pub(super) fn targets(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.drop
            .iter()
            .filter_map(|name| disk::link_target(&self.real.join(name)).ok().flatten())
    }
}
