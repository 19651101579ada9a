//! Links a project's skills: in its `.vault/skills`, and in the folders where agents read a
//! project's skills.
//!
//! ```text
//! <project>/.claude/skills/pdf -> ../../.vault/skills/pdf
//! <project>/.vault/skills/pdf  -> <vault>/store/<bundle>/files
//! ```
//! A repository may contain anything in these folders. They are opened without following symbolic
//! links, so that nothing outside of the project changes. In an agent's folder, an entry that vault
//! did not make is never replaced, and a `.gitignore` keeps vault's links out of the repository.

mod ignore;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};

use super::found::{self, Machine};
use crate::disk::beneath::{BeneathError, HeldEntry, HeldFolder};
use crate::disk::{self, FileError, Location};
use crate::installed::project_skills::{self, Project, ProjectError, ProjectFolder, SKILLS, STATE};
use crate::store;
use crate::vault::Vault;

/// The links of a project's skills after [`link_project`].
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ProjectLinks {
    /// The agents' folders, relative to the project.
    pub folders: Vec<PathBuf>,
    /// Agents' folders that were left alone: a part of the path is a symbolic link or not a folder.
    #[serde(skip)]
    pub refused: Vec<PathBuf>,
    /// Entries with the name of a skill that vault did not make, relative to the project.
    #[serde(skip)]
    pub foreign: Vec<PathBuf>,
    /// `.gitignore` files in the agents' folders that were left alone, relative to the project.
    #[serde(skip)]
    pub unignored: Vec<PathBuf>,
    /// Skills that left the project.
    pub removed: Vec<SkillName>,
}

/// Creates the links of a project's skills, and removes from the project the skills that `keep`
/// does not name. `machine` tells which agents there are; its `project` is not used. Does nothing
/// if nothing was installed for the project.
pub fn link_project(
    vault: &Vault,
    folder: &ProjectFolder,
    keep: &BTreeSet<SkillName>,
    machine: Option<&Machine>,
) -> Result<ProjectLinks, ProjectError> {
    let mut links = ProjectLinks::default();
    if project_skills::find_project(vault, folder)?.is_none() {
        return Ok(links);
    }
    let _change = vault.begin_change()?;
    // Read again under the lock: another process may have changed the project.
    let Some(mut project) = project_skills::find_project(vault, folder)? else {
        return Ok(links);
    };
    let before: Vec<_> = project.skill_names().cloned().collect();
    project.retain_skills(keep);
    links.removed = before;
    links.removed.retain(|name| !keep.contains(name));
    let readers_by_folder = wanted_folders(folder.path(), machine);
    let recorded_folders = project.agent_folders().clone();
    // A killed process must not leave links in a folder that the record does not name, so keep the
    // earlier folders in it until their links are removed below.
    project.set_folders(&recorded_folders | &readers_by_folder.keys().cloned().collect());
    // Write the record before the links: it must name every folder that has links.
    project.store_record()?;
    let state = open_below(folder, Path::new(STATE), true)?;
    if !ignore::ignore_links(&state, &BTreeSet::from(["skills"]))? {
        links.unignored.push(Path::new(STATE).join(ignore::NAME));
    }
    let skills = open_below(folder, Path::new(SKILLS), true)?;
    let in_the_way = link_skills(vault, &project, &skills)?;
    let agents_by_skill = agents_by_skill(vault, &project);
    for path in project.agent_folders() {
        let no_agents = BTreeSet::new();
        let readers = readers_by_folder.get(path).unwrap_or(&no_agents);
        let visible = agents_by_skill.iter().filter(|(_, agents)| {
            !readers.is_empty()
                && (agents.is_empty() || agents.iter().any(|id| readers.contains(id)))
        });
        let shown: BTreeSet<_> = visible.map(|(name, _)| *name).collect();
        match open_below(folder, path, !shown.is_empty()) {
            Ok(held) => show_skills(&held, path, &shown, &mut links)?,
            Err(BeneathError::Missing(_)) => {}
            // A repository may contain a symbolic link or a file here. Leave it alone and report
            // it.
            Err(BeneathError::NotAFolder(_) | BeneathError::Outside(_)) => {
                links.refused.push(path.clone());
            }
            Err(error) => return Err(error.into()),
        }
    }
    project.set_folders(readers_by_folder.into_keys().collect());
    // Remove bundles last, when no link leads to them any more.
    let replaced = project.take_replaced();
    let aside = vault.new_scratch()?;
    store::drop_bundles(&vault.store_folder(), aside.path(), replaced)?;
    project.store_record()?;
    // Report it only now, after all others were linked.
    match in_the_way {
        Some(path) => Err(ProjectError::InTheWay(path)),
        None => Ok(links),
    }
}

/// Returns the paths in a project's `.vault/skills` at which a link is missing, leads elsewhere or
/// belongs to no skill, and the entries of agents' folders that stand in the place of a link to a
/// skill.
pub fn wrong_links(vault: &Vault, project: &Project) -> Result<Vec<PathBuf>, ProjectError> {
    let mut wrong = foreign_entries(project)?;
    let folder = HeldFolder::open(project.path())?.descend(Path::new(SKILLS), false);
    let names: BTreeMap<_, _> = match folder {
        Ok(folder) => folder
            .list_names()?
            .into_iter()
            .map(|name| Ok((name.clone(), folder.read_entry(&name)?)))
            .collect::<Result<_, FileError>>()?,
        Err(BeneathError::Missing(_)) => BTreeMap::new(),
        Err(BeneathError::NotAFolder(path) | BeneathError::Outside(path)) => return Ok(vec![path]),
        Err(error) => return Err(error.into()),
    };
    for (name, bundle) in project.skill_bundles() {
        let expected = HeldEntry::Link(skill_link_target(vault, bundle));
        if names.get(OsStr::new(name.as_str())) != Some(&Some(expected)) {
            wrong.push(project.path().join(SKILLS).join(name.as_str()));
        }
    }
    let is_ours = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| project.skill_names().any(|ours| ours.as_str() == name))
    };
    let foreign = names.keys().filter(|name| !is_ours(name));
    wrong.extend(foreign.map(|name| project.path().join(SKILLS).join(name)));
    Ok(wrong)
}

/// Returns the entries of the agents' folders that have the name of a skill and are not vault's link
/// to it: agents read these instead.
fn foreign_entries(project: &Project) -> Result<Vec<PathBuf>, ProjectError> {
    let mut foreign = Vec::new();
    for below in project.agent_folders() {
        let folder = match HeldFolder::open(project.path())?.descend(below, false) {
            Ok(folder) => folder,
            // Agents that have no such folder, or a link that vault does not follow, see no skill.
            Err(BeneathError::File(error)) => return Err(error.into()),
            Err(_) => continue,
        };
        for skill in project.skill_names() {
            let name = OsStr::new(skill.as_str());
            let expected = HeldEntry::Link(agent_link_target(below, name));
            if folder
                .read_entry(name)?
                .is_some_and(|entry| entry != expected)
            {
                foreign.push(project.path().join(below).join(name));
            }
        }
    }
    Ok(foreign)
}

/// Returns the target of a skill's link in an agent's folder, relative to that folder, so that the
/// links still work if the project is moved.
fn agent_link_target(below: &Path, name: &OsStr) -> PathBuf {
    let up: PathBuf = below.components().map(|_| "..").collect();
    up.join(SKILLS).join(name)
}

fn open_below(
    folder: &ProjectFolder,
    below: &Path,
    make: bool,
) -> Result<HeldFolder, BeneathError> {
    HeldFolder::open(folder.path())?.descend(below, make)
}

/// Returns the target of a skill's link in `.vault/skills`.
fn skill_link_target(vault: &Vault, bundle: &Digest) -> PathBuf {
    store::bundle_folder(&vault.store_folder(), bundle)
        .join("files")
        .path()
}

/// Returns the folders in which the machine's agents read a project's skills, relative to the
/// project, each with its agents.
fn wanted_folders(
    project: &Path,
    machine: Option<&Machine>,
) -> BTreeMap<PathBuf, BTreeSet<AgentId>> {
    let mut folders: BTreeMap<PathBuf, BTreeSet<AgentId>> = BTreeMap::new();
    let Some(machine) = machine else {
        return folders;
    };
    let machine = Machine {
        project: Some(project.to_owned()),
        ..machine.clone()
    };
    for agent in found::detect_agents(&machine) {
        for root in agent.project_roots(project) {
            if let Ok(below) = root.path.strip_prefix(project) {
                let below = below.components().collect();
                folders.entry(below).or_default().insert(agent.id.clone());
            }
        }
    }
    folders
}

/// Returns the agents that each intact skill is for; an empty list means all agents. Damaged skills
/// are left out.
fn agents_by_skill<'p>(
    vault: &Vault,
    project: &'p Project,
) -> BTreeMap<&'p SkillName, Vec<AgentId>> {
    let names = project.skill_names();
    let read = names.filter_map(|name| {
        let examined = project.read_skill(vault, name)?.ok()?;
        Some((name, examined.manifest.agents))
    });
    read.collect()
}

/// Creates, switches and removes links in `.vault/skills` until they match the record. Returns the
/// first place of a skill that something else takes.
fn link_skills(
    vault: &Vault,
    project: &Project,
    folder: &HeldFolder,
) -> Result<Option<PathBuf>, ProjectError> {
    let mut in_the_way = None;
    for (name, bundle) in project.skill_bundles() {
        let name = OsStr::new(name.as_str());
        let expected = skill_link_target(vault, bundle);
        match folder.read_entry(name)? {
            Some(HeldEntry::Link(found)) if found == expected => {}
            // Vault makes only links here, so this entry is not its own and is not replaced.
            Some(HeldEntry::Other) => {
                in_the_way.get_or_insert(folder.path().join(name));
            }
            Some(HeldEntry::Link(_)) | None => folder.put_link(name, &expected)?,
        }
    }
    for name in folder.list_names()? {
        let is_skill = |other: &SkillName| OsStr::new(other.as_str()) == name;
        if !project.skill_names().any(is_skill) {
            folder.remove_link(&name)?;
        }
    }
    Ok(in_the_way)
}

/// Links skills into one agent's folder, and removes the links to skills that it no longer shows.
fn show_skills(
    held: &HeldFolder,
    below: &Path,
    shown: &BTreeSet<&SkillName>,
    links: &mut ProjectLinks,
) -> Result<(), FileError> {
    let expected = |name: &OsStr| agent_link_target(below, name);
    for name in held.list_names()? {
        let ours = HeldEntry::Link(expected(&name));
        let is_shown = name
            .to_str()
            .is_some_and(|name| shown.iter().any(|shown| shown.as_str() == name));
        // Only links with exactly this target are removed. All other entries belong to the
        // repository.
        if !is_shown && held.read_entry(&name)?.as_ref() == Some(&ours) {
            held.remove_link(&name)?;
        }
    }
    let (mut ours, mut missing) = (BTreeSet::new(), Vec::new());
    for skill in shown {
        let name = OsStr::new(skill.as_str());
        match held.read_entry(name)? {
            None => missing.push(name),
            Some(HeldEntry::Link(found)) if found == expected(name) => {}
            Some(_) => {
                links.foreign.push(below.join(name));
                continue;
            }
        }
        ours.insert(skill.as_str());
    }
    // Ignore the links before they exist, so that a `git add` at this moment does not take them.
    if !ignore::ignore_links(held, &ours)? {
        links.unignored.push(below.join(ignore::NAME));
    }
    for name in missing {
        held.put_link(name, &expected(name))?;
    }
    links.folders.push(below.to_owned());
    Ok(())
}

/// Forgets projects whose folders no longer exist. Returns these folders.
pub(crate) fn forget_missing(vault: &Vault) -> Result<Vec<PathBuf>, ProjectError> {
    let _change = vault.begin_change()?;
    let mut forgotten = Vec::new();
    for project in project_skills::list_projects(vault)? {
        if !disk::is_folder(project.path()) {
            project.remove_record()?;
            forgotten.push(project.path().to_owned());
        }
    }
    Ok(forgotten)
}
