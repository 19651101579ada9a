//! Linked vaults: pinning them, accepting their catalogs, and installing their skills beside the own ones.
//!
//! [`Link::accept`] decides about bytes and changes nothing; [`install`] stages every bundle, verifies it, and then
//! switches: readers see the old pin, catalog and skills, or the new ones, never a mixture.

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
