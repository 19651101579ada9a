//! Why a command failed: the exit code that scripts test, the stable word that programs test, the sentence and the hint that people read.
//!
//! Every failure says what happened, where, and what to do about it. Text that came from a network or a file is cleaned by [`crate::output::text::clean`] before it is shown.

pub mod codes;
mod library;

use std::{fmt, io::ErrorKind, path::PathBuf};

use serde::Serialize;

pub use codes::{ErrorCode, FailureCode};

use crate::output::text::clean;

/// Every exit code of `vault`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed for a reason that has no code of its own.
    Failed,
    /// Wrong usage, a setting that cannot be read, or a question without a terminal to ask it on.
    Usage,
    /// A check found differences.
    Differences,
    /// Not signed in, not admitted, not allowed.
    NotAllowed,
    /// The gate or a policy refused.
    Gate,
    /// A signature or a digest is wrong.
    Integrity,
    /// The network or the remote service.
    Network,
    /// The subscription lapsed.
    Lapsed,
    /// Interrupted.
    Interrupted,
    /// What a skill's action ended with, passed on.
    Action(u8),
}

impl Exit {
    /// The exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Differences => 3,
            Self::NotAllowed => 4,
            Self::Gate => 5,
            Self::Integrity => 6,
            Self::Network => 7,
            Self::Lapsed => 8,
            Self::Interrupted => 130,
            Self::Action(code) => code,
        }
    }
}

/// A place in a file, counted from 1.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Place {
    /// The file as the user named it.
    pub path: String,
    /// The line, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in characters, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        Ok(())
    }
}

/// Why a command did not succeed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The stable word for programs, which decides the exit code.
    pub code: FailureCode,
    /// What happened, one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Boxed, so that a `Result` with a failure stays small.
    more: Box<More>,
}

/// What most failures lack.
#[derive(Clone, Debug, Default)]
struct More {
    place: Option<Place>,
    details: Vec<String>,
    data: Option<serde_json::Value>,
}

impl Failure {
    /// A failure with its code and sentence.
    pub fn new(code: impl Into<FailureCode>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            more: Box::default(),
        }
    }

    /// What the process ends with.
    pub fn exit(&self) -> Exit {
        self.code.exit()
    }

    /// A path that does not exist: exit 2.
    pub fn no_such_path(path: impl fmt::Display) -> Self {
        let path = clean(&path.to_string(), 400);
        Self::new(
            ErrorCode::SourceUnreadable,
            format!("no such file or folder: {path}"),
        )
    }

    /// A file or folder that could not be read or written: exit 1.
    pub fn io(doing: &str, path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        let path = path.into();
        Self::of_disk(format!("{doing} {} failed: {error}", path.display()), error)
    }

    /// A failure of the disk, with the way out where it is full.
    fn of_disk(message: String, cause: &std::io::Error) -> Self {
        let failure = Self::new(ErrorCode::Io, message);
        match cause.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => failure.hint(
                "free some space, then give the command again: what was there before is unharmed",
            ),
            _ => failure,
        }
    }

    /// The same failure with the command or step that mends it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same failure with a hint, where there is one.
    #[must_use]
    pub fn hint_if(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint.take());
        self
    }

    /// The same failure with the place in a file that it is about.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.more.place = Some(place);
        self
    }

    /// The same failure with more lines below its sentence.
    #[must_use]
    pub fn details(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.more.details.extend(lines);
        self
    }

    /// The same failure with something for programs.
    #[must_use]
    pub fn data(mut self, data: serde_json::Value) -> Self {
        self.more.data = Some(data);
        self
    }

    /// The place in a file that it is about.
    pub const fn place(&self) -> Option<&Place> {
        self.more.place.as_ref()
    }

    /// The lines below its sentence: findings, lists.
    pub fn lines(&self) -> &[String] {
        &self.more.details
    }

    /// What a program may want to know besides the sentence.
    pub const fn facts(&self) -> Option<&serde_json::Value> {
        self.more.data.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The chain of an error and its sources in one line, each part once. Errors quote what they were about, and that may
/// come from a hostile host: nothing in the text can paint a terminal, and it ends somewhere.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = inner.source();
    }
    let lines = text.lines().take(20).map(|line| clean(line, 1000));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_quotes_a_stranger_paints_nothing() {
        #[derive(Debug, thiserror::Error)]
        #[error("not a key rotation: unknown variant `\u{1b}[2J\u{9b}1m`\nline 2{}", "x".repeat(5000))]
        struct Quoting;
        let text = chain(&Quoting);
        assert!(
            text.starts_with(
                "not a key rotation: unknown variant `\u{fffd}[2J\u{fffd}1m`\nline 2xx"
            )
        );
        assert!(text.chars().count() < 1100, "{}", text.len());
    }

    #[test]
    fn a_place_prints_as_compilers_print_it() {
        let mut place = Place {
            path: "SKILL.md".into(),
            ..Place::default()
        };
        assert_eq!(place.to_string(), "SKILL.md");
        place.line = Some(3);
        assert_eq!(place.to_string(), "SKILL.md:3");
        place.column = Some(7);
        assert_eq!(place.to_string(), "SKILL.md:3:7");
    }
}
