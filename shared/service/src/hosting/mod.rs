//! Hosting for sale: sign-up for a vault, its payment, and the steps that set it up.

pub(crate) mod home_page;
pub(crate) mod new_vault;
pub(crate) mod payment;
pub mod provisioning;
