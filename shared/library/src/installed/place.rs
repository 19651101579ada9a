//! Which skills are installed, where each comes from, and which bundle each name stands for.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use rayon::prelude::*;
use vault_skill::catalog::SignedCatalog;
use vault_skill::hash::Digest;
use vault_skill::manifest::Manifest;
use vault_skill::name::SkillName;

use super::link_id::LinkId;
use super::linked::{self, Link, SetRecord};
use crate::disk::tree::DirHandle;
use crate::disk::{self, Kind};
use crate::store::{self, Trusted, Want};
use crate::vault::{Vault, VaultError};

/// Number of skills that one core processes at a time.
pub(crate) const CHUNK: usize = 64;

/// Where an installed skill comes from.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// Admitted and signed in this vault.
    Local,
    /// Installed from a linked vault.
    Linked(LinkId),
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
    /// One group for the own skills; for each link one, or two after a key was stolen or lost.
    pub(crate) groups: Vec<Group>,
    /// Entries that are not skills, as paths relative to the vault.
    pub(crate) strange: Vec<String>,
}

/// Skills of one origin, and the keys that may have signed them.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Place>,
}

/// Lists the links that install skills, without reading any skill.
pub(crate) fn places(vault: &Vault) -> Result<Places, VaultError> {
    let mut strange = Vec::new();
    let local = Group {
        trusted: vault.trusted()?,
        places: read_links(&vault.skills(), &Origin::Local, "skills", &mut strange)?,
    };
    let mut groups = vec![local];
    for link in linked::all(vault)? {
        groups.extend(link.groups(&mut strange)?);
    }
    Ok(Places { groups, strange })
}

/// The skill links in one folder. Every other entry is added to `strange`, with the prefix `shown`.
pub(crate) fn read_links(
    folder: &Path,
    origin: &Origin,
    shown: &str,
    strange: &mut Vec<String>,
) -> Result<Vec<Place>, VaultError> {
    let entries = disk::list(folder)?;
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let handle = DirHandle::new(folder)?;
    let read: Vec<_> = entries
        .par_iter()
        .with_min_len(CHUNK)
        .map(|(name, kind)| {
            let text = name.to_string_lossy();
            let place = match text.parse() {
                Ok(name) if *kind == Kind::Link => read_link(&handle, &name, origin),
                _ => None,
            };
            // A link that was replaced between listing and reading appears in the next scan.
            place.ok_or_else(|| format!("{shown}/{text}"))
        })
        .collect();
    let mut places = Vec::with_capacity(read.len());
    for entry in read {
        match entry {
            Ok(place) => places.push(place),
            Err(path) => strange.push(path),
        }
    }
    Ok(places)
}

fn read_link(folder: &DirHandle, name: &SkillName, origin: &Origin) -> Option<Place> {
    let target = folder.link_target(name.as_str())?;
    Some(Place {
        name: name.clone(),
        signed_name: name.clone(),
        origin: origin.clone(),
        bundle: store::linked_bundle(&target)?,
    })
}

impl Link {
    /// The installed skills with the keys to trust for them; empty before the first catalog. After
    /// a key was stolen or lost there are two groups: bundles that the current catalog names, and
    /// all others, for which that key does not count.
    pub(crate) fn groups(&self, strange: &mut Vec<String>) -> Result<Vec<Group>, VaultError> {
        let origin = Origin::Linked(self.id.clone());
        let shown = format!("links/{}/skills", self.id);
        let skills = self.state.join("set/skills");
        self.grouped(|| read_links(&skills, &origin, &shown, strange))
    }

    /// Like [`Self::groups`], for skills of these names only.
    pub(crate) fn groups_of(&self, names: &[SkillName]) -> Result<Vec<Group>, VaultError> {
        let origin = Origin::Linked(self.id.clone());
        let skills = self.state.join("set/skills");
        self.grouped(|| Ok(read_named_links(&skills, &origin, names)))
    }

    fn grouped(
        &self,
        read: impl FnOnce() -> Result<Vec<Place>, VaultError>,
    ) -> Result<Vec<Group>, VaultError> {
        let Some(vault_id) = self.pin.vault_id else {
            return Ok(Vec::new());
        };
        let mut places = read()?;
        if let Some(bytes) = disk::read(&self.state.join("set/set.json"), 4 << 20)? {
            let record: SetRecord =
                vault_skill::json::parse(&bytes).map_err(|reason| VaultError::Damaged {
                    path: self.state.join("set/set.json"),
                    reason: reason.to_string(),
                })?;
            for alias in record.aliases {
                for place in &mut places {
                    if place.name == alias.installed_as {
                        place.signed_name = alias.name.clone();
                    }
                }
            }
        }
        let keys = self.pin.signers.clone();
        if self.pin.voided_keys.is_empty() {
            let trusted = Trusted { vault_id, keys };
            return Ok(vec![Group { trusted, places }]);
        }
        let named: BTreeSet<_> = self
            .catalog_bytes()?
            .and_then(|bytes| SignedCatalog::parse(&bytes).ok()?.verify().ok())
            .map(|catalog| {
                catalog
                    .skills
                    .iter()
                    .map(|entry| entry.bundle_hash)
                    .collect()
            })
            .unwrap_or_default();
        let (named, others): (Vec<_>, Vec<_>) = places
            .into_iter()
            .partition(|place| named.contains(&place.bundle));
        let good = keys
            .iter()
            .filter(|key| !self.pin.voided_keys.contains(key))
            .copied()
            .collect();
        let group = |keys, places| Group {
            trusted: Trusted { vault_id, keys },
            places,
        };
        Ok(vec![group(keys, named), group(good, others)])
    }
}

/// The skills that a link installs, by name.
pub(crate) fn installed_by(link: &Link) -> Result<BTreeMap<SkillName, Digest>, VaultError> {
    let mut strange = Vec::new();
    let origin = Origin::Linked(link.id.clone());
    let places = read_links(&link.state.join("set/skills"), &origin, "", &mut strange)?;
    Ok(places
        .into_iter()
        .map(|place| (place.name, place.bundle))
        .collect())
}

/// The installed skills of these names, in the same groups as [`places`] returns: own ones first.
/// Reads no other skill links.
pub(crate) fn places_of(vault: &Vault, names: &[SkillName]) -> Result<Vec<Group>, VaultError> {
    let mut groups = vec![Group {
        trusted: vault.trusted()?,
        places: read_named_links(&vault.skills(), &Origin::Local, names),
    }];
    for link in linked::all(vault)? {
        groups.extend(link.groups_of(names)?);
    }
    Ok(groups)
}

/// The links of these names in one folder of skills. Names without a link are left out.
pub(crate) fn read_named_links(folder: &Path, origin: &Origin, names: &[SkillName]) -> Vec<Place> {
    let Ok(handle) = DirHandle::new(folder) else {
        return Vec::new();
    };
    let places = names.iter().map(|name| read_link(&handle, name, origin));
    places.flatten().collect()
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
    buffer: &mut Vec<u8>,
) -> Result<Option<Installed>, VaultError> {
    let Some(bundle) = store::bundle_at(&vault.skills().join(name.as_str()))? else {
        return Ok(None);
    };
    let store = vault.store();
    let examined = store::examine(&store, &bundle, Some(name), trusted, Want::Verdict, buffer);
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
