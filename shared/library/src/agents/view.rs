//! Reports which skills each agent sees, and why it does not see the others, without changing
//! anything.

use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{AgentId, SkillName};

use super::found::Machine;
use super::plan::{Plan, SyncProfilesInput};
use super::profiles::{AvailableSkill, PlannedProfile};
use super::report::{ProfileSyncError, ProfileWarning};
use super::roots::{RootChange, shows_profile};
use super::switches::Switches;
use crate::disk;
use crate::installed::agent_links::record::RootScope;
use crate::installed::linked_agents::AgentChoice;
use crate::vault::Vault;

/// The skills of a vault as the agents of a machine see them.
#[derive(Clone, Debug, Default)]
pub struct AgentViews {
    /// Detected agents, and agents whose folders are linked although they are not detected.
    pub agents: Vec<AgentView>,
    /// Whether the links are out of date, so that a sync would change something.
    pub stale: bool,
    /// Symlinks in the agents' folders that lead nowhere, each with whether it belongs to the
    /// vault.
    pub dangling: Vec<(PathBuf, bool)>,
    /// Agent folders that an earlier sync recorded and that no longer exist.
    pub missing: Vec<PathBuf>,
    /// Problems that the next sync would report, without having changed anything.
    pub warnings: Vec<ProfileWarning>,
}

/// Skills that one agent sees, and those that are hidden from it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AgentView {
    /// Id of the agent, such as `claude-code`.
    pub agent: AgentId,
    /// Whether the vault places skills in any folder that the agent reads.
    pub linked: bool,
    /// Folders of the agent in which the vault places skills.
    pub roots: Vec<PathBuf>,
    /// Names of the skills that the agent sees.
    pub sees: Vec<SkillName>,
    /// Skills in `sees` of which the agent gets a variant (a version made for it).
    pub variants: Vec<SeenVariant>,
    /// Skills in `sees` that the agent sees only because another agent reads the same folder.
    pub through_folder: Vec<SkillName>,
    /// The hidden skills, each with the reason.
    #[serde(skip)]
    pub hidden: Vec<Hidden>,
}

/// A skill that an agent sees as a variant.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct SeenVariant {
    /// Name of a skill in `sees`.
    pub skill: SkillName,
    /// Who made the variant.
    pub by: VariantMaker,
}

/// Who made a variant.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VariantMaker {
    /// A transform of this vault.
    Transform,
    /// The publisher of the linked vault.
    Publisher,
    /// Another agent that reads the same folder gets this variant, so this one sees it too.
    SharedFolder,
}

/// A skill that an agent does not see, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hidden {
    /// The hidden skill.
    pub skill: SkillName,
    /// Reason for hiding it.
    pub reason: HiddenReason,
}

/// The reason for which an agent does not see a skill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HiddenReason {
    /// The user disabled it for the agent or for all agents.
    Disabled,
    /// The skill is signed for these agents only.
    OtherAgents(Vec<AgentId>),
    /// No profile of the agent includes it.
    Profile,
    /// The release of the linked vault that it comes from leaves it out for the agent.
    Published,
    /// Another entry in the agent's folder has the skill's name, at this path.
    Foreign(PathBuf),
    /// The agent's folder does not hold the skill as it is now: no sync has put it there yet.
    NotSynced,
}

impl HiddenReason {
    /// Returns a stable code for machine-readable output.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::OtherAgents(_) => "other_agents",
            Self::Profile => "profile",
            Self::Published => "published",
            Self::Foreign(_) => "foreign",
            Self::NotSynced => "not_synced",
        }
    }
}

/// Compares the profiles with the agents' folders; writes nothing.
pub fn view_agents(vault: &Vault, machine: &Machine) -> Result<AgentViews, ProfileSyncError> {
    let input = SyncProfilesInput {
        machine: machine.clone(),
        ..SyncProfilesInput::default()
    };
    let plan = Plan::from_input(vault, &input)?;
    let switches = Switches::read(vault)?;
    let agents = plan.agents.iter();
    let missing = plan.roots.iter().filter(|root| root.missing);
    let links = plan.roots.iter().flat_map(RootChange::doubtful_links);
    Ok(AgentViews {
        agents: agents
            .map(|agent| agent_view(&plan, &switches, agent))
            .collect(),
        // Without a linked folder there are no links to bring up to date.
        stale: !plan.roots.is_empty() && plan.changes_links(),
        dangling: links.filter(|(path, _)| !disk::is_there(path)).collect(),
        missing: missing.map(|root| root.record.path.clone()).collect(),
        warnings: plan.warnings,
    })
}

/// Returns what one agent sees, from the plan of a sync: what the plan would change is not visible
/// yet.
fn agent_view(plan: &Plan, switches: &Switches, agent: &AgentId) -> AgentView {
    let profiles: Vec<_> = plan
        .profiles
        .iter()
        .filter(|profile| profile.agent == *agent)
        .collect();
    let roots: Vec<_> = plan
        .roots
        .iter()
        .filter(|root| !root.missing && is_root_of(root, plan, agent, &profiles))
        .collect();
    let mut sees = Vec::new();
    let mut variants = Vec::new();
    let mut through_folder = Vec::new();
    let mut hidden = Vec::new();
    // Link trees to which the entries of the agent's folders may lead.
    let mut trees: BTreeSet<_> = profiles.iter().map(|profile| &profile.folder).collect();
    let readers = plan.profiles.iter().filter(|profile| {
        let mut roots = roots.iter();
        roots.any(|root| root.record.agents.contains(&profile.agent))
    });
    trees.extend(readers.map(|profile| &profile.folder));
    for skill in &plan.skills {
        let name = &skill.place.name;
        let in_profile = profiles
            .iter()
            .any(|profile| profile.skills.contains_key(name));
        let foreign = roots.iter().find(|root| root.foreign.contains(name));
        // A linked agent sees what its folders hold now, not what a sync would put there.
        let is_current = !trees.iter().any(|folder| {
            let mut changes = plan.trees.iter();
            changes.any(|tree| tree.changes_entry(folder, name))
        });
        let is_there = is_current && roots.iter().any(|root| root.holds_current(name));
        let reason = match foreign {
            None if is_there || roots.is_empty() && in_profile => {
                if !in_profile {
                    through_folder.push(name.clone());
                }
                let by = variant_maker(skill, agent, &profiles, &roots);
                variants.extend(by.map(|by| SeenVariant {
                    skill: name.clone(),
                    by,
                }));
                sees.push(name.clone());
                continue;
            }
            // Check the profile first: without a profile that includes the skill, removing the
            // user's entry would not show it.
            _ if !in_profile => hidden_reason(skill, switches, agent),
            Some(root) => HiddenReason::Foreign(root.record.path.join(name.as_str())),
            None => HiddenReason::NotSynced,
        };
        hidden.push(Hidden {
            skill: name.clone(),
            reason,
        });
    }
    AgentView {
        agent: agent.clone(),
        linked: !roots.is_empty(),
        roots: roots.iter().map(|root| root.record.path.clone()).collect(),
        sees,
        variants,
        through_folder,
        hidden,
    }
}

/// Returns whether the vault places skills in a folder for an agent with these profiles.
fn is_root_of(
    root: &RootChange,
    plan: &Plan,
    agent: &AgentId,
    profiles: &[&PlannedProfile],
) -> bool {
    if let RootScope::Profile(name) = &root.record.scope {
        return profiles.iter().any(|profile| profile.name == *name);
    }
    // The skills of profiles with targets are in those instead of the agent's own folder. Other
    // agents that read that folder may still have skills there.
    let has_own_folder = profiles.is_empty() || profiles.iter().any(|it| it.target.is_none());
    let mut planned = plan.profiles.iter();
    root.record.agents.contains(agent)
        && (has_own_folder || planned.any(|it| shows_profile(&root.record, it)))
}

/// Returns who made the variant of a skill that an agent sees; `None` if it sees the plain skill.
fn variant_maker(
    skill: &AvailableSkill,
    agent: &AgentId,
    profiles: &[&PlannedProfile],
    roots: &[&RootChange],
) -> Option<VariantMaker> {
    let name = &skill.place.name;
    let meant = profiles.iter().find_map(|profile| profile.skills.get(name));
    let meant = meant.map(|shown| shown.bundle);
    // Several agents may read a folder, which has one form of a skill. An agent with several
    // folders may find another form in one of them.
    let mut shown = roots
        .iter()
        .filter_map(|root| root.shows.get(name))
        .copied();
    let shown = shown.find(|shown| Some(*shown) != meant).or(meant);
    if shown == Some(skill.place.bundle) {
        None
    } else if shown != meant {
        Some(VariantMaker::SharedFolder)
    } else if shown == skill.base_for(agent) {
        Some(VariantMaker::Publisher)
    } else {
        Some(VariantMaker::Transform)
    }
}

/// Returns why no profile of an agent shows a skill.
fn hidden_reason(skill: &AvailableSkill, switches: &Switches, agent: &AgentId) -> HiddenReason {
    if !switches.shows(&skill.place.name, agent) {
        return HiddenReason::Disabled;
    }
    match skill.choice_for(agent) {
        AgentChoice::LeftOut => HiddenReason::Published,
        AgentChoice::Damaged => HiddenReason::NotSynced,
        AgentChoice::Plain | AgentChoice::Shown(_) => {
            if skill.agents.is_empty() || skill.agents.contains(agent) {
                HiddenReason::Profile
            } else {
                HiddenReason::OtherAgents(skill.agents.clone())
            }
        }
    }
}
