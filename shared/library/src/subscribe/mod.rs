//! Linked vaults: vaults of others to which this one subscribes. Stores their root versions (signed
//! lists of their keys), accepts their catalogs (signed lists of their skills), and installs their
//! skills beside the own ones.
//!
//! [`Link::accept_catalog`] judges a catalog and writes nothing but new root versions.
//! [`install_selection`] switches to a new set of skills once all bundles are staged and verified.
//! If a pull is killed, either the previous set or the new one is installed, with the catalog that
//! lists it.

mod accept;
mod agents;
mod catalog;
mod device_key;
mod error;
mod last_pull;
mod pin;
mod pull;
mod pull_report;
mod staged;
mod state;

pub use self::accept::{AcceptOptions, AcceptedCatalog};
pub use self::catalog::{SelectedSkill, SelectedSkills};
pub use self::device_key::{discard_device_key, prepare_device_key, replace_device_key};
pub use self::error::{FlaggedSkill, LinkError};
pub use self::last_pull::{LastPull, PullError, last_pull, note_pull};
pub use self::pin::{
    LinkSettings, RemovedLink, configure_link, expect_fingerprint, link_vault, prefer_skill,
    unlink_vault,
};
pub use self::pull::{install_selection, pin_only, withdraw_first};
pub use self::pull_report::{PullReport, TakenName, WithdrawnSkill};
pub use self::staged::StagedBundles;
pub use crate::installed::link_id::{BadLinkId, LinkId};
pub use crate::installed::linked_pins::{
    CountedFile, Link, Pin, PullGate, Selection, find_link_by_id, list_links,
};
