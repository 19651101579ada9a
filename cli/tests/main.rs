//! Tests of the built command, in one program: each more would be linked by itself.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod actions;
mod agents;
mod audits;
mod doctor;
mod exceptions;
mod exits;
#[path = "../../shared/sources/tests/support/mod.rs"]
mod fetching;
mod install;
mod keys;
mod local_drafts;
mod picker;
mod register;
mod screens;
mod secrets;
mod serving;
mod setup;
mod sources;
mod stdio;
mod support;
mod timers;
mod transcripts;
mod trials;
mod widths;
