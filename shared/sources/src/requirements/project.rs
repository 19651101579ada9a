//! Which skills of a project need which: a pure function of its lock and of the skills that are
//! about to come.
//!
//! Requirements are direct: what a required skill requires itself is reported and never added.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::name::SkillName;
use vault_gate::requirements::{Accepted, StatedRequirement, Version};

use super::{SkillRequirement, SourceKey, fulfils};

/// The number of skills of one source that can fulfil a requirement.
const MAX_NAMES: usize = 16;

/// One skill of a project, with what it requires.
#[derive(Clone, Debug)]
pub struct ProjectSkill {
    /// Its name in the project.
    pub name: SkillName,
    /// Its source; `None` if no requirement can mean it.
    pub key: Option<SourceKey>,
    /// The branch, tag or version that it follows.
    pub reference: Option<String>,
    /// The exact commit, version or digest.
    pub revision: Option<String>,
    /// The skills that it requires.
    pub requires: Vec<SkillRequirement>,
    /// Whether it came only because another skill requires it.
    pub as_requirement: bool,
}

/// A required skill that the project lacks.
#[derive(Clone, Debug)]
pub struct MissingSkill {
    /// One of the requirements that mean it.
    pub requirement: SkillRequirement,
    /// What fulfils all of them.
    pub accepted: Accepted,
    /// The skills that require it, by name.
    pub needed_by: Vec<SkillName>,
}

/// The error for requirements that cannot hold together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequirementConflict {
    /// Skills require each other. The first and the last name are the same.
    #[error("skills require each other: {}", path_of(.0))]
    Cycle(Vec<SkillName>),
    /// Two skills of different sources have one name.
    #[error("{name} would come from two sources: {first} and {second}")]
    TwoSources {
        /// The name.
        name: SkillName,
        /// The source of the skill that is there.
        first: String,
        /// The other source.
        second: String,
    },
    /// The project pins a required skill at a version that the requirement excludes.
    #[error("{by} requires {requirement}, but {name} is pinned at {pinned}")]
    Excluded {
        /// The skill that requires it.
        by: SkillName,
        /// The requirement.
        requirement: String,
        /// The required skill.
        name: SkillName,
        /// Its branch, tag, version or commit.
        pinned: String,
    },
    /// Two skills require versions of one skill that exclude each other.
    #[error("{first} requires {one}, but {second} requires {other}")]
    Exclusive {
        /// A skill.
        first: SkillName,
        /// Its requirement.
        one: String,
        /// Another skill, or the same.
        second: SkillName,
        /// Its requirement.
        other: String,
    },
}

fn path_of(names: &[SkillName]) -> String {
    let names: Vec<&str> = names.iter().map(SkillName::as_str).collect();
    names.join(" -> ")
}

/// All skills of a project, by name.
#[derive(Clone, Debug, Default)]
pub struct ProjectSkills {
    skills: BTreeMap<SkillName, ProjectSkill>,
    /// The names of the skills of each source.
    names: BTreeMap<SourceKey, Vec<SkillName>>,
}

impl ProjectSkills {
    /// Adds a skill. Fails if another source has a skill of its name; `replaces` allows that.
    pub fn add_skill(
        &mut self,
        skill: ProjectSkill,
        replaces: bool,
    ) -> Result<(), RequirementConflict> {
        if let Some(before) = self.skills.get(&skill.name) {
            if before.key != skill.key && !replaces {
                let text = |key: &Option<SourceKey>| {
                    key.as_ref()
                        .map_or_else(|| "another place".to_owned(), ToString::to_string)
                };
                return Err(RequirementConflict::TwoSources {
                    name: skill.name,
                    first: text(&before.key),
                    second: text(&skill.key),
                });
            }
            let name = skill.name.clone();
            self.remove_skill(&name);
        }
        if let Some(key) = &skill.key {
            let names = self.names.entry(key.clone()).or_default();
            names.push(skill.name.clone());
        }
        self.skills.insert(skill.name.clone(), skill);
        Ok(())
    }

    /// Removes a skill, if it is there.
    pub fn remove_skill(&mut self, name: &SkillName) {
        let removed = self.skills.remove(name);
        if let Some(key) = removed.and_then(|removed| removed.key)
            && let Some(names) = self.names.get_mut(&key)
        {
            names.retain(|other| other != name);
        }
    }

    /// Returns the skills that fulfil or contradict a requirement: those of its source.
    fn named_by(&self, requirement: &SkillRequirement) -> impl Iterator<Item = &ProjectSkill> {
        let names = self.names.get(requirement.key()).into_iter().flatten();
        // A hostile lock may name one source under thousands of names.
        let names = names.take(MAX_NAMES);
        names.filter_map(|name| self.skills.get(name))
    }

    /// Returns each skill with each of its requirements.
    fn edges(&self) -> impl Iterator<Item = (&ProjectSkill, &SkillRequirement)> {
        let skills = self.skills.values();
        skills.flat_map(|skill| skill.requires.iter().map(move |required| (skill, required)))
    }

    /// Fails if requirements cannot hold together: a cycle, a pin that a requirement excludes, or
    /// two that exclude each other.
    pub fn check_requirements(&self) -> Result<(), RequirementConflict> {
        for (skill, requirement) in self.edges() {
            let mut pinned = self.named_by(requirement).peekable();
            let Some(first) = pinned.peek().copied() else {
                continue;
            };
            let is_met = pinned.any(|found| {
                let (reference, revision) = (found.reference.as_deref(), found.revision.as_deref());
                fulfils(requirement.accepted(), reference, revision)
            });
            if !is_met {
                let pin = first.reference.as_ref().or(first.revision.as_ref());
                return Err(RequirementConflict::Excluded {
                    by: skill.name.clone(),
                    requirement: requirement.stated().to_string(),
                    name: first.name.clone(),
                    pinned: pin.map_or_else(|| "no version".to_owned(), Clone::clone),
                });
            }
        }
        self.missing_skills()?;
        match self.find_cycle() {
            Some(cycle) => Err(RequirementConflict::Cycle(cycle)),
            None => Ok(()),
        }
    }

    /// Returns the required skills that the project lacks, sorted by source. Fails if two
    /// requirements of one of them exclude each other.
    pub fn missing_skills(&self) -> Result<Vec<MissingSkill>, RequirementConflict> {
        let mut missing: BTreeMap<&SourceKey, MissingSkill> = BTreeMap::new();
        for (skill, requirement) in self.edges() {
            if self.named_by(requirement).next().is_some() {
                continue;
            }
            let Some(known) = missing.get_mut(requirement.key()) else {
                let first = MissingSkill {
                    requirement: requirement.clone(),
                    accepted: requirement.accepted().clone(),
                    needed_by: vec![skill.name.clone()],
                };
                missing.insert(requirement.key(), first);
                continue;
            };
            let both = accept_both(&known.accepted, requirement.accepted());
            known.accepted = both.ok_or_else(|| self.exclusive(known, skill, requirement))?;
            if known.needed_by.last() != Some(&skill.name) {
                known.needed_by.push(skill.name.clone());
            }
        }
        Ok(missing.into_values().collect())
    }

    /// Creates the conflict between a requirement and an earlier one of the same skill.
    fn exclusive(
        &self,
        known: &MissingSkill,
        skill: &ProjectSkill,
        requirement: &SkillRequirement,
    ) -> RequirementConflict {
        let mut earlier = self.edges().filter(|(_, other)| {
            other.key() == requirement.key()
                && accept_both(other.accepted(), requirement.accepted()).is_none()
        });
        // Three ranges may exclude each other only together. Then no single one is to blame.
        let (first, one) = match earlier.next() {
            Some((first, one)) => (first.name.clone(), one.stated().to_string()),
            None => (
                skill.name.clone(),
                stated_text(&known.requirement, &known.accepted),
            ),
        };
        RequirementConflict::Exclusive {
            first,
            one,
            second: skill.name.clone(),
            other: requirement.stated().to_string(),
        }
    }

    /// Returns each required skill with those that require it. None requires itself here.
    pub fn requirers(&self) -> BTreeMap<&SkillName, BTreeSet<&SkillName>> {
        let mut requirers: BTreeMap<&SkillName, BTreeSet<&SkillName>> = BTreeMap::new();
        for (skill, requirement) in self.edges() {
            let found = self.named_by(requirement);
            for found in found.filter(|found| found.name != skill.name) {
                requirers
                    .entry(&found.name)
                    .or_default()
                    .insert(&skill.name);
            }
        }
        requirers
    }

    /// Returns the skills that came only as requirements, and that no skill needs which somebody
    /// asked for, by name.
    pub fn unneeded(&self) -> Vec<&SkillName> {
        let mut needed: BTreeSet<&SkillName> = BTreeSet::new();
        let asked = self.skills.values().filter(|skill| !skill.as_requirement);
        let mut open: Vec<&ProjectSkill> = asked.collect();
        while let Some(skill) = open.pop() {
            if needed.insert(&skill.name) {
                let required = skill.requires.iter();
                open.extend(required.flat_map(|requirement| self.named_by(requirement)));
            }
        }
        let names = self.skills.keys();
        names.filter(|name| !needed.contains(name)).collect()
    }

    /// Returns the names on a path from a skill to itself, the first and the last being the same.
    fn find_cycle(&self) -> Option<Vec<SkillName>> {
        let mut done: BTreeSet<&SkillName> = BTreeSet::new();
        for start in self.skills.values() {
            // An own stack instead of recursion: a lock may hold a chain of thousands.
            let mut path: Vec<(&ProjectSkill, Vec<&ProjectSkill>)> = Vec::new();
            let mut on_path: BTreeSet<&SkillName> = BTreeSet::new();
            let mut next = Some(start);
            loop {
                if let Some(skill) = next.take().filter(|skill| !done.contains(&skill.name)) {
                    if !on_path.insert(&skill.name) {
                        let names = path.iter().map(|(on, _)| &on.name);
                        let cycle = names.skip_while(|name| **name != skill.name);
                        return Some(cycle.chain([&skill.name]).cloned().collect());
                    }
                    path.push((skill, self.required_by(skill)));
                }
                let Some((skill, open)) = path.last_mut() else {
                    break;
                };
                next = open.pop();
                if next.is_none() {
                    on_path.remove(&skill.name);
                    done.insert(&skill.name);
                    path.pop();
                }
            }
        }
        None
    }

    /// Returns the skills of the project that this one requires.
    fn required_by(&self, skill: &ProjectSkill) -> Vec<&ProjectSkill> {
        let mut found: Vec<&ProjectSkill> = Vec::new();
        for requirement in &skill.requires {
            found.extend(self.named_by(requirement));
        }
        found
    }
}

/// Returns what both accept; `None` if they exclude each other.
fn accept_both(one: &Accepted, other: &Accepted) -> Option<Accepted> {
    match (one, other) {
        (Accepted::Any, both) | (both, Accepted::Any) => Some(both.clone()),
        (Accepted::Range(one), Accepted::Range(other)) => one.intersect(other).map(Accepted::Range),
        (Accepted::Revision(name), Accepted::Revision(other)) => {
            (name == other).then(|| Accepted::Revision(name.clone()))
        }
        (Accepted::Revision(name), Accepted::Range(range))
        | (Accepted::Range(range), Accepted::Revision(name)) => {
            let is_within = Version::of_tag(name).is_some_and(|version| range.contains(version));
            is_within.then(|| Accepted::Revision(name.clone()))
        }
    }
}

/// Formats a requirement with the commits or versions that are left of it.
fn stated_text(requirement: &SkillRequirement, accepted: &Accepted) -> String {
    let source = requirement.stated().source();
    match StatedRequirement::new(source, accepted.clone()) {
        Ok(stated) => stated.to_string(),
        Err(_) => source.to_owned(),
    }
}

#[cfg(test)]
mod tests;
