//! Skills that are disabled for one agent or for all.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_skill::name::{AgentId, SkillName};

use crate::vault::{Change, Vault, VaultError, read_record};

/// The skills that are disabled for one agent or for all.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Switches {
    disabled: BTreeSet<Disabled>,
}

/// A disabled skill.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Disabled {
    /// The skill.
    pub name: SkillName,
    /// The agent that it is disabled for; `None` means all agents.
    pub agent: Option<AgentId>,
}

impl Switches {
    /// Reads the disabled skills. Fails if the file is damaged, so that no skill is enabled by
    /// accident.
    pub fn read(vault: &Vault) -> Result<Self, VaultError> {
        Ok(read_record(&switches_path(vault))?.unwrap_or_default())
    }

    /// Whether a skill is enabled for an agent.
    pub fn shows(&self, name: &SkillName, agent: &AgentId) -> bool {
        // This runs for every skill and agent, and most vaults have no disabled skills.
        self.disabled.is_empty()
            || !self.disabled.iter().any(|off| {
                off.name == *name && off.agent.as_ref().is_none_or(|other| other == agent)
            })
    }

    /// The disabled skills, in order.
    pub fn disabled(&self) -> impl Iterator<Item = &Disabled> {
        self.disabled.iter()
    }

    /// Whether no skill is disabled.
    pub fn is_empty(&self) -> bool {
        self.disabled.is_empty()
    }

    /// Disables or enables a skill for one agent, or for all. Returns whether that changed
    /// anything. Enabling it for all also removes the entries for single agents.
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

/// Enables or disables a skill for one agent, or for all. Returns whether that changed anything.
/// Takes effect with the next [`crate::sync_profiles`].
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
