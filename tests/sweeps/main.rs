//! Commands and servers that are struck down, or refused by the system, at every call that changes something: nothing
//! is lost, nothing is half visible, readers see the old state or the new one, and the same command given again
//! succeeds.

mod local;
mod proxy;
mod remote;
mod server;
mod state;
