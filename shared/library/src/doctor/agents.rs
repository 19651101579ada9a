//! Checks what each agent sees and the symlinks in the agents' folders.

use std::collections::HashMap;

use vault_skill::name::{AgentId, SkillName};

use super::{ContextCost, Doctor, DoctorFinding};
use crate::agents::{self, Machine, ProfileSyncError, ProfileWarning, View};
use crate::index::Texts;
use crate::installed::list;
use crate::installed::place::Places;
use crate::vault::VaultError;

/// The maximum length of the skill list that an agent reads, in characters, if it is known.
fn list_bound(agent: &AgentId) -> Option<usize> {
    (agent.as_str() == "codex").then_some(8_000)
}

impl Doctor<'_> {
    /// Checks the agents' folders. `view` is the view if it was already computed.
    pub(super) fn check_agents(
        &mut self,
        view: Option<Result<View, ProfileSyncError>>,
        places: Option<&Places>,
    ) -> Result<(), VaultError> {
        let Some(machine) = &self.input.machine else {
            return Ok(());
        };
        if self.input.clean {
            self.clean_links(machine)?;
        }
        let view = match view.unwrap_or_else(|| agents::view(self.vault, machine, None)) {
            Ok(view) => view,
            // Without the key no skill can be verified. The missing key is already a finding.
            Err(ProfileSyncError::Vault(VaultError::Key(_))) => return Ok(()),
            Err(ProfileSyncError::Vault(error)) => return Err(error),
            Err(error) => {
                self.find(DoctorFinding::ProfilesInvalid(error));
                return Ok(());
            }
        };
        self.check_links(&view);
        self.check_unlinked(&view);
        self.check_context(&view, places);
        self.report.agents = view;
        if let Some(name) = &self.input.skill {
            for agent in &mut self.report.agents.agents {
                agent.sees.retain(|seen| seen == name);
                agent.hidden.retain(|hidden| hidden.skill == *name);
            }
        }
        Ok(())
    }

    fn clean_links(&mut self, machine: &Machine) -> Result<(), VaultError> {
        match agents::clean(self.vault, machine) {
            Ok(cleaned) => self.report.cleaned.extend(cleaned),
            // The caller computes the view next, which reports these errors.
            Err(
                ProfileSyncError::Vault(VaultError::Key(_))
                | ProfileSyncError::Rules(_)
                | ProfileSyncError::Target(_),
            ) => {}
            Err(ProfileSyncError::Vault(error)) => return Err(error),
        }
        Ok(())
    }

    fn check_links(&mut self, view: &View) {
        for (path, ours) in &view.dangling {
            self.find(DoctorFinding::DanglingLink {
                path: path.clone(),
                ours: *ours,
            });
        }
        for path in &view.missing {
            self.find(DoctorFinding::RootMissing(path.clone()));
        }
        for warning in &view.warnings {
            // Damaged skills are already reported by the skill checks.
            if !matches!(warning, ProfileWarning::SkillDamaged(_)) {
                self.find(DoctorFinding::Profile(warning.clone()));
            }
        }
        if view.stale {
            self.find(DoctorFinding::LinksStale);
        }
    }

    fn check_unlinked(&mut self, view: &View) {
        let unlinked: Vec<_> = view
            .agents
            .iter()
            .filter(|agent| !agent.linked && !agent.sees.is_empty())
            .map(|agent| agent.agent.clone())
            .collect();
        if !unlinked.is_empty() {
            self.find(DoctorFinding::AgentNotLinked(unlinked));
        }
    }

    fn check_context(&mut self, view: &View, places: Option<&Places>) {
        if view.agents.iter().all(|agent| !agent.linked) {
            return;
        }
        let lengths = places
            .and_then(|places| self.indexed_lengths(places))
            .unwrap_or_else(|| self.listed_lengths());
        for agent in view.agents.iter().filter(|agent| agent.linked) {
            let characters = agent.sees.iter().filter_map(|name| lengths.get(name)).sum();
            let bound = list_bound(&agent.agent);
            if let Some(bound) = bound.filter(|bound| characters > *bound) {
                self.find(DoctorFinding::ContextCost {
                    agent: agent.agent.clone(),
                    characters,
                    bound,
                });
            }
            self.report.context.push(ContextCost {
                agent: agent.agent.clone(),
                skills: agent.sees.len(),
                characters,
                bound,
            });
        }
    }

    /// The length of each skill's entry in an agent's skill list, in characters, from the texts in
    /// the index; `None` if the index lacks one.
    fn indexed_lengths(&self, places: &Places) -> Option<HashMap<SkillName, usize>> {
        let mut lengths = HashMap::new();
        for place in places.groups.iter().flat_map(|group| &group.places) {
            // An own skill hides a linked skill with the same name.
            if !lengths.contains_key(&place.name) {
                let length = length(&place.name, self.texts(&place.bundle)?);
                lengths.insert(place.name.clone(), length);
            }
        }
        Some(lengths)
    }

    fn listed_lengths(&self) -> HashMap<SkillName, usize> {
        let listing = list::list(self.vault).unwrap_or_default();
        let lengths = listing.skills.into_iter().map(|skill| {
            let length = length(&skill.name, &skill.texts);
            (skill.name, length)
        });
        lengths.collect()
    }
}

/// The length of a skill's name and description in characters.
fn length(name: &SkillName, texts: &Texts) -> usize {
    name.as_str().len() + texts.description.chars().count()
}
