//! One difference between two states of a vault, as a line of text for people.

/// One line that describes a difference. The text holds no control or deceptive characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeLine {
    /// Whether something was added, changed or removed, or deserves a warning.
    pub kind: ChangeKind,
    /// The description, without a line break.
    pub text: String,
}

/// Whether a difference adds, changes or removes something, or lowers the protection of users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChangeKind {
    /// A skill, key, profile or other entry is new.
    Added,
    /// An entry is in both states and differs.
    Changed,
    /// An entry is only in the earlier state.
    Removed,
    /// Something that protects users differs and deserves a second look.
    Warning,
}

impl ChangeLine {
    /// Creates a line. The caller makes the text printable: it quotes what other people wrote.
    pub const fn new(kind: ChangeKind, text: String) -> Self {
        Self { kind, text }
    }
}
