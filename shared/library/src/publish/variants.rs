//! The profiles that a release publishes (which skills each agent gets), and the variants of skills
//! that they need, rendered for single agents by the owner's transforms.

use std::collections::BTreeSet;

use vault_format::name::{ANY_AGENT, AgentId};
use vault_policy::profile::{ProfileError, ProfileRule};
use vault_policy::published::{MAX_SKILLS, MAX_VARIANTS};

use super::current::ReleaseSkill;
use super::error::PlanError;
use crate::admit::variants::{RenderedVariant, Transforms, VariantLookup};
use crate::installed::installations::Installation;
use crate::vault::{Change, Vault};

/// The profiles of a release and the variants that they need.
pub(super) struct ReleaseVariants {
    pub(super) rules: Vec<ProfileRule>,
    pub(super) transforms: Transforms,
    /// The variants that were signed for this release.
    pub(super) rendered: Vec<RenderedVariant>,
}

/// Renders the variants that the profiles of the release need. Fails if a transform can't be
/// applied, so that no variant is left out unnoticed. `text` is the approved `profiles.toml`.
pub(super) fn render_for_release(
    vault: &Vault,
    change: &mut Change<'_>,
    skills: &[ReleaseSkill],
    text: Option<&str>,
) -> Result<ReleaseVariants, PlanError> {
    let mut transforms = Transforms::read_approved(vault)?;
    let rules = profile_rules(text, skills, &transforms)?;
    let trusted = vault.trusted()?;
    let agents: BTreeSet<_> = rules.iter().map(|rule| &rule.agent).collect();
    let (mut missing, mut variants, mut names) = (Vec::new(), 0, 0);
    for skill in skills {
        let texts = &skill.row.texts;
        let naming = rules.iter();
        let naming = naming.filter(|rule| rule.selects(&texts.agents, &texts.tags));
        names += naming.count();
        for agent in &agents {
            if !is_selected(&rules, skill, agent) {
                continue;
            }
            let place = &skill.place;
            variants += usize::from(transforms.applies_to(&place.name, agent));
            if is_missing(&transforms, place, agent)? {
                missing.push((place, &trusted, (*agent).clone()));
            }
        }
    }
    check_transforms(&transforms, skills)?;
    // The service rejects such a release, so render nothing for it.
    if names > MAX_SKILLS {
        let (skills, agents) = (names, agents.len());
        let reason = ProfileError::TooManySkills { skills, agents };
        return Err(refuse_size(&transforms, reason));
    }
    if variants > MAX_VARIANTS {
        let reason = ProfileError::TooManyVariants { variants };
        return Err(refuse_size(&transforms, reason));
    }
    let mut rendered = Vec::new();
    if !missing.is_empty() {
        rendered = transforms.render_variants(vault, change, &missing)?;
        for (place, _, agent) in &missing {
            // `render_variants` records a rendering that fails and does not return it. This check
            // finds it.
            is_missing(&transforms, place, agent)?;
        }
    }
    Ok(ReleaseVariants {
        rules,
        transforms,
        rendered,
    })
}

/// Returns the error about profiles with more skills or variants than the service accepts. It names
/// the transform that is for the most agents, because that is the likely cause.
pub(super) fn refuse_size(transforms: &Transforms, reason: ProfileError) -> PlanError {
    let widest = transforms.find_widest_transform();
    let widest = widest.map(|(skill, transform, agents)| {
        format!("; the transform {transform} of {skill} is for {agents} agents")
    });
    let widest = widest.unwrap_or_default();
    PlanError::Published { reason, widest }
}

/// Returns the rules of a release's profiles: those of `profiles.toml`, or else one for each agent
/// that a manifest names. Each agent that a transform is for gets a rule in any case, because
/// machines would otherwise show it the plain skill. One rule stands for all agents that nothing
/// names.
fn profile_rules(
    text: Option<&str>,
    skills: &[ReleaseSkill],
    transforms: &Transforms,
) -> Result<Vec<ProfileRule>, PlanError> {
    let mut agents = BTreeSet::new();
    for skill in skills {
        let named = &skill.row.texts.agents;
        for agent in transforms.agents_of(&skill.place.name) {
            // A skill for certain agents is not for the agent of this transform, so no profile is
            // needed.
            if named.is_empty() || !agent.is_any() && named.contains(&agent) {
                agents.insert(agent);
            } else if agent.is_any() {
                agents.extend(named.iter().filter(|agent| !agent.is_any()).cloned());
            }
        }
    }
    let mut rules = match text {
        Some(text) => ProfileRule::from_toml(text)?,
        None => Vec::new(),
    };
    // The profile for any agent leaves out skills for certain agents, so these agents need their
    // own.
    if text.is_none() || agents.contains(ANY_AGENT) {
        let named = skills.iter().flat_map(|skill| &skill.row.texts.agents);
        agents.extend(named.filter(|agent| !agent.is_any()).cloned());
    }
    for agent in agents {
        if rules.iter().any(|rule| rule.agent == agent) {
            continue;
        }
        let mut rule = ProfileRule::for_agent(agent);
        // The owner may use this name for the profile of another agent.
        while rules.iter().any(|other| other.name == rule.name) {
            rule.name.push('+');
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// Returns whether a profile of this agent contains the skill.
pub(super) fn is_selected(rules: &[ProfileRule], skill: &ReleaseSkill, agent: &AgentId) -> bool {
    let texts = &skill.row.texts;
    rules
        .iter()
        .any(|rule| rule.agent == *agent && rule.selects(&texts.agents, &texts.tags))
}

/// Fails if a transform of a published skill can't be read, because it may be meant for any agent.
fn check_transforms(transforms: &Transforms, skills: &[ReleaseSkill]) -> Result<(), PlanError> {
    for (name, path, error) in &transforms.bad {
        if skills.iter().any(|skill| skill.place.name == *name) {
            return Err(PlanError::TransformUnread {
                skill: name.clone(),
                reason: format!("{}:{error}", path.display()),
            });
        }
    }
    Ok(())
}

/// Returns whether a variant must still be rendered. Fails if it can't be rendered.
fn is_missing(
    transforms: &Transforms,
    base: &Installation,
    agent: &AgentId,
) -> Result<bool, PlanError> {
    match transforms.look_up(&base.name, &base.bundle, agent) {
        VariantLookup::Missing => Ok(true),
        VariantLookup::Plain | VariantLookup::Rendered(_) => Ok(false),
        VariantLookup::Impossible(reason) => Err(PlanError::Transform {
            skill: base.name.clone(),
            agent: agent.clone(),
            reason,
        }),
    }
}
