//! Commands and servers that are struck down, or refused by the system, at every call that changes something: nothing
//! is lost, nothing is half visible, readers see the old state or the new one, and the same command given again
//! succeeds.
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
