//! The installed skills, own ones and those of linked vaults: listed, searched and verified.

pub(crate) mod agent_links;
pub mod compared_source;
pub mod installations;
pub(crate) mod link_id;
pub(crate) mod linked_agents;
pub(crate) mod linked_pins;
pub mod listing;
pub mod project_skills;
pub mod remembered_times;
pub(crate) mod rendered_variants;
pub(crate) mod root_versions;
pub mod source_folders;
pub mod source_records;
pub mod verified_contents;
pub mod verified_search;
