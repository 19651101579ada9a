//! The part of a pull that concerns single agents: which variants (forms of a skill with a changed
//! SKILL.md) a new set of skills contains, and which folders of agents show them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use vault_format::catalog::Withdrawn;
use vault_format::hash::Digest;
use vault_format::name::{ANY_AGENT, AgentId, SkillName};

use super::catalog::SelectedSkills;
use super::state::InstalledSet;
use crate::installed::agent_links::record::AgentFolders;
use crate::installed::linked_agents::{AgentFolderEntries, skills_of};
use crate::installed::linked_pins::{AgentSkills, CountedFile, Link, LinkedSkill, ProfileBundles};
use crate::vault::{Vault, VaultError};

/// Returns what each agent gets of a selection. Agents that get exactly the plain skills have no
/// entry.
pub(super) fn skills_by_agent(selected: &SelectedSkills) -> BTreeMap<AgentId, AgentSkills> {
    let left_out = selected.left_out.iter().map(|(agent, left_out)| {
        let skills = AgentSkills {
            left_out: left_out.clone(),
            ..AgentSkills::default()
        };
        (agent.clone(), skills)
    });
    let mut agents: BTreeMap<AgentId, AgentSkills> = left_out.collect();
    for skill in &selected.variants {
        if let Some(agent) = &skill.agent {
            let variants = &mut agents.entry(agent.clone()).or_default().variants;
            variants.insert(skill.installed_as.clone(), skill.bundle_hash);
        }
    }
    remove_plain_agents(&mut agents);
    agents
}

/// Removes the entries of agents that get exactly the plain skills. As long as agents without an
/// entry get something else, the entries are needed and stay.
fn remove_plain_agents(agents: &mut BTreeMap<AgentId, AgentSkills>) {
    if agents.get(ANY_AGENT).is_none_or(AgentSkills::is_plain) {
        agents.retain(|_, skills| !skills.is_plain());
    }
}

/// Returns what the agents still get if only withdrawn bundles are removed. An agent whose variant
/// is withdrawn gets nothing in its place, because the plain skill was never meant for it.
pub(super) fn agents_without_withdrawn(
    counted: Option<&CountedFile>,
    skills: &BTreeMap<SkillName, LinkedSkill>,
    withdrawn: &[Withdrawn],
) -> BTreeMap<AgentId, AgentSkills> {
    let mut agents = counted.map_or_else(BTreeMap::new, |counted| counted.agents.clone());
    for kept in agents.values_mut() {
        let is_withdrawn = |bundle: &Digest| {
            let mut withdrawn = withdrawn.iter();
            withdrawn.any(|entry| entry.bundle_hash == *bundle)
        };
        let variants = std::mem::take(&mut kept.variants).into_iter();
        let variants = variants.filter(|(name, _)| skills.contains_key(name));
        let (gone, variants): (BTreeMap<_, _>, _) =
            variants.partition(|(_, bundle)| is_withdrawn(bundle));
        kept.variants = variants;
        kept.left_out.extend(gone.into_keys());
        kept.left_out.retain(|name| skills.contains_key(name));
    }
    remove_plain_agents(&mut agents);
    agents
}

/// Returns the profiles of the catalog that were read, with the variants that each of them selects.
pub(super) fn profile_bundles(
    selected: &SelectedSkills,
    profiles: &[vault_format::catalog::ProfileEntry],
) -> Vec<ProfileBundles> {
    let bundles = |agent: &AgentId| -> BTreeSet<Digest> {
        let variants = selected.variants.iter();
        let variants = variants.filter(|skill| skill.agent.as_ref() == Some(agent));
        variants.map(|skill| skill.bundle_hash).collect()
    };
    let entries = profiles.iter();
    entries
        .map(|entry| ProfileBundles {
            profile: entry.bundle_hash,
            bundles: bundles(&entry.agent),
        })
        .collect()
}

/// Returns the folders of agents for the new set: for agents whose folders this machine links, and
/// for agents that have a folder in the present set.
pub(super) fn agent_folders(
    vault: &Vault,
    link: &Link,
    set: &InstalledSet,
) -> Result<AgentFolderEntries, VaultError> {
    let recorded = AgentFolders::read(vault)?.roots;
    let mut linked: BTreeSet<_> = recorded.into_iter().flat_map(|root| root.agents).collect();
    linked.extend(link.agent_folders()?.into_keys());
    let shown = |agent: &AgentId| {
        let skills = skills_of(&set.agents, agent);
        let shown = set.skills.iter().filter_map(|(name, skill)| {
            let is_left_out = skills.is_some_and(|skills| skills.left_out.contains(name));
            let variant = skills.and_then(|skills| skills.variants.get(name));
            (!is_left_out).then(|| (name.clone(), *variant.unwrap_or(&skill.bundle)))
        });
        shown.collect()
    };
    let folders = linked.into_iter().map(|agent| {
        let entries = shown(&agent);
        (agent, entries)
    });
    Ok(folders.collect())
}

/// Returns the targets of links in the agents' link trees that have no entry in the new set.
/// `plain` are the plain skills of the present set: an agent without a folder in that set may be
/// linked to these, and would not notice the switch, so it loses the ones that it no longer gets.
pub(super) fn lost_targets(
    link: &Link,
    plain: &BTreeMap<SkillName, Digest>,
    before: &AgentFolderEntries,
    after: &AgentFolderEntries,
    set: &InstalledSet,
) -> BTreeSet<PathBuf> {
    let mut targets = BTreeSet::new();
    for (_, entries) in after
        .iter()
        .filter(|(agent, _)| !before.contains_key(*agent))
    {
        let is_plain = |name: &SkillName| {
            let skill = set.skills.get(name);
            skill.is_some_and(|skill| entries.get(name) == Some(&skill.bundle))
        };
        let lost = plain.keys().filter(|name| !is_plain(name));
        targets.extend(lost.map(|name| link.plain_target(name)));
    }
    for (agent, entries) in before {
        let stays = |name: &SkillName| {
            let after = after.get(agent);
            after.is_some_and(|after| after.contains_key(name))
        };
        let lost = entries.keys().filter(|name| !stays(name));
        targets.extend(lost.map(|name| link.agent_target(agent, name)));
    }
    targets
}

/// Returns the skills of a set that have another variant than before, for any agent.
pub(super) fn changed_variants(
    before: Option<&CountedFile>,
    set: &InstalledSet,
) -> BTreeSet<SkillName> {
    let none = BTreeMap::new();
    let before = before.map_or(&none, |before| &before.agents);
    let pairs = |agents: &BTreeMap<AgentId, AgentSkills>| -> BTreeSet<_> {
        let agents = agents.iter().flat_map(|(agent, skills)| {
            let variants = skills.variants.iter();
            variants.map(|(name, bundle)| (agent.clone(), name.clone(), *bundle))
        });
        agents.collect()
    };
    let (before, after) = (pairs(before), pairs(&set.agents));
    let changed = before.symmetric_difference(&after);
    changed.map(|(_, name, _)| name.clone()).collect()
}
