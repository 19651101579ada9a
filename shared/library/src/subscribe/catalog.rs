//! Selects skills from the catalog of a linked vault, and tells the caller what to fetch. Writes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vault_format::catalog::{ObjectEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::manifest::Manifest;
use vault_format::name::{AgentId, SkillName};
use vault_policy::published::{PublishedAgent, PublishedForm, PublishedProfiles, check_variant};

use super::accept::AcceptedCatalog;
use super::error::LinkError;
use crate::index::Index;
use crate::installed::linked_pins::{Link, Selection, profile_file, trust_folder};
use crate::store::{self, Trusted};
use crate::vault::Vault;

impl Selection {
    /// Returns whether the selection includes every skill.
    pub const fn is_all(&self) -> bool {
        self.agent.is_none() && self.tag.is_none() && self.skills.is_empty()
    }
}

/// The skills that a selection includes, their variants for single agents, and what the profiles of
/// the release leave out.
#[derive(Clone, Debug, Default)]
pub struct SelectedSkills {
    /// Plain skills, sorted by name.
    pub skills: Vec<SelectedSkill>,
    /// Variants of these skills, each for one agent.
    pub variants: Vec<SelectedSkill>,
    /// For each agent with a profile, the skills that the profile leaves out, by the names under
    /// which they are installed.
    pub(super) left_out: BTreeMap<AgentId, BTreeSet<SkillName>>,
    /// Profile objects that were read, by hash.
    pub(super) profiles: BTreeMap<Digest, Vec<u8>>,
}

impl SelectedSkills {
    /// Returns all bundles to install: the plain skills and then the variants.
    pub fn bundles(&self) -> impl Iterator<Item = &SelectedSkill> {
        self.skills.iter().chain(&self.variants)
    }
}

/// A skill that a selection includes, or a variant of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelectedSkill {
    /// Name in the linked vault.
    pub name: SkillName,
    /// Version in the linked vault.
    pub version: u64,
    /// SHA-256 of the bundle, which the fetched bytes must have.
    pub bundle_hash: Digest,
    /// Size of the bundle, in bytes. Another size is an error.
    pub size: u64,
    /// Name under which the skill is installed on this machine, which the user can choose with
    /// `--as`.
    pub installed_as: SkillName,
    /// Agent for which a variant is; `None` for the plain skill.
    pub agent: Option<AgentId>,
}

impl AcceptedCatalog {
    /// Returns the objects that the caller must fetch for [`Self::resolve_selection`]. The service
    /// gives them only to active devices.
    pub fn objects_for(&self, selection: &Selection) -> Vec<ObjectEntry> {
        let catalog = &self.catalog;
        let mut objects = Vec::new();
        if self.needs_index(selection) {
            objects.extend(catalog.index.iter().copied());
        }
        // Fetch all profiles, whatever agents this machine has: another agent may be linked before
        // the next pull.
        objects.extend(catalog.profiles.iter().map(|entry| ObjectEntry {
            bundle_hash: entry.bundle_hash,
            size: entry.size,
        }));
        objects
    }

    /// Returns whether a selection needs the index, which is large: to find tags, and to find an
    /// agent's skills if no profile lists them.
    fn needs_index(&self, selection: &Selection) -> bool {
        let has_profile = |agent: &AgentId| {
            let mut profiles = self.catalog.profiles.iter();
            profiles.any(|entry| entry.agent == *agent || entry.agent.is_any())
        };
        selection.tag.is_some() || selection.agent.as_ref().is_some_and(|it| !has_profile(it))
    }

    /// Fails if a selection names something that the vault does not publish, because a misspelt
    /// name would uninstall skills. An agent that `is_known` accepts need not be published.
    /// `object` is as in [`Self::resolve_selection`].
    pub fn check_selection(
        &self,
        selection: &Selection,
        is_known: &dyn Fn(&AgentId) -> bool,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<(), LinkError> {
        let published: BTreeSet<_> = self
            .catalog
            .skills
            .iter()
            .map(|skill| &skill.name)
            .collect();
        let mut missing = selection.skills.iter();
        if let Some(name) = missing.find(|name| !published.contains(name)) {
            return Err(LinkError::NotInCatalog {
                name: name.clone(),
                published: published.into_iter().cloned().collect(),
            });
        }
        let entries = self.read_index(selection, object)?;
        if let Some(tag) = &selection.tag {
            let tags: BTreeSet<_> = entries.iter().flat_map(|entry| &entry.tags).collect();
            if !tags.contains(tag) {
                return Err(LinkError::TagUnknown {
                    tag: tag.clone(),
                    published: tags.into_iter().cloned().collect(),
                });
            }
        }
        let Some(agent) = selection.agent.as_ref().filter(|agent| !is_known(agent)) else {
            return Ok(());
        };
        let in_profiles = self.catalog.profiles.iter().map(|profile| &profile.agent);
        let in_skills = entries.iter().flat_map(|entry| &entry.agents);
        let agents = in_profiles.chain(in_skills);
        let agents: BTreeSet<_> = agents.filter(|agent| !agent.is_any()).collect();
        if agents.contains(agent) {
            return Ok(());
        }
        Err(LinkError::AgentUnknown {
            agent: agent.clone(),
            published: agents.into_iter().cloned().collect(),
        })
    }

    /// Returns the installed skills that `chosen` leaves out although the vault still publishes
    /// them, by the names under which they are installed.
    pub fn left_out(&self, link: &Link, chosen: &SelectedSkills) -> Vec<SkillName> {
        let stays = |name: &SkillName| {
            let mut chosen = chosen.skills.iter();
            chosen.any(|skill| skill.installed_as == *name)
        };
        let is_published = |name: &SkillName| {
            let mut skills = self.catalog.skills.iter();
            skills.any(|skill| skill.name == *name)
        };
        let left_out = link
            .installed_skills()
            .filter(|(name, skill)| !stays(name) && is_published(&skill.name));
        left_out.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the skills that a selection includes. A name that the vault does not publish
    /// includes nothing; [`Self::check_selection`] rejects it. `object` returns the bytes of the
    /// objects that [`Self::objects_for`] lists.
    pub fn resolve_selection(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<SelectedSkills, LinkError> {
        if selection.install_as.is_some() && selection.skills.len() != 1 {
            return Err(LinkError::OneNameOnly);
        }
        let catalog = &self.catalog;
        let mut chosen: BTreeMap<SkillName, SelectedSkill> = catalog
            .skills
            .iter()
            .map(|entry| (entry.name.clone(), choose_entry(entry)))
            .collect();
        if !selection.skills.is_empty() {
            chosen.retain(|name, _| selection.skills.contains(name));
        }
        let entries = self.read_index(selection, object)?;
        if let Some(tag) = &selection.tag {
            let tagged: BTreeSet<_> = entries
                .iter()
                .filter(|entry| entry.tags.contains(tag))
                .map(|entry| &entry.name)
                .collect();
            chosen.retain(|name, _| tagged.contains(name));
        }
        let published = PublishedProfiles::read(catalog, object)?;
        if let Some(agent) = &selection.agent {
            retain_for(agent, published.for_agent(agent), &entries, &mut chosen);
        }
        let mut chosen: Vec<_> = chosen.into_values().collect();
        if let (Some(name), [only]) = (&selection.install_as, chosen.as_mut_slice()) {
            only.installed_as = name.clone();
        }
        let mut selected = SelectedSkills {
            skills: chosen,
            ..SelectedSkills::default()
        };
        for (agent, profile) in published.agents() {
            selected.add_profile(agent, profile);
        }
        for entry in &catalog.profiles {
            let bytes = object(&entry.bundle_hash).unwrap_or_default();
            selected.profiles.insert(entry.bundle_hash, bytes);
        }
        Ok(selected)
    }

    /// Returns the entries of the index; empty if the selection does not need them.
    fn read_index(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<index::IndexEntry>, LinkError> {
        let mut entries = Vec::new();
        if !self.needs_index(selection) {
            return Ok(entries);
        }
        for entry in &self.catalog.index {
            let bytes = verified_object(entry, object)?;
            let part = index::parse_object(&bytes, &self.catalog.vault_id)
                .map_err(|reason| object_error(entry, reason.to_string()))?;
            entries.extend(part);
        }
        Ok(entries)
    }

    /// Returns the chosen skills and variants to fetch: their bundles are not in the store, or fail
    /// verification there.
    pub fn missing_bundles(&self, vault: &Vault, chosen: &SelectedSkills) -> Vec<SelectedSkill> {
        let store = vault.store_folder();
        let chosen_bundles = chosen.bundles().map(|skill| skill.bundle_hash);
        let trusted = self.trust_in_bundles(chosen_bundles);
        let rows = Index::open(vault).load_rows();
        let good = |skill: &&SelectedSkill| {
            let (hash, name) = (&skill.bundle_hash, &skill.name);
            // Skip the verification if the index shows that no file has changed since the last one.
            // Variants are not in the index.
            let row = rows.get(hash).filter(|_| skill.agent.is_none());
            row.is_some_and(|row| row.current_row(&store, hash, name, &trusted).is_some())
                || store::examine_stored(&store, hash, Some(name), &trusted)
                    .is_ok_and(|examined| self.check_variant(skill, &examined.manifest).is_ok())
        };
        chosen
            .bundles()
            .filter(|skill| !good(skill))
            .cloned()
            .collect()
    }

    /// Fails unless a variant was rendered from the skill in the catalog, for the right agent. A
    /// plain skill needs no check.
    pub(super) fn check_variant(
        &self,
        skill: &SelectedSkill,
        manifest: &Manifest,
    ) -> Result<(), LinkError> {
        let plain = self.catalog.skill(&skill.name);
        if let (Some(agent), Some(plain)) = (&skill.agent, plain) {
            let from = manifest.rendered_from.as_ref();
            let signed = from.map(|from| (&manifest.name, manifest.version, &from.agent));
            check_variant(plain, agent, signed)?;
        }
        Ok(())
    }

    /// Returns the bytes of a profile that an earlier pull of this link has stored.
    pub fn stored_profile(&self, vault: &Vault, hash: &Digest) -> Option<Vec<u8>> {
        let folder = trust_folder(vault, &self.link);
        // The file is only a cache, so what can't be read is fetched again.
        let bytes = folder.read_file(&profile_file(hash)).ok().flatten()?;
        Some(bytes.to_vec()).filter(|bytes| Digest::of(bytes) == *hash)
    }

    /// Returns the trust in bundles of this catalog that a selection includes.
    pub(super) fn trust_in_bundles(&self, bundles: impl Iterator<Item = Digest>) -> Trusted {
        Trusted::for_listed(Arc::new(self.roots.clone()), bundles.collect())
    }
}

impl SelectedSkill {
    /// Adds the agent to an error, if the bundle is a variant.
    pub(super) fn name_agent(&self, error: LinkError) -> LinkError {
        match &self.agent {
            Some(agent) => LinkError::Variant {
                agent: agent.clone(),
                cause: Box::new(error),
            },
            None => error,
        }
    }
}

impl SelectedSkills {
    /// Adds the variants for one agent, and the skills that its profile leaves out.
    fn add_profile(&mut self, agent: &AgentId, profile: &PublishedAgent) {
        let left_out = self.left_out.entry(agent.clone()).or_default();
        for plain in &self.skills {
            match profile.form_of(&plain.name) {
                PublishedForm::LeftOut => {
                    left_out.insert(plain.installed_as.clone());
                }
                PublishedForm::Plain => {}
                PublishedForm::Variant(variant) => self.variants.push(SelectedSkill {
                    bundle_hash: variant.bundle_hash,
                    size: variant.size,
                    agent: Some(agent.clone()),
                    ..plain.clone()
                }),
            }
        }
    }
}

/// Keeps the skills that an agent gets: those in its profiles if it has any, or else those whose
/// manifest names this agent or no agent.
fn retain_for(
    agent: &AgentId,
    published: Option<&PublishedAgent>,
    entries: &[index::IndexEntry],
    chosen: &mut BTreeMap<SkillName, SelectedSkill>,
) {
    let named: BTreeSet<_> = match published {
        Some(profile) => profile.skills.keys().collect(),
        None => entries
            .iter()
            .filter(|entry| entry.agents.is_empty() || entry.agents.contains(agent))
            .map(|entry| &entry.name)
            .collect(),
    };
    chosen.retain(|name, _| named.contains(name));
}

fn choose_entry(entry: &SkillEntry) -> SelectedSkill {
    SelectedSkill {
        name: entry.name.clone(),
        version: entry.version,
        bundle_hash: entry.bundle_hash,
        size: entry.size,
        installed_as: entry.name.clone(),
        agent: None,
    }
}

/// Returns the bytes of a fetched object, if they are the ones that were signed.
fn verified_object(
    entry: &ObjectEntry,
    object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, LinkError> {
    let bytes = object(&entry.bundle_hash)
        .ok_or_else(|| object_error(entry, "it was not fetched".to_owned()))?;
    // Check the bytes before parsing them, because the service that sent them is not trusted.
    if bytes.len() as u64 != entry.size || Digest::of(&bytes) != entry.bundle_hash {
        return Err(object_error(
            entry,
            "its bytes are not those that were signed for".to_owned(),
        ));
    }
    Ok(bytes)
}

fn object_error(entry: &ObjectEntry, reason: String) -> LinkError {
    LinkError::Object {
        hash: entry.bundle_hash,
        reason,
    }
}
