//! Accounts of people: passwords, second factors, external sign-in, sessions, invitations, and the
//! pages on which a person manages them.
//!
//! Two rules hold in all of it. A failed sign-in takes the same time and gets the same answer
//! whether or not the address has an account. A change that could lock the owner of an account out
//! asks for fresh credentials: credentials entered within the last five minutes.
//!
//! Terms: a *proof* is a way in which a person signs in to an account (the password, or a
//! connection to the identity provider). A *half session* belongs to a browser whose first proof
//! was accepted and which still owes the code of the second factor. The *epoch* of an account is a
//! number that its sessions and tokens record; raising it ends all of them.
//!
//! This module issues no token to an app; `oauth` does, once a person has consented.

pub(crate) mod account_page;
pub(crate) mod apps_and_sessions;
pub(crate) mod audit;
pub mod bootstrap;
pub(crate) mod confirm_page;
pub(crate) mod guard;
mod hash_queue;
pub(crate) mod invitations;
pub(crate) mod invite_link;
pub(crate) mod memberships;
pub(crate) mod passkey;
pub mod password;
pub(crate) mod password_page;
pub(crate) mod permits;
pub(crate) mod provider;
pub(crate) mod second_factor;
pub(crate) mod second_factor_page;
pub(crate) mod session;
pub mod sign_in;
pub(crate) mod sign_in_page;
mod since_last_sign_in;
pub mod throttle;

pub use memberships::load_members as memberships_of;
