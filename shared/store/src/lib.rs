//! The ports of vault: what the service and the library ask of a store, of a clock and of randomness.
//!
//! Two ports hold data: [`objects::Objects`] (immutable bytes by their hash) and [`records::Records`] (small JSON
//! documents, changed all-or-nothing). [`shelf::Shelf`] is what tools read skills from. Two make tests repeatable:
//! [`clock::Clock`] and [`random::Random`].
//! [`contract`] says what every adapter must keep, one named test per clause; [`memory`] is the double that keeps it.
//! This crate knows no database, no file and no network.

pub mod clock;
pub mod contract;
mod error;
pub mod fetch;
pub mod memory;
pub mod objects;
pub mod random;
pub mod recent;
pub mod records;
pub mod shelf;

pub use error::StoreError;
