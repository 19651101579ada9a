//! The vault service: its routes as plain functions over the ports of `vault_store`.
//!
//! Handlers know no database, no cloud and no environment: they hold an [`App`]. The same handlers
//! run behind [`serve`] and as functions; nothing that is right or wrong depends on what a process
//! remembers.

mod admin;
mod app;
pub mod bearer;
mod cache;
pub mod config;
mod console;
pub mod documents;
mod drafts;
mod edge;
pub mod error;
mod guard;
mod health;
mod hosted;
pub mod http;
pub mod mcp;
pub mod model;
pub mod notices;
pub mod oauth;
pub mod oidc;
pub mod outbound;
mod path_params;
mod payment;
pub mod ports;
pub mod provisioning;
pub mod publish;
mod retry;
pub mod route;
pub mod router;
pub mod senders;
pub mod serve;
pub mod shelf;
pub mod starter;
mod transaction;
pub mod uploads;
pub mod work;

pub use app::{Accepted, App};
pub use ports::Ports;
pub use router::{part_router, router};
pub use transaction::Transaction;
