//! Where skills are fetched from: everything of vault that asks a network for skills, and nothing that admits them.
//!
//! | module | holds |
//! |---|---|
//! | [`source`] | the grammar of what may stand after `vault add` |
//! | [`policy`] | `[sources]` of the owner's policy, asked before any request |
//! | [`fetcher`] | opening a source, listing its skills, taking one |
//! | [`compare`] | whether a source has something else now |
//! | [`git`], [`archive`], [`site`] | repositories, archives, sites with a well-known index |
//! | [`locks`] | lock files of other tools |
//! | [`find`] | where in a tree the skills are |
//!
//! What comes back is bytes that nobody has checked: the library gates and signs them.

pub mod archive;
pub mod compare;
mod error;
pub mod fetcher;
pub mod find;
pub mod git;
mod http;
pub mod locks;
mod market;
mod npm;
pub mod policy;
mod registry;
pub mod site;
pub mod source;
mod tokens;

pub use error::FetchError;
pub use fetcher::{Fetcher, Found, Opened, Settings};
pub use git::{GitSettings, is_commit as git_commit};
pub use http::HttpTimes;
pub use policy::SourcePolicy;
pub use source::{BadSource, GitSource, ParseOptions, Source};
pub use tokens::{BadToken, Tokens};
