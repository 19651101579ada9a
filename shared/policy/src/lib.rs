//! The capability policy: who may use which skills, tools and MCP servers.
//!
//! `policy.toml` as the owner writes it and `vault.policy/1` as a release carries it are read into
//! one [`Policy`]. A [`CompiledPolicy`] is made of it once and answers two questions: what a caller
//! is granted ([`CompiledPolicy::granted`], for a gate that looks at each call), and the whole of
//! it with ranks and reasons ([`resolve_capabilities`]). Whoever is not named, and whatever leads
//! nowhere, gets nothing.

mod compiled;
mod file;
mod pattern;
pub mod profile;
mod resolve;
pub mod search;
mod toml_text;

pub use compiled::{Asker, CompiledPolicy, Grant, MAX_QUERY_BYTES, Reach, View};
pub use file::{
    Always, Caller, Channel, Group, MAX_BYTES, MAX_RULES, McpServer, Policy, PolicyError, Profile,
    Rule, SCHEMA, Sources, Table,
};
pub use resolve::{Capabilities, GrantedSkill, Input, resolve_capabilities};
