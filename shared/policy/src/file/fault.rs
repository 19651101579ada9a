//! The reasons to reject a policy, each with its position in the file.

use crate::toml_text::{Located, Step, TextError};
use vault_format::text::Position;

/// The reason to reject a policy. A fault in `policy.toml` has a position; one in an object has
/// none.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyError {
    /// The shape is wrong: a syntax error, an unknown or repeated member, or a value of another
    /// type.
    #[error("{}{message}", place(*.at))]
    Schema {
        /// The description of the fault, for people.
        message: String,
        /// The position in `policy.toml`; `None` for an object.
        at: Option<Position>,
    },
    /// The policy uses the name of a profile, group or MCP server that it does not define.
    #[error("{}{message}", place(*.at))]
    UnknownName {
        /// The description of the fault, for people.
        message: String,
        /// The position in `policy.toml`; `None` for an object.
        at: Option<Position>,
    },
    /// An expression is invalid or too large.
    #[error("{}{message}", place(*.at))]
    Regex {
        /// The description of the fault, for people.
        message: String,
        /// The position in `policy.toml`; `None` for an object.
        at: Option<Position>,
    },
}

fn place(at: Option<Position>) -> String {
    at.map(|at| format!("{at}: ")).unwrap_or_default()
}

impl PolicyError {
    /// Machine-readable class of the error: `policy_schema`, `policy_unknown_name` or
    /// `policy_regex`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Schema { .. } => "policy_schema",
            Self::UnknownName { .. } => "policy_unknown_name",
            Self::Regex { .. } => "policy_regex",
        }
    }

    /// The description of the fault, without the position.
    pub fn message(&self) -> &str {
        match self {
            Self::Schema { message, .. }
            | Self::UnknownName { message, .. }
            | Self::Regex { message, .. } => message,
        }
    }

    /// The position in `policy.toml`; `None` for an object.
    pub const fn position(&self) -> Option<Position> {
        match self {
            Self::Schema { at, .. } | Self::UnknownName { at, .. } | Self::Regex { at, .. } => *at,
        }
    }
}

impl From<TextError> for PolicyError {
    fn from(error: TextError) -> Self {
        Self::Schema {
            message: error.message,
            at: Some(error.at),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum FaultKind {
    Schema,
    UnknownName,
    Regex,
}

/// A fault and the path of keys to it, before its position in the text is looked up.
pub(super) struct PolicyFault {
    kind: FaultKind,
    message: String,
    steps: Vec<Step>,
}

impl PolicyFault {
    pub(super) fn new(kind: FaultKind, message: String, steps: &[Step]) -> Self {
        Self {
            kind,
            message,
            steps: steps.to_vec(),
        }
    }

    pub(super) fn into_error(self, text: Option<&Located<'_>>) -> PolicyError {
        let at = text.map(|text| text.position_of(&self.steps));
        let message = self.message;
        match self.kind {
            FaultKind::Schema => PolicyError::Schema { message, at },
            FaultKind::UnknownName => PolicyError::UnknownName { message, at },
            FaultKind::Regex => PolicyError::Regex { message, at },
        }
    }
}
