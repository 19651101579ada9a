//! Where a skill is installed, from where, and which bundle stands there.

use std::path::Path;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use super::link_id::LinkId;
use super::linked;
use crate::disk::tree::Looker;
use crate::disk::{self, Kind};
use crate::parallel::in_parallel;
use crate::store::{self, Trusted};
use crate::vault::{Vault, VaultError};

/// Where an installed skill comes from.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// Admitted and signed here.
    Local,
    /// Installed from this linked vault.
    Linked(LinkId),
}

/// A name under which a skill is installed, and the bundle that it stands for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Place {
    pub(crate) name: SkillName,
    /// What the manifest must say, where it was installed under another name.
    pub(crate) signed_name: SkillName,
    pub(crate) origin: Origin,
    pub(crate) bundle: Digest,
}

/// Everything installed, and what lies among it without being a skill.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// One group for the own skills and one for each link.
    pub(crate) groups: Vec<Group>,
    /// Paths relative to the vault.
    pub(crate) strange: Vec<String>,
}

/// Skills of one origin and whom to believe about them.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) trusted: Trusted,
    pub(crate) places: Vec<Place>,
}

/// Lists the links that install skills; reads no skill.
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

/// The links in one folder of skills; what is no such link goes to `strange`.
pub(crate) fn read_links(
    folder: &Path,
    origin: &Origin,
    shown: &str,
    strange: &mut Vec<String>,
) -> Result<Vec<Place>, VaultError> {
    let names = disk::list(folder)?;
    let parts = in_parallel(&names, |names| -> Result<_, VaultError> {
        let (mut places, mut strange) = (Vec::with_capacity(names.len()), Vec::new());
        if names.is_empty() {
            return Ok((places, strange));
        }
        let looker = Looker::new(folder)?;
        let mut target = Vec::new();
        for (name, kind) in names {
            let text = name.to_string_lossy();
            let parsed = text.parse::<SkillName>().ok();
            let bundle = (*kind == Kind::Link && looker.link_target(&text, &mut target))
                .then(|| store::linked_bundle(&target))
                .flatten();
            match (parsed, bundle) {
                (Some(name), Some(bundle)) => places.push(Place {
                    signed_name: name.clone(),
                    name,
                    origin: origin.clone(),
                    bundle,
                }),
                // A link that was replaced between listing and reading shows in the next scan.
                _ => strange.push(format!("{shown}/{text}")),
            }
        }
        Ok((places, strange))
    });
    let mut places = Vec::with_capacity(names.len());
    for part in parts {
        let (more, foreign) = part?;
        places.extend(more);
        strange.extend(foreign);
    }
    Ok(places)
}

/// Of these skills those that are installed, in the groups that [`places`] would give: own ones first. Reads no other link.
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

/// The links of these names in one folder of skills; what is no such link is left out.
pub(crate) fn read_named_links(folder: &Path, origin: &Origin, names: &[SkillName]) -> Vec<Place> {
    let Ok(looker) = Looker::new(folder) else {
        return Vec::new();
    };
    let mut target = Vec::new();
    let mut places = Vec::new();
    for name in names {
        let bundle = looker
            .link_target(name.as_str(), &mut target)
            .then(|| store::linked_bundle(&target))
            .flatten();
        places.extend(bundle.map(|bundle| Place {
            name: name.clone(),
            signed_name: name.clone(),
            origin: origin.clone(),
            bundle,
        }));
    }
    places
}

/// Whether what was found damaged is still what is installed.
pub(crate) fn still_linked(vault: &Vault, damaged: &[Place]) -> Result<bool, VaultError> {
    if damaged.is_empty() {
        return Ok(true);
    }
    let now: std::collections::HashSet<_> = places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .collect();
    Ok(damaged.iter().all(|place| now.contains(place)))
}

/// What tells cheaply whether the same skills are installed as before: the generation number, whom the vault believes, and looks at the
/// folders whose links install skills. It says nothing of the bytes of a skill.
pub(crate) struct Evidence {
    said: Vec<u8>,
    /// When the youngest of the folders was changed.
    youngest: (i64, u64),
}

impl Evidence {
    /// The evidence as it is now; `None` while a writer is at work, or where something of it can't be read.
    pub(crate) fn of(vault: &Vault) -> Option<Self> {
        let generation = vault.generation().ok()?;
        let trusted = vault.trusted().ok()?;
        let mut evidence = Self::of_places(vault, generation)?;
        evidence.say(&trusted.vault_id.to_string());
        for key in &trusted.keys {
            evidence.say(&key.to_string());
        }
        evidence.look(&vault.paths().root, "store");
        generation.is_multiple_of(2).then_some(evidence)
    }

    /// What tells whether the names are the same, were this the generation; `None` where something of it can't be read.
    pub(crate) fn of_places(vault: &Vault, generation: u64) -> Option<Self> {
        let mut evidence = Self {
            said: Vec::new(),
            youngest: (0, 0),
        };
        evidence.say(&generation.to_string());
        for folder in ["skills", "links"] {
            evidence.look(&vault.paths().root, folder);
        }
        for link in linked::all(vault).ok()? {
            link.evidence(&mut evidence);
        }
        Some(evidence)
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.said.extend((text.len() as u64).to_le_bytes());
        self.said.extend_from_slice(text.as_bytes());
    }

    /// Notes what a look at a path below a folder says, its absence too.
    pub(crate) fn look(&mut self, folder: &Path, path: &str) {
        let facts = Looker::new(folder)
            .ok()
            .and_then(|looker| looker.look(path.as_bytes()));
        self.say(if facts.is_some() { path } else { "" });
        if let Some(facts) = facts {
            facts.append_to(&mut self.said);
            self.youngest = self.youngest.max(facts.changed);
        }
    }

    /// The evidence in short, to be compared.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.said)
    }

    /// Whether any later change will show: within one tick of the file system's clock two changes look like one.
    pub(crate) fn is_settled(&self, settled_before: (i64, u64)) -> bool {
        self.youngest < settled_before
    }
}
