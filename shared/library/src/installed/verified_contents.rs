//! Reads and verifies every installed skill from its bytes, without the index.

use std::collections::{BTreeSet, HashSet};

use rayon::prelude::*;
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::time::Timestamp;
use vault_gate as gate;
use vault_gate::document::Secret;
use vault_gate::requirements::{Need, StatedRequirement, read_needs, read_requirements};

use super::installations::{self, Installation, Origin, OriginGroup};
use super::linked_agents;
use super::linked_pins;
use super::project_skills;
use super::rendered_variants;
use crate::disk::HeldPath;
use crate::store::{self, Damage, Examined, Trusted};
use crate::vault::releases;
use crate::vault::trust::VaultTrust;
use crate::vault::{Vault, VaultError};

/// The findings of [`verify_all_installed`].
#[derive(Debug)]
pub struct VerifyReport {
    /// Every installed skill: own ones first, then those of linked vaults and of projects, by name
    /// within each origin.
    pub skills: Vec<SkillCheck>,
    /// Entries in the store and among the skill links that vault did not make, as paths relative to
    /// the vault.
    pub strange: Vec<String>,
    /// Variants that were rendered for single agents, each under the name of its skill.
    pub variants: Vec<SkillCheck>,
    /// Bundles that no installed skill refers to: earlier versions, or leftovers of a killed
    /// writer.
    pub unreferenced: Vec<Digest>,
}

impl VerifyReport {
    /// Returns whether every skill is exactly as signed.
    pub fn is_clean(&self) -> bool {
        self.skills
            .iter()
            .chain(&self.variants)
            .all(|skill| skill.damage.is_none())
    }
}

/// The result of verifying one skill.
#[derive(Debug)]
pub struct SkillCheck {
    /// The name it is installed under.
    pub name: SkillName,
    /// Origin: an own skill, a link, or a project.
    pub origin: Origin,
    /// The name that always means this skill, `<vault>/<name>`.
    pub qualified: String,
    /// Whether its bare name, without a vault, means this skill.
    pub bare: bool,
    /// SHA-256 of the bundle for which the name stands.
    pub bundle: Digest,
    /// The signed version, if the manifest is valid.
    pub version: Option<u64>,
    /// Difference from what was signed; `None` if the skill is intact.
    pub damage: Option<Damage>,
    /// The time of signing, if the manifest is valid.
    pub signed_at: Option<Timestamp>,
    /// Files of operating systems and editors beside the signed ones, relative to the skill.
    pub ignored: Vec<String>,
    /// What the skill states about its surroundings.
    pub declared: Declared,
}

/// What an intact skill states that it works with. Nothing of it is verified.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Environment variables that its actions read.
    pub secrets: Vec<Secret>,
    /// Skills that it requires.
    pub requires: Vec<StatedRequirement>,
    /// Programs and variables that it works with.
    pub needs: Vec<Need>,
    /// Its source, as the manifest records it.
    pub source: Option<ProvenanceId>,
}

/// A vault whose keys this machine knows: its own vault, or a linked one.
#[derive(Clone, Debug)]
pub struct KnownVault {
    /// Local for the own vault, otherwise one of the links to the vault.
    pub origin: Origin,
    /// Keys of the vault, and what else this machine has concluded about it.
    pub trust: VaultTrust,
    /// Bundles that its accepted catalogs list.
    pub(crate) listed: BTreeSet<Digest>,
}

/// Lists the vaults whose keys this machine knows: the own one first, then the linked ones, each
/// vault once.
pub fn known_vaults(vault: &Vault) -> Result<Vec<KnownVault>, VaultError> {
    let mut known: Vec<KnownVault> = Vec::new();
    if let Some(trust) = vault.trust()? {
        let mut listed = trust.taken_over.clone();
        for state in releases::list_states(vault)? {
            let catalog = state.published_catalog(vault)?;
            let skills = catalog.into_iter().flat_map(|catalog| catalog.skills);
            listed.extend(skills.map(|entry| entry.bundle_hash));
        }
        known.push(KnownVault {
            origin: Origin::Local,
            listed,
            trust,
        });
    }
    for link in linked_pins::list_links(vault)? {
        let (Some(trust), listed) = (link.trust(vault)?, link.listed_bundles(vault)?) else {
            continue;
        };
        let id = trust.roots.vault_id();
        match known
            .iter_mut()
            .find(|other| other.trust.roots.vault_id() == id)
        {
            // Two links may lead to one vault at two addresses.
            Some(other) => other.listed.extend(listed),
            None => known.push(KnownVault {
                origin: Origin::Linked(link.id().clone()),
                trust,
                listed,
            }),
        }
    }
    Ok(known)
}

/// Verifies every installed skill: the signature of the manifest, and that exactly the signed files
/// exist, with their sizes, hashes and modes. Only metadata of operating systems may lie beside
/// them. A linked skill must also be the bundle that the pin of its link names.
pub fn verify_all_installed(vault: &Vault) -> Result<VerifyReport, VaultError> {
    let places = installations::list_skill_places(vault)?;
    let store = vault.store_folder();
    let mut rendered = vec![OriginGroup {
        trusted: vault.trusted()?.for_variants(),
        places: rendered_variants::variant_places(vault)?,
    }];
    rendered.extend(linked_agents::linked_variants(vault)?);
    let list_unreferenced = || -> Result<_, VaultError> {
        let (mut bundles, strange) = store::list_bundles(&store)?;
        let groups = places.groups.iter().chain(&rendered);
        let mut named: HashSet<_> = groups
            .flat_map(|group| &group.places)
            .chain(&places.gone)
            .map(|place| place.bundle)
            .collect();
        named.extend(project_skills::project_bundles(vault)?);
        bundles.retain(|bundle| !named.contains(bundle));
        Ok((bundles, strange))
    };
    let projects = project_skills::project_groups(vault)?;
    let check_all = || {
        let groups = places.groups.iter().chain(&projects);
        let skills: Vec<_> = groups
            .flat_map(|group| check_group(&store, group))
            .collect();
        let rendered = rendered.iter();
        let variants: Vec<_> = rendered
            .flat_map(|group| check_group(&store, group))
            .collect();
        (skills, variants)
    };
    // Listing the store waits for the disk while the verification keeps the processors busy.
    let ((mut skills, variants), listed) = rayon::join(check_all, list_unreferenced);
    skills.extend(places.gone.iter().map(|place| SkillCheck {
        name: place.name.clone(),
        origin: place.origin.clone(),
        qualified: place.qualified_name(),
        bare: place.bare,
        bundle: place.bundle,
        version: None,
        damage: Some(place.unlinked_damage()),
        signed_at: None,
        ignored: Vec::new(),
        declared: Declared::default(),
    }));
    let (unreferenced, mut strange) = listed?;
    for entry in &mut strange {
        entry.insert_str(0, "store/");
    }
    strange.extend_from_slice(&places.strange);
    strange.retain(|entry| !gate::is_system_metadata(entry));
    Ok(VerifyReport {
        skills,
        strange,
        variants,
        unreferenced,
    })
}

fn check_group(store: &HeldPath, group: &OriginGroup) -> Vec<SkillCheck> {
    let places = group.places.par_iter();
    let checked = places.map(|place| check_place(store, place, &group.trusted));
    checked.collect()
}

fn check_place(store: &HeldPath, place: &Installation, trusted: &Trusted) -> SkillCheck {
    let examined = store::examine_stored(store, &place.bundle, Some(&place.signed_name), trusted);
    let (examined, damage) = match examined {
        Ok(examined) => {
            let deviation = examined.first_deviation();
            (Some(examined), deviation)
        }
        Err(damage) => (None, Some(damage)),
    };
    let manifest = examined.as_ref().map(|examined| &examined.manifest);
    SkillCheck {
        name: place.name.clone(),
        origin: place.origin.clone(),
        qualified: place.qualified_name(),
        bare: place.bare,
        bundle: place.bundle,
        version: manifest.map(|manifest| manifest.version),
        damage,
        signed_at: manifest.map(|manifest| manifest.signed_at),
        declared: examined.as_ref().map(read_declared).unwrap_or_default(),
        ignored: examined
            .map(|examined| examined.ignored)
            .unwrap_or_default(),
    }
}

fn read_declared(examined: &Examined) -> Declared {
    // Most skills declare nothing, and parsing YAML costs more than hashing, so look for the word
    // first.
    let keys: [&[u8]; 2] = [b"requires", b"needs"];
    let may_declare = examined.skill_md().is_some_and(|text| {
        text.split(|byte| *byte == b'\n')
            .skip(1)
            .take_while(|line| !line.starts_with(b"---"))
            .map(<[u8]>::trim_ascii_start)
            .any(|line| keys.iter().any(|key| line.starts_with(key)))
    });
    let document = may_declare.then(|| examined.parse_document()).flatten();
    let mut declared = Declared {
        source: Some(examined.manifest.provenance.identifier.clone()),
        ..Declared::default()
    };
    if let Some(document) = document {
        let frontmatter = document.frontmatter();
        declared.secrets.clone_from(&frontmatter.requires_secrets);
        // What cannot be read is advice for the author, which `vault lint` gives.
        declared.requires = read_requirements(&frontmatter.metadata).unwrap_or_default();
        declared.needs = read_needs(&frontmatter.metadata).unwrap_or_default();
    }
    declared
}
