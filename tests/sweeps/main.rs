//! Commands and servers that are killed, or refused by the system, at calls that change something:
//! nothing is lost, nothing is half visible, readers see the old state or the new one, and the same
//! command given again succeeds.
//!
//! The tests `crash` of the library kill each of its deeds at every such call. Where a command does
//! one of these deeds, a sample of the calls is enough here.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test support: what is not as expected ends the test, and each sweep says how many points it tried"
)]

mod agents;
mod closed;
mod fetched;
mod full;
mod keys;
mod local;
mod proxy;
mod remote;
mod server;
mod setup;
mod state;
mod team;
