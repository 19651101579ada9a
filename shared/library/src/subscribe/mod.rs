//! Linked vaults: pins their keys, accepts their catalogs, and installs their skills alongside the
//! own ones.
//!
//! [`Link::accept`] verifies a catalog without writing. [`install`] switches to the new state after
//! all bundles are staged and verified. Readers see either the old pin, catalog and skills or the
//! new ones, never a mixture.

mod catalog;
mod error;
mod pin;
mod pull;
mod state;

pub use self::catalog::{AcceptedCatalog, SelectedSkill};
pub use self::error::LinkError;
pub use self::pin::{create, expect, remove};
pub use self::pull::{PullReport, StagedBundles, install, pin_only};
pub use crate::installed::link_id::{BadLinkId, LinkId};
pub use crate::installed::linked::{Link, Pin, Selection, all, find};
