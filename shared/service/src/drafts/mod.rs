//! Stores, finds and ends drafts, for routes, MCP tools and background work. A draft is a request
//! to a vault's owners and publishers: to change a skill, to sign a release, or to let a key
//! publish.
//!
//! Each step is one commit with its audit record. A step that loses a race is tried again with the
//! new state. Nothing here checks the rights of a caller or decides about a draft: the routes do
//! that.

mod find;
mod keep;
mod settle;

pub(crate) use find::{FoundDraft, find_draft, resolve_states};
pub(crate) use keep::{IncomingDraft, KeepError, KeepOutcome, check_room, store_draft};
pub(crate) use settle::{pending_objects, settle_proposals};
