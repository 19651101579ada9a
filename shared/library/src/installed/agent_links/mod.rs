//! The links and copies by which the agents' own folders show installed skills, and the record of
//! these folders.

pub(crate) mod copies;
pub(crate) mod entries;
pub(crate) mod record;
pub(crate) mod withdraw;
