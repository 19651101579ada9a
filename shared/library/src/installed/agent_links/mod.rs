//! The links and copies that show installed skills in the agents' own folders.

pub(crate) mod copies;
pub(crate) mod entries;
pub(crate) mod record;
pub(crate) mod withdraw;
