//! What each agent on this machine sees: link trees in the vault, and links to them in the agents' own folders.
//!
//! ```text
//! ~/.claude/skills/pdf -> <vault>/profiles/claude-code/pdf -> ../../skills/pdf -> ../store/<bundle>/files
//! ```
//! One link for each skill, never a link in place of a whole folder. What is in an agent's folder and is not ours is
//! never touched. A link never dangles, whenever the process dies: a skill leaves the agents' folders first, then the
//! trees, then the vault; it comes the other way round.

mod copies;
mod record;
mod roots;
mod tree;
mod view;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::profile::RulesError;

pub use self::record::{Disabled, RootMode, RootScope, Switches};
use self::record::{Record, RootRecord};
use self::roots::{Done, RootChange};
use self::tree::TreeChange;
pub(crate) use self::view::view;
pub use self::view::{AgentView, Hidden, View};
use self::wanted::{Candidate, Variants, Wanted};
use crate::agents::{self, Machine};
use crate::files::{self, FileError};
use crate::scan::Places;
use crate::transforms::Transforms;
use crate::vault::{Change, Vault, VaultError};

/// The owner's text about profiles, in the vault's folder.
pub const PROFILES_FILE: &str = "profiles.toml";

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

/// What [`sync_profiles`] did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileSyncReport {
    /// Whether what an agent sees through links changed: one that read them at its start must be started again.
    pub restart_required: bool,
    /// The profiles in the order of `profiles.toml`, else of the agents' ids.
    pub profiles: Vec<ProfileState>,
    /// The folders of agents that are linked into.
    pub roots: Vec<RootState>,
    /// Agents that were found and are not linked into, by their ids.
    pub unlinked_agents: Vec<AgentId>,
    /// What was noticed besides.
    pub warnings: Vec<ProfileWarning>,
}

/// A profile as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileState {
    /// Its name.
    pub name: String,
    /// Its agent.
    pub agent: AgentId,
    /// How many skills it shows.
    pub skills: usize,
    /// Its folder in the vault.
    pub path: PathBuf,
}

/// A folder of an agent as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct RootState {
    /// The folder.
    pub path: PathBuf,
    /// The agents that read it.
    pub agents: Vec<AgentId>,
    /// Why it is linked into.
    pub scope: RootScope,
    /// Links or copies.
    pub mode: RootMode,
    /// Skills of the vault in it.
    pub skills: usize,
    /// Skills that are new in it.
    pub added: Vec<String>,
    /// Skills that are shown from another place than before.
    pub changed: Vec<String>,
    /// Skills that it shows no more.
    pub removed: Vec<String>,
    /// Skills that are not shown, since something of the user's has their name.
    pub foreign: Vec<SkillName>,
    /// The folder was made.
    pub created: bool,
    /// It is not there, and is not made again.
    pub missing: bool,
    /// Why nothing was done in it.
    pub failed: Option<String>,
}

/// Something that did not stop the sync and that the user should know.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileWarning {
    /// The stable word.
    pub code: &'static str,
    /// One sentence without a full stop.
    pub message: String,
    /// What mends it.
    pub hint: String,
    /// Where.
    pub path: Option<PathBuf>,
}

/// Why profiles were not synced. What was linked before still is.
#[derive(Debug, thiserror::Error)]
pub enum ProfileSyncError {
    /// profiles.toml has an error.
    #[error("profiles.toml: {0}")]
    Rules(#[from] RulesError),
    /// A target that depends on where the command runs.
    #[error("profiles.toml: the target {0:?} is neither absolute nor below ~/")]
    Target(String),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for ProfileSyncError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

/// Regenerates the link trees and the links in the agents' folders from what is installed. With nothing to do it takes
/// no lock and writes nothing. A folder that can't be changed is reported and keeps nothing else back.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::agents::Machine;
/// use vault_library::{AddSkill, SyncProfilesInput, Vault, VaultPaths, add_skill, sync_profiles};
/// use vault_store::{clock::TestClock, random::SeededRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let home = tempfile::tempdir()?;
/// std::fs::create_dir(home.path().join(".cursor"))?; // an agent is here
/// let skill = home.path().join("greet");
/// std::fs::create_dir(&skill)?;
/// std::fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Greets whoever asks for it.\n---\nSay hello.\n")?;
/// let paths = VaultPaths::new(home.path().join(".vault"), home.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(TestClock::default()), Arc::new(SeededRandom::new(1)))?;
/// add_skill(&vault, &AddSkill::from_path(skill.display().to_string()))?;
///
/// let input = SyncProfilesInput { machine: Machine::at(home.path()), discover: true, ..SyncProfilesInput::default() };
/// let report = sync_profiles(&vault, &input)?;
/// assert!(report.restart_required);
/// assert!(home.path().join(".cursor/skills/greet/SKILL.md").exists());
/// assert!(!sync_profiles(&vault, &input)?.restart_required);
/// # Ok(())
/// # }
/// ```
pub fn sync_profiles(
    vault: &Vault,
    input: &SyncProfilesInput,
) -> Result<ProfileSyncReport, ProfileSyncError> {
    let plan = Plan::make(vault, input, None)?;
    if plan.is_empty() {
        return Ok(plan.report(vault, &BTreeMap::new()));
    }
    let mut change = vault.change()?;
    // Somebody else may have changed the vault while the lock was waited for.
    let mut plan = Plan::make(vault, input, None)?;
    if !plan.unrendered.is_empty() {
        plan.render(vault, &mut change)?;
        plan = Plan::make(vault, input, None)?;
    }
    plan.apply(vault, &mut change)
}

/// [`sync_profiles`] for what is linked already; `None` when nothing ever was, so that adding a skill to a vault that
/// no agent was told about touches no agent's folder.
pub fn refresh(
    vault: &Vault,
    machine: &Machine,
) -> Result<Option<ProfileSyncReport>, ProfileSyncError> {
    if Record::read(vault)?.roots.is_empty() {
        return Ok(None);
    }
    let input = SyncProfilesInput {
        machine: machine.clone(),
        ..SyncProfilesInput::default()
    };
    sync_profiles(vault, &input).map(Some)
}

/// The folders that the vault links into, with the agents that read them.
pub fn linked_roots(vault: &Vault) -> Result<Vec<(PathBuf, Vec<AgentId>)>, VaultError> {
    Ok(Record::read(vault)?
        .roots
        .into_iter()
        .map(|root| (root.path, root.agents.into_iter().collect()))
        .collect())
}

/// What a folder holds, as one hash over paths, modes and bytes; `None` when that can't be told.
pub(crate) fn content_of_folder(folder: &Path) -> Option<Digest> {
    copies::content(folder)
}

/// Removes a folder of an agent's folder: out of the way in one step, under a name of ours, then away.
pub(crate) fn remove_native(root: &Path, folder: &Path) -> Result<(), FileError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    copies::remove(root, &name)
}

/// The names in a folder under which copies of the vault stand.
pub(crate) fn copies_in(vault: &Vault, root: &Path) -> Result<Vec<SkillName>, VaultError> {
    Ok(Record::read(vault)?
        .roots
        .into_iter()
        .filter(|known| known.path == root)
        .flat_map(|known| known.copies.into_keys())
        .collect())
}

/// Switches a skill on or off, for an agent or for all; true when that changed anything. Takes effect with the next
/// [`sync_profiles`].
pub fn set_enabled(
    vault: &Vault,
    name: &SkillName,
    agent: Option<&AgentId>,
    on: bool,
) -> Result<bool, VaultError> {
    let mut change = vault.change()?;
    let mut switches = Switches::read(vault)?;
    let changed = switches.set(name, agent, on);
    if changed {
        switches.write(vault, &mut change)?;
    }
    Ok(changed)
}

/// Forgets the folders that are not there any more, and removes links of the vault that lead nowhere.
pub(crate) fn clean(vault: &Vault, machine: &Machine) -> Result<Vec<PathBuf>, ProfileSyncError> {
    let seen = view(vault, machine, None)?;
    let mut change = vault.change()?;
    let mut record = Record::read(vault)?;
    let before = record.roots.len();
    record
        .roots
        .retain(|root| files::is_folder(&root.path) || !seen.missing.contains(&root.path));
    if record.roots.len() != before {
        record.write(vault, &mut change)?;
    }
    let homes = roots::homes(vault);
    let mut cleaned = seen.missing;
    for (path, _) in seen.dangling.into_iter().filter(|(_, ours)| *ours) {
        // It may lead somewhere by now, or be another.
        let target = files::link_target(&path)?;
        let ours = target
            .is_some_and(|target| roots::is_ours(target.as_os_str().as_encoded_bytes(), &homes));
        if ours && !files::is_there(&path) && files::remove_file(&path)? {
            cleaned.push(path);
        }
    }
    Ok(cleaned)
}

/// Takes skills out of the agents' folders and the trees, before they leave the vault. `further` are folders that
/// nothing is noted about. Fails, with the skills still whole, where a folder of an agent can't be changed.
pub(crate) fn withdraw(
    vault: &Vault,
    change: &mut Change<'_>,
    names: &[SkillName],
    further: &[PathBuf],
) -> Result<Vec<(PathBuf, Vec<SkillName>)>, VaultError> {
    let mut record = Record::read(vault)?;
    let homes = roots::homes(vault);
    let mut gone = Vec::new();
    for root in &mut record.roots {
        let names = roots::unlink(&root.path, names, &homes, &mut root.copies)?;
        gone.push((root.path.clone(), names));
    }
    for path in further {
        if record.roots.iter().all(|root| root.path != *path) {
            let names = roots::unlink(path, names, &homes, &mut BTreeMap::new())?;
            gone.push((path.clone(), names));
        }
    }
    gone.retain(|(_, names)| !names.is_empty());
    if record != Record::read(vault)? {
        record.write(vault, change)?;
    }
    tree::unlink(vault, names)?;
    Ok(gone)
}

/// All that is to be done, found without writing.
struct Plan {
    skills: Vec<Candidate>,
    transforms: Transforms,
    unrendered: Vec<(SkillName, AgentId)>,
    profiles: Vec<Wanted>,
    trees: Vec<TreeChange>,
    roots: Vec<RootChange>,
    record: Record,
    record_changed: bool,
    unlinked: Vec<AgentId>,
    warnings: Vec<ProfileWarning>,
}

impl Plan {
    fn make(
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
        let found = agents::found(&machine);
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

    fn is_empty(&self) -> bool {
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

    fn render(&mut self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
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

    fn apply(
        mut self,
        vault: &Vault,
        change: &mut Change<'_>,
    ) -> Result<ProfileSyncReport, ProfileSyncError> {
        let homes = roots::homes(vault);
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

    fn report(self, vault: &Vault, failed: &BTreeMap<PathBuf, String>) -> ProfileSyncReport {
        let trees = record::trees(vault);
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
    found: &[&agents::Agent],
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

fn damaged_warning(name: &SkillName) -> ProfileWarning {
    ProfileWarning {
        code: "skill_damaged",
        message: format!("{name} is not as it was signed and is shown to no agent"),
        hint: format!("vault doctor {name}"),
        path: None,
    }
}

fn transform_warning((name, agent, reason): (SkillName, AgentId, String)) -> ProfileWarning {
    ProfileWarning {
        code: "transform_failed",
        message: format!("{agent} sees {name} without its transforms: {reason}"),
        hint: format!("mend it and add it again: vault transform add {name} <file>"),
        path: None,
    }
}

fn strange_warning(path: PathBuf) -> ProfileWarning {
    ProfileWarning {
        code: "foreign_in_profiles",
        message: format!("{} is not the vault's and is left alone", path.display()),
        hint: "move it elsewhere: this folder is made by vault sync-profiles".to_owned(),
        path: Some(path),
    }
}

fn inside_warning(path: &Path) -> ProfileWarning {
    ProfileWarning {
        code: "root_in_vault",
        message: format!("{} leads into the vault itself", path.display()),
        hint: format!(
            "make it a folder of its own: rm {0} && mkdir {0}",
            path.display()
        ),
        path: Some(path.to_owned()),
    }
}

fn missing_warning(path: &Path) -> ProfileWarning {
    ProfileWarning {
        code: "root_missing",
        message: format!("{} is not there any more", path.display()),
        hint: "vault doctor --clean forgets it; vault sync-profiles --discover links into what is there".to_owned(),
        path: Some(path.to_owned()),
    }
}
