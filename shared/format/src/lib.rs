//! The formats that vault signs, and their verification: names, hashes, keys, JSON, DSSE envelopes,
//! roots (the signed lists of a vault's keys), manifests, bundles, catalogs, drafts, and the
//! requests that devices sign.
//!
//! The crate has no input or output, no clock and no randomness: bytes and times come in as
//! parameters, values or errors go out. All input may come from a hostile host; no function panics
//! on it.

pub mod address;
pub mod bundle;
pub mod catalog;
pub mod count;
pub mod credentials;
pub mod draft;
pub mod dsse;
pub mod hash;
pub mod index;
pub mod json;
pub mod keys;
pub mod manifest;
pub mod manifest_changes;
pub mod name;
pub mod path;
pub mod provenance;
pub mod request;
pub mod root;
pub mod since;
pub mod text;
pub mod time;
