//! A difference between two states of a vault, as one line of text.

/// One line that describes a difference. The text holds no control or deceptive characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeLine {
    /// The kind of the difference.
    pub kind: ChangeKind,
    /// The description, in one line.
    pub text: String,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChangeKind {
    /// Something is new.
    Added,
    /// Something differs.
    Changed,
    /// Something is no longer there.
    Removed,
    /// Something that protects users differs and deserves a second look.
    Warning,
}

impl ChangeLine {
    /// Creates a line. The text must be printable: the caller quotes what others wrote.
    pub const fn new(kind: ChangeKind, text: String) -> Self {
        Self { kind, text }
    }
}
