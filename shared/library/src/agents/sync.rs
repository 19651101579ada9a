//! What each agent on this machine sees: link trees in the vault, and links to them in the agents' own folders.
//!
//! ```text
//! ~/.claude/skills/pdf -> <vault>/profiles/claude-code/pdf -> ../../skills/pdf -> ../store/<bundle>/files
//! ```
//! One link for each skill, never a link in place of a whole folder. What is in an agent's folder and is not ours is
//! never touched. A link never dangles, whenever the process dies: a skill leaves the agents' folders first, then the
//! trees, then the vault; it comes the other way round.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vault_skill::name::AgentId;

use super::found::Machine;
use super::plan::{Plan, PlanInput, SyncProfilesInput};
use super::report::{ProfileSyncError, ProfileSyncReport};
use super::view::view;
use crate::disk;
use crate::installed::agent_links::entries::{homes, is_ours};
use crate::installed::agent_links::record::Record;
use crate::vault::{Vault, VaultError};

/// Regenerates the link trees and the links in the agents' folders from what is installed. With nothing to do it takes
/// no lock and writes nothing. A folder that can't be changed is reported and keeps nothing else back.
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
    let plan_input = PlanInput {
        sync: input,
        places: None,
        read_only: false,
    };
    let plan = Plan::make(vault, &plan_input)?;
    if plan.is_empty() {
        return Ok(plan.report(vault, &BTreeMap::new()));
    }
    let mut change = vault.change()?;
    // Another process may have changed the vault before the lock was free.
    let mut plan = Plan::make(vault, &plan_input)?;
    if !plan.unrendered.is_empty() {
        plan.render(vault, &mut change)?;
        plan = Plan::make(vault, &plan_input)?;
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

/// Forgets the folders that are not there any more, and removes links of the vault that lead nowhere.
pub(crate) fn clean(vault: &Vault, machine: &Machine) -> Result<Vec<PathBuf>, ProfileSyncError> {
    let seen = view(vault, machine, None)?;
    let mut change = vault.change()?;
    let mut record = Record::read(vault)?;
    let before = record.roots.len();
    record
        .roots
        .retain(|root| disk::is_folder(&root.path) || !seen.missing.contains(&root.path));
    if record.roots.len() != before {
        record.write(vault, &mut change)?;
    }
    let homes = homes(vault);
    let mut cleaned = seen.missing;
    for (path, _) in seen.dangling.into_iter().filter(|(_, ours)| *ours) {
        // It may lead somewhere by now, or be another.
        let target = disk::link_target(&path)?;
        let ours =
            target.is_some_and(|target| is_ours(target.as_os_str().as_encoded_bytes(), &homes));
        if ours && !disk::is_there(&path) && disk::remove_file(&path)? {
            cleaned.push(path);
        }
    }
    Ok(cleaned)
}
