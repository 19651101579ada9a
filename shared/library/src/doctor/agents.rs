//! Checks what each agent sees, and the symlinks in the agents' folders.

use std::collections::HashMap;

use vault_format::name::{AgentId, SkillName};

use super::{ContextCost, Doctor, DoctorFinding};
use crate::agents::{self, AgentViews, Machine, ProfileSyncError, ProfileWarning};
use crate::installed::{installations, listing};
use crate::vault::VaultError;

/// Returns how many characters of its list of skills an agent reads; `None` if that is not known.
fn list_bound(agent: &AgentId) -> Option<usize> {
    (agent.as_str() == "codex").then_some(8_000)
}

impl Doctor<'_> {
    pub(super) fn check_agents(&mut self) -> Result<(), VaultError> {
        let Some(machine) = &self.input.machine else {
            return Ok(());
        };
        if self.input.clean {
            self.clean_links(machine)?;
        }
        let view = match agents::view_agents(self.vault, machine) {
            Ok(view) => view,
            // No skill can be verified without the key. The missing key is reported already.
            Err(ProfileSyncError::Vault(VaultError::Key(_))) => return Ok(()),
            Err(ProfileSyncError::Vault(error)) => return Err(error),
            Err(error) => {
                self.add_finding(DoctorFinding::ProfilesInvalid(error));
                return Ok(());
            }
        };
        self.check_links(&view);
        self.check_unlinked(&view);
        self.check_context(&view);
        self.report.agents = view;
        if let Some(wanted) = &self.input.skill {
            // Agents see only skills whose bare name, without a vault, means them.
            let located = installations::find_installed(self.vault, wanted)?;
            let name = located
                .filter(|(place, _)| place.bare)
                .map(|(place, _)| place.name);
            for agent in &mut self.report.agents.agents {
                agent.sees.retain(|seen| Some(seen) == name.as_ref());
                agent
                    .variants
                    .retain(|variant| Some(&variant.skill) == name.as_ref());
                let through_folder = &mut agent.through_folder;
                through_folder.retain(|seen| Some(seen) == name.as_ref());
                agent
                    .hidden
                    .retain(|hidden| Some(&hidden.skill) == name.as_ref());
            }
        }
        Ok(())
    }

    fn clean_links(&mut self, machine: &Machine) -> Result<(), VaultError> {
        match agents::clean_up_links(self.vault, machine) {
            Ok(cleaned) => self.report.cleaned.extend(cleaned),
            // The caller computes the view next and reports these errors then.
            Err(
                ProfileSyncError::Vault(VaultError::Key(_))
                | ProfileSyncError::Rules(_)
                | ProfileSyncError::Target(_),
            ) => {}
            Err(ProfileSyncError::Vault(error)) => return Err(error),
        }
        Ok(())
    }

    fn check_links(&mut self, view: &AgentViews) {
        for (path, ours) in &view.dangling {
            self.add_finding(DoctorFinding::DanglingLink {
                path: path.clone(),
                ours: *ours,
            });
        }
        for path in &view.missing {
            self.add_finding(DoctorFinding::RootMissing(path.clone()));
        }
        for warning in &view.warnings {
            // The checks of skills have reported the damaged ones already.
            if !matches!(warning, ProfileWarning::SkillDamaged(_)) {
                self.add_finding(DoctorFinding::Profile(warning.clone()));
            }
        }
        if view.stale {
            self.add_finding(DoctorFinding::LinksStale);
        }
    }

    fn check_unlinked(&mut self, view: &AgentViews) {
        let unlinked: Vec<_> = view
            .agents
            .iter()
            .filter(|agent| !agent.linked && !agent.sees.is_empty())
            .map(|agent| agent.agent.clone())
            .collect();
        if !unlinked.is_empty() {
            self.add_finding(DoctorFinding::AgentNotLinked(unlinked));
        }
    }

    fn check_context(&mut self, view: &AgentViews) {
        if view.agents.iter().all(|agent| !agent.linked) {
            return;
        }
        // Length of each skill's entry in an agent's list of skills, in characters.
        let listing = listing::list_installed(self.vault).unwrap_or_default();
        let own = listing.skills.into_iter().filter(|skill| !skill.shadowed);
        let lengths: HashMap<SkillName, usize> = own
            .map(|skill| {
                let length = skill.name.as_str().len() + skill.texts.description.chars().count();
                (skill.name, length)
            })
            .collect();
        for agent in view.agents.iter().filter(|agent| agent.linked) {
            let characters = agent.sees.iter().filter_map(|name| lengths.get(name)).sum();
            let bound = list_bound(&agent.agent);
            if let Some(bound) = bound.filter(|bound| characters > *bound) {
                self.add_finding(DoctorFinding::ContextCost {
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
}
