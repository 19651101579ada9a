//! The capability policy: the skills, tools and MCP servers that each caller may use.
//!
//! `policy.toml`, which the owner writes, and `vault.policy/1`, which a release carries, are read
//! into one [`Policy`]. A [`CompiledPolicy`] is made from it once and answers two questions: what a
//! caller may use ([`CompiledPolicy::grant_for`], for a server that checks each call), and the full
//! list of a caller's capabilities with scores and reasons ([`resolve_capabilities`]). A caller
//! without an entry, and a name without a definition, get nothing.

mod compiled;
mod file;
mod pattern;
pub mod profile;
pub mod published;
mod resolve;
pub mod search;
mod toml_text;

pub use compiled::{Asker, CompiledPolicy, Grant, MAX_QUERY_BYTES, Reach, View};
pub use file::{
    Always, Caller, Channel, Group, MAX_BYTES, MAX_RULES, McpServer, Policy, PolicyError, Profile,
    Rule, SCHEMA, Sources, Table,
};
pub use resolve::{Capabilities, GrantedSkill, Input, resolve_capabilities};
