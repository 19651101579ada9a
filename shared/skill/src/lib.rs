//! The pure core of vault: names, hashes, keys, signed formats, gate, search.
//!
//! No input or output, no clock and no randomness: bytes and times come in as parameters, values or errors go out.
//! Whatever is parsed here may come from a hostile host; no function of this crate panics on its input.

pub mod address;
pub mod bundle;
pub mod catalog;
pub mod count;
pub mod dsse;
pub mod hash;
pub mod json;
pub mod keys;
pub mod manifest;
pub mod name;
pub mod path;
pub mod provenance;
pub mod request;
pub mod root;
pub mod time;

mod text;

// What a skill says, and what is made of it.
pub mod document;
pub mod draft;
pub mod finding;
pub mod gate;
pub mod index;
pub mod lint;
pub mod package;
pub mod policy;
pub mod profile;
pub mod report;
pub mod search;

mod toml_text;
