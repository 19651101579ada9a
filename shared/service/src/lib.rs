//! The vault service: its routes as plain functions over the ports of `vault_store`.
//!
//! Handlers depend on no database, no cloud and no environment variable: they take an [`App`]. The
//! same handlers run behind [`serve`] and as cloud functions; no result depends on what a process
//! has cached.

pub mod accounts;
mod admin;
mod app;
pub mod bearer;
pub mod bodies;
pub mod budget;
mod cache;
pub mod config;
mod console;
mod devices;
pub mod documents;
mod drafts;
mod edge;
pub mod error;
mod guard;
mod health;
pub mod hosting;
pub mod http;
pub mod maintenance;
pub mod mcp;
pub mod model;
pub mod notices;
pub mod oauth;
mod oauth_routes;
pub mod oidc;
pub mod outbound;
mod path_params;
pub mod ports;
pub mod publish;
mod retry;
pub mod route;
pub mod router;
pub mod senders;
pub mod serve;
pub mod shelf;
mod spending;
pub mod starter;
mod transaction;
mod units;
pub mod uploads;
pub mod web;

pub use app::{Accepted, App};
pub use ports::Ports;
pub use router::{part_router, router};
pub use transaction::Transaction;
