//! The routes, driven in process: one module a path, whole answers where they matter.

#![expect(
    clippy::unwrap_used,
    clippy::similar_names,
    clippy::too_many_lines,
    reason = "a test that cannot go on stops; `word` and `world` are different words; a table is as long as it is"
)]

mod account;
mod admin;
mod api;
mod authenticator;
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod console;
mod earlier;
mod healthz;
mod hooks;
mod http;
mod maintenance;
mod many_uploads;
mod mcp;
mod notices;
mod oauth;
mod payment_states;
mod payments;
mod profiles;
mod publish;
mod quota;
mod quota_races;
mod quota_warnings;
mod roots;
mod shelf;
mod sign_again;
mod skills;
mod support;
mod team;
mod tenants;
mod v;
mod welcome;
mod wire;
