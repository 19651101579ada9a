//! The installed skills: their names, their origins, and the bundle that each name stands for.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::{SkillName, SkillRef, Slug};

use super::link_id::LinkId;
use super::linked::{self, Link, LinkedSkill};
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

/// The name of an installed skill, and the bundle that it stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Place {
    pub(crate) name: SkillName,
    /// The name in the manifest. It differs from `name` if the skill was installed under another
    /// name.
    pub(crate) signed_name: SkillName,
    pub(crate) origin: Origin,
    pub(crate) bundle: Digest,
    /// The name of its vault on this machine; `None` for an own skill.
    pub(crate) vault: Option<Slug>,
    /// Whether the bare name means this skill. That is so for at most one skill of each name.
    pub(crate) bare: bool,
}

/// The vault part in qualified names of own skills: `local/<name>`.
pub(crate) const OWN: &str = "local";

impl Place {
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

    fn is_meant(&self, skill_ref: &SkillRef) -> bool {
        self.name == skill_ref.name
            && match (&skill_ref.vault, &self.vault) {
                (None, _) => self.bare,
                (Some(wanted), None) => wanted.as_str() == OWN,
                (Some(wanted), Some(vault)) => wanted == vault,
            }
    }
}

/// Everything installed, and foreign entries among it.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// One group for the own skills, and one for each link.
    pub(crate) groups: Vec<OriginGroup>,
    /// Entries that are not skills, as paths relative to the vault.
    pub(crate) strange: Vec<String>,
    /// Own skills that this machine installed and whose links were removed outside vault.
    pub(crate) gone: Vec<Place>,
}

/// Skills of one origin, and the trust for verifying them.
#[derive(Clone, Debug)]
pub(crate) struct OriginGroup {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Place>,
}

/// Lists the installed skills, without reading any of them. Own skills come first and have their
/// bare names. Any other bare name belongs to one link.
pub(crate) fn list_places(vault: &Vault) -> Result<Places, VaultError> {
    // A writer links a skill before it records it. So a record that is read before the links names
    // no skill whose link does not exist yet.
    let recorded = vault.own_skills()?;
    let (places, mut strange) = read_own_links(vault)?;
    let unlinked = unlinked_own_skills(vault, &recorded, &places)?;
    // If somebody removes the link of an own skill, its name must not go to a linked skill.
    let own = places.iter().chain(&unlinked);
    let mut taken: HashSet<_> = own.map(|place| place.name.clone()).collect();
    let trusted = vault.trusted_with(recorded)?;
    let mut groups = vec![OriginGroup { trusted, places }];
    for link in linked::list_links(vault)? {
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

/// Returns the recorded own skills that no link installs.
fn unlinked_own_skills(
    vault: &Vault,
    recorded: &OwnSkills,
    places: &[Place],
) -> Result<Vec<Place>, VaultError> {
    let linked: HashSet<_> = places.iter().map(|place| &place.name).collect();
    // The usual case needs no second read of the record.
    if recorded
        .expected_skills()
        .all(|(name, _)| linked.contains(name))
    {
        return Ok(Vec::new());
    }
    // A writer may have removed these skills in the meantime, so read the record again: it says so
    // now.
    let recorded_now = vault.own_skills()?;
    let missing = recorded_now
        .expected_skills()
        .filter(|(name, _)| !linked.contains(name));
    let missing = missing.filter(|(name, _)| {
        let link = vault.skills_folder().join(name.as_str());
        store::bundle_at(&link).is_ok_and(|bundle| bundle.is_none())
    });
    let places = missing.map(|(name, bundle)| Place {
        name: name.clone(),
        signed_name: name.clone(),
        origin: Origin::Local,
        bundle,
        vault: None,
        bare: true,
    });
    Ok(places.collect())
}

impl Place {
    /// The damage of a skill whose link was removed outside vault.
    pub(crate) fn unlinked_damage(&self) -> Damage {
        Damage::Unlinked(self.name.clone())
    }
}

/// Lists the own skills, without reading any of them.
pub(crate) fn own_places(vault: &Vault) -> Result<Vec<Place>, VaultError> {
    Ok(read_own_links(vault)?.0)
}

/// Returns the own skills, and every other entry of their folder as a path.
fn read_own_links(vault: &Vault) -> Result<(Vec<Place>, Vec<String>), VaultError> {
    let (bundles, strange) = read_links(&vault.skills_folder(), "skills")?;
    let own = |(name, bundle): (SkillName, Digest)| Place {
        signed_name: name.clone(),
        name,
        origin: Origin::Local,
        bundle,
        vault: None,
        bare: true,
    };
    Ok((bundles.into_iter().map(own).collect(), strange))
}

/// Returns the bundles that the links in one folder name, and every other entry as a path below
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
    /// Returns the installed skills with the trust for verifying them, and foreign entries among
    /// them. Returns no group before the first catalog.
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
                // A bundle other than the pinned one stays in the list, so that verification
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
        // A pinned skill is installed even if its link is gone. After a pull that was cut short
        // this does not hold: the pull may not have made the link yet.
        let all_made = self.pin.replaced.is_none();
        for (name, skill) in self.installed_skills().filter(|_| all_made) {
            let missing = || self.place_of_skill(name, skill, skill.bundle);
            places.entry(name.clone()).or_insert_with(missing);
        }
        let places = places.into_values().collect();
        Ok((Some(OriginGroup { trusted, places }), strange))
    }

    pub(crate) fn place_of_skill(
        &self,
        name: &SkillName,
        skill: &LinkedSkill,
        bundle: Digest,
    ) -> Place {
        Place {
            name: name.clone(),
            signed_name: skill.name.clone(),
            origin: Origin::Linked(self.id.clone()),
            bundle,
            vault: Some(self.pin.name.clone()),
            bare: skill.bare,
        }
    }

    /// Returns the bundles that the vault's folder shows for this link, and foreign entries among
    /// them.
    pub(crate) fn linked_bundles(
        &self,
    ) -> Result<(BTreeMap<SkillName, Digest>, Vec<String>), VaultError> {
        let prefix = format!("links/{}/skills", self.id);
        read_links(&self.set.join("skills"), &prefix)
    }
}

/// Finds the installed skill that a reference means, with the trust for verifying it.
pub(crate) fn find_installed(
    vault: &Vault,
    wanted: &SkillRef,
) -> Result<Option<(Place, Trusted)>, VaultError> {
    let groups = list_places(vault)?.groups.into_iter();
    let mut matches = groups.filter_map(|group| {
        let mut places = group.places.into_iter();
        Some((places.find(|place| place.is_meant(wanted))?, group.trusted))
    });
    Ok(matches.next())
}

/// Returns whether these names are still installed with the same bundles.
pub(crate) fn still_linked(vault: &Vault, expected: &[Place]) -> Result<bool, VaultError> {
    if expected.is_empty() {
        return Ok(true);
    }
    let groups = list_places(vault)?.groups;
    let now: HashSet<_> = groups.iter().flat_map(|group| &group.places).collect();
    Ok(expected.iter().all(|place| now.contains(place)))
}

/// The own skill that is installed under a name.
#[derive(Debug)]
pub(crate) struct InstalledOwnSkill {
    pub(crate) bundle: Digest,
    /// The manifest, if its signature is valid.
    pub(crate) manifest: Option<Manifest>,
    /// Whether the files are exactly as signed.
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
