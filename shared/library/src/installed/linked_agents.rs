//! Which form of a linked vault's skills each agent gets. A release may have a profile for an
//! agent, which replaces skills by variants (forms with a changed SKILL.md) and leaves others out.
//!
//! ```text
//! <vault>/links/<id>/sets/<n>/agents/<agent>/<name> -> the store: what that agent gets
//! <vault>/links/<id>/sets/<n>/agents/<agent> -> ../skills: it gets the plain skills
//! <vault>/links/<id>/agents                         constant link through `current`
//! ```
//! A pull switches `current` once, and so every agent gets the new skills together, even an agent
//! for which the release has a profile for the first time. A set has folders for the agents that
//! this machine links; a sync adds the folder of a new agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vault_format::hash::Digest;
use vault_format::name::{ANY_AGENT, AgentId, SkillName};

use super::installations::{Installation, OriginGroup};
use super::linked_pins::{AgentSkills, CountedFile, Link, list_links};
use crate::disk::{self, Batch, FileError, HeldPath, Kind};
use crate::store::{self, Trusted};
use crate::vault::{Vault, VaultError};

/// Name of the agents' folder in a set, and of the link that leads to it through `current`.
pub(crate) const AGENTS: &str = "agents";

/// Target of the link that stands in place of an agent's folder if the agent gets the plain skills.
const PLAIN: &str = "../skills";

/// For each agent with a folder in a set of skills, the bundles that the folder shows.
pub(crate) type AgentFolderEntries = BTreeMap<AgentId, BTreeMap<SkillName, Digest>>;

/// Which form of an installed skill one agent gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AgentChoice {
    /// The plain skill, by the link that all agents share.
    Plain,
    /// This bundle, by the agent's own folder in the link: the plain skill or a variant.
    Shown(Digest),
    /// Nothing, because the release's profile leaves the skill out.
    LeftOut,
    /// Nothing, because the vault's folder does not show the bundle that the pin names.
    Damaged,
}

impl CountedFile {
    /// Returns the bundle that an agent gets for an installed skill; `None` if it does not get the
    /// skill.
    pub(crate) fn bundle_for(&self, agent: &AgentId, name: &SkillName) -> Option<Digest> {
        let plain = self.installed.get(name)?.bundle;
        let Some(skills) = skills_of(&self.agents, agent) else {
            return Some(plain);
        };
        let variant = skills.variants.get(name).copied();
        (!skills.left_out.contains(name)).then(|| variant.unwrap_or(plain))
    }

    /// Returns all skills that an agent gets, with their bundles.
    pub(crate) fn bundles_for(&self, agent: &AgentId) -> BTreeMap<SkillName, Digest> {
        let names = self.installed.keys();
        names
            .filter_map(|name| Some((name.clone(), self.bundle_for(agent, name)?)))
            .collect()
    }

    /// Returns the plain skills, with their bundles.
    fn plain_bundles(&self) -> BTreeMap<SkillName, Digest> {
        let installed = self.installed.iter();
        let bundles = installed.map(|(name, skill)| (name.clone(), skill.bundle));
        bundles.collect()
    }

    fn variant_bundles(&self) -> impl Iterator<Item = Digest> + '_ {
        let agents = self.agents.values();
        agents.flat_map(|skills| skills.variants.values().copied())
    }
}

impl Link {
    /// Returns the variants that this link installs. While a pull switches to a new set, the
    /// variants of the previous set count too.
    pub(crate) fn variant_bundles(&self) -> BTreeSet<Digest> {
        let counted = self.pin.counted.iter().chain(&self.pin.replaced);
        counted.flat_map(CountedFile::variant_bundles).collect()
    }

    /// Returns which form of an installed skill an agent gets. `shown` is what its folder of the
    /// current set shows, if it has one. After a pull that was killed, the installed set may be the
    /// previous one, so what either of the two sets gives the agent is right.
    pub(crate) fn choice_for(
        &self,
        shown: Option<&BTreeMap<SkillName, Digest>>,
        agent: &AgentId,
        name: &SkillName,
    ) -> AgentChoice {
        let files = self.pin.counted.iter().chain(&self.pin.replaced);
        let wanted: Vec<_> = files.map(|file| file.bundle_for(agent, name)).collect();
        let plain = self.pin.counted.iter().chain(&self.pin.replaced);
        let plain = plain.map(|file| file.installed.get(name).map(|skill| skill.bundle));
        let Some(shown) = shown else {
            return match (&wanted[..], &self.pin.replaced) {
                // The next sync creates the folder.
                ([Some(wanted)], _) => AgentChoice::Shown(*wanted),
                ([] | [None], _) => AgentChoice::LeftOut,
                _ if wanted.iter().all(Option::is_none) => AgentChoice::LeftOut,
                // The previous set has no folder for an agent that gets only plain skills.
                _ if plain.eq(wanted.iter().copied()) => AgentChoice::Plain,
                _ => AgentChoice::Damaged,
            };
        };
        match shown.get(name).copied() {
            Some(bundle) if wanted.contains(&Some(bundle)) => AgentChoice::Shown(bundle),
            None if wanted.contains(&None) => AgentChoice::LeftOut,
            Some(_) if wanted.iter().all(Option::is_none) => AgentChoice::LeftOut,
            _ => AgentChoice::Damaged,
        }
    }

    /// Returns the target of the link to a skill in a link tree, `profiles/<name>/`, for the form
    /// that an agent gets.
    pub(crate) fn agent_target(&self, agent: &AgentId, name: &SkillName) -> PathBuf {
        let link = Path::new("../../links").join(self.id.as_str());
        link.join(AGENTS).join(agent.as_str()).join(name.as_str())
    }

    /// Returns the target of the link to a plain skill in a link tree.
    pub(crate) fn plain_target(&self, name: &SkillName) -> PathBuf {
        let link = Path::new("../../links").join(self.id.as_str());
        link.join("skills").join(name.as_str())
    }

    /// Returns whether the current set is the only one that counts, so that a sync may change which
    /// agents it has folders for.
    pub(crate) const fn is_settled(&self) -> bool {
        self.pin.replaced.is_none() && self.pin.counted.is_some()
    }

    /// Removes the folder of an agent from the current set. Call it under the writer lock, after no
    /// link leads into the folder.
    pub(crate) fn remove_agent_folder(&self, agent: &AgentId) -> Result<(), FileError> {
        disk::remove_tree(&self.set.join(AGENTS).join(agent.as_str()))
    }

    /// Creates the folder of an agent in the current set, with everything that the agent gets. Call
    /// it under the writer lock.
    pub(crate) fn make_agent_folder(
        &self,
        vault: &Vault,
        agent: &AgentId,
    ) -> Result<(), FileError> {
        let Some(counted) = &self.pin.counted else {
            return Ok(());
        };
        let agents = self.set.join(AGENTS);
        disk::make_dirs(&agents, 0o755)?;
        make_constant_link(&self.folder)?;
        let aside = vault.new_scratch()?;
        let (staged, folder) = (
            aside.path().join(agent.as_str()),
            agents.join(agent.as_str()),
        );
        let mut batch = Batch::default();
        let (bundles, plain) = (counted.bundles_for(agent), counted.plain_bundles());
        write_agent_folder(&mut batch, &staged, &bundles, &plain)?;
        batch.flush(aside.path())?;
        // Anything else with this name, such as a link to another place, was not made by vault.
        disk::remove_tree(&folder)?;
        // Rename the folder as a whole, so that an agent never sees only some of its skills.
        disk::rename(&staged, &folder)?;
        disk::sync_dir(&agents)
    }

    /// Returns the folder of the current set from which an agent's skills are linked; `None` if the
    /// set has no folder for the agent.
    fn agent_folder(&self, agent: &AgentId) -> Option<HeldPath> {
        let folder = self.set.join(AGENTS).join(agent.as_str());
        match disk::kind_at(&folder) {
            Ok(Some(Kind::Dir)) => Some(folder),
            Ok(Some(Kind::Link)) => {
                let target = disk::link_target(&folder).ok().flatten();
                let is_plain = target.is_some_and(|target| target == Path::new(PLAIN));
                is_plain.then(|| self.set.join("skills"))
            }
            _ => None,
        }
    }

    /// Returns the agents' folders of the current set, with the bundles that they show.
    pub(crate) fn agent_folders(&self) -> Result<AgentFolderEntries, VaultError> {
        let mut folders = BTreeMap::new();
        let plain = self.set.join("skills");
        // Most agents get the plain skills, which are read once for all of them.
        let mut plain_bundles = None;
        for (name, _) in disk::list(&self.set.join(AGENTS))? {
            let Ok(agent) = name.to_string_lossy().parse::<AgentId>() else {
                continue;
            };
            let Some(folder) = self.agent_folder(&agent) else {
                continue;
            };
            let bundles = match &plain_bundles {
                Some(bundles) if folder == plain => BTreeMap::clone(bundles),
                _ => read_bundles(&folder)?,
            };
            if folder == plain {
                plain_bundles.get_or_insert_with(|| bundles.clone());
            }
            folders.insert(agent, bundles);
        }
        Ok(folders)
    }

    /// Returns the trust for the variants of this link and nothing else, so that the plain skill is
    /// not accepted in place of a variant. `plain` is the trust for the plain skills.
    pub(crate) fn variant_trust(&self, plain: &Trusted) -> Trusted {
        trust_in(plain, self.variant_bundles())
    }

    /// Returns the skills that the agents' folders show in another form than the plain one, with
    /// the trust for verifying them: one group for each agent.
    fn variant_groups(&self, vault: &Vault) -> Result<Vec<OriginGroup>, VaultError> {
        let (Some(counted), Some(plain)) = (&self.pin.counted, self.installed_trust(vault)?) else {
            return Ok(Vec::new());
        };
        let shown = self.agent_folders()?;
        let mut groups = Vec::new();
        let agents: BTreeSet<_> = counted.agents.keys().chain(shown.keys()).collect();
        for agent in agents {
            let files = [Some(counted), self.pin.replaced.as_ref()];
            let (mut places, mut expected) = (Vec::new(), BTreeSet::new());
            let follows_plain = self.agent_folder(agent) == Some(self.set.join("skills"));
            for (name, skill) in &counted.installed {
                let bundles = files.iter().flatten();
                let bundles: BTreeSet<_> = bundles
                    .filter_map(|file| file.bundle_for(agent, name))
                    .collect();
                let linked = shown.get(agent).and_then(|shown| shown.get(name)).copied();
                let bundle = linked.or(counted.bundle_for(agent, name));
                // A plain skill where the plain skill is expected is verified under its own name,
                // not here.
                let is_plain = bundle == Some(skill.bundle) && bundles.contains(&skill.bundle);
                // The same holds if the agent's folder is the link to the plain skills.
                let is_plain = is_plain || follows_plain && bundles == [skill.bundle].into();
                if let Some(bundle) = bundle.filter(|_| !is_plain) {
                    let place = self.place_of_skill(name, skill, bundle);
                    places.push(Installation {
                        bare: true,
                        ..place
                    });
                    expected.extend(bundles);
                }
            }
            // A bundle that the agent should not get is not in the list, so verification reports it
            // as damage.
            let trusted = trust_in(&plain, expected);
            groups.push(OriginGroup { trusted, places });
        }
        Ok(groups)
    }
}

/// Returns the bundles that the entries of a folder lead to.
fn read_bundles(folder: &HeldPath) -> Result<BTreeMap<SkillName, Digest>, VaultError> {
    let mut bundles = BTreeMap::new();
    for (name, _) in disk::list(folder)? {
        let bundle = store::bundle_at(&folder.join(&name)).ok().flatten();
        let name = name.to_string_lossy().parse::<SkillName>();
        if let (Ok(name), Some(bundle)) = (name, bundle) {
            bundles.insert(name, bundle);
        }
    }
    Ok(bundles)
}

/// Returns the trust in a list of bundles under the keys of `plain`.
fn trust_in(plain: &Trusted, bundles: BTreeSet<Digest>) -> Trusted {
    match plain.roots() {
        Some(roots) => Trusted::for_listed(Arc::clone(roots), bundles),
        None => plain.clone(),
    }
}

/// Returns the variants that the agents' folders of all linked vaults show, for verification.
pub(crate) fn linked_variants(vault: &Vault) -> Result<Vec<OriginGroup>, VaultError> {
    let mut groups = Vec::new();
    for link in list_links(vault)? {
        groups.extend(link.variant_groups(vault)?);
    }
    Ok(groups)
}

/// Creates the link that never changes and leads through `current` to the agents' folders of the
/// newest set.
pub(crate) fn make_constant_link(folder: &HeldPath) -> Result<(), FileError> {
    let constant = folder.join(AGENTS);
    if disk::kind_at(&constant)?.is_none() {
        disk::new_link(&constant, &Path::new("current").join(AGENTS))?;
    }
    Ok(())
}

/// Returns what an agent gets in another form than the plain one; `None` if nothing.
pub(crate) fn skills_of<'a>(
    agents: &'a BTreeMap<AgentId, AgentSkills>,
    agent: &AgentId,
) -> Option<&'a AgentSkills> {
    agents.get(agent).or_else(|| agents.get(ANY_AGENT))
}

/// Writes the folder of one agent in a set: a link to each bundle, or one link to the plain skills
/// if the agent gets exactly these.
pub(crate) fn write_agent_folder(
    batch: &mut Batch,
    folder: &HeldPath,
    bundles: &BTreeMap<SkillName, Digest>,
    plain: &BTreeMap<SkillName, Digest>,
) -> Result<(), FileError> {
    if bundles == plain {
        return disk::new_link(folder, Path::new(PLAIN));
    }
    batch.make_folder(folder, 0o755)?;
    for (name, bundle) in bundles {
        // From `links/<id>/sets/<n>/agents/<agent>/`.
        let target = store::link_target(bundle, 6);
        disk::new_link(&folder.join(name.as_str()), &target)?;
    }
    Ok(())
}
