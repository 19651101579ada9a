//! Selects the skills that each profile shows. A profile belongs to one agent; the rule of a
//! profile selects by the agents that skills are signed for and by tags. Skills that are disabled
//! for the agent are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};
use vault_policy::profile::ProfileRule;

use super::report::{ProfileSyncError, ProfileWarning};
use super::switches::Switches;
use crate::admit::variants::{Transforms, VariantLookup};
use crate::installed::installations::{self, Installation, Origin};
use crate::installed::linked_agents::{AgentChoice, AgentFolderEntries};
use crate::installed::linked_pins::{self, Link};
use crate::installed::listing;
use crate::installed::project_skills;
use crate::store::{self, Trusted};
use crate::vault::authored::AuthoredFile;
use crate::vault::{Vault, VaultError};

/// A linked vault whose release may select skills or give variants of them for single agents.
#[derive(Debug)]
pub(super) struct LinkedVault {
    pub(super) link: Link,
    /// The skills that the agents' folders of its current set show.
    pub(super) shown: AgentFolderEntries,
    /// Trust for the signatures of the variants in its release.
    variants: Rc<Trusted>,
}

/// An installed skill that profiles can select.
#[derive(Debug)]
pub(super) struct AvailableSkill {
    pub(super) place: Installation,
    pub(super) trusted: Rc<Trusted>,
    /// The vault that it was linked from; `None` for an own skill.
    pub(super) linked: Option<Rc<LinkedVault>>,
    pub(super) agents: Vec<AgentId>,
    tags: Vec<String>,
}

/// A profile with the skills that it will show after the sync.
#[derive(Debug)]
pub(super) struct PlannedProfile {
    pub(super) name: String,
    pub(super) agent: AgentId,
    /// Name of its folder below `profiles/`.
    pub(super) folder: String,
    /// The target folder that `profiles.toml` names for it.
    pub(super) target: Option<PathBuf>,
    pub(super) skills: BTreeMap<SkillName, ShownSkill>,
}

/// A skill as a profile shows it: where the symlink leads, and what must be verified there.
#[derive(Clone, Debug)]
pub(super) struct ShownSkill {
    /// Target of the symlink, relative to the profile's folder.
    pub(super) target: PathBuf,
    /// The bundle that the symlink resolves to.
    pub(super) bundle: Digest,
    pub(super) signed_name: SkillName,
    pub(super) trusted: Rc<Trusted>,
    /// Whether the bundle is a variant for the agent of the profile, not the plain skill.
    pub(super) is_variant: bool,
}

/// Returns the rules of the profiles, and whether they come from the approved `profiles.toml`.
/// Without that file each of `agents` gets one rule of its own.
pub(super) fn read_rules(
    vault: &Vault,
    agents: &BTreeSet<AgentId>,
) -> Result<(Vec<ProfileRule>, bool), ProfileSyncError> {
    let Some(bytes) = AuthoredFile::Profiles.read_approved(vault)? else {
        let rules = agents.iter().cloned().map(ProfileRule::for_agent);
        return Ok((rules.collect(), false));
    };
    let text = String::from_utf8(bytes).map_err(|_| VaultError::Damaged {
        path: AuthoredFile::Profiles.path(vault),
        reason: "it is not UTF-8".to_owned(),
    })?;
    Ok((ProfileRule::from_toml(&text)?, true))
}

/// Returns the installed skills whose bare name (a name without a vault) means them: agents are
/// shown only these. Each of them whose manifest fails verification gives a warning.
pub(super) fn available_skills(
    vault: &Vault,
) -> Result<(Vec<AvailableSkill>, Vec<ProfileWarning>), VaultError> {
    let places = installations::list_skill_places(vault)?;
    let rows = listing::indexed_rows(vault, &places);
    let mut links = linked_pins::list_links(vault)?;
    let mut available = Vec::new();
    let mut warnings = Vec::new();
    for group in places.groups {
        let origin = group.places.first().map(|place| place.origin.clone());
        let index = links
            .iter()
            .position(|link| matches!(&origin, Some(Origin::Linked(id)) if *id == link.id));
        let linked = match index {
            Some(index) => {
                let link = links.swap_remove(index);
                Some(Rc::new(LinkedVault {
                    shown: link.agent_folders()?,
                    variants: Rc::new(link.variant_trust(&group.trusted)),
                    link,
                }))
            }
            None => None,
        };
        let trusted = Rc::new(group.trusted);
        // Two skills of one name would collide in an agent's folder, so only the one that holds the
        // bare name is shown.
        for place in group.places.into_iter().filter(|place| place.bare) {
            // Use the index row only if it belongs to this skill and its signer is still accepted.
            // A row of another skill says nothing about this one.
            let index_row = rows.get(&place.bundle);
            let current_row =
                index_row.filter(|row| row.is_of(&place.bundle, &place.signed_name, &trusted));
            let row_texts = current_row.map(|stored| &stored.row.texts);
            let indexed = row_texts.map(|texts| (texts.agents.clone(), texts.tags.clone()));
            let Some((agents, tags)) = indexed.or_else(|| signed_agents(vault, &place, &trusted))
            else {
                warnings.push(ProfileWarning::SkillDamaged(place.name));
                continue;
            };
            available.push(AvailableSkill {
                place,
                trusted: Rc::clone(&trusted),
                linked: linked.clone(),
                agents,
                tags,
            });
        }
    }
    Ok((available, warnings))
}

/// Returns the agents in the manifest of a skill that the index lacks; `None` if the manifest is
/// not valid for the skill. Tags are not in the manifest, so the list of tags is empty.
fn signed_agents(
    vault: &Vault,
    place: &Installation,
    trusted: &Trusted,
) -> Option<(Vec<AgentId>, Vec<String>)> {
    let manifest = store::read_manifest(&vault.store_folder(), &place.bundle, trusted)?;
    // Without these checks a link to an older version or to the bundle of another skill would be
    // shown.
    let lowest = trusted
        .lowest_accepted_version(&place.signed_name)
        .unwrap_or(0);
    let is_meant = manifest.name == place.signed_name
        && manifest.version >= lowest
        && (manifest.rendered_from.is_none() || trusted.allows_variants());
    // Tags are in SKILL.md, which is not read here.
    is_meant.then(|| (manifest.agents, Vec::new()))
}

pub(super) fn plan_profiles(
    rules: Vec<ProfileRule>,
    skills: &[AvailableSkill],
    switches: &Switches,
    home: &Path,
    variants: &mut Variants<'_>,
) -> Result<Vec<PlannedProfile>, ProfileSyncError> {
    rules
        .into_iter()
        .map(|rule| {
            let target = rule.target.as_ref();
            let target = target
                .map(|text| self::parse_target(text, home))
                .transpose()?;
            // A release of a linked vault may leave a skill out for an agent, and the user's own
            // rule may too.
            let chosen = skills.iter().filter(|skill| {
                rule.selects(&skill.agents, &skill.tags)
                    && switches.shows(&skill.place.name, &rule.agent)
            });
            let mut shown = BTreeMap::new();
            for skill in chosen {
                let name = &skill.place.name;
                match skill.choice_for(&rule.agent) {
                    AgentChoice::LeftOut => {}
                    AgentChoice::Damaged => {
                        let damaged = ProfileWarning::SkillDamaged(name.clone());
                        variants.failed.push(damaged);
                    }
                    choice => {
                        let skill = variants.shown_skill(skill, &rule.agent, choice);
                        shown.insert(name.clone(), skill);
                    }
                }
            }
            Ok(PlannedProfile {
                skills: shown,
                folder: folder_name(&rule.name),
                name: rule.name,
                agent: rule.agent,
                target,
            })
        })
        .collect()
}

/// Looks up the variants for the agents, and collects those that have to be rendered first and
/// those that can't be rendered.
#[derive(Debug)]
pub(super) struct Variants<'a> {
    pub(super) transforms: &'a Transforms,
    /// Trust for the signatures of variants, which this vault signs itself.
    pub(super) trusted: Rc<Trusted>,
    /// Skills to render for an agent, with the bundle to start from.
    pub(super) missing: Vec<(Installation, Rc<Trusted>, AgentId)>,
    pub(super) failed: Vec<ProfileWarning>,
}

impl Variants<'_> {
    /// Returns what the profile of an agent shows for a skill, in the form that the transforms of
    /// this vault give it.
    fn shown_skill(
        &mut self,
        skill: &AvailableSkill,
        agent: &AgentId,
        choice: AgentChoice,
    ) -> ShownSkill {
        let place = &skill.place;
        let shown = skill.as_shown_skill(agent, choice);
        match self.transforms.look_up(&place.name, &shown.bundle, agent) {
            VariantLookup::Plain => {}
            VariantLookup::Missing => {
                let base = Installation {
                    bundle: shown.bundle,
                    ..place.clone()
                };
                let trusted = Rc::clone(&shown.trusted);
                self.missing.push((base, trusted, agent.clone()));
            }
            VariantLookup::Impossible(reason) => {
                self.failed.push(ProfileWarning::TransformFailed {
                    skill: place.name.clone(),
                    agent: agent.clone(),
                    reason,
                });
            }
            VariantLookup::Rendered(variant) => {
                if let Some(bundle) = variant.bundle {
                    return ShownSkill {
                        target: store::link_target(&bundle, 2),
                        bundle,
                        signed_name: place.name.clone(),
                        trusted: Rc::clone(&self.trusted),
                        is_variant: true,
                    };
                }
            }
        }
        shown
    }
}

impl AvailableSkill {
    /// Returns whether and in which form the release of a linked vault shows this skill to an
    /// agent.
    pub(super) fn choice_for(&self, agent: &AgentId) -> AgentChoice {
        let linked = self.linked.as_ref();
        linked.map_or(AgentChoice::Plain, |linked| {
            let shown = linked.shown.get(agent);
            linked.link.choice_for(shown, agent, &self.place.name)
        })
    }

    /// Returns the bundle that an agent gets of this skill before transforms of this vault are
    /// applied; `None` if it does not get the skill.
    pub(super) fn base_for(&self, agent: &AgentId) -> Option<Digest> {
        match self.choice_for(agent) {
            AgentChoice::Plain => Some(self.place.bundle),
            AgentChoice::Shown(bundle) => Some(bundle),
            AgentChoice::LeftOut | AgentChoice::Damaged => None,
        }
    }

    /// Returns the skill as the agent gets it without transforms of this vault.
    fn as_shown_skill(&self, agent: &AgentId, choice: AgentChoice) -> ShownSkill {
        let place = &self.place;
        if let (AgentChoice::Shown(bundle), Some(linked)) = (choice, &self.linked) {
            let is_plain = bundle == place.bundle;
            let trusted = if is_plain {
                &self.trusted
            } else {
                &linked.variants
            };
            return ShownSkill {
                target: linked.link.agent_target(agent, &place.name),
                bundle,
                signed_name: place.signed_name.clone(),
                trusted: Rc::clone(trusted),
                is_variant: !is_plain,
            };
        }
        // Relative to `profiles/<profile>/`, so that the links still work if the vault's folder
        // moves.
        let skills = match &place.origin {
            Origin::Local => PathBuf::from("../../skills"),
            Origin::Linked(id) => Path::new("../../links").join(id.as_str()).join("skills"),
            // Profiles never show the skills of projects, which have links of their own.
            Origin::Project(path) => path.join(project_skills::SKILLS),
        };
        ShownSkill {
            target: skills.join(place.name.as_str()),
            bundle: place.bundle,
            signed_name: place.signed_name.clone(),
            trusted: Rc::clone(&self.trusted),
            is_variant: false,
        }
    }
}

/// Returns the absolute path for a `target` of `profiles.toml`. Fails if it is relative.
pub(super) fn parse_target(text: &str, home: &Path) -> Result<PathBuf, ProfileSyncError> {
    let path = match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(text),
    };
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(ProfileSyncError::Target(text.to_owned()))
    }
}

/// Returns the folder name for a profile: its own name if that is a plain file name, otherwise a
/// hash of it.
fn folder_name(name: &str) -> String {
    // A name may be `..` or contain slashes, so it must not become a path by itself.
    let plain = !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if plain {
        return name.to_owned();
    }
    format!("p-{}", &Digest::of(name.as_bytes()).to_string()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_a_folder_of_its_own_whatever_it_is_called() {
        for (name, plain) in [
            ("claude-code", true),
            ("My.Work_2", true),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("für alle", false),
        ] {
            let folder = folder_name(name);
            assert_eq!(folder == name, plain, "{name}");
            assert!(
                !folder.contains('/') && !folder.starts_with('.'),
                "{folder}"
            );
        }
        assert_ne!(folder_name("a/b"), folder_name("a/c"));
    }

    #[test]
    fn a_target_is_absolute_or_below_home() {
        let home = Path::new("/home/ann");
        assert_eq!(parse_target("~/x", home).unwrap(), Path::new("/home/ann/x"));
        assert_eq!(parse_target("/x", home).unwrap(), Path::new("/x"));
        for bad in ["x", "./x", "~ann/x", "~"] {
            assert!(parse_target(bad, home).is_err(), "{bad}");
        }
    }
}
