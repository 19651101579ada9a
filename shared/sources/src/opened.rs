//! A source that was reached: the list of its skills, and what hands them out.

use std::fmt::Debug;

use async_trait::async_trait;
use vault_store::fetch::FetchedSkill;

use crate::access::Access;
use crate::error::Result;

/// A skill of a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its own name where its SKILL.md can be parsed, else its folder's.
    pub name: String,
    /// Its folder in the source; empty for the root.
    pub folder: String,
    /// Its description, where that can be read.
    pub description: Option<String>,
}

/// A source that was reached, with its list of skills.
#[derive(Debug)]
pub struct Opened {
    /// Its skills, in an order that is the same each time.
    pub found: Vec<Found>,
    /// Notices for the user: unpinned sites, entries that were skipped.
    pub notices: Vec<String>,
    pub(crate) content: Box<dyn Content>,
}

/// What was opened: it hands out single skills.
#[async_trait]
pub(crate) trait Content: Debug + Send + Sync {
    /// Downloads one of the skills. Fails for links, for too large files, and where the policy does not allow it.
    async fn take(&self, access: Access<'_>, found: &Found) -> Result<FetchedSkill>;

    /// The folder that is meant when nobody names a skill; `None` where there is no such folder.
    fn base(&self) -> Option<&str>;
}

impl Opened {
    pub(crate) fn new(found: Vec<Found>, content: impl Content + 'static) -> Self {
        Self {
            found,
            notices: Vec::new(),
            content: Box::new(content),
        }
    }

    /// The skill of this name, by its own name or its folder's.
    pub fn by_name(&self, name: &str) -> Option<&Found> {
        by_name(&self.found, name)
    }

    /// The skill that is meant without a name: the only one, that of the root, or that of the folder in the source.
    pub fn only(&self) -> Option<&Found> {
        match &self.found[..] {
            [only] => Some(only),
            [first, ..] => (self.content.base() == Some(&first.folder)).then_some(first),
            [] => None,
        }
    }
}

/// The skill of this name among several, by its own name or its folder's.
pub fn by_name<'f>(found: &'f [Found], name: &str) -> Option<&'f Found> {
    let in_folder = |found: &&Found| last_part(&found.folder).as_deref() == Some(name);
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
