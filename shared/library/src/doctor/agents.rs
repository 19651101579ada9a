//! What each agent sees, and the links that show it.

use std::collections::HashMap;

use vault_skill::name::SkillName;

use super::{ContextCost, Doctor, Severity};
use crate::agents::{self, ProfileSyncError, View};
use crate::index::Texts;
use crate::scan::Places;
use crate::vault::VaultError;

/// The agent whose list of skills has a known bound, and the bound in characters.
const LIST_BOUND: (&str, usize) = ("codex", 8_000);

impl Doctor<'_> {
    /// The agents' folders; `seen` is the view of them, where it was made already.
    pub(super) fn profiles(
        &mut self,
        seen: Option<Result<View, ProfileSyncError>>,
        places: Option<&Places>,
    ) -> Result<(), VaultError> {
        let Some(machine) = &self.input.machine else {
            return Ok(());
        };
        if self.input.clean {
            match agents::clean(self.vault, machine) {
                Ok(cleaned) => self.report.cleaned.extend(cleaned),
                Err(ProfileSyncError::Vault(VaultError::Key(_))) => {}
                Err(ProfileSyncError::Vault(error)) => return Err(error),
                Err(_) => {}
            }
        }
        let view = match seen.unwrap_or_else(|| agents::view(self.vault, machine, None)) {
            Ok(view) => view,
            Err(ProfileSyncError::Vault(VaultError::Key(_))) => return Ok(()),
            Err(ProfileSyncError::Vault(error)) => return Err(error),
            Err(error) => {
                self.find(
                    Severity::Error,
                    "profiles_invalid",
                    error.to_string(),
                    "mend profiles.toml in the vault's folder",
                );
                return Ok(());
            }
        };
        for (path, ours) in &view.dangling {
            let (severity, hint) = if *ours {
                (Severity::Error, "vault doctor --clean removes it")
            } else {
                (
                    Severity::Warning,
                    "it is not the vault's: remove it, or bring back what it leads to",
                )
            };
            self.find(
                severity,
                "dangling_link",
                format!("{} leads nowhere", path.display()),
                hint,
            )
            .at(path.clone());
        }
        for path in &view.missing {
            self.find(
                Severity::Warning,
                "root_missing",
                format!("{} is not there any more", path.display()),
                "vault doctor --clean forgets it",
            )
            .at(path.clone());
        }
        for warning in &view.warnings {
            // Damaged skills are named once, with their health.
            if warning.code != "skill_damaged" {
                self.find(
                    Severity::Warning,
                    warning.code,
                    warning.message.clone(),
                    warning.hint.clone(),
                )
                .path
                .clone_from(&warning.path);
            }
        }
        if view.stale {
            self.find(
                Severity::Warning,
                "links_stale",
                "the agents' links are not as the vault is now",
                "vault sync-profiles",
            );
        }
        let unlinked: Vec<_> = view
            .agents
            .iter()
            .filter(|agent| !agent.linked && !agent.sees.is_empty())
            .map(|agent| agent.agent.as_str())
            .collect();
        if !unlinked.is_empty() {
            self.find(
                Severity::Note,
                "agent_not_linked",
                format!("not linked to the vault's skills: {}", unlinked.join(", ")),
                "vault sync-profiles --discover",
            );
        }
        self.context(&view, places);
        self.report.agents = view;
        if let Some(one) = &self.input.skill {
            for agent in &mut self.report.agents.agents {
                agent.sees.retain(|name| name == one);
                agent.hidden.retain(|hidden| hidden.skill == *one);
            }
        }
        Ok(())
    }

    fn context(&mut self, view: &View, places: Option<&Places>) {
        if view.agents.iter().all(|agent| !agent.linked) {
            return;
        }
        let lengths = places
            .and_then(|places| self.noted_lengths(places))
            .unwrap_or_else(|| self.listed_lengths());
        for agent in view.agents.iter().filter(|agent| agent.linked) {
            let characters = agent.sees.iter().filter_map(|name| lengths.get(name)).sum();
            let bound = (agent.agent.as_str() == LIST_BOUND.0).then_some(LIST_BOUND.1);
            if let Some(bound) = bound.filter(|bound| characters > *bound) {
                self.find(
                    Severity::Warning,
                    "context_cost",
                    format!(
                        "{} reads {bound} characters of its list of skills; yours has {characters}",
                        agent.agent
                    ),
                    format!("vault disable <name> --agent {} shortens it", agent.agent),
                );
            }
            self.report.context.push(ContextCost {
                agent: agent.agent.clone(),
                skills: agent.sees.len(),
                characters,
                bound,
            });
        }
    }

    /// Characters of each skill in a list of skills, as the index has its texts; `None` where it lacks one.
    fn noted_lengths(&self, places: &Places) -> Option<HashMap<SkillName, usize>> {
        let texts = self.texts();
        let places = places.groups.iter().flat_map(|group| &group.places);
        let mut lengths = HashMap::new();
        for place in places {
            // An own skill stands before a linked one of its name.
            if !lengths.contains_key(&place.name) {
                let length = length(&place.name, texts.get(&place.bundle)?);
                lengths.insert(place.name.clone(), length);
            }
        }
        Some(lengths)
    }

    fn listed_lengths(&self) -> HashMap<SkillName, usize> {
        let listing = crate::shelf::list(self.vault).unwrap_or_default();
        let lengths = listing.skills.into_iter().map(|skill| {
            let length = length(&skill.name, &skill.texts);
            (skill.name, length)
        });
        lengths.collect()
    }
}

/// What a skill adds to a list of skills that an agent reads, in characters.
fn length(name: &SkillName, texts: &Texts) -> usize {
    name.as_str().len() + texts.description.chars().count()
}
