//! Tests of fetching from sources, in one program: each more would be linked by itself.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod archives;
mod grammar;
mod hostile;
mod registries;
mod repositories;
mod sites;
mod support;
