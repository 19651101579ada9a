//! Fetches skills from their sources. All access to repositories, registries and sites of third
//! parties happens here. This crate adds no skill to a vault.
//!
//! | module | contents |
//! |---|---|
//! | [`source`] | the grammar of the sources that `vault add` accepts |
//! | [`policy`] | `[sources]` of the owner's policy, checked before any request |
//! | `kinds` | the kinds of sources behind one trait |
//! | `access`, `opened` | what every kind of source receives, and what it returns |
//! | `fetcher` | opening a source, listing its skills, downloading one |
//! | `compare` | detecting upstream changes |
//! | [`git`], [`archive`], `http` | running git, reading archives, HTTP requests |
//! | [`locks`] | lock files of other tools |
//! | [`requirements`] | the skills that a skill requires, and which skills of a project need which |
//! | `find`, `listing` | finding the skills in a tree of files, and the choice among them |
//!
//! The files that it returns are unchecked. The vault library checks and signs them.

mod access;
pub mod archive;
mod compare;
mod error;
mod fetcher;
mod find;
pub mod git;
mod http;
mod kinds;
mod listing;
pub mod locks;
mod opened;
pub mod policy;
mod proxy;
pub mod requirements;
pub mod source;
mod tokens;

pub use access::{DEFAULT_CLAWHUB, DEFAULT_NPM, Fetcher, Settings, short_commit};
pub use error::{CERTIFICATE_HINT, FetchError, GitFault};
pub use git::{GitSettings, HiddenTexts, is_commit as git_commit};
pub use kinds::search::{MAX_RESULTS, RegistryResult, RegistryResults};
pub use kinds::{Part, check_address, find_link, list_folder, site};
pub use listing::{
    Choice, ChoiceError, DEFAULT_MAX_SKILLS, Listing, MAX_LISTED, OfferedSkill, Selection,
};
pub use opened::Opened;
pub use policy::SourcePolicy;
pub use proxy::Proxy;
pub use source::{BadSource, GitSource, ParseOptions, Source, is_loopback};
pub use tokens::{BadToken, Tokens};
pub use vault_gate::skill_folders::{LeftOut, LeftOutReason};
pub use vault_http::Limits;
