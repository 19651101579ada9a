//! The skills that a new one is compared with: installed skills, and those that passed the gate
//! earlier in the same command.

use std::collections::HashSet;

use vault_skill::gate::names::Known;
use vault_skill::gate::similar::{self, Similar, Sketch};
use vault_skill::name::SkillName;

use crate::index::Index;
use crate::installed::list::complete_sketches;
use crate::installed::place::{Group, Place, Places, places};
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

/// The names and sketches of these skills.
#[derive(Debug)]
pub(super) struct ComparedSkills {
    groups: Vec<Group>,
    /// Every name in the folders of skills, including entries that are not skills.
    names: HashSet<String>,
    index: Index,
    /// Skills that passed the gate and may not be installed yet. Their positions are their numbers
    /// in `passed_sketches`.
    passed: Vec<SkillName>,
    passed_sketches: Similar,
}

/// The most similar skill.
pub(super) struct Nearest {
    pub(super) name: SkillName,
    /// Similarity from 0 to 1.
    pub(super) likeness: f64,
    /// Where it is installed; `None` if it passed the gate in this command.
    pub(super) place: Option<(Place, Trusted)>,
}

impl ComparedSkills {
    /// Reads the skills that are installed now. First adds missing sketches to the index.
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

    /// Adds a skill that passed the gate.
    pub(super) fn add(&mut self, name: &SkillName, sketch: Sketch) {
        self.names.insert(name.to_string());
        self.passed.push(name.clone());
        self.passed_sketches.add(sketch);
    }

    /// The alphabetically first name that can be confused with this one.
    pub(super) fn confusable_with(&self, name: &SkillName) -> Option<&str> {
        let known = Known::new(name.as_str());
        let names = self.names.iter().map(String::as_str);
        names.filter(|other| known.is_confusable_with(other)).min()
    }

    /// The most similar skill that has another name.
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
