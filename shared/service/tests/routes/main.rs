//! The routes, driven in process: one module a path, whole answers where they matter.

#![expect(
    clippy::unwrap_used,
    clippy::similar_names,
    reason = "a test that cannot go on stops; `word` and `world` are different words"
)]

mod admin;
#[path = "../common/mod.rs"]
mod common;
mod healthz;
mod http;
mod oauth;
mod publish;
mod support;
mod v;
