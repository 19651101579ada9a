//! The installed skills: under which names, from where, and which bundle each name stands for. A
//! *place* is one such installation.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::{SkillName, SkillRef, Slug};

use super::link_id::LinkId;
use super::linked_pins::{self, Link, LinkedSkill};
use crate::disk::{self, HeldPath, Kind};
use crate::store::{self, Damage, Trusted};
use crate::vault::own_skills::OwnSkills;
use crate::vault::{Vault, VaultError};

/// The origin of an installed skill.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// Admitted and signed in this vault.
    Local,
    /// Installed from a linked vault.
    Linked(LinkId),
    /// Installed for the project in this folder.
    Project(PathBuf),
}

/// An installation: the name of a skill, and the bundle that it stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Installation {
    pub(crate) name: SkillName,
    /// Name in the manifest. It differs from `name` if a linked skill was installed under another
    /// name.
    pub(crate) signed_name: SkillName,
    pub(crate) origin: Origin,
    pub(crate) bundle: Digest,
    /// Name of its vault on this machine; `None` for an own skill.
    pub(crate) vault: Option<Slug>,
    /// Whether the bare name, without a vault, means this skill. A bare name means at most one
    /// skill.
    pub(crate) bare: bool,
}

/// Vault part in the qualified names of own skills: `local/<name>`.
pub(crate) const OWN: &str = "local";

impl Installation {
    /// The name that always means this skill.
    pub(crate) fn qualified_name(&self) -> String {
        match &self.origin {
            Origin::Local => format!("{OWN}/{}", self.name),
            Origin::Linked(_) => {
                let vault = self.vault.as_ref().map_or("", Slug::as_str);
                format!("{vault}/{}", self.name)
            }
            // A skill of a project has no vault part: only its project uses the name.
            Origin::Project(_) => self.name.to_string(),
        }
    }

    /// Returns whether a reference, bare or qualified, means this skill.
    fn is_meant(&self, skill_ref: &SkillRef) -> bool {
        self.name == skill_ref.name
            && match (&skill_ref.vault, &self.vault) {
                (None, _) => self.bare,
                (Some(wanted), None) => wanted.as_str() == OWN,
                (Some(wanted), Some(vault)) => wanted == vault,
            }
    }
}

/// All installations of a vault, and other entries in the same folders.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// One group for the own skills, and one for each link.
    pub(crate) groups: Vec<OriginGroup>,
    /// Entries that are not skills, as paths relative to the vault.
    pub(crate) strange: Vec<String>,
    /// Own skills that this machine installed and whose links were deleted by hand.
    pub(crate) gone: Vec<Installation>,
}

/// Installations with one origin, and the trust for verifying them.
#[derive(Clone, Debug)]
pub(crate) struct OriginGroup {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Installation>,
}

/// Lists the installed skills, without reading any of them. Own skills come first and have their
/// bare names. Any other bare name belongs to one link.
pub(crate) fn list_skill_places(vault: &Vault) -> Result<Places, VaultError> {
    // A writer links a skill before it records it. So a record that is read before the links names
    // no skill whose link does not exist yet.
    let recorded = vault.own_skills()?;
    let (places, mut strange) = read_own_links(vault)?;
    let unlinked = unlinked_own_skills(vault, &recorded, &places)?;
    // If the link of an own skill is deleted by hand, the bare name must not pass to a linked
    // skill.
    let own = places.iter().chain(&unlinked);
    let mut taken: HashSet<_> = own.map(|place| place.name.clone()).collect();
    let trusted = vault.trusted_with(recorded)?;
    let mut groups = vec![OriginGroup { trusted, places }];
    for link in linked_pins::list_links(vault)? {
        let (linked, further) = link.read_group(vault)?;
        if let Some(mut group) = linked {
            for place in &mut group.places {
                place.bare = place.bare && taken.insert(place.name.clone());
            }
            groups.push(group);
        }
        strange.extend(further);
    }
    Ok(Places {
        groups,
        strange,
        gone: unlinked,
    })
}

/// Returns the own skills that are recorded as installed but have no link.
fn unlinked_own_skills(
    vault: &Vault,
    recorded: &OwnSkills,
    places: &[Installation],
) -> Result<Vec<Installation>, VaultError> {
    let linked: HashSet<_> = places.iter().map(|place| &place.name).collect();
    // The usual case needs no second read of the record.
    if recorded
        .expected_skills()
        .all(|(name, _)| linked.contains(name))
    {
        return Ok(Vec::new());
    }
    // A writer may have removed these skills in the meantime. Then the record that is read now no
    // longer lists them.
    let recorded_now = vault.own_skills()?;
    let missing = recorded_now
        .expected_skills()
        .filter(|(name, _)| !linked.contains(name));
    let missing = missing.filter(|(name, _)| {
        let link = vault.skills_folder().join(name.as_str());
        store::bundle_at(&link).is_ok_and(|bundle| bundle.is_none())
    });
    let places = missing.map(|(name, bundle)| Installation {
        name: name.clone(),
        signed_name: name.clone(),
        origin: Origin::Local,
        bundle,
        vault: None,
        bare: true,
    });
    Ok(places.collect())
}

impl Installation {
    /// Returns the damage to report for a skill whose link was deleted by hand.
    pub(crate) fn unlinked_damage(&self) -> Damage {
        Damage::Unlinked(self.name.clone())
    }
}

/// Lists the own skills, without reading any of them.
pub(crate) fn own_skill_places(vault: &Vault) -> Result<Vec<Installation>, VaultError> {
    Ok(read_own_links(vault)?.0)
}

/// Returns the own skills, and the paths of all other entries in their folder.
fn read_own_links(vault: &Vault) -> Result<(Vec<Installation>, Vec<String>), VaultError> {
    let (bundles, strange) = read_links(&vault.skills_folder(), "skills")?;
    let own = |(name, bundle): (SkillName, Digest)| Installation {
        signed_name: name.clone(),
        name,
        origin: Origin::Local,
        bundle,
        vault: None,
        bare: true,
    };
    Ok((bundles.into_iter().map(own).collect(), strange))
}

/// Returns the bundles to which the links in one folder lead, and every other entry as a path below
/// `prefix`.
fn read_links(
    folder: &HeldPath,
    prefix: &str,
) -> Result<(BTreeMap<SkillName, Digest>, Vec<String>), VaultError> {
    let (mut bundles, mut strange) = (BTreeMap::new(), Vec::new());
    for (name, kind) in disk::list(folder)? {
        let text = name.to_string_lossy();
        let skill_and_bundle = match text.parse::<SkillName>() {
            Ok(skill) if kind == Kind::Link => {
                // A link that can't be read is reported as foreign, so that it does not end the
                // listing of all other skills.
                let bundle = store::bundle_at(&folder.join(&name)).ok().flatten();
                bundle.map(|bundle| (skill, bundle))
            }
            _ => None,
        };
        match skill_and_bundle {
            Some((skill, bundle)) => {
                bundles.insert(skill, bundle);
            }
            // A link that was replaced between listing and reading appears in the next scan.
            None => strange.push(format!("{prefix}/{text}")),
        }
    }
    Ok((bundles, strange))
}

impl Link {
    /// Returns the installed skills of a link with the trust for verifying them, and the paths of
    /// other entries among them. There is no group before the first catalog.
    pub(crate) fn read_group(
        &self,
        vault: &Vault,
    ) -> Result<(Option<OriginGroup>, Vec<String>), VaultError> {
        let Some(trusted) = self.installed_trust(vault)? else {
            return Ok((None, Vec::new()));
        };
        let (linked, mut strange) = self.linked_bundles()?;
        let mut places = BTreeMap::new();
        for (name, bundle) in &linked {
            match self.pinned_skill(name, bundle) {
                // A bundle that is not the pinned one stays in the list, so that verification
                // reports it as damage.
                Some(skill) => {
                    places.insert(name.clone(), self.place_of_skill(name, skill, *bundle))
                }
                None => {
                    strange.push(format!("links/{}/skills/{name}", self.id));
                    continue;
                }
            };
        }
        // A pinned skill counts as installed even if its symlink is gone, but not after a pull that
        // was killed, which may not have created the symlink yet.
        let all_made = self.pin.replaced.is_none();
        for (name, skill) in self.installed_skills().filter(|_| all_made) {
            let missing = || self.place_of_skill(name, skill, skill.bundle);
            places.entry(name.clone()).or_insert_with(missing);
        }
        let places = places.into_values().collect();
        Ok((Some(OriginGroup { trusted, places }), strange))
    }

    /// Returns the installation of a skill of this link with the given bundle.
    pub(crate) fn place_of_skill(
        &self,
        name: &SkillName,
        skill: &LinkedSkill,
        bundle: Digest,
    ) -> Installation {
        Installation {
            name: name.clone(),
            signed_name: skill.name.clone(),
            origin: Origin::Linked(self.id.clone()),
            bundle,
            vault: Some(self.pin.name.clone()),
            bare: skill.bare,
        }
    }

    /// Returns the bundles that the vault's folder shows for this link, and the paths of other
    /// entries among them.
    pub(crate) fn linked_bundles(
        &self,
    ) -> Result<(BTreeMap<SkillName, Digest>, Vec<String>), VaultError> {
        let prefix = format!("links/{}/skills", self.id);
        read_links(&self.set.join("skills"), &prefix)
    }
}

/// Finds the installed skill that a reference means, with the trust for verifying it; `None` if
/// there is none.
pub(crate) fn find_installed(
    vault: &Vault,
    wanted: &SkillRef,
) -> Result<Option<(Installation, Trusted)>, VaultError> {
    let groups = list_skill_places(vault)?.groups.into_iter();
    let mut matches = groups.filter_map(|group| {
        let mut places = group.places.into_iter();
        Some((places.find(|place| place.is_meant(wanted))?, group.trusted))
    });
    Ok(matches.next())
}

/// Returns whether all these installations still exist with the same bundles.
pub(crate) fn still_linked(vault: &Vault, expected: &[Installation]) -> Result<bool, VaultError> {
    if expected.is_empty() {
        return Ok(true);
    }
    let groups = list_skill_places(vault)?.groups;
    let now: HashSet<_> = groups.iter().flat_map(|group| &group.places).collect();
    Ok(expected.iter().all(|place| now.contains(place)))
}

/// The own skill that is installed under a name, with the result of verifying it.
#[derive(Debug)]
pub(crate) struct InstalledOwnSkill {
    pub(crate) bundle: Digest,
    /// The manifest; `None` if no trusted key signed it.
    pub(crate) manifest: Option<Manifest>,
    /// Whether the files are exactly the signed ones.
    pub(crate) intact: bool,
}

/// Reads and verifies the own skill that is installed under a name; `None` if there is none.
pub(crate) fn read_own_skill(
    vault: &Vault,
    name: &SkillName,
    trusted: &Trusted,
) -> Result<Option<InstalledOwnSkill>, VaultError> {
    let Some(bundle) = store::bundle_at(&vault.skills_folder().join(name.as_str()))? else {
        return Ok(None);
    };
    let store = vault.store_folder();
    let examined = store::examine_stored(&store, &bundle, Some(name), trusted);
    Ok(Some(match examined {
        Ok(examined) => InstalledOwnSkill {
            bundle,
            manifest: Some(examined.manifest),
            intact: true,
        },
        // The signed manifest of a damaged skill still gives its version. A repair must be signed
        // as a higher one.
        Err(_) => InstalledOwnSkill {
            bundle,
            manifest: store::read_manifest(&store, &bundle, trusted)
                .filter(|manifest| manifest.name == *name),
            intact: false,
        },
    }))
}
