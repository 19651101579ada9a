//! Keeping, finding and ending drafts: what the routes, the tools and background work share.
//!
//! Each step is one commit, with its audit entry. A step that loses to another one is tried again
//! on what that one left behind.

mod find;
mod keep;
mod settle;

pub(crate) use find::{Found, end, find, standing};
pub(crate) use keep::{Keep, KeepError, Kept, has_room, keep};
pub(crate) use settle::{pending_objects, settle};
