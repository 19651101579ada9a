//! The root of trust of a vault: a chain of signed, numbered documents that define the rights of
//! keys.
//!
//! Version 1 gives the vault its id. Each later version is signed by the root role of the version
//! before and by its own. A [`RootChain`] is verified; a [`RootList`] is not verified yet.
//! [`judge_roots`] decides whether a shown list replaces what a reader knows, for all readers
//! alike:
//!
//! - The owner makes versions with [`RootEdit`]: [`RootEdit::begin_first`] or
//!   [`RootEdit::begin_after`], then the changes, then [`RootEdit::sign`], which returns the longer
//!   chain, or fails where a reader would refuse it. [`heal_fork`] ends a fork.
//! - A device keeps a [`RootState`] for each vault. It judges the list of a catalog file, stores
//!   the state when it was taken, and only then judges the catalog.
//! - The service judges the same way, and stores the state together with the catalog that it
//!   accepts.
//! - A library loads its own state with [`RootState::load`], which verifies it anew.
//!   [`RootState::standing`] returns the standing of a key.
//! - An archive carries a list; its reader judges it against a pin or an expected
//!   [`VaultFingerprint`].
//!
//! No function here reads a clock. Whether a root has expired is judged together with a catalog.

mod chain;
mod document;
mod error;
mod ids;
mod judge;
mod key_request;
mod names;
mod recovery;
mod standing;
mod write;

pub use chain::{MAX_CHAIN_BYTES, PAYLOAD_TYPE, RootChain, RootList, RootVersion};
pub use document::{
    KeyEntry, MAX_KEYS, MAX_LIFETIME_DAYS, MAX_PAYLOAD_BYTES, MAX_RELEASE_KEYS, MAX_REVOKED,
    MAX_ROOT_KEYS, MAX_THRESHOLD, MAX_VERSION, RevokedKey, Role, RootDocument, SCHEMA,
};
pub use error::{InvalidRoot, RootError, RootWarning};
pub use ids::{BadFingerprint, BadVaultId, KeyFingerprint, KeyUse, VaultFingerprint, VaultId};
pub use judge::{JudgedRoots, RootState, judge_archive, judge_roots};
pub use key_request::{KeyRequest, KeyRequestError, MAX_KEY_REQUEST_BYTES};
pub use names::{BadKeyName, DeceptiveKeyName, KeyName, MAX_NAME_CHARS};
pub use recovery::{RecoveryFile, RecoveryFileError};
pub use standing::{KeyStanding, SignerRefusal, SkillPlace};
pub use write::{
    RESERVED_BYTES, RESERVED_VERSIONS, RootBudget, RootEdit, RootWriteError, heal_fork,
};
