//! Namespaces as shelves: what MCP tools read skills from and hand changes to.
//!
//! [`Shelves`] says which shelf a caller's namespace is read from. The service alone knows
//! releases; a server that holds the library of one namespace puts its own answer before that.
//! Whether a caller's changes are signed there or become drafts is decided here, for both.

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
pub(crate) use drafts::{holds, propose};
pub(crate) use refusal::{of_shelf, of_tool, sentence};
use release::{ReleaseShelf, VerifiedReleases};
pub(crate) use session::{Changes, session};

/// Every namespace from its current release: what a service without a library of its own has. What
/// was verified is kept for a while.
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
