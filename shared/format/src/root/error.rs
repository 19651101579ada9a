//! The reasons to reject a list of root versions, and the warnings about a chain that counts.

use crate::dsse::EnvelopeError;
use crate::json::JsonError;

/// A reason to reject a list of root versions.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The list has no version.
    #[error("the list of root versions is empty")]
    Empty,
    /// A version breaks a rule, or lacks required signatures.
    #[error("root version {version} is not valid: {reason}")]
    Invalid {
        /// The version's place in the list, from 1.
        version: u64,
        /// The rule that it breaks.
        reason: InvalidRoot,
    },
    /// A version has a format that this program does not know.
    #[error("root version {version} needs a newer version of vault")]
    NewerVault {
        /// The version's place in the list, from 1.
        version: u64,
    },
    /// The list begins with another version 1 than the known one.
    #[error("this is not the vault that is known here")]
    VaultChanged,
    /// No version of the chain has the expected fingerprint.
    #[error("no root version of the vault has the fingerprint {0}")]
    NotExpected(super::VaultFingerprint),
    /// Both chains are valid, and neither may replace the other.
    #[error("two different root versions {version} are signed; the known one stays in force")]
    Forked {
        /// The first version that differs.
        version: u64,
    },
    /// A catalog names a version that the chain does not have.
    #[error("the catalog names a root version {version} that is not in the vault's chain")]
    NotInChain {
        /// The number that it names.
        version: u64,
    },
    /// An archive is read without a pin and without an expected fingerprint.
    #[error("this machine does not know the vault; give the fingerprint that you expect")]
    ExpectKeyNeeded,
    /// The chain ends before a version that is known to exist.
    #[error("the root versions end at {shown}, before the known version {known}")]
    RolledBack {
        /// The newest version shown.
        shown: u64,
        /// A later version that is known.
        known: u64,
    },
}

impl RootError {
    /// The machine-readable code.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::Empty | Self::Invalid { .. } | Self::NotInChain { .. } => "root_invalid",
            Self::ExpectKeyNeeded => "expect_key_needed",
            Self::NewerVault { .. } => "newer_vault",
            Self::VaultChanged | Self::NotExpected(_) => "vault_changed",
            Self::Forked { .. } => "root_forked",
            Self::RolledBack { .. } => "root_rolled_back",
        }
    }
}

/// The rule that a root version breaks.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRoot {
    /// Not strict JSON of the right shape.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Not an envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A rule of the document or of its place in the chain.
    #[error("{0}")]
    Rule(&'static str),
}

/// A warning about a chain that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RootWarning {
    /// The chain replaces another one that was known here.
    HistoryDiffers,
    /// The root role has changed since the version with the expected fingerprint.
    RoleChanged,
}

impl RootWarning {
    /// The machine-readable code.
    pub const fn warning_code(self) -> &'static str {
        match self {
            Self::HistoryDiffers => "root_history_differs",
            Self::RoleChanged => "root_role_changed",
        }
    }
}
