//! The report on a pull.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use vault_format::name::{SkillName, Slug};

use super::error::FlaggedSkill;

/// What a pull installed, updated and removed.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct PullReport {
    /// Number of the release that is pinned after the pull.
    pub release: u64,
    /// New skills, by the name they are installed under.
    pub installed: Vec<SkillName>,
    /// Skills that have other content than before, plain or in the variant for an agent.
    pub updated: Vec<SkillName>,
    /// Skills that were uninstalled because they are no longer in the catalog or the selection.
    pub removed: Vec<SkillName>,
    /// Number of installed skills that the pull left as they were.
    pub unchanged: usize,
    /// Withdrawn skills whose bundles were removed, with the reason.
    pub withdrawn: Vec<WithdrawnSkill>,
    /// Installed skills whose bare names mean an own skill, or that of another link.
    pub shadowed: Vec<SkillName>,
    /// Bare names that newly installed skills did not get, each with the vault that has the name.
    /// Names that an earlier pull reported are not repeated.
    #[serde(skip)]
    pub taken: Vec<TakenName>,
    /// Withdrawn skills whose bundles stay because an own skill, or another vault's, uses them.
    pub kept: Vec<SkillName>,
    /// Installed skills that the gate of this machine refuses.
    #[serde(serialize_with = "names")]
    #[schemars(with = "Vec<SkillName>")]
    pub flagged: Vec<FlaggedSkill>,
    /// The agents' folders that showed removed skills, with their names there.
    #[serde(skip)]
    pub unlinked: Vec<(PathBuf, Vec<SkillName>)>,
}

impl PullReport {
    /// Adds the skills that [`withdraw_first`](super::withdraw_first) removed before this pull.
    pub fn add_withdrawn(&mut self, first: Self) {
        self.removed.extend(first.removed);
        self.removed.sort();
        self.withdrawn.extend(first.withdrawn);
        self.kept.extend(first.kept);
        self.unlinked.extend(first.unlinked);
    }
}

/// Serializes flagged skills as their names, without the findings.
fn names<S: Serializer>(flagged: &[FlaggedSkill], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(flagged.iter().map(|skill| &skill.name))
}

/// A skill that its publisher withdrew, so that it was uninstalled.
#[derive(Clone, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct WithdrawnSkill {
    /// Name under which the vault published the skill.
    pub name: SkillName,
    /// The reason, in the owner's words.
    pub reason: String,
}

/// A bare name (a name without a vault) that a pulled skill did not get.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TakenName {
    /// Name that means another skill.
    pub name: SkillName,
    /// Name, on this machine, of the linked vault that has it; `None` for an own skill.
    pub by: Option<Slug>,
}
