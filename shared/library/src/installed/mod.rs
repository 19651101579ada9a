//! The installed skills, own ones and those of linked vaults: listed, searched and verified.

pub(crate) mod agent_links;
pub mod clock;
pub mod drift;
pub mod folders;
pub(crate) mod link_id;
pub(crate) mod linked;
pub(crate) mod linked_agents;
pub mod list;
pub mod place;
pub mod project;
pub(crate) mod roots;
pub mod search;
pub mod upstream;
pub(crate) mod variants;
pub mod verify;
