//! An opened source: the list of its skills, and the handle that downloads them.

use std::fmt::Debug;

use async_trait::async_trait;
use vault_shelf::fetch::FetchedSkill;

use crate::access::Access;
use crate::error::Result;
use crate::http::Scope;

/// A skill in the list of an opened source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OfferedSkill {
    /// The name in its SKILL.md or in the site's index; the folder's name if the SKILL.md cannot be
    /// parsed.
    pub name: String,
    /// The folder in the source; empty for the root.
    pub folder: String,
    /// The description, if it is known.
    pub description: Option<String>,
}

/// An opened source with its list of skills.
#[derive(Debug)]
pub struct Opened {
    /// The skills, in a stable order.
    pub skills: Vec<OfferedSkill>,
    /// Notices for the user, such as an index without digests or skipped entries.
    pub notices: Vec<String>,
    pub(crate) content: Box<dyn Content>,
    pub(crate) scope: Scope,
}

/// Downloads single skills of an opened source.
#[async_trait]
pub(crate) trait Content: Debug + Send + Sync {
    /// Downloads one skill. Fails if the skill contains links or exceeds a size limit, or if the
    /// policy does not allow it.
    async fn take_skill(&self, access: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill>;

    /// The folder that selects a skill when the user names none; `None` if the source has no such
    /// folder.
    fn base_folder(&self) -> Option<&str>;
}

impl Opened {
    pub(crate) fn new(found: Vec<OfferedSkill>, content: impl Content + 'static) -> Self {
        Self {
            skills: found,
            notices: Vec::new(),
            content: Box::new(content),
            scope: Scope::Public,
        }
    }

    /// Finds a skill by its own name, or else by its folder's name.
    pub fn by_name(&self, name: &str) -> Option<&OfferedSkill> {
        by_name(&self.skills, name)
    }

    /// Returns the skill to use when the user names none: the only skill, or else the one in the
    /// folder that the source names (by default the root).
    pub fn default_skill(&self) -> Option<&OfferedSkill> {
        match &self.skills[..] {
            [only] => Some(only),
            // If the base folder contains a skill, that skill is the first one in the list.
            [first, ..] => (self.content.base_folder() == Some(&first.folder)).then_some(first),
            [] => None,
        }
    }
}

/// Finds a skill by its own name, or else by its folder's name.
pub fn by_name<'f>(found: &'f [OfferedSkill], name: &str) -> Option<&'f OfferedSkill> {
    let in_folder = |found: &&OfferedSkill| last_part(&found.folder).as_deref() == Some(name);
    found
        .iter()
        .find(|found| found.name == name)
        .or_else(|| found.iter().find(in_folder))
}

pub(crate) fn last_part(path: &str) -> Option<String> {
    path.rsplit('/')
        .next()
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
}
