//! Faults on the real functions: the five of a deployment on an emulator, with its bucket and table
//! in reach of the test.
//!
//! `./tests/run --aws` deploys them and runs this; elsewhere these tests are not run.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends at the first surprise, in helpers too"
)]

mod emulator;
mod faults;
#[path = "../e2e/support.rs"]
#[expect(dead_code, reason = "the end-to-end tests need more of it")]
mod support;
