//! Namespaces as shelves: the interface through which MCP tools read skills and submit changes.
//!
//! [`Shelves`] chooses the shelf from which a caller's namespace is read. A service without a
//! library has only releases; a server that holds the library of one namespace puts its own shelf
//! before them. This room decides, for both, whether a caller's change is signed or becomes a
//! draft. It never signs anything itself, and never serves content that the owner's keys did not
//! sign.

mod blocking;
mod drafts;
mod refusal;
mod release;
mod session;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use vault_shelf::Shelf;

use crate::app::App;
use crate::model::namespace::Namespace;

pub use crate::app::Shelves;
pub(crate) use drafts::{has_same_files, propose_files};
pub(crate) use refusal::{shelf_refusal, to_sentence, tool_refusal};
use release::{ReleaseShelf, VerifiedReleases};
pub(crate) use session::{ChangeRule, SessionRules, open_session};

/// The current release of every namespace, for a service without a library of its own. Verified
/// releases are cached for a while.
#[derive(Debug, Default)]
pub struct Releases(Arc<VerifiedReleases>);

#[async_trait]
impl Shelves for Releases {
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf> {
        let verified = Arc::clone(&self.0);
        Arc::new(ReleaseShelf::new(
            app.clone(),
            namespace.clone(),
            source,
            verified,
        ))
    }
}
