//! Which skills are installed, where each comes from, and which bundle each name stands for.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use vault_skill::hash::Digest;
use vault_skill::manifest::Manifest;
use vault_skill::name::SkillName;

use super::link_id::LinkId;
use super::linked::{self, Link};
use crate::disk::{self, Kind};
use crate::store::{self, Damage, Trusted};
use crate::vault::own_skills::OwnSkills;
use crate::vault::{Vault, VaultError};

/// Where an installed skill comes from.
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
}

/// Everything installed, and foreign entries among it.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// One group for the own skills, and one for each link.
    pub(crate) groups: Vec<Group>,
    /// Entries that are not skills, as paths relative to the vault.
    pub(crate) strange: Vec<String>,
    /// Own skills that this machine installed and whose links somebody removed.
    pub(crate) gone: Vec<Place>,
}

/// Skills of one origin, and whose signatures count on them.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Place>,
}

/// Lists the links that install skills, without reading any skill.
pub(crate) fn places(vault: &Vault) -> Result<Places, VaultError> {
    // A writer records a skill after it linked it, so a record that is read first never names more.
    let known = vault.own_skills()?;
    let (places, mut strange) = read_links(&vault.skills(), &Origin::Local, "skills")?;
    let gone = gone(vault, &known, &places)?;
    let trusted = vault.trusted_with(known)?;
    let mut groups = vec![Group { trusted, places }];
    for link in linked::all(vault)? {
        let (linked, further) = link.group(vault)?;
        groups.extend(linked);
        strange.extend(further);
    }
    Ok(Places {
        groups,
        strange,
        gone,
    })
}

/// The recorded own skills that no link installs.
fn gone(vault: &Vault, known: &OwnSkills, places: &[Place]) -> Result<Vec<Place>, VaultError> {
    let linked: HashSet<_> = places.iter().map(|place| &place.name).collect();
    if known.expected().all(|(name, _)| linked.contains(name)) {
        return Ok(Vec::new());
    }
    // A writer may have removed them meanwhile: then the record says so by now.
    let known = vault.own_skills()?;
    let missing = known.expected().filter(|(name, _)| !linked.contains(name));
    let missing = missing.filter(|(name, _)| {
        let link = vault.skills().join(name.as_str());
        store::bundle_at(&link).is_ok_and(|bundle| bundle.is_none())
    });
    let places = missing.map(|(name, bundle)| Place {
        name: name.clone(),
        signed_name: name.clone(),
        origin: Origin::Local,
        bundle,
    });
    Ok(places.collect())
}

impl Place {
    /// What is wrong with a skill whose link somebody removed.
    pub(crate) fn gone(&self) -> Damage {
        Damage::Unlinked(self.name.clone())
    }
}

/// The own skills, without reading any.
pub(crate) fn own_places(vault: &Vault) -> Result<Vec<Place>, VaultError> {
    Ok(read_links(&vault.skills(), &Origin::Local, "skills")?.0)
}

/// The skill links in one folder, and every other entry as a path with the prefix `shown`.
fn read_links(
    folder: &Path,
    origin: &Origin,
    shown: &str,
) -> Result<(Vec<Place>, Vec<String>), VaultError> {
    let (mut places, mut strange) = (Vec::new(), Vec::new());
    for (name, kind) in disk::list(folder)? {
        let text = name.to_string_lossy();
        let place = match text.parse() {
            Ok(name) if kind == Kind::Link => read_link(folder, name, origin),
            _ => None,
        };
        match place {
            Some(place) => places.push(place),
            // A link that was replaced between listing and reading appears in the next scan.
            None => strange.push(format!("{shown}/{text}")),
        }
    }
    Ok((places, strange))
}

fn read_link(folder: &Path, name: SkillName, origin: &Origin) -> Option<Place> {
    Some(Place {
        bundle: store::bundle_at(&folder.join(name.as_str())).ok()??,
        signed_name: name.clone(),
        name,
        origin: origin.clone(),
    })
}

impl Link {
    /// The installed skills with the keys to trust for them, and foreign entries among them; empty
    /// before the first catalog.
    pub(crate) fn group(&self, vault: &Vault) -> Result<(Option<Group>, Vec<String>), VaultError> {
        let Some(trusted) = self.trusted(vault)? else {
            return Ok((None, Vec::new()));
        };
        let (mut places, strange) = self.places()?;
        for alias in self.record()?.aliases {
            for place in &mut places {
                if place.name == alias.installed_as {
                    place.signed_name = alias.name.clone();
                }
            }
        }
        Ok((Some(Group { trusted, places }), strange))
    }

    fn places(&self) -> Result<(Vec<Place>, Vec<String>), VaultError> {
        let origin = Origin::Linked(self.id.clone());
        let shown = format!("links/{}/skills", self.id);
        read_links(&self.set.join("skills"), &origin, &shown)
    }
}

/// The skills that a link installs, by name.
pub(crate) fn installed_by(link: &Link) -> Result<BTreeMap<SkillName, Digest>, VaultError> {
    let (places, _) = link.places()?;
    let bundles = places.into_iter().map(|place| (place.name, place.bundle));
    Ok(bundles.collect())
}

/// The installed skills of one name, in the same groups as [`places`] returns: own ones first.
pub(crate) fn places_of(vault: &Vault, name: &SkillName) -> Result<Vec<Group>, VaultError> {
    let mut groups = places(vault)?.groups;
    for group in &mut groups {
        group.places.retain(|place| place.name == *name);
    }
    Ok(groups)
}

/// Whether these names are still installed with the same bundles.
pub(crate) fn still_linked(vault: &Vault, expected: &[Place]) -> Result<bool, VaultError> {
    if expected.is_empty() {
        return Ok(true);
    }
    let groups = places(vault)?.groups;
    let now: HashSet<_> = groups.iter().flat_map(|group| &group.places).collect();
    Ok(expected.iter().all(|place| now.contains(place)))
}

/// The own skill that is installed under a name.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) bundle: Digest,
    /// The manifest, if its signature is valid.
    pub(crate) manifest: Option<Manifest>,
    /// Whether the files are exactly as signed.
    pub(crate) intact: bool,
}

/// Reads and verifies the own skill that is installed under a name; `None` if there is none.
pub(crate) fn installed(
    vault: &Vault,
    name: &SkillName,
    trusted: &Trusted,
) -> Result<Option<Installed>, VaultError> {
    let Some(bundle) = store::bundle_at(&vault.skills().join(name.as_str()))? else {
        return Ok(None);
    };
    let store = vault.store();
    let examined = store::examine(&store, &bundle, Some(name), trusted);
    Ok(Some(match examined {
        Ok(examined) => Installed {
            bundle,
            manifest: Some(examined.manifest),
            intact: true,
        },
        Err(_) => Installed {
            bundle,
            manifest: store::manifest(&store, &bundle, trusted)
                .filter(|manifest| manifest.name == *name),
            intact: false,
        },
    }))
}
