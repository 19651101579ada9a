//! The skills that a new one is compared with: those that are installed, and those that the same command let through.

use std::collections::HashSet;

use vault_skill::gate::names::Known;
use vault_skill::gate::similar::{self, Similar, Sketch};
use vault_skill::name::SkillName;

use crate::index::Index;
use crate::installed::list::complete_sketches;
use crate::installed::place::{Group, Place, Places, places};
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

/// Names and sketches of skills.
#[derive(Debug)]
pub(super) struct ComparedSkills {
    groups: Vec<Group>,
    /// Every name in the folders of skills, also of entries that install nothing.
    names: HashSet<String>,
    index: Index,
    /// Skills that were let through and may not be installed yet, under the number that `passed_sketches` knows them by.
    passed: Vec<SkillName>,
    passed_sketches: Similar,
}

/// The skill that another one is most like.
pub(super) struct Nearest {
    pub(super) name: SkillName,
    /// From 0 to 1.
    pub(super) likeness: f64,
    /// Where it is installed; `None` for one that was let through just now.
    pub(super) place: Option<(Place, Trusted)>,
}

impl ComparedSkills {
    /// The skills that are installed now. The sketches of those that the index does not know are made first.
    pub(super) fn read(vault: &Vault) -> Result<Self, VaultError> {
        let Places { groups, strange } = places(vault)?;
        let mut index = Index::open(&vault.paths().index());
        complete_sketches(vault, &mut index, &groups);
        let strange = strange.iter().filter_map(|path| path.rsplit('/').next());
        let places = groups.iter().flat_map(|group| &group.places);
        let names = places.map(|place| place.name.as_str()).chain(strange);
        Ok(Self {
            names: names.map(str::to_owned).collect(),
            groups,
            index,
            passed: Vec::new(),
            passed_sketches: Similar::default(),
        })
    }

    /// Adds a skill that was let through.
    pub(super) fn add(&mut self, name: &SkillName, sketch: Sketch) {
        self.names.insert(name.to_string());
        self.passed.push(name.clone());
        self.passed_sketches.add(sketch);
    }

    /// The first, by the alphabet, of the names that this one is easily confused with.
    pub(super) fn confusable_with(&self, name: &SkillName) -> Option<&str> {
        let known = Known::new(name.as_str());
        let names = self.names.iter().map(String::as_str);
        names.filter(|other| known.is_confusable_with(other)).min()
    }

    /// The skill under another name that this one is most like.
    pub(super) fn nearest(&mut self, name: &SkillName, sketch: &Sketch) -> Option<Nearest> {
        if !sketch.is_comparable() {
            return None;
        }
        let near = self.index.sketches_near(sketch);
        let alike = similar::among(sketch, near.iter().map(|near| &near.sketch));
        let installed = alike.iter().filter_map(|alike| {
            let bundle = near[alike.number].hash;
            self.groups.iter().find_map(|group| {
                let mut places = group.places.iter();
                let place = places.find(|place| place.bundle == bundle && place.name != *name)?;
                Some(Nearest {
                    name: place.name.clone(),
                    likeness: alike.likeness,
                    place: Some((place.clone(), group.trusted.clone())),
                })
            })
        });
        let passed = self.passed_sketches.find(sketch).into_iter();
        let passed = passed.map(|alike| Nearest {
            name: self.passed[alike.number].clone(),
            likeness: alike.likeness,
            place: None,
        });
        installed
            .chain(passed)
            .filter(|nearest| nearest.name != *name)
            .min_by(|a, b| {
                let by_likeness = b.likeness.total_cmp(&a.likeness);
                by_likeness.then_with(|| a.name.cmp(&b.name))
            })
    }
}
