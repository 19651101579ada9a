//! The reasons to reject a policy, with the position of the fault.

use crate::toml_text::{Located, Step, TextError};
use vault_format::text::Position;

/// A reason to reject a policy, with the position in `policy.toml`; an object has none.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyError {
    /// The shape is wrong: a syntax error, an unknown or repeated member, or a value of another
    /// type.
    #[error("{}{message}", place(*.at))]
    Schema {
        /// The description of the fault.
        message: String,
        /// The position, if the policy is a text.
        at: Option<Position>,
    },
    /// A name is not defined.
    #[error("{}{message}", place(*.at))]
    UnknownName {
        /// The description of the fault.
        message: String,
        /// The position, if the policy is a text.
        at: Option<Position>,
    },
    /// An expression cannot be compiled, or not within its bounds.
    #[error("{}{message}", place(*.at))]
    Regex {
        /// The description of the fault.
        message: String,
        /// The position, if the policy is a text.
        at: Option<Position>,
    },
}

fn place(at: Option<Position>) -> String {
    at.map(|at| format!("{at}: ")).unwrap_or_default()
}

impl PolicyError {
    /// Class of the error: `policy_schema`, `policy_unknown_name` or `policy_regex`.
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

    /// Line and column in `policy.toml`, if the policy is a text.
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

/// A fault and the path to it, before the position in a text is looked up.
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
