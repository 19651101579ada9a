//! The server as its callers meet it: messages in, answers out, over a shelf in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod changes;
mod hidden;
mod reads;
mod resources;
mod schemas;
mod support;
