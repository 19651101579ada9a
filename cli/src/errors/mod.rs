//! Failures of commands: the exit code for scripts, the stable error code for programs, the message
//! and the hint for people.
//!
//! Every failure states what happened, where, and what to do about it. Text from a network or a
//! file goes through [`clean`] before it is shown.

/// Builds a [`Failure`] from the name of an [`ErrorCode`] and a message, written as for `format!`.
macro_rules! fail {
    ($code:ident, $($message:tt)+) => {
        $crate::errors::Failure::new(
            $crate::errors::ErrorCode::$code,
            format_args!($($message)+).to_string(),
        )
    };
}

pub mod codes;
mod library;
mod publishing;

use std::{fmt, io::ErrorKind, path::Path};

use serde::Serialize;
use vault_format::credentials::hide_credentials;

pub use codes::{ErrorCode, FailureCode};

use crate::text::clean;

/// The exit codes of `vault`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(into = "u8")]
pub enum Exit {
    /// The command did what was asked (exit 0).
    Done,
    /// Any failure that has no exit code of its own (exit 1).
    Failed,
    /// Wrong usage, an invalid setting, or a question without a terminal (exit 2).
    Usage,
    /// A check found differences, or something waits for a decision of the user (exit 3).
    Differences,
    /// Not signed in, not admitted or not allowed (exit 4).
    NotAllowed,
    /// The gate or a policy rejected something (exit 5).
    Gate,
    /// A signature or a digest is wrong (exit 6).
    Integrity,
    /// The network or the service failed (exit 7).
    Network,
    /// The subscription for a hosted vault has lapsed (exit 8).
    Lapsed,
    /// Interrupted by the user (exit 130).
    Interrupted,
    /// The exit code of a skill's action, passed through.
    Action(u8),
}

impl Exit {
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

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        exit.code()
    }
}

/// A location in a file. Lines and columns count from 1.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Place {
    /// The file as the user named it.
    pub path: String,
    /// The line; `None` if only the file is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in characters, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl Place {
    /// Creates the location of a line, or of the whole file.
    pub fn new(path: &Path, line: impl Into<Option<u32>>) -> Self {
        Self {
            path: path.display().to_string(),
            line: line.into(),
            column: None,
        }
    }
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

/// The failure of a command, as it is printed for people or, with `--json`, for programs.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The stable error code for programs. It determines the exit code.
    pub code: FailureCode,
    /// The message: one sentence without a full stop.
    pub message: String,
    /// The hint: the command or step that fixes the problem.
    pub hint: Option<String>,
    /// Optional parts, boxed so that a `Result` with a failure stays small.
    more: Box<More>,
}

/// The optional parts of a failure.
#[derive(Clone, Debug, Default)]
struct More {
    place: Option<Place>,
    details: Vec<String>,
    excerpts: Vec<String>,
    data: Option<serde_json::Value>,
    missing_scope: Option<MissingScope>,
}

/// A sign-in that lacks scopes (rights) which its user can grant on a consent page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MissingScope {
    pub base: String,
    /// The name of the sign-in: the slug of a vault, or a name that begins with `@`.
    pub sign_in: String,
    /// The scopes to ask for, separated by blanks.
    pub scopes: String,
}

impl Failure {
    /// Creates a failure that has only its code and message; the methods below add the rest. The
    /// message shows no password of an address, which a user may have typed in a wrong place.
    pub fn new(code: impl Into<FailureCode>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: hide_credentials(&message.into()),
            hint: None,
            more: Box::default(),
        }
    }

    pub fn exit(&self) -> Exit {
        self.code.exit()
    }

    /// Creates the failure for a path that does not exist: exit 2.
    pub fn no_such_path(path: impl fmt::Display) -> Self {
        let path = clean(&path.to_string(), 400);
        fail!(SourceUnreadable, "no such file or folder: {path}")
    }

    /// Creates the failure for a file or folder that could not be read or written: exit 1. `doing`
    /// is a participle such as `reading`.
    pub fn io(doing: &str, path: impl AsRef<Path>, error: &std::io::Error) -> Self {
        let path = path.as_ref().display();
        Self::disk_failure(format!("{doing} {path} failed: {error}"), error)
    }

    /// Creates the failure for a disk error, with a hint if the disk is full.
    fn disk_failure(message: String, cause: &std::io::Error) -> Self {
        let failure = Self::new(ErrorCode::Io, message);
        let is_full = matches!(
            cause.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        );
        failure.hint_if(
            is_full.then_some(
                "free some space, then run the command again: existing data is unharmed",
            ),
        )
    }

    /// Sets the hint: the command or step that fixes the problem.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hide_credentials(&hint.into()));
        self
    }

    /// Sets the hint if there is one; otherwise keeps the current hint.
    #[must_use]
    pub fn hint_if(mut self, hint: Option<impl Into<String>>) -> Self {
        let hint = hint.map(|hint| hide_credentials(&hint.into()));
        self.hint = hint.or(self.hint.take());
        self
    }

    /// Sets the file, and the line if known, that the user must correct.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.more.place = Some(place);
        self
    }

    /// Appends lines that are shown below the message.
    #[must_use]
    pub fn details(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.more.details.extend(lines);
        self
    }

    /// Appends texts that only people see, below the message. Put the same facts into
    /// [`Failure::data`] for programs.
    #[must_use]
    pub fn excerpts(mut self, texts: impl IntoIterator<Item = String>) -> Self {
        self.more.excerpts.extend(texts);
        self
    }

    /// Sets the member `data` that `--json` prints for this failure.
    #[must_use]
    pub fn data(mut self, data: impl Serialize) -> Self {
        self.more.data = serde_json::to_value(data).ok();
        self
    }

    /// Sets the scopes that the sign-in lacks, if that is the cause. The main program then asks the
    /// user for them and runs the command again.
    #[must_use]
    pub fn missing_scope(mut self, missing: Option<MissingScope>) -> Self {
        self.more.missing_scope = missing;
        self
    }

    /// Returns the scopes that the sign-in lacks, if that is the cause.
    pub const fn wanted_scope(&self) -> Option<&MissingScope> {
        self.more.missing_scope.as_ref()
    }

    pub const fn place(&self) -> Option<&Place> {
        self.more.place.as_ref()
    }

    /// Returns the details below the message, such as the entries of a list.
    pub fn detail_lines(&self) -> &[String] {
        &self.more.details
    }

    /// Returns all lines below the message for people: the details and the excerpts.
    pub fn lines_for_people(&self) -> impl Iterator<Item = &str> {
        let texts = self.more.details.iter().chain(&self.more.excerpts);
        texts.flat_map(|text| text.lines())
    }

    /// Returns the member `data` that `--json` prints for this failure.
    pub const fn json_data(&self) -> Option<&serde_json::Value> {
        self.more.data.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Joins the messages of an error and its sources, leaving out repeated parts. Errors may quote
/// text of an untrusted host, so the result is cleaned for terminals and limited to 20 lines of
/// 1,000 characters each.
pub fn message_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let part = inner.to_string();
        // Many errors repeat their source in their own text.
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
        #[error("not a catalog: unknown variant `\u{1b}[2J\u{9b}1m`\nline 2{}", "x".repeat(5000))]
        struct Quoting;
        let text = message_chain(&Quoting);
        let start = "not a catalog: unknown variant `\\u{1b}[2J\\u{9b}1m`\nline 2xx";
        assert!(text.starts_with(start));
        assert!(text.chars().count() < 1100, "{}", text.len());
    }

    #[test]
    fn a_place_prints_as_compilers_print_it() {
        let mut place = Place::new(Path::new("SKILL.md"), None);
        assert_eq!(place.to_string(), "SKILL.md");
        place.line = Some(3);
        assert_eq!(place.to_string(), "SKILL.md:3");
        place.column = Some(7);
        assert_eq!(place.to_string(), "SKILL.md:3:7");
    }
}
