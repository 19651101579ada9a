//! Plans a profile sync without writing, and applies the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};

use super::found::{self, Agent, Machine};
use super::profiles::{self, AvailableSkill, PlannedProfile, Variants};
use super::report::{ProfileState, ProfileSyncError, ProfileSyncReport, ProfileWarning, RootState};
use super::roots::{self, CopyOutcome, RootChange};
use super::switches::Switches;
use super::tree::{self, TreeChange};
use crate::admit::variants::Transforms;
use crate::disk;
use crate::installed::agent_links::entries::homes;
use crate::installed::agent_links::record::{Record, RootMode, RootRecord, RootScope, trees};
use crate::installed::place::Places;
use crate::vault::{Change, Vault, VaultError};

/// Options of a profile sync.
#[derive(Clone, Debug, Default)]
pub struct SyncProfilesInput {
    /// The machine on which agents are detected.
    pub machine: Machine,
    /// Also link the folders of all detected agents, in addition to the folders that are already
    /// linked.
    pub discover: bool,
    /// Use the folders of `machine.project` instead of the user's.
    pub project: bool,
    /// Link only these of the detected agents; `None` links all.
    pub only: Option<Vec<AgentId>>,
    /// Additional folders, each for an agent. They are created if missing, and recorded.
    pub profile_roots: Vec<(AgentId, PathBuf)>,
    /// Use copies in folders that this call adds, for places where symlinks do not resolve
    /// (containers, network shares).
    pub copy: bool,
}

/// The changes of a sync, computed without writing.
pub(super) struct Plan {
    pub(super) skills: Vec<AvailableSkill>,
    pub(super) transforms: Transforms,
    pub(super) unrendered: Vec<(SkillName, AgentId)>,
    pub(super) profiles: Vec<PlannedProfile>,
    pub(super) trees: Vec<TreeChange>,
    pub(super) roots: Vec<RootChange>,
    pub(super) record: Record,
    pub(super) record_changed: bool,
    pub(super) unlinked: Vec<AgentId>,
    pub(super) warnings: Vec<ProfileWarning>,
}

/// The input of a plan.
pub(super) struct PlanInput<'a> {
    pub(super) sync: &'a SyncProfilesInput,
    /// The installed skills, if the caller already listed them.
    pub(super) places: Option<&'a Places>,
    /// Whether the plan is only displayed and not applied.
    pub(super) read_only: bool,
}

impl Plan {
    pub(super) fn make(vault: &Vault, input: &PlanInput<'_>) -> Result<Self, ProfileSyncError> {
        let before = Record::read(vault)?;
        let mut record = before.clone();
        let machine = Machine {
            project: input
                .sync
                .machine
                .project
                .clone()
                .filter(|_| input.sync.project),
            ..input.sync.machine.clone()
        };
        let found = found::found(&machine);
        let may_make = collect_roots(&mut record, input.sync, &machine, &found);
        let mut agents: BTreeSet<AgentId> = found.iter().map(|agent| agent.id.clone()).collect();
        agents.extend(record.roots.iter().flat_map(|root| root.agents.clone()));
        let mut plan = Self::choose(vault, input, &machine.home, &agents, record)?;
        plan.compare(vault, &before, &may_make)?;
        plan.record_changed = plan.record != before;
        let linked = plan.record.roots.iter().flat_map(|root| &root.agents);
        let linked: BTreeSet<_> = linked.collect();
        plan.unlinked = found
            .iter()
            .filter(|agent| !linked.contains(&agent.id))
            .map(|agent| agent.id.clone())
            .collect();
        Ok(plan)
    }

    /// Selects the skills that each profile shows. [`Self::compare`] compares them with the folders
    /// later.
    fn choose(
        vault: &Vault,
        input: &PlanInput<'_>,
        home: &Path,
        agents: &BTreeSet<AgentId>,
        mut record: Record,
    ) -> Result<Self, ProfileSyncError> {
        let (rules, from_file) = profiles::rules(vault, agents)?;
        let switches = Switches::read(vault)?;
        let transforms = Transforms::read(vault)?;
        // A read-only plan can skip skills that no agent would see.
        let unseen = agents.is_empty() && rules.is_empty() && transforms.has_none();
        let (skills, damaged) = if input.read_only && unseen {
            Default::default()
        } else {
            profiles::available_skills(vault, input.places)?
        };
        let mut variants = Variants {
            transforms: &transforms,
            trusted: Rc::new(vault.trusted()?),
            missing: Vec::new(),
            failed: Vec::new(),
        };
        let profiles = profiles::choose(rules, &skills, &switches, home, &mut variants)?;
        let (unrendered, failed) = (variants.missing, variants.failed);
        let damaged = damaged.into_iter().map(ProfileWarning::SkillDamaged);
        for profile in profiles.iter().filter(|_| from_file) {
            if let Some(target) = &profile.target {
                let scope = RootScope::Profile(profile.name.clone());
                record.note(target, &profile.agent, scope, RootMode::Link);
            }
        }
        Ok(Self {
            skills,
            transforms,
            unrendered,
            profiles,
            trees: Vec::new(),
            roots: Vec::new(),
            record,
            record_changed: false,
            unlinked: Vec::new(),
            warnings: damaged.chain(failed).collect(),
        })
    }

    /// Compares the trees and the agents' folders with the profiles.
    fn compare(
        &mut self,
        vault: &Vault,
        before: &Record,
        may_make: &BTreeSet<PathBuf>,
    ) -> Result<(), ProfileSyncError> {
        let mut strange = Vec::new();
        self.trees = tree::compare(vault, &self.profiles, &mut strange)?;
        let strange = strange.into_iter().map(ProfileWarning::ForeignInProfiles);
        self.warnings.extend(strange);
        let targets: BTreeMap<_, _> = self
            .profiles
            .iter()
            .filter_map(|profile| Some((&profile.name, profile.target.as_ref()?)))
            .collect();
        let is_target = |root: &RootRecord| matches!(&root.scope, RootScope::Profile(name) if targets.get(name) == Some(&&root.path));
        let vault_root = disk::resolve(&vault.paths().root)?;
        let mut seen = BTreeSet::new();
        for root in &self.record.roots {
            let real = disk::resolve(&root.path).unwrap_or_else(|_| root.path.clone());
            if real.starts_with(&vault_root) {
                self.warnings
                    .push(ProfileWarning::RootInVault(root.path.clone()));
                continue;
            }
            let create = may_make.contains(&root.path) || is_target(root);
            // A folder that is reachable under two paths is changed only once.
            let merged = merged(&self.record, root, &real);
            if seen.insert(real) {
                self.roots
                    .push(roots::compare(vault, &merged, &self.profiles, create)?);
            }
        }
        let was_recorded = |path: &Path| before.roots.iter().any(|old| old.path == path);
        // Do not record a folder that is missing and would stay empty.
        self.roots
            .retain(|root| !root.missing || was_recorded(&root.path));
        let (record, roots) = (&mut self.record, &self.roots);
        record.roots.retain(|root| {
            was_recorded(&root.path)
                || roots.iter().any(|change| change.path == root.path)
                || disk::is_folder(&root.path)
        });
        // Forget a folder that no profile names any more; this sync still empties it.
        record
            .roots
            .retain(|root| !matches!(root.scope, RootScope::Profile(_)) || is_target(root));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.record_changed
            && self.unrendered.is_empty()
            && !self.transforms.has_stale(&self.installed())
            && self.trees.is_empty()
            && self.roots.iter().all(RootChange::is_empty)
    }

    /// The current bundle of each installed skill.
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
        // Write the record first, so that every folder with symlinks of the vault is always known.
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
        // Keep the tree entries that a folder still points to because it could not be changed.
        let aside = vault.scratch()?;
        tree::apply(&self.trees, aside.path(), &kept)?;
        // Verify the copies and record their content before they are created, so that a copy that
        // was cut short is still recognised as the vault's.
        let mut ready = BTreeMap::new();
        let mut noted = false;
        for root in &mut self.roots {
            let mut done = CopyOutcome::default();
            let read = root.prepare(vault, &mut done);
            let damaged = done.damaged.into_iter().map(ProfileWarning::SkillDamaged);
            self.warnings.extend(damaged);
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
        // Remove stale variants last, when no symlink points to them any more.
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
        warnings.extend(missing.map(|root| ProfileWarning::RootMissing(root.path.clone())));
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

/// Records the folders that this call adds; returns those that may be created.
fn collect_roots(
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

/// The record of a folder, with all agents that read it under any of its paths.
fn merged(record: &Record, root: &RootRecord, real: &Path) -> RootRecord {
    let mut merged = root.clone();
    if matches!(root.scope, RootScope::Profile(_)) {
        return merged;
    }
    for other in &record.roots {
        let same = disk::resolve(&other.path).is_ok_and(|other| other == *real);
        if same && !matches!(other.scope, RootScope::Profile(_)) {
            merged.agents.extend(other.agents.iter().cloned());
        }
    }
    merged
}
