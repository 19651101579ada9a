//! Where skills are fetched from: everything of vault that asks a network for skills, and nothing that admits them.
//!
//! | module | holds |
//! |---|---|
//! | [`source`] | the grammar of what may stand after `vault add` |
//! | [`policy`] | `[sources]` of the owner's policy, checked before any request |
//! | `kinds` | one file for each kind of source, behind one trait |
//! | `access`, `opened` | what kinds of sources work with, and what they give |
//! | `fetcher` | opening a source, listing its skills, taking one |
//! | `compare` | whether a source has something else now |
//! | [`git`], [`archive`], `http` | running git, reading archives, requests |
//! | [`locks`] | lock files of other tools |
//! | [`find`] | the skills in a tree of files |
//!
//! The bytes that come back are unchecked: the library gates and signs them.

mod access;
pub mod archive;
mod compare;
mod error;
mod fetcher;
pub mod find;
pub mod git;
mod http;
mod kinds;
pub mod locks;
mod opened;
pub mod policy;
pub mod source;
mod tokens;

pub use access::{DEFAULT_CLAWHUB, DEFAULT_NPM, Fetcher, Settings, short};
pub use error::FetchError;
pub use git::{GitSettings, is_commit as git_commit};
pub use kinds::site;
pub use opened::{Found, Opened, by_name};
pub use policy::SourcePolicy;
pub use source::{BadSource, GitSource, ParseOptions, Source};
pub use tokens::{BadToken, Tokens};
pub use vault_http::Limits;
