//! The OAuth 2.1 protocol for apps and agents: discovery, registration, authorization, tokens and
//! revocation.
//!
//! Rule: decisions are pure functions ([`authorize`], [`register`], [`token`], [`revoke`]) from
//! requests and records to an answer and conditional writes. `endpoints` and `authorization` read,
//! ask, write and answer, once a guard has admitted the request. Every secret is random, shown
//! once, and stored by its SHA-256.
//!
//! The room never decides who a person is: `accounts` proves that.

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
