//! The reasons to reject a list of root versions, and the warnings about a list that is accepted.

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
        /// Position of the version in the list, from 1.
        version: u64,
        /// The rule that the version breaks.
        reason: InvalidRoot,
    },
    /// A version has a format that this program does not know.
    #[error("root version {version} needs a newer version of vault")]
    NewerVault {
        /// Position of the version in the list, from 1.
        version: u64,
    },
    /// The list begins with another version 1 than the one that the reader knows, so it is another
    /// vault.
    #[error("this is not the vault that is known here")]
    VaultChanged,
    /// No version of the chain has the fingerprint that the reader expects.
    #[error("no root version of the vault has the fingerprint {0}")]
    NotExpected(super::VaultFingerprint),
    /// The list and the reader's chain are both valid and differ, and neither may replace the
    /// other.
    #[error("two different root versions {version} are signed; the known one stays in force")]
    Forked {
        /// The first version that differs.
        version: u64,
    },
    /// A catalog names a root version that the chain does not have.
    #[error("the catalog names a root version {version} that is not in the vault's chain")]
    NotInChain {
        /// The number that the catalog names.
        version: u64,
    },
    /// An archive is read by a machine that does not know the vault, and no fingerprint was given.
    #[error("this machine does not know the vault; give the fingerprint that you expect")]
    ExpectKeyNeeded,
    /// The list ends before a version that the reader knows to exist: the host withholds versions.
    #[error("the root versions end at {shown}, before the known version {known}")]
    RolledBack {
        /// Number of the newest version in the list.
        shown: u64,
        /// Number of a later version that the reader knows.
        known: u64,
    },
}

impl RootError {
    /// The machine-readable code of the error.
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

/// What is wrong with a root version.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRoot {
    /// The payload is not strict JSON of the right shape.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The version is not an envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The document, or its place in the chain, breaks this rule.
    #[error("{0}")]
    Rule(&'static str),
}

/// A warning about a list of root versions that is accepted nevertheless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RootWarning {
    /// The accepted chain replaces another one that the reader knew (a fork was settled).
    HistoryDiffers,
    /// The keys that may change the keys are others than at the version with the expected
    /// fingerprint.
    RoleChanged,
}

impl RootWarning {
    /// The machine-readable code of the warning.
    pub const fn warning_code(self) -> &'static str {
        match self {
            Self::HistoryDiffers => "root_history_differs",
            Self::RoleChanged => "root_role_changed",
        }
    }
}
