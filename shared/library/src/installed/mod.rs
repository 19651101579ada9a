//! What is installed: own skills and those of linked vaults, listed, searched and verified.

pub mod list;
pub mod place;
pub mod search;
pub mod upstream;
pub mod verify;
mod words;
