//! The server as its callers meet it: messages in, answers out, over a shelf in memory.

#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test that cannot go on stops; a table is as long as it is"
)]

mod changes;
mod hidden;
mod reads;
mod resources;
mod schemas;
mod support;
