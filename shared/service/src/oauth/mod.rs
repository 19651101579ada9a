//! The OAuth 2.1 protocol for apps and agents: discovery, registration, authorization, tokens and
//! revocation.
//!
//! What decides is pure ([`authorize`], [`register`], [`token`], [`revoke`]): requests and records
//! in, an answer and conditional writes out. `endpoints` and `authorization` read, ask, write and
//! answer, once a guard has let a request through. Every secret is random, shown once, and stored
//! by its SHA-256.

pub(crate) mod authorization;
pub mod authorize;
mod clients;
mod consent_page;
pub mod document;
pub(crate) mod endpoints;
pub(crate) mod error_response;
pub(crate) mod guard;
pub mod metadata;
pub mod register;
pub mod resource;
pub mod revoke;
pub mod token;
