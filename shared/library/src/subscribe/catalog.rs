//! Selects skills from the catalog of a linked vault. Nothing in this module writes to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vault_format::catalog::{ObjectEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::name::{AgentId, SkillName};
use vault_policy::profile;

use super::accept::AcceptedCatalog;
use super::error::LinkError;
use crate::index::Index;
use crate::installed::linked::{Link, ProfileBundles, Selection};
use crate::store::{self, Trusted};
use crate::vault::Vault;

impl Selection {
    /// Returns whether it selects every skill.
    pub const fn is_all(&self) -> bool {
        self.agent.is_none() && self.tag.is_none() && self.skills.is_empty()
    }
}

/// A skill that a selection includes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelectedSkill {
    /// Its name in the linked vault.
    pub name: SkillName,
    /// Its version in the linked vault.
    pub version: u64,
    /// The bundle hash; that of a rendered variant if a profile names one.
    pub bundle_hash: Digest,
    /// Exact size of the bundle, in bytes.
    pub size: u64,
    /// The name it is installed under.
    pub installed_as: SkillName,
}

impl AcceptedCatalog {
    /// Returns the objects that [`Self::resolve_selection`] needs for this selection. The service
    /// serves them to active devices only.
    pub fn objects_for(&self, selection: &Selection) -> Vec<ObjectEntry> {
        let catalog = &self.catalog;
        let mut objects = Vec::new();
        let profiles: Vec<_> = self.profiles_of(selection).collect();
        // The index is large. It is needed for tags, and for an agent only if no profile lists the
        // agent's skills.
        if selection.tag.is_some() || (selection.agent.is_some() && profiles.is_empty()) {
            objects.extend(catalog.index.iter().copied());
        }
        objects.extend(profiles);
        objects
    }

    fn profiles_of<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> impl Iterator<Item = ObjectEntry> + 'a {
        self.catalog
            .profiles
            .iter()
            .filter(|entry| Some(&entry.agent) == selection.agent.as_ref())
            .map(|entry| ObjectEntry {
                bundle_hash: entry.bundle_hash,
                size: entry.size,
            })
    }

    /// Checks that the vault publishes everything that a selection names, so that a misspelt name
    /// does not uninstall skills. An agent that `is_known` accepts need not be published. `object`
    /// is as in [`Self::resolve_selection`].
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
        let agents: BTreeSet<_> = in_profiles.chain(in_skills).collect();
        if agents.contains(agent) {
            return Ok(());
        }
        Err(LinkError::AgentUnknown {
            agent: agent.clone(),
            published: agents.into_iter().cloned().collect(),
        })
    }

    /// Returns the installed skills that the vault still publishes and that `chosen` leaves out, by
    /// the names they are installed under.
    pub fn left_out(&self, link: &Link, chosen: &[SelectedSkill]) -> Vec<SkillName> {
        let stays = |name: &SkillName| chosen.iter().any(|skill| skill.installed_as == *name);
        let is_published = |name: &SkillName| {
            let mut skills = self.catalog.skills.iter();
            skills.any(|skill| skill.name == *name)
        };
        let left_out = link
            .installed_skills()
            .filter(|(name, skill)| !stays(name) && is_published(&skill.name));
        left_out.map(|(name, _)| name.clone()).collect()
    }

    /// Resolves a selection to skills. Names that the vault does not publish select nothing;
    /// [`Self::check_selection`] rejects them. `object` returns the bytes of the objects that
    /// [`Self::objects_for`] lists.
    pub fn resolve_selection(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<SelectedSkill>, LinkError> {
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
        let entries = if selection.is_all() {
            Vec::new()
        } else {
            self.read_index(selection, object)?
        };
        if let Some(tag) = &selection.tag {
            let tagged: BTreeSet<_> = entries
                .iter()
                .filter(|entry| entry.tags.contains(tag))
                .map(|entry| &entry.name)
                .collect();
            chosen.retain(|name, _| tagged.contains(name));
        }
        if let Some(agent) = &selection.agent {
            self.choose_for(agent, selection, &entries, object, &mut chosen)?;
        }
        let mut chosen: Vec<_> = chosen.into_values().collect();
        if let (Some(name), [only]) = (&selection.install_as, chosen.as_mut_slice()) {
            only.installed_as = name.clone();
        }
        Ok(chosen)
    }

    fn choose_for(
        &self,
        agent: &AgentId,
        selection: &Selection,
        entries: &[index::IndexEntry],
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
        chosen: &mut BTreeMap<SkillName, SelectedSkill>,
    ) -> Result<(), LinkError> {
        let mut published = BTreeMap::new();
        let mut any = false;
        for entry in self.profiles_of(selection) {
            any = true;
            let bytes = verified_object(&entry, object)?;
            let profile = profile::Profile::parse(&bytes)
                .map_err(|reason| unusable_object(&entry, reason.to_string()))?;
            // The object is chosen by the catalog's entry, so both must agree on the agent.
            if profile.agent != *agent {
                return Err(unusable_object(
                    &entry,
                    "it is for another agent".to_owned(),
                ));
            }
            for skill in profile.skills {
                published.insert(skill.name.clone(), skill);
            }
        }
        if any {
            chosen.retain(|name, chosen| {
                // A profile may name the variant of a skill: its bundle replaces the plain one.
                let Some(skill) = published.get(name) else {
                    return false;
                };
                chosen.bundle_hash = skill.bundle_hash;
                chosen.size = skill.size;
                true
            });
        } else {
            let for_agent: BTreeSet<_> = entries
                .iter()
                .filter(|entry| entry.agents.is_empty() || entry.agents.contains(agent))
                .map(|entry| &entry.name)
                .collect();
            chosen.retain(|name, _| for_agent.contains(name));
        }
        Ok(())
    }

    fn read_index(
        &self,
        selection: &Selection,
        object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<index::IndexEntry>, LinkError> {
        let objects = self.objects_for(selection);
        let mut entries = Vec::new();
        for entry in &self.catalog.index {
            if objects
                .iter()
                .any(|object| object.bundle_hash == entry.bundle_hash)
            {
                let bytes = verified_object(entry, object)?;
                let part = index::parse_object(&bytes, &self.catalog.vault_id)
                    .map_err(|reason| unusable_object(entry, reason.to_string()))?;
                entries.extend(part);
            }
        }
        Ok(entries)
    }

    /// Returns the chosen skills whose bundle is not in the store or fails verification.
    pub fn missing_bundles(&self, vault: &Vault, chosen: &[SelectedSkill]) -> Vec<SelectedSkill> {
        let store = vault.store_folder();
        let chosen_bundles = chosen.iter().map(|skill| skill.bundle_hash);
        let trusted = self.trust_in_bundles(chosen_bundles);
        let rows = Index::open(vault).load_rows();
        // Skip the full verification if the index shows that no file changed since the last one.
        let good = |skill: &&SelectedSkill| {
            let (hash, name) = (&skill.bundle_hash, &skill.name);
            let row = rows.get(hash);
            row.is_some_and(|row| row.current_row(&store, hash, name, &trusted).is_some())
                || store::examine_stored(&store, hash, Some(name), &trusted).is_ok()
        };
        chosen
            .iter()
            .filter(|skill| !good(skill))
            .cloned()
            .collect()
    }

    /// Returns the chosen bundles that only a profile of the catalog names, with that profile.
    pub(super) fn selected_variants(
        &self,
        selection: &Selection,
        chosen: &[SelectedSkill],
    ) -> Vec<ProfileBundles> {
        let named = |bundle: &Digest| {
            let mut skills = self.catalog.skills.iter();
            skills.any(|entry| entry.bundle_hash == *bundle)
        };
        let bundles: BTreeSet<_> = chosen
            .iter()
            .map(|skill| skill.bundle_hash)
            .filter(|bundle| !named(bundle))
            .collect();
        if bundles.is_empty() {
            return Vec::new();
        }
        self.profiles_of(selection)
            .map(|entry| ProfileBundles {
                profile: entry.bundle_hash,
                bundles: bundles.clone(),
            })
            .collect()
    }

    /// Returns the trust for bundles of this catalog that [`Self::resolve_selection`] has named.
    pub(super) fn trust_in_bundles(&self, bundles: impl Iterator<Item = Digest>) -> Trusted {
        Trusted::for_listed(Arc::new(self.roots.clone()), bundles.collect())
    }
}

fn choose_entry(entry: &SkillEntry) -> SelectedSkill {
    SelectedSkill {
        name: entry.name.clone(),
        version: entry.version,
        bundle_hash: entry.bundle_hash,
        size: entry.size,
        installed_as: entry.name.clone(),
    }
}

fn verified_object(
    entry: &ObjectEntry,
    object: &dyn Fn(&Digest) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, LinkError> {
    let bytes = object(&entry.bundle_hash)
        .ok_or_else(|| unusable_object(entry, "it was not fetched".to_owned()))?;
    // Check the bytes before parsing them: the service that sent them is not trusted.
    if bytes.len() as u64 != entry.size || Digest::of(&bytes) != entry.bundle_hash {
        return Err(unusable_object(
            entry,
            "its bytes are not those that were signed for".to_owned(),
        ));
    }
    Ok(bytes)
}

fn unusable_object(entry: &ObjectEntry, reason: String) -> LinkError {
    LinkError::Object {
        hash: entry.bundle_hash,
        reason,
    }
}
