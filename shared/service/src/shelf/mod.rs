//! Namespaces as shelves: what MCP tools read skills from and hand changes to.
//!
//! [`Shelves`] says which shelf a caller's namespace is read from. The service alone knows releases; a server that holds the library of one
//! namespace puts its own answer before that.

mod drafts;
mod release;

use std::net::IpAddr;
use std::sync::Arc;

use vault_shelf::Shelf;

use crate::App;
use crate::model::namespace::Namespace;

pub(crate) use release::Opened;
pub use release::ReleaseShelf;

/// Which shelf a namespace is read from.
pub trait Shelves: Send + Sync {
    /// The shelf of a namespace for one request. `namespace` is its record as it was read for the request, `source` the address that the
    /// request came from, for the audit log. The caller's rights were checked, and are not asked for here.
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf>;
}

/// Every namespace from its current release: what a service without a library of its own has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Releases;

impl Shelves for Releases {
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf> {
        Arc::new(ReleaseShelf::new(app.clone(), namespace.clone(), source))
    }
}
