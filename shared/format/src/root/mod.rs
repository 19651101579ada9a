//! The root of trust of a vault: a chain of signed, numbered documents (root versions) that say
//! which keys may publish and which may change the keys.
//!
//! Version 1 gives the vault its id. Each later version is signed by the root role of the version
//! before and by its own. A [`RootChain`] is verified; a [`RootList`] comes from a host and is not.
//! [`judge_roots`] decides whether such a list replaces what a reader knows, for all readers alike:
//!
//! - The owner makes versions with [`RootEdit`]: [`RootEdit::begin_first`] or
//!   [`RootEdit::begin_after`], then the changes, then [`RootEdit::sign`], which returns the longer
//!   chain, or fails where a reader would reject it. If two different versions with one number were
//!   signed (a fork), [`heal_fork`] makes one of the chains longer, so that every reader moves to
//!   it.
//! - A device keeps a [`RootState`] for each vault. It judges the list of a catalog file, stores
//!   the state if it changed, and only then judges the catalog.
//! - The service judges the same way, and stores the state together with the catalog that it
//!   accepts.
//! - A library loads its own state with [`RootState::load`], which verifies it again.
//!   [`RootState::standing`] tells what a key may do.
//! - An archive carries a list. Its reader judges it against its own state of that vault or an
//!   expected [`VaultFingerprint`].
//!
//! No function here reads a clock. Whether a root version has expired is judged together with a
//! catalog.

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
