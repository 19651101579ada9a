//! What the service asks of a store, of a clock and of randomness.
//!
//! Two ports hold data: [`objects::Objects`] (immutable bytes by their hash) and
//! [`records::Records`] (small JSON documents, changed all-or-nothing). Two make tests repeatable:
//! [`clock::Clock`] and [`random::Random`]. What every adapter must keep stands in the crate
//! `vault-testing`, one named test per clause. This crate knows no database, no file and no
//! network.

pub mod clock;
mod error;
pub mod objects;
pub mod random;
pub mod recent;
pub mod records;

pub use error::StoreError;
