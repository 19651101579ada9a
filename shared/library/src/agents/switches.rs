//! Which skills are switched off, for one agent or for all.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_skill::name::{AgentId, SkillName};

use crate::vault::{Change, Vault, VaultError, read_record};

/// Skills that are switched off, for one agent or for all.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Switches {
    disabled: BTreeSet<Disabled>,
}

/// One skill that is switched off.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Disabled {
    /// The skill.
    pub name: SkillName,
    /// The agent that does not see it; `None`: no agent does.
    pub agent: Option<AgentId>,
}

impl Switches {
    /// Reads them; damaged ones are an error, so that nothing is switched on by accident.
    pub fn read(vault: &Vault) -> Result<Self, VaultError> {
        Ok(read_record(&switches_path(vault))?.unwrap_or_default())
    }

    /// Whether an agent sees a skill.
    pub fn shows(&self, name: &SkillName, agent: &AgentId) -> bool {
        // Looked up for every skill and agent: most vaults have none.
        self.disabled.is_empty()
            || !self.disabled.iter().any(|off| {
                off.name == *name && off.agent.as_ref().is_none_or(|other| other == agent)
            })
    }

    /// What is switched off, in order.
    pub fn disabled(&self) -> impl Iterator<Item = &Disabled> {
        self.disabled.iter()
    }

    /// Whether nothing is switched off.
    pub fn is_empty(&self) -> bool {
        self.disabled.is_empty()
    }

    /// Switches a skill off or on for an agent or for all; true when that changed anything. Switching on for all also
    /// undoes what was switched off for single agents.
    pub(super) fn set(&mut self, name: &SkillName, agent: Option<&AgentId>, on: bool) -> bool {
        let before = self.disabled.clone();
        if !on {
            self.disabled.insert(Disabled {
                name: name.clone(),
                agent: agent.cloned(),
            });
        } else if agent.is_some() {
            self.disabled
                .retain(|off| off.name != *name || off.agent.as_ref() != agent);
        } else {
            self.disabled.retain(|off| off.name != *name);
        }
        self.disabled != before
    }

    pub(super) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        change.write_record(&switches_path(vault), self, 0o600)
    }
}

fn switches_path(vault: &Vault) -> PathBuf {
    vault.paths().root.join("disabled.json")
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
