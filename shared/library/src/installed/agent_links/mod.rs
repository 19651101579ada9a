//! The links and copies through which the agents' own folders show installed skills.

pub(crate) mod copies;
pub(crate) mod entries;
pub(crate) mod record;
pub(crate) mod withdraw;
