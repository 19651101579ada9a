//! Syncs what each agent on this machine sees: link trees in the vault, and symlinks to them in the
//! agents' own folders.
//!
//! ```text
//! ~/.claude/skills/pdf -> <vault>/profiles/claude-code/pdf -> ../../skills/pdf -> ../store/<bundle>/files
//! ```
//! There is one symlink for each skill, never one for a whole folder. Entries in an agent's folder
//! that do not belong to the vault are never changed.
//!
//! No symlink dangles, even if the process is killed at any point: a removed skill leaves the
//! agents' folders first, then the trees, then the vault. A new skill is added in the reverse
//! order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vault_format::name::AgentId;

use super::found::{self, Agent, Machine};
use super::plan::{Plan, SyncProfilesInput};
use super::report::{ProfileSyncError, ProfileSyncReport};
use super::view::view_agents;
use crate::disk;
use crate::installed::agent_links::entries::{is_ours, own_link_targets};
use crate::installed::agent_links::record::AgentFolders;
use crate::vault::{Vault, VaultError};

/// Updates the link trees and the symlinks in the agents' folders until they match the installed
/// skills. If nothing has to change, it takes no lock and writes nothing. A folder that can't be
/// changed is reported and does not stop the others.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::agents::Machine;
/// use vault_library::{SyncProfilesInput, Vault, VaultPaths, add_folder, sync_profiles};
/// use vault_store::{clock::SystemClock, random::SystemRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let home = tempfile::tempdir()?;
/// std::fs::create_dir(home.path().join(".cursor"))?; // an agent is here
/// let skill = home.path().join("greet");
/// std::fs::create_dir(&skill)?;
/// std::fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Greets whoever asks for it.\n---\nSay hello.\n")?;
/// let paths = VaultPaths::new(home.path().join(".vault"), home.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;
/// add_folder(&vault, &skill, &Default::default())?;
///
/// let input = SyncProfilesInput { machine: Machine::with_home(home.path()), discover: true, ..SyncProfilesInput::default() };
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
    let plan = Plan::from_input(vault, input)?;
    if plan.is_empty() {
        return Ok(plan.into_report(vault));
    }
    let mut change = vault.begin_change()?;
    // Plan again under the lock: another process may have changed the vault meanwhile.
    let mut plan = Plan::from_input(vault, input)?;
    let mut rendered = Vec::new();
    if !plan.unrendered.is_empty() {
        rendered = plan.render_missing(vault, &mut change)?;
        // Plan once more: the links lead to the new variants, whose bundles are known only now.
        plan = Plan::from_input(vault, input)?;
    }
    let report = plan.apply_changes(vault, &mut change)?;
    Ok(ProfileSyncReport { rendered, ..report })
}

/// Runs [`sync_profiles`] for the folders that are already linked. Returns `None` if none is, so
/// that adding a skill does not touch the folders of agents that were never linked.
pub fn sync_linked_folders(
    vault: &Vault,
    machine: &Machine,
) -> Result<Option<ProfileSyncReport>, ProfileSyncError> {
    if AgentFolders::read(vault)?.roots.is_empty() {
        return Ok(None);
    }
    let input = SyncProfilesInput {
        machine: machine.clone(),
        ..SyncProfilesInput::default()
    };
    sync_profiles(vault, &input).map(Some)
}

/// Returns the detected agents whose folders the user has neither linked nor declined to link.
/// Agents for which the vault has no skill are left out.
pub fn list_unlinked(
    vault: &Vault,
    machine: &Machine,
) -> Result<Vec<&'static Agent>, ProfileSyncError> {
    let record = AgentFolders::read(vault)?;
    let linked: BTreeSet<_> = record.roots.iter().flat_map(|root| &root.agents).collect();
    let mut agents = found::detect_agents(machine);
    agents.retain(|agent| !linked.contains(&agent.id) && !record.declined.contains(&agent.id));
    // Computing what agents see reads the whole index, so skip it if no agent remains.
    if agents.is_empty() {
        return Ok(agents);
    }
    let seen = view_agents(vault, machine)?.agents;
    agents.retain(|agent| {
        let mut views = seen.iter();
        views.any(|view| view.agent == agent.id && !view.sees.is_empty())
    });
    Ok(agents)
}

/// Records that the user does not want these agents' folders linked, so that vault does not ask
/// again.
pub fn decline_agents(vault: &Vault, agents: &[AgentId]) -> Result<(), VaultError> {
    let mut change = vault.begin_change()?;
    let mut record = AgentFolders::read(vault)?;
    record.declined.extend(agents.iter().cloned());
    record.write(vault, &mut change)
}

/// Removes the linked folders and the choices about agents from an unpacked backup of the trust
/// folder. They belong to the machine that was backed up, not to the one that is restored.
pub fn forget_restored(config: &Path) -> Result<(), VaultError> {
    AgentFolders::remove_from_copy(config)
}

/// Returns the linked folders, with the agents that read them.
pub fn linked_roots(vault: &Vault) -> Result<Vec<(PathBuf, Vec<AgentId>)>, VaultError> {
    Ok(AgentFolders::read(vault)?
        .roots
        .into_iter()
        .map(|root| (root.path, root.agents.into_iter().collect()))
        .collect())
}

/// Forgets linked folders that no longer exist and removes dangling symlinks that lead into the
/// vault. Returns the paths that it forgot or removed.
pub(crate) fn clean_up_links(
    vault: &Vault,
    machine: &Machine,
) -> Result<Vec<PathBuf>, ProfileSyncError> {
    let seen = view_agents(vault, machine)?;
    let mut change = vault.begin_change()?;
    let mut record = AgentFolders::read(vault)?;
    // Check again under the lock: a folder may have come back.
    let is_gone = |path: &PathBuf| seen.missing.contains(path) && !disk::is_folder(path);
    let mut cleaned = Vec::new();
    record.roots.retain(|root| {
        let gone = is_gone(&root.path);
        if gone {
            cleaned.push(root.path.clone());
        }
        !gone
    });
    if !cleaned.is_empty() {
        record.write(vault, &mut change)?;
    }
    let homes = own_link_targets(vault);
    for (path, _) in seen.dangling.into_iter().filter(|(_, ours)| *ours) {
        // Check again under the lock: the symlink may have been repaired or replaced.
        let target = disk::link_target(&path)?;
        let ours =
            target.is_some_and(|target| is_ours(target.as_os_str().as_encoded_bytes(), &homes));
        if ours && !disk::is_there(&path) && disk::remove_file(&path)? {
            cleaned.push(path);
        }
    }
    Ok(cleaned)
}
