//! The OAuth 2.1 protocol for apps and agents: discovery, registration, authorization, tokens and
//! revocation.
//!
//! Rule: decisions are pure functions ([`authorize`], [`register`], [`token`], [`revoke`]) from a
//! request and records to an answer and conditional writes. `endpoints` and `authorization` load
//! the records, commit the writes and send the answer, after a guard has admitted the request.
//! Every secret is random, shown once, and stored only as its SHA-256.
//!
//! Terms: a *grant* is the record of one consent. A *family* is the set of all tokens that come
//! from one grant; it ends as a whole. A *connection* records that a client has access to a
//! namespace; when an owner of the namespace ends it, all tokens of the client there end.
//!
//! This module never decides who a person is: `accounts` proves that.

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
