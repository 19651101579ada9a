//! The switches of skills: which are disabled for one agent or for all agents, and which are shown
//! to certain agents only. The record lies in the trust folder, so that write access to the vault's
//! folder is not enough to show a disabled skill to an agent, or to hide a skill.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vault_format::name::{AgentId, SkillName};

use crate::vault::{Vault, VaultError};

/// File in the trust folder that holds the [`Switches`].
const RECORD: &str = "disabled.json";

/// Which skills are hidden from which agents. A skill without an entry is shown to every agent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Switches {
    disabled: BTreeSet<Disabled>,
    /// Skills that are shown to these agents only, even if more agents are detected later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    kept_to: BTreeMap<SkillName, BTreeSet<AgentId>>,
}

/// An entry that hides one skill.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Disabled {
    /// The skill.
    pub name: SkillName,
    /// The agent that it is disabled for; `None` means all agents.
    pub agent: Option<AgentId>,
}

impl Switches {
    /// Reads the record. Fails if the file is damaged, so that no skill is shown by accident.
    pub fn read(vault: &Vault) -> Result<Self, VaultError> {
        let record = vault.trust_folder().read_record(RECORD)?;
        Ok(record.unwrap_or_default())
    }

    /// Returns whether an agent may see a skill. Its profile may still leave the skill out.
    pub fn shows(&self, name: &SkillName, agent: &AgentId) -> bool {
        let kept_to = self.kept_to.get(name);
        let is_kept_from = kept_to.is_some_and(|agents| !agents.contains(agent));
        let mut disabled = self.disabled.iter();
        !is_kept_from
            && !disabled.any(|off| {
                off.name == *name && off.agent.as_ref().is_none_or(|other| other == agent)
            })
    }

    /// Returns the entries that disable skills, sorted by name and agent.
    pub fn disabled(&self) -> impl Iterator<Item = &Disabled> {
        self.disabled.iter()
    }

    /// Returns whether no skill is hidden from any agent.
    pub fn is_empty(&self) -> bool {
        self.disabled.is_empty() && self.kept_to.is_empty()
    }
}

/// Hides a skill from all agents but these, until [`set_enabled`] enables it for another agent,
/// which is then added to these, or for all. A skill that is disabled for one of these agents stays
/// hidden from it. Takes effect with the next [`crate::sync_profiles`].
pub fn keep_to(vault: &Vault, name: &SkillName, agents: &[AgentId]) -> Result<(), VaultError> {
    let mut change = vault.begin_change()?;
    let mut switches = Switches::read(vault)?;
    let agents = agents.iter().cloned().collect();
    switches.kept_to.insert(name.clone(), agents);
    // Processes that watch the vault's generation number read the switches again after this.
    change.mark_changing()?;
    vault.trust_folder().write_record(RECORD, &switches)?;
    Ok(())
}

/// Enables or disables a skill for one agent, or for all. Enabling it for all removes every entry
/// of the skill. Enabling it for one agent while it is disabled for all shows it to that agent
/// alone, because the others did not see it and must not begin to. Returns whether anything
/// changed. Takes effect with the next [`crate::sync_profiles`].
pub fn set_enabled(
    vault: &Vault,
    name: &SkillName,
    agent: Option<&AgentId>,
    on: bool,
) -> Result<bool, VaultError> {
    let mut change = vault.begin_change()?;
    let before = Switches::read(vault)?;
    let mut switches = before.clone();
    if on {
        let for_all = Disabled {
            name: name.clone(),
            agent: None,
        };
        let was_off_for_all = switches.disabled.remove(&for_all);
        switches
            .disabled
            .retain(|off| off.name != *name || (agent.is_some() && off.agent.as_ref() != agent));
        match (agent, switches.kept_to.get_mut(name)) {
            // If the skill is kept to some agents, add this one to them. Only enabling the skill
            // for all agents lifts that limit.
            (Some(agent), Some(agents)) if !was_off_for_all => {
                agents.insert(agent.clone());
            }
            // The other agents did not see the skill and must not begin to.
            (Some(agent), _) if was_off_for_all => {
                let only = BTreeSet::from([agent.clone()]);
                switches.kept_to.insert(name.clone(), only);
            }
            _ => {
                switches.kept_to.remove(name);
            }
        }
    } else {
        switches.disabled.insert(Disabled {
            name: name.clone(),
            agent: agent.cloned(),
        });
    }
    // If nothing changed, no watcher has to read again.
    if switches == before {
        return Ok(false);
    }
    change.mark_changing()?;
    vault.trust_folder().write_record(RECORD, &switches)?;
    Ok(true)
}
