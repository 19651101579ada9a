//! The coding agents on this machine, and the skills that each of them sees. A *profile* selects
//! the skills for one agent; a *sync* links them into the folders from which the agent reads
//! skills.

mod copies;
mod found;
mod plan;
mod profiles;
mod project;
mod report;
mod roots;
pub mod setup;
mod switches;
mod sync;
mod tree;
mod trial;
mod view;

pub use self::found::{Agent, AgentRoot, Machine, VARIABLES, by_name, detect_agents, known_agents};
pub use self::plan::SyncProfilesInput;
pub(crate) use self::project::forget_missing;
pub use self::project::wrong_links;
pub use self::project::{ProjectLinks, link_project};
pub use self::report::{
    ProfileState, ProfileSyncError, ProfileSyncReport, ProfileWarning, RootState,
};
pub use self::switches::{Disabled, Switches, keep_to, set_enabled};
pub(crate) use self::sync::clean_up_links;
pub use self::sync::{
    decline_agents, forget_restored, linked_roots, list_unlinked, sync_linked_folders,
    sync_profiles,
};
pub use self::trial::{Trial, TrialError, end_abandoned_trials};
pub use self::view::{
    AgentView, AgentViews, Hidden, HiddenReason, SeenVariant, VariantMaker, view_agents,
};
pub use crate::installed::agent_links::record::{RootMode, RootScope};
