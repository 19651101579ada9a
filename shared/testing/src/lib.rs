//! Test support, only ever a dev-dependency: no release build contains any of it.
//!
//! [`contract`] says what every adapter of a port must keep, one named test per clause; [`memory`]
//! is the double that keeps it. [`TestClock`] and [`SeededRandom`] make tests repeatable.
//! [`page`] and [`schema`] write pages from code. `postgres` and `aws`, features of the same names, give a test an empty database, or an empty
//! table and bucket, on a server that test processes share.

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
