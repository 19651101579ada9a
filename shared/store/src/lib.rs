//! The ports (traits) through which the service uses two kinds of store, a clock and randomness.
//!
//! Two ports hold data: [`objects::Objects`] (immutable bytes by their hash) and
//! [`records::Records`] (small JSON documents, changed all-or-nothing). Two make tests repeatable:
//! [`clock::Clock`] and [`random::Random`]. An adapter implements a port for one database or cloud;
//! the crate `vault-testing` has the rules for adapters as contract tests, one named test per rule.
//! [`fair::FairQueue`] is the order in which adapters serve namespaces. This crate uses no
//! database, no file and no network.

pub mod clock;
mod error;
pub mod fair;
pub mod gate;
pub mod objects;
pub mod random;
pub mod recent;
pub mod records;

pub use error::StoreError;
