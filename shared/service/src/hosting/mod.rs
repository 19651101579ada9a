//! Vaults for sale: a person signs up for a hosted vault and pays for it, and the service sets it
//! up.
//!
//! Rule: each step is one commit and can be repeated, so an event of the payment provider, a page
//! or background work continues where the last one stopped. Only a signed event of the provider
//! confirms a payment; a page or a redirect of a browser never does.
//!
//! Terms: a *sign-up* is the record of a person's choice of a name, a plan and starter skills. Its
//! *reference* is a random id, which a payment names. A subscription is *bound* to a sign-up once a
//! payment with its reference was accepted.

pub(crate) mod home_page;
pub(crate) mod new_vault;
pub(crate) mod payment;
pub mod provisioning;
mod subscriptions;
