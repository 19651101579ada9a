//! The skills that a new one is compared with: installed skills, and those that passed the gate
//! earlier in the same command.

use std::collections::HashSet;

use vault_format::name::SkillName;
use vault_gate::names::PreparedName;
use vault_gate::similar::{ALIKE, Sketch};

use crate::installed::installations::{Installation, list_skill_places};
use crate::installed::listing;
use crate::vault::{Vault, VaultError};

/// The names and sketches of the skills that a new skill is compared with.
#[derive(Debug, Default)]
pub(super) struct ComparedSkills {
    /// Every name in the folders of skills, including entries that are not skills.
    names: HashSet<String>,
    /// Skills whose text can be compared. Damaged skills are missing here.
    sketched: Vec<SketchedSkill>,
}

/// One skill with the sketch of its text, from which similarity is computed.
#[derive(Debug)]
struct SketchedSkill {
    name: SkillName,
    sketch: Sketch,
    /// Installation that the sketch belongs to; `None` if the skill only passed the gate in this
    /// command.
    place: Option<Installation>,
}

/// The skill whose text is most similar to a new one.
pub(super) struct Nearest {
    pub(super) name: SkillName,
    /// Similarity from 0 to 1.
    pub(super) likeness: f64,
    /// Installation of the similar skill; `None` if that skill only passed the gate in this
    /// command.
    pub(super) place: Option<Installation>,
}

impl ComparedSkills {
    /// Reads the skills that are installed now.
    pub(super) fn read_installed_skills(vault: &Vault) -> Result<Self, VaultError> {
        let places = list_skill_places(vault)?;
        let rows = listing::indexed_rows(vault, &places);
        let foreign = places.strange.iter();
        let strange = foreign.filter_map(|path| path.rsplit('/').next());
        let installed = || places.groups.iter().flat_map(|group| &group.places);
        let names = installed().map(|place| place.name.as_str()).chain(strange);
        let sketched = installed().filter_map(|place| {
            Some(SketchedSkill {
                name: place.name.clone(),
                // A damaged skill has no row in the index, so it is compared by its name only.
                sketch: Sketch::from_bytes(&rows.get(&place.bundle)?.row.sketch),
                place: Some(place.clone()),
            })
        });
        Ok(Self {
            names: names.map(str::to_owned).collect(),
            sketched: sketched.collect(),
        })
    }

    /// Adds a skill that passed the gate and may not be installed yet.
    pub(super) fn add_candidate(&mut self, name: &SkillName, sketch: Sketch) {
        self.names.insert(name.to_string());
        self.sketched.push(SketchedSkill {
            name: name.clone(),
            sketch,
            place: None,
        });
    }

    /// Returns the alphabetically first name that can be confused with this one.
    pub(super) fn confusable_with(&self, name: &SkillName) -> Option<&str> {
        let known = PreparedName::new(name.as_str());
        let names = self.names.iter().map(String::as_str);
        names.filter(|other| known.is_confusable_with(other)).min()
    }

    /// Returns the most similar skill that has another name; `None` if none reaches the similarity
    /// [`ALIKE`].
    pub(super) fn nearest(&self, name: &SkillName, sketch: &Sketch) -> Option<Nearest> {
        // A similar skill of the same name is the previous version, not a duplicate.
        let others = self.sketched.iter().filter(|other| other.name != *name);
        let likeness = others.map(|other| (sketch.likeness(&other.sketch), other));
        let alike = likeness.filter(|(likeness, _)| *likeness >= ALIKE);
        // Ties are broken by name, so that the same vault always reports the same skill.
        let nearest = alike.min_by(|(a, first), (b, second)| {
            b.total_cmp(a).then_with(|| first.name.cmp(&second.name))
        });
        nearest.map(|(likeness, other)| Nearest {
            name: other.name.clone(),
            likeness,
            place: other.place.clone(),
        })
    }
}
