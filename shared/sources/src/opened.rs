//! An opened source: the list of its skills, and the handle that downloads them.

use std::fmt::Debug;
use std::path::Path;

use async_trait::async_trait;
use vault_shelf::fetch::FetchedSkill;

use crate::access::Access;
use crate::error::Result;
use crate::http::Scope;
use crate::listing::{Listing, OfferedSkill};

/// An opened source with its list of skills.
#[derive(Debug)]
pub struct Opened {
    /// The skills of the source.
    pub listing: Listing,
    /// Remarks for the user about what was opened, such as the plugin that was found.
    pub notes: Vec<String>,
    /// Warnings for the user, such as an index without digests.
    pub notices: Vec<String>,
    /// Whether links to files of the same skill are replaced by copies of those files. The caller
    /// sets it if the user asks for copies.
    pub copy_links: bool,
    pub(crate) content: Box<dyn Content>,
    pub(crate) scope: Scope,
}

/// Downloads single skills of an opened source.
#[async_trait]
pub(crate) trait Content: Debug + Send + Sync {
    /// Downloads one skill. Fails if the skill contains links or exceeds a size limit, or if the
    /// policy does not allow it.
    async fn take_skill(&self, access: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill>;

    /// Returns the local folder that contains the skills; `None` if they have to be downloaded.
    fn local_root(&self) -> Option<&Path> {
        None
    }
}

impl Opened {
    pub(crate) fn new(listing: Listing, content: impl Content + 'static) -> Self {
        Self {
            listing,
            notes: Vec::new(),
            notices: Vec::new(),
            copy_links: false,
            content: Box::new(content),
            scope: Scope::Public,
        }
    }

    /// Returns the local folder that contains the skills; `None` if they have to be downloaded.
    pub fn local_root(&self) -> Option<&Path> {
        self.content.local_root()
    }
}
