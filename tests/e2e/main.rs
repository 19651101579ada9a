//! The product end to end: the built binary, real servers on loopback, homes of their own, on
//! SQLite and on PostgreSQL.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends at the first surprise, in helpers too"
)]

mod apps;
mod busy;
mod collection;
mod corpus;
mod drafts;
mod keys;
mod library;
mod linked;
mod linked_agents;
mod page;
mod people;
mod questions;
mod races;
mod readme;
mod recovery;
mod refusals;
mod releases_page;
mod replaced;
mod restored;
mod reviews;
mod serve_page;
mod service;
mod several;
mod smoke;
mod ssh_agent;
mod support;
mod team_page;
mod theft;
mod transcripts;
mod walk;
