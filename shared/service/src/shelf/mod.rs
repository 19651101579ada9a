//! Namespaces as shelves. A shelf ([`Shelf`]) is the interface through which MCP tools read skills
//! and submit changes.
//!
//! [`Shelves`] chooses the shelf for a caller's namespace. A service without a library serves only
//! releases; a server that has the library of one namespace uses its own shelf for it. For both,
//! this module decides whether a caller's change is signed or becomes a draft. It never signs
//! anything itself, and never serves content that the owner's keys did not sign.

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

/// Shelves that read the current releases of namespaces, for a service without a library of its
/// own. Verified releases are cached for a while.
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
