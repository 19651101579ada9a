//! Why a command failed: the exit code that scripts test, the stable word that programs test, the sentence and the hint that people read.
//!
//! Every failure says what happened, where, and what to do about it. Text that came from a network or a file is cleaned by [`crate::output::text::clean`] before it is shown.

use std::ops::{Deref, DerefMut};
use std::{borrow::Cow, fmt, io::ErrorKind, path::PathBuf};

use serde::Serialize;
use vault_library::{
    Damage, LockError, VaultError, keys::KeyError, links::LinkError, run::RunError,
};
use vault_skill::catalog::CatalogError;

use crate::output::text::clean;

/// The exit codes of `vault`, the whole table.
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
    /// What the process ends with.
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

/// A command that did not do what it was asked. Small to return: its parts lie on the heap.
#[derive(Clone, Debug)]
pub struct Failure(Box<Parts>);

/// What a [`Failure`] tells.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What the process ends with.
    pub exit: Exit,
    /// The stable word, lower snake case; a remote refusal keeps the word of the service.
    pub code: Cow<'static, str>,
    /// What happened, one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where, when it is about a file.
    pub place: Option<Place>,
    /// More lines, shown below the message: findings, lists.
    pub details: Vec<String>,
    /// What a program may want to know besides the sentence.
    pub data: Option<serde_json::Value>,
}

impl Failure {
    /// A failure with its exit code, stable word and sentence.
    pub fn new(exit: Exit, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            exit,
            code: code.into(),
            message: message.into(),
            hint: None,
            place: None,
            details: Vec::new(),
            data: None,
        }))
    }

    /// Wrong usage: exit 2.
    pub fn usage(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// A path that does not exist: exit 2.
    pub fn no_such_path(path: impl fmt::Display) -> Self {
        let path = clean(&path.to_string(), 400);
        Self::usage(
            "source_unreadable",
            format!("no such file or folder: {path}"),
        )
    }

    /// A failure without an exit code of its own: exit 1.
    pub fn failed(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, code, message)
    }

    /// A file or folder that could not be read or written: exit 1.
    pub fn io(doing: &str, path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        let path = path.into();
        Self::of_disk(format!("{doing} {} failed: {error}", path.display()), error)
    }

    /// A failure of the disk, with the way out where it is full.
    fn of_disk(message: String, cause: &std::io::Error) -> Self {
        let failure = Self::failed("io", message);
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
        self.place = Some(place);
        self
    }

    /// The same failure with more lines below its sentence.
    #[must_use]
    pub fn details(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(lines);
        self
    }

    /// The same failure with something for programs.
    #[must_use]
    pub fn data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl Deref for Failure {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let message = chain(&error);
        match error {
            VaultError::Missing(_) => Self::failed("no_vault", message)
                .hint("vault add <folder> makes one with its first skill"),
            VaultError::Format { .. } => Self::failed("vault_format", message),
            VaultError::Damaged { .. } => Self::new(Exit::Integrity, "vault_damaged", message),
            VaultError::KeysInside(_) => Self::usage("keys_inside_vault", message)
                .hint("set XDG_CONFIG_HOME, or --vault, to a folder outside the other"),
            VaultError::Lock(LockError::Busy { .. }) => Self::failed("vault_busy", message)
                .hint("another vault command is at work; try again"),
            VaultError::Key(error) => error.into(),
            VaultError::Lock(LockError::File(failed)) | VaultError::File(failed) => {
                Self::of_disk(message, &failed.cause)
            }
        }
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let message = chain(&error);
        match error {
            KeyError::Open { path, .. } => {
                let mode = if path.is_dir() { "700" } else { "600" };
                Self::new(Exit::NotAllowed, "key_open_to_others", message)
                    .hint(format!("chmod {mode} {}", path.display()))
            }
            KeyError::Missing(_) => Self::new(Exit::NotAllowed, "key_missing", message).hint(
                "a copied vault does not carry its keys: bring the key file, or work where it is",
            ),
            KeyError::Foreign(_) => Self::new(Exit::NotAllowed, "key_of_another_user", message),
            KeyError::Malformed { .. } | KeyError::Mismatch(_) => {
                Self::new(Exit::Integrity, "key_damaged", message)
            }
            KeyError::File(failed) => Self::of_disk(message, &failed.cause),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = chain(&error);
        match error {
            RunError::UnknownSkill(_) => Self::failed("skill_not_found", message),
            RunError::UnknownAction {
                skill, declared, ..
            } => {
                let failure = Self::failed("action_not_found", message);
                if declared.is_empty() {
                    failure.hint(format!("{skill} declares no actions at all"))
                } else {
                    let names: Vec<_> = declared.iter().map(ToString::to_string).collect();
                    failure.hint(format!("it declares: {}", names.join(", ")))
                }
            }
            RunError::Damaged { skill, damage } => Self::damaged(skill.as_str(), &damage),
            RunError::Start { .. } => Self::failed("action_not_started", message),
            RunError::Vault(error) => error.into(),
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let message = chain(&error);
        match error {
            LinkError::Vault(error) => error.into(),
            LinkError::Catalog(error) => error.into(),
            LinkError::Unknown(_) => {
                Self::failed("not_linked", message).hint("vault link <url>/v/<slug>")
            }
            LinkError::Fingerprint { .. } => {
                Self::new(Exit::Integrity, "fingerprint_mismatch", message)
                    .hint("nothing was pinned; ask the owner for the fingerprint (vault key show)")
            }
            LinkError::NotInCatalog(_) => Self::failed("skill_not_in_catalog", message)
                .hint("vault cloud pull without --skill installs everything that is published"),
            LinkError::OneNameOnly => {
                Self::usage("as_needs_one_skill", message).hint("--skill <name> --as <other-name>")
            }
            LinkError::Object { .. }
            | LinkError::Bundle { .. }
            | LinkError::NotCanonical(_)
            | LinkError::NotStaged(_) => Self::new(Exit::Integrity, "bundle_refused", message)
                .hint(
                    "nothing was changed; the service sent something that the owner did not sign",
                ),
        }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let failure = Self::new(
            Exit::Integrity,
            error.word(),
            format!("the catalog is refused: {}", chain(&error)),
        );
        match error {
            CatalogError::Key(_) => failure.hint(
                "if the owner confirms a new key: vault link <url>/v/<slug> --repin --expect-key <fingerprint>",
            ),
            CatalogError::Older { .. } => {
                failure.hint("the service shows an old state; installed skills stay as they are")
            }
            CatalogError::TwoCatalogs(_) => failure.hint(
                "the service shows different catalogs to different machines; tell the owner",
            ),
            CatalogError::Clock(_) => failure.hint(
                "check this machine's clock; an expired catalog is renewed by its owner: vault sync --cloud --renew",
            ),
            CatalogError::Audience | CatalogError::Slug => {
                failure.hint("link the address that the owner publishes for")
            }
            _ => failure,
        }
    }
}

impl Failure {
    /// An installed skill that is not what was signed: exit 6, or 1 where nobody tampered with it.
    pub fn damaged(skill: &str, damage: &Damage) -> Self {
        let exit = if damage.is_tampering() {
            Exit::Integrity
        } else {
            Exit::Failed
        };
        Self::new(
            exit,
            "skill_damaged",
            format!("{skill} is not what was signed: {}", chain(damage)),
        )
        .hint(format!("nothing of it was used; add or pull {skill} again"))
    }
}

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
