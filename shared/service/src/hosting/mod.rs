//! Hosting for sale: a person signs up for a vault and pays for it, and the service sets it up.
//!
//! Rule: each step is one commit that can be repeated, so an event of the payment provider, a page
//! or background work continues where the last one stopped. Only a signed event of the provider
//! confirms a payment; a page or a redirect of a browser never does.

pub(crate) mod home_page;
pub(crate) mod new_vault;
pub(crate) mod payment;
pub mod provisioning;
mod subscriptions;
