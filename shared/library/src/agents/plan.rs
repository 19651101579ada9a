//! What a sync of profiles would do, found without writing, and doing it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};

use super::found::{self, Agent, Machine};
use super::report::{
    ProfileState, ProfileSyncError, ProfileSyncReport, ProfileWarning, RootState, damaged_warning,
    inside_warning, missing_warning, strange_warning, transform_warning,
};
use super::roots::{self, Done, RootChange};
use super::switches::Switches;
use super::tree::{self, TreeChange};
use super::wanted::{self, Candidate, Variants, Wanted};
use crate::files;
use crate::installed::agent_links::entries::homes;
use crate::installed::agent_links::record::{Record, RootMode, RootRecord, RootScope, trees};
use crate::scan::Places;
use crate::transforms::Transforms;
use crate::vault::{Change, Vault, VaultError};

/// What to link where.
#[derive(Clone, Debug, Default)]
pub struct SyncProfilesInput {
    /// The machine on which agents are looked for.
    pub machine: Machine,
    /// Link into the folders of every agent that is found, beside those that are linked into already.
    pub discover: bool,
    /// Mean the folders of `machine.project`, not those of the user.
    pub project: bool,
    /// Of the agents that are found only these; `None`: all.
    pub only: Option<Vec<AgentId>>,
    /// Further folders, each for an agent; made where they are missing, and remembered.
    pub profile_roots: Vec<(AgentId, PathBuf)>,
    /// Copy into the folders that are new with this call, for those where links lead nowhere (containers, shares).
    pub copy: bool,
}

/// All that is to be done, found without writing.
pub(super) struct Plan {
    pub(super) skills: Vec<Candidate>,
    pub(super) transforms: Transforms,
    pub(super) unrendered: Vec<(SkillName, AgentId)>,
    pub(super) profiles: Vec<Wanted>,
    pub(super) trees: Vec<TreeChange>,
    pub(super) roots: Vec<RootChange>,
    pub(super) record: Record,
    pub(super) record_changed: bool,
    pub(super) unlinked: Vec<AgentId>,
    pub(super) warnings: Vec<ProfileWarning>,
}

impl Plan {
    pub(super) fn make(
        vault: &Vault,
        input: &SyncProfilesInput,
        places: Option<&Places>,
    ) -> Result<Self, ProfileSyncError> {
        let before = Record::read(vault)?;
        let mut record = before.clone();
        let machine = if input.project {
            input.machine.clone()
        } else {
            Machine {
                project: None,
                ..input.machine.clone()
            }
        };
        let found = found::found(&machine);
        let may_make = note_roots(&mut record, input, &machine, &found);
        let mut agents: BTreeSet<AgentId> = found.iter().map(|agent| agent.id.clone()).collect();
        agents.extend(record.roots.iter().flat_map(|root| root.agents.clone()));
        let (rules, from_file) = wanted::rules(vault, &agents)?;
        let with_tags = rules
            .iter()
            .any(|rule| rule.include_tags.is_some() || rule.exclude_tags.is_some());
        let switches = Switches::read(vault)?;
        let transforms = Transforms::read(vault)?;
        // Who only looks need not read of all skills what nobody can see.
        let nobody = agents.is_empty() && rules.is_empty() && transforms.has_none();
        let (skills, damaged) = if places.is_some() && nobody {
            Default::default()
        } else {
            wanted::candidates(vault, with_tags, places)?
        };
        let mut variants = Variants {
            transforms: &transforms,
            trusted: Rc::new(vault.trusted()?),
            missing: Vec::new(),
            problems: Vec::new(),
        };
        let profiles = wanted::choose(rules, &skills, &switches, &machine.home, &mut variants)?;
        let mut warnings: Vec<_> = damaged.iter().map(damaged_warning).collect();
        warnings.extend(variants.problems.into_iter().map(transform_warning));
        let unrendered = variants.missing;
        let targets: BTreeMap<_, _> = profiles
            .iter()
            .filter_map(|profile| Some((profile.name.clone(), profile.target.clone()?)))
            .collect();
        if from_file {
            for profile in &profiles {
                if let Some(target) = &profile.target {
                    let scope = RootScope::Profile(profile.name.clone());
                    record.note(target, &profile.agent, scope, RootMode::Link);
                }
            }
        }
        let mut strange = Vec::new();
        let trees = tree::compare(vault, &profiles, &mut strange)?;
        warnings.extend(strange.into_iter().map(strange_warning));
        let mut roots = Vec::new();
        let vault_root = files::resolve(&vault.paths().root)?;
        let mut seen = BTreeSet::new();
        for root in &record.roots {
            let real = files::resolve(&root.path).unwrap_or_else(|_| root.path.clone());
            if real.starts_with(&vault_root) {
                warnings.push(inside_warning(&root.path));
                continue;
            }
            let create = may_make.contains(&root.path)
                || matches!(&root.scope, RootScope::Profile(name) if targets.get(name) == Some(&root.path));
            // One folder under two names is worked on once.
            let merged = merged(&record, root, &real);
            if seen.insert(real) {
                roots.push(roots::compare(vault, &merged, &profiles, create)?);
            }
        }
        // A folder that would have been made for nothing is not remembered.
        let known = |root: &RootChange| before.roots.iter().any(|old| old.path == root.path);
        roots.retain(|root| !root.missing || known(root));
        record.roots.retain(|root| {
            before.roots.iter().any(|old| old.path == root.path)
                || roots.iter().any(|change| change.path == root.path)
                || files::is_folder(&root.path)
        });
        // What a profile no longer names is emptied with this sync and then forgotten.
        record.roots.retain(|root| match &root.scope {
            RootScope::Profile(name) => targets.get(name) == Some(&root.path),
            _ => true,
        });
        let linked: BTreeSet<_> = record.roots.iter().flat_map(|root| &root.agents).collect();
        let unlinked = found
            .iter()
            .filter(|agent| !linked.contains(&agent.id))
            .map(|agent| agent.id.clone())
            .collect();
        Ok(Self {
            record_changed: record != before,
            skills,
            transforms,
            unrendered,
            profiles,
            trees,
            roots,
            unlinked,
            warnings,
            record,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.record_changed
            && self.unrendered.is_empty()
            && !self.transforms.has_stale(&self.installed())
            && self.trees.is_empty()
            && self.roots.iter().all(RootChange::is_empty)
    }

    /// What each name stands for now.
    fn installed(&self) -> BTreeMap<&SkillName, Digest> {
        if self.transforms.has_none() {
            return BTreeMap::new();
        }
        self.skills
            .iter()
            .map(|skill| (&skill.name, skill.bundle))
            .collect()
    }

    pub(super) fn render(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
    ) -> Result<(), VaultError> {
        let wanted: Vec<_> = self
            .unrendered
            .iter()
            .filter_map(|(name, agent)| {
                let skill = self.skills.iter().find(|skill| skill.name == *name)?;
                Some((skill.base(), agent.clone()))
            })
            .collect();
        self.transforms.render(vault, change, &wanted)
    }

    pub(super) fn apply(
        mut self,
        vault: &Vault,
        change: &mut Change<'_>,
    ) -> Result<ProfileSyncReport, ProfileSyncError> {
        let homes = homes(vault);
        let mut failed: BTreeMap<PathBuf, String> = BTreeMap::new();
        // Noted first: a folder that has links of ours is always known.
        if self.record_changed {
            self.record.write(vault, change)?;
        }
        change.switching()?;
        let mut kept = BTreeSet::new();
        for root in &mut self.roots {
            let opened = root
                .open(&self.profiles)
                .and_then(|()| root.withdraw(&homes));
            if let Err(error) = opened {
                kept.extend(root.targets());
                failed.insert(root.path.clone(), error.to_string());
            }
        }
        let aside = vault.scratch()?;
        tree::apply(&self.trees, aside.path(), &kept)?;
        let mut ready = BTreeMap::new();
        let mut noted = false;
        for root in &mut self.roots {
            let mut done = Done::default();
            let read = root.prepare(vault, &mut done);
            self.warnings
                .extend(done.damaged.iter().map(damaged_warning));
            for known in self
                .record
                .roots
                .iter_mut()
                .filter(|known| known.path == root.path)
            {
                noted |= known.copies != done.copies || known.mode != done.mode;
                known.copies.clone_from(&done.copies);
                known.mode = done.mode;
            }
            ready.insert(root.path.clone(), read);
        }
        if noted {
            self.record.write(vault, change)?;
        }
        for root in &self.roots {
            if failed.contains_key(&root.path) {
                continue;
            }
            let ready = ready.get(&root.path).map_or(&[][..], |ready| ready);
            if let Err(error) = root.show(ready) {
                failed.insert(root.path.clone(), error.to_string());
            }
        }
        // Last: nothing points to them any more.
        if failed.is_empty() {
            let mut transforms = std::mem::take(&mut self.transforms);
            let installed = self
                .skills
                .iter()
                .map(|skill| (&skill.name, skill.bundle))
                .collect();
            transforms.forget_stale(vault, change, &installed)?;
        }
        Ok(self.report(vault, &failed))
    }

    pub(super) fn report(
        self,
        vault: &Vault,
        failed: &BTreeMap<PathBuf, String>,
    ) -> ProfileSyncReport {
        let trees = trees(vault);
        let mut warnings = self.warnings;
        let roots: Vec<_> = self
            .roots
            .into_iter()
            .map(|root| {
                let (added, changed, removed) = root.changed_names();
                RootState {
                    skills: root.kept + added.len() + changed.len(),
                    agents: root.agents.into_iter().collect(),
                    scope: root.scope,
                    mode: root.mode,
                    added,
                    changed,
                    removed,
                    foreign: root.foreign,
                    created: root.create,
                    missing: root.missing,
                    failed: failed.get(&root.path).cloned(),
                    path: root.path,
                }
            })
            .collect();
        let missing = roots.iter().filter(|root| root.missing);
        warnings.extend(missing.map(|root| missing_warning(&root.path)));
        ProfileSyncReport {
            restart_required: !self.trees.is_empty()
                || roots.iter().any(|root| {
                    !(root.added.is_empty() && root.changed.is_empty() && root.removed.is_empty())
                }),
            profiles: self
                .profiles
                .into_iter()
                .map(|profile| ProfileState {
                    path: trees.join(&profile.folder),
                    skills: profile.skills.len(),
                    name: profile.name,
                    agent: profile.agent,
                })
                .collect(),
            roots,
            unlinked_agents: self.unlinked,
            warnings,
        }
    }
}

/// Notes the folders that this call adds; gives those that may be made.
fn note_roots(
    record: &mut Record,
    input: &SyncProfilesInput,
    machine: &Machine,
    found: &[&Agent],
) -> BTreeSet<PathBuf> {
    let mut may_make = BTreeSet::new();
    let mode = if input.copy {
        RootMode::Copy
    } else {
        RootMode::Link
    };
    if input.discover {
        let wanted = |id: &AgentId| input.only.as_ref().is_none_or(|only| only.contains(id));
        for agent in found.iter().filter(|agent| wanted(&agent.id)) {
            let (roots, scope) = match &machine.project {
                Some(project) => (agent.project_roots(project), RootScope::Project),
                None => (agent.global_roots(machine), RootScope::User),
            };
            for root in roots {
                record.note(&root.path, &agent.id, scope.clone(), mode);
                if root.main {
                    may_make.insert(root.path);
                }
            }
        }
    }
    for (agent, path) in &input.profile_roots {
        record.note(path, agent, RootScope::Given, mode);
        may_make.insert(path.clone());
    }
    may_make
}

/// A folder with all agents that read it, under whatever name.
fn merged(record: &Record, root: &RootRecord, real: &Path) -> RootRecord {
    let mut merged = root.clone();
    if matches!(root.scope, RootScope::Profile(_)) {
        return merged;
    }
    for other in &record.roots {
        let same = files::resolve(&other.path).is_ok_and(|other| other == *real);
        if same && !matches!(other.scope, RootScope::Profile(_)) {
            merged.agents.extend(other.agents.iter().cloned());
        }
    }
    merged
}
