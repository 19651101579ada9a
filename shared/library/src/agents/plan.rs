//! Plans a profile sync (the update of the links that agents see) without writing, and applies the
//! plan. The same plan tells whether anything is out of date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};
use vault_policy::profile::ProfileRule;

use super::found::{self, Agent, Machine};
use super::profiles::{self, AvailableSkill, LinkedVault, PlannedProfile, Variants};
use super::report::{ProfileState, ProfileSyncError, ProfileSyncReport, ProfileWarning};
use super::roots::{self, RootChange};
use super::switches::Switches;
use super::tree::{self, TreeChange};
use crate::admit::variants::{RenderedVariant, Transforms};
use crate::disk::{self, Location};
use crate::installed::agent_links::entries::own_link_targets;
use crate::installed::agent_links::record::{
    AgentFolders, RootMode, RootRecord, RootScope, link_trees_folder,
};
use crate::installed::installations::Installation;
use crate::store::Trusted;
use crate::vault::{Change, Vault, VaultError};

/// Which agents and folders a profile sync includes.
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
    /// Agents to unlink: the vault's skills are removed from their folders, and the folders are no
    /// longer recorded. The agents count as declined (not offered again) until a later call links
    /// them.
    pub forget: Vec<AgentId>,
    /// Whether the folders that this call adds get copies instead of symlinks, for places where
    /// symlinks do not resolve (containers, network shares).
    pub copy: bool,
}

/// The changes that a sync would make, computed without writing.
pub(super) struct Plan {
    /// The installed skills that a profile can select.
    pub(super) skills: Vec<AvailableSkill>,
    pub(super) transforms: Transforms,
    /// Variants to render first: the skill, the trust for its signature, and the agent.
    pub(super) unrendered: Vec<(Installation, Rc<Trusted>, AgentId)>,
    /// Agents for which a linked vault's set of installed skills has no folder yet, although its
    /// release selects skills for them.
    pub(super) agent_folders: Vec<(Rc<LinkedVault>, AgentId)>,
    /// Agents that have a folder in such a set and are not on this machine any more.
    pub(super) spare_folders: Vec<(Rc<LinkedVault>, AgentId)>,
    pub(super) profiles: Vec<PlannedProfile>,
    pub(super) trees: Vec<TreeChange>,
    pub(super) roots: Vec<RootChange>,
    /// The agents' folders as they will be recorded after the sync.
    pub(super) record: AgentFolders,
    pub(super) record_changed: bool,
    /// The detected agents, and those whose folders are linked.
    pub(super) agents: BTreeSet<AgentId>,
    /// Detected agents whose folders the user has neither linked nor declined to link.
    pub(super) unlinked: Vec<AgentId>,
    pub(super) warnings: Vec<ProfileWarning>,
}

impl Plan {
    /// Plans a sync. Only reads; the caller applies the plan under the writer lock.
    pub(super) fn from_input(
        vault: &Vault,
        input: &SyncProfilesInput,
    ) -> Result<Self, ProfileSyncError> {
        let before = AgentFolders::read(vault)?;
        let mut machine = input.machine.clone();
        // If `project` is not set, use the user's own folders, even inside a project.
        machine.project = machine.project.filter(|_| input.project);
        let detected = found::detect_agents(&machine);
        let mut record = before.clone();
        let mut may_make = collect_roots(&mut record, input, &machine, &detected);
        // A recorded folder that awaits its first skill may be created, if it is the main folder of
        // a detected agent.
        let own = detected
            .iter()
            .flat_map(|agent| agent.global_roots(&machine));
        let own = own.filter(|root| root.main).map(|root| root.path);
        let awaits = |path: &PathBuf| {
            let mut roots = before.roots.iter();
            roots.any(|root| root.awaits_skill && root.path == *path)
        };
        may_make.extend(own.filter(awaits));
        let linked_now = record
            .roots
            .iter()
            .filter(|root| !before.roots.contains(root));
        let linked_now: Vec<_> = linked_now.flat_map(|root| root.agents.clone()).collect();
        // Linking an agent's folder withdraws the user's decision to decline it.
        record.declined.retain(|agent| !linked_now.contains(agent));
        forget_agents(&mut record, &input.forget);
        let detected_ids: BTreeSet<AgentId> =
            detected.iter().map(|agent| agent.id.clone()).collect();
        let mut plan = Self::select_skills(vault, &machine.home, detected_ids.clone(), record)?;
        plan.compare_with_folders(vault, &before, &may_make)?;
        plan.record_changed = plan.record != before;
        let linked = plan.record.roots.iter().flat_map(|root| &root.agents);
        let linked: BTreeSet<_> = linked.cloned().collect();
        let decided = &linked | &plan.record.declined;
        plan.unlinked = detected_ids.difference(&decided).cloned().collect();
        plan.agents = &detected_ids | &linked;
        Ok(plan)
    }

    /// Selects the skills that each profile shows. The plan does not contain the changes to folders
    /// yet.
    fn select_skills(
        vault: &Vault,
        home: &Path,
        mut agents: BTreeSet<AgentId>,
        mut record: AgentFolders,
    ) -> Result<Self, ProfileSyncError> {
        agents.extend(record.roots.iter().flat_map(|root| root.agents.clone()));
        let (rules, from_file) = profiles::read_rules(vault, &agents)?;
        let switches = Switches::read(vault)?;
        let transforms = Transforms::read_approved(vault)?;
        // Without profiles and outdated variants, nothing depends on the skills, so do not read
        // them.
        let (skills, mut warnings) = if rules.is_empty()
            && !transforms.has_outdated_variants(&|name, agent| base_of(&[], name, agent))
        {
            Default::default()
        } else {
            profiles::available_skills(vault)?
        };
        let mut variants = Variants {
            transforms: &transforms,
            trusted: Rc::new(vault.trusted()?.for_variants()),
            missing: Vec::new(),
            failed: Vec::new(),
        };
        let (agent_folders, spare_folders) = compare_agent_folders(&skills, &rules, &agents);
        let profiles = profiles::plan_profiles(rules, &skills, &switches, home, &mut variants)?;
        let unrendered = variants.missing;
        warnings.extend(variants.failed);
        for profile in profiles.iter().filter(|_| from_file) {
            if let Some(target) = &profile.target {
                let scope = RootScope::Profile(profile.name.clone());
                record.add_folder(target, &profile.agent, scope, RootMode::Link);
            }
        }
        Ok(Self {
            skills,
            transforms,
            unrendered,
            agent_folders,
            spare_folders,
            profiles,
            trees: Vec::new(),
            roots: Vec::new(),
            record,
            record_changed: false,
            agents,
            unlinked: Vec::new(),
            warnings,
        })
    }

    /// Adds the changes of the link trees and of the agents' folders, compared with the profiles.
    fn compare_with_folders(
        &mut self,
        vault: &Vault,
        before: &AgentFolders,
        may_make: &BTreeSet<PathBuf>,
    ) -> Result<(), ProfileSyncError> {
        let mut foreign_entries = Vec::new();
        self.trees = tree::compare_trees(vault, &self.profiles, &mut foreign_entries)?;
        let strange = foreign_entries
            .into_iter()
            .map(ProfileWarning::ForeignInProfiles);
        self.warnings.extend(strange);
        let targets: BTreeMap<_, _> = self
            .profiles
            .iter()
            .filter_map(|profile| Some((&profile.name, profile.target.as_ref()?)))
            .collect();
        let is_target = |root: &RootRecord| matches!(&root.scope, RootScope::Profile(name) if targets.get(name) == Some(&&root.path));
        let vault_root = disk::resolve(&vault.paths().root)?;
        let mut seen = BTreeSet::new();
        let mut rejected = BTreeSet::new();
        for root in &self.record.roots {
            // The project's real path was recorded, so a link on the way to the folder was put
            // there since then.
            if root.scope == RootScope::Project && disk::is_behind_link(&root.path)? {
                let warning = ProfileWarning::RootBehindLink(root.path.clone());
                self.warnings.push(warning);
                rejected.insert(root.path.clone());
                continue;
            }
            // Compare real paths, because a symbolic link could hide that the folder lies in the
            // vault.
            let real = disk::resolve(&root.path).unwrap_or_else(|_| root.path.clone());
            if real.starts_with(&vault_root) {
                self.warnings
                    .push(ProfileWarning::RootInVault(root.path.clone()));
                continue;
            }
            let create = may_make.contains(&root.path) || is_target(root);
            // A folder that is reachable by two paths is changed only once.
            let merged = merge_readers(&self.record, root, &real);
            if seen.insert(real) {
                self.roots.push(roots::compare_folder(
                    vault,
                    merged,
                    &self.profiles,
                    create,
                )?);
            }
        }
        let was_recorded = |path: &Path| before.roots.iter().any(|old| old.path == path);
        // A folder that is missing and would stay empty is not worth a record.
        self.roots
            .retain(|root| !root.missing || was_recorded(&root.record.path));
        let (record, roots) = (&mut self.record, &self.roots);
        record.roots.retain(|root| {
            was_recorded(&root.path)
                || !rejected.contains(&root.path)
                    && (roots.iter().any(|change| change.record.path == root.path)
                        || disk::is_folder(&root.path))
        });
        // Forget a folder whose profile is gone or that no agent reads any more. This sync still
        // removes the vault's skills from it.
        record.roots.retain(|root| match root.scope {
            RootScope::Profile(_) => is_target(root),
            _ => !root.agents.is_empty(),
        });
        // Record which problems this sync reports, so that the next one does not report them as
        // new.
        for root in &mut record.roots {
            let change = roots.iter().find(|change| change.record.path == root.path);
            if let Some(RootChange { record: after, .. }) = change {
                root.awaits_skill = after.awaits_skill;
                root.reported.clone_from(&after.reported);
            }
        }
        Ok(())
    }

    /// Returns whether the sync has nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        !self.record_changed && !self.changes_links()
    }

    /// Returns whether the sync changes more than the record of the folders.
    pub(super) fn changes_links(&self) -> bool {
        let base = |name: &SkillName, agent: &AgentId| base_of(&self.skills, name, agent);
        !self.unrendered.is_empty()
            || !self.agent_folders.is_empty()
            || !self.spare_folders.is_empty()
            || self.transforms.has_outdated_variants(&base)
            || !self.trees.is_empty()
            || !self.roots.iter().all(RootChange::is_empty)
    }

    /// Renders and signs the variants that the plan needs. The caller must plan again afterwards,
    /// because the links lead to the new bundles.
    pub(super) fn render_missing(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
    ) -> Result<Vec<RenderedVariant>, VaultError> {
        let variants_to_render: Vec<_> = self
            .unrendered
            .iter()
            .map(|(place, trusted, agent)| (place, &**trusted, agent.clone()))
            .collect();
        self.transforms
            .render_variants(vault, change, &variants_to_render)
    }

    /// Applies the plan. A folder that can't be changed is reported and does not stop the others.
    pub(super) fn apply_changes(
        mut self,
        vault: &Vault,
        change: &mut Change<'_>,
    ) -> Result<ProfileSyncReport, ProfileSyncError> {
        let homes = own_link_targets(vault);
        // Write the record first, so that every folder with symlinks of the vault is recorded at
        // any time.
        if self.record_changed {
            self.record.write(vault, change)?;
        }
        change.mark_changing()?;
        // The links of the trees lead into these folders, so create them first.
        for (linked, agent) in &self.agent_folders {
            linked.link.make_agent_folder(vault, agent)?;
        }
        let mut kept = BTreeSet::new();
        for root in &mut self.roots {
            let opened = root.create_folder(&self.profiles);
            if let Err(error) = opened.and_then(|()| root.remove_hidden(&homes)) {
                kept.extend(root.removed_targets());
                root.failed = Some(error.to_string());
            }
        }
        // Keep the tree entries that a folder still points to because it could not be changed.
        let aside = vault.new_scratch()?;
        tree::apply_trees(&self.trees, aside.path(), &kept)?;
        // Verify the copies and record their content before they are created: if the process is
        // killed in between, the next sync still recognises a copy as the vault's.
        let before = self.record.clone();
        for root in &mut self.roots {
            let damaged = root.prepare_copies(vault).into_iter();
            self.warnings
                .extend(damaged.map(ProfileWarning::SkillDamaged));
            let mut recorded_roots = self.record.roots.iter_mut();
            for known in recorded_roots
                .by_ref()
                .filter(|known| known.path == root.record.path)
            {
                known.copies.clone_from(&root.record.copies);
                known.mode = root.record.mode;
            }
        }
        if self.record != before {
            self.record.write(vault, change)?;
        }
        for root in self.roots.iter_mut().filter(|root| root.failed.is_none()) {
            root.failed = root.write_entries().err().map(|error| error.to_string());
        }
        // Remove stale variants last, when no symlink points to them any more.
        if self.roots.iter().all(|root| root.failed.is_none()) {
            for (linked, agent) in &self.spare_folders {
                linked.link.remove_agent_folder(agent)?;
            }
            let base = |name: &SkillName, agent: &AgentId| base_of(&self.skills, name, agent);
            self.transforms
                .remove_outdated_variants(vault, change, &base)?;
        }
        Ok(self.into_report(vault))
    }

    pub(super) fn into_report(self, vault: &Vault) -> ProfileSyncReport {
        let trees = link_trees_folder(vault);
        let mut warnings = self.warnings;
        let roots: Vec<_> = self.roots.into_iter().map(RootChange::into_state).collect();
        let missing = roots.iter().filter(|root| root.missing);
        warnings.extend(missing.map(|root| ProfileWarning::RootMissing(root.path.clone())));
        ProfileSyncReport {
            rendered: Vec::new(),
            restart_required: !self.trees.is_empty()
                || roots.iter().any(|root| {
                    !(root.added.is_empty() && root.changed.is_empty() && root.removed.is_empty())
                }),
            profiles: self
                .profiles
                .into_iter()
                .map(|profile| ProfileState {
                    path: trees.join(&profile.folder).path(),
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

/// Returns the bundle from which a variant of a skill for an agent is rendered; `None` if the agent
/// does not get the skill.
fn base_of(skills: &[AvailableSkill], name: &SkillName, agent: &AgentId) -> Option<Digest> {
    let mut skills = skills.iter();
    skills
        .find(|skill| skill.place.name == *name)?
        .base_for(agent)
}

/// A folder of an agent in the set of a linked vault.
type AgentFolder = (Rc<LinkedVault>, AgentId);

/// Returns the linked vaults and agents that lack a folder in the set of installed skills although a
/// rule shows skills to the agent, and those that have one without a rule and are not `here`.
fn compare_agent_folders(
    skills: &[AvailableSkill],
    rules: &[ProfileRule],
    here: &BTreeSet<AgentId>,
) -> (Vec<AgentFolder>, Vec<AgentFolder>) {
    let agents: BTreeSet<_> = rules.iter().map(|rule| &rule.agent).collect();
    let linked = skills.iter().filter_map(|skill| skill.linked.as_ref());
    let linked: BTreeMap<_, _> = linked.map(|linked| (&linked.link.id, linked)).collect();
    let (mut missing, mut spare) = (Vec::new(), Vec::new());
    for linked in linked.into_values().filter(|it| it.link.is_settled()) {
        let has = |agent: &&&AgentId| linked.shown.contains_key(**agent);
        let lacking = agents.iter().filter(|agent| !has(agent));
        missing.extend(lacking.map(|agent| (Rc::clone(linked), (*agent).clone())));
        let is_used = |agent: &&AgentId| agents.contains(agent) || here.contains(*agent);
        let unused = linked.shown.keys().filter(|agent| !is_used(agent));
        spare.extend(unused.map(|agent| (Rc::clone(linked), agent.clone())));
    }
    (missing, spare)
}

/// Adds the folders that the caller chose to the record. Returns those that may be created.
fn collect_roots(
    record: &mut AgentFolders,
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
        let is_selected = |id: &AgentId| input.only.as_ref().is_none_or(|only| only.contains(id));
        for agent in found.iter().filter(|agent| is_selected(&agent.id)) {
            let (roots, scope) = match &machine.project {
                Some(project) => {
                    // Record the real path of the project: symbolic links on the way from there to
                    // the folder may be part of the repository, and are rejected later.
                    let project = disk::resolve(project).unwrap_or_else(|_| project.clone());
                    (agent.project_roots(&project), RootScope::Project)
                }
                None => (agent.global_roots(machine), RootScope::User),
            };
            for root in roots {
                record.add_folder(&root.path, &agent.id, scope.clone(), mode);
                if root.main {
                    may_make.insert(root.path);
                }
            }
        }
    }
    for (agent, path) in &input.profile_roots {
        record.add_folder(path, agent, RootScope::Given, mode);
        may_make.insert(path.clone());
    }
    may_make
}

/// Removes agents from the folders in the record and marks them as declined. A folder that no agent
/// reads any more stays recorded until the sync has removed the vault's skills from it.
fn forget_agents(record: &mut AgentFolders, agents: &[AgentId]) {
    for root in &mut record.roots {
        // Only `profiles.toml` decides about the folders of profiles.
        if !matches!(root.scope, RootScope::Profile(_)) {
            root.agents.retain(|agent| !agents.contains(agent));
        }
    }
    record.declined.extend(agents.iter().cloned());
}

/// Returns the record of a folder, with the agents that read it under any other path too.
fn merge_readers(record: &AgentFolders, root: &RootRecord, real: &Path) -> RootRecord {
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
