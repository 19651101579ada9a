//! Storing, finding and ending drafts, for routes, tools and background work alike.
//!
//! Each step is one commit with its audit record. A step that loses a race is tried again on the
//! new state. Nothing here checks the rights of a caller or decides about a draft: the routes do
//! that.

mod find;
mod keep;
mod settle;

pub(crate) use find::{FoundDraft, find_draft, resolve_states};
pub(crate) use keep::{IncomingDraft, KeepError, KeepOutcome, check_room, store_draft};
pub(crate) use settle::{pending_objects, settle_proposals};
