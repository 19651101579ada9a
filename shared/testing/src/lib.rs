//! Test support. It is only ever a dev-dependency: no release build contains any of it.
//!
//! [`contract`] holds the rules that every adapter of a port must keep, one named test for each;
//! the stores in [`memory`] keep them too. [`TestClock`] and [`SeededRandom`] make tests
//! repeatable. [`page`] and [`schema`] write pages of the documentation from code. `postgres` and
//! `aws`, features of the same names, give a test an empty database, or an empty table and bucket,
//! on a server that test processes share.

#[cfg(feature = "aws")]
pub mod aws;
mod clock;
pub mod contract;
pub mod memory;
pub mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
mod random;
pub mod schema;
#[cfg(any(feature = "aws", feature = "postgres"))]
pub mod servers;

pub use clock::TestClock;
pub use random::SeededRandom;
