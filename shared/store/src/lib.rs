//! The ports of vault: what the service and the library ask of a store, of a clock and of randomness.
//!
//! Two ports hold data: [`objects::Objects`] (immutable bytes by their hash) and [`records::Records`] (small JSON
//! documents, changed all-or-nothing). [`shelf::Shelf`] is what tools read skills from. Two make tests repeatable:
//! [`clock::Clock`] and [`random::Random`].
//! With the feature `testing`, `contract` says what every adapter must keep, one named test per clause, and `memory`
//! is the double that keeps it. Only tests switch that feature on; no release build contains a test double.
//! This crate knows no database, no file and no network.

pub mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod error;
pub mod fetch;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod objects;
pub mod random;
pub mod recent;
pub mod records;
pub mod shelf;

pub use error::StoreError;
