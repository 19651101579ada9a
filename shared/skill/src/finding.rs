//! What reading and gating a skill found, in a form that a person, a report and a signature can all use.
//!
//! A finding names the rule, says where, and says what to do. The same input gives the same findings in the same order.

use serde::Serialize;
use std::fmt;

/// A place in a text: line and column, both counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Position {
    /// The position of a line and a column, both counted from 1.
    pub const fn new(line: u32, column: u32) -> Self {
        Self { line, column }
    }

    /// The position of the byte at `offset` in `text`; the end of the text when the offset lies beyond it.
    pub fn of_offset(text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: saturating(before.matches('\n').count() + 1),
            column: saturating(before[line_start..].chars().count() + 1),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

fn saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Said, never in the way.
    Warning,
    /// A security flag: blocks while the gate is strict, a warning otherwise.
    Flag,
    /// The skill breaks the format: blocks always.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Flag => "flag",
            Self::Error => "error",
        })
    }
}

/// One thing that a rule found.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// Stable id of the rule, for example `description-short`.
    pub rule: &'static str,
    /// What it does to admission.
    pub level: Level,
    /// File it is about, as given; empty when it is about the skill as a whole. May be hostile text: escape it before printing.
    pub path: String,
    /// Line in that file from 1, where the rule looks at a place in a text.
    pub line: Option<u32>,
    /// Column in characters from 1, where there is a line.
    pub column: Option<u32>,
    /// What is the matter, in one sentence without control characters.
    pub message: String,
    /// What mends it, in one sentence; empty where there is nothing to do.
    pub hint: String,
}

impl Finding {
    /// A finding about the skill as a whole.
    pub fn new(rule: &'static str, level: Level, message: impl AsRef<str>) -> Self {
        Self {
            rule,
            level,
            path: String::new(),
            line: None,
            column: None,
            message: printable(message.as_ref()),
            hint: String::new(),
        }
    }

    /// The same finding, about one file.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The same finding, at a place in its file.
    #[must_use]
    pub fn on(mut self, position: Position) -> Self {
        self.line = Some(position.line);
        self.column = Some(position.column);
        self
    }

    /// The same finding with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.hint = printable(hint.as_ref());
        self
    }

    /// The position, where the finding has one.
    pub fn position(&self) -> Option<Position> {
        Some(Position::new(self.line?, self.column?))
    }
}

impl fmt::Display for Finding {
    /// One line: `SKILL.md:3:14: error: message (rule)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}:", printable(&self.path))?;
        }
        if let Some(position) = self.position() {
            write!(f, "{position}:")?;
        }
        if !self.path.is_empty() || self.line.is_some() {
            f.write_str(" ")?;
        }
        write!(f, "{}: {} ({})", self.level, self.message, self.rule)
    }
}

/// The text with every control, bidirectional and invisible character written as an escape.
///
/// Findings quote hostile names; a terminal must not obey what it is told about.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character)
            || matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}' | '\u{2029}')
        {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// The first characters of a text, quoted and printable, for use inside a message.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{}`", printable(&shown))
}

/// Whether a character is invisible or steers how its neighbours are shown: controls, direction overrides, tag characters, BOM.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{E0000}'..='\u{E007F}' | '\u{FEFF}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_lines_from_one() {
        let text = "aü\nß b\n";
        assert_eq!(Position::of_offset(text, 0), Position::new(1, 1));
        assert_eq!(Position::of_offset(text, 3), Position::new(1, 3));
        assert_eq!(Position::of_offset(text, 4), Position::new(2, 1));
        assert_eq!(Position::of_offset(text, 7), Position::new(2, 3));
        assert_eq!(
            Position::of_offset(text, 2),
            Position::new(1, 2),
            "inside a character: its start"
        );
        assert_eq!(Position::of_offset(text, 999), Position::new(3, 1));
    }

    #[test]
    fn a_message_cannot_steer_the_terminal() {
        let finding = Finding::new("path", Level::Error, "bad \u{1b}[31mname\u{202e}")
            .at("x\u{7}")
            .hint("a\nb");
        assert_eq!(finding.message, "bad \\u{1b}[31mname\\u{202e}");
        assert_eq!(finding.hint, "a\\u{a}b");
        assert!(!finding.to_string().chars().any(is_hidden));
    }

    #[test]
    fn long_quotes_are_cut() {
        let text = "ä".repeat(200);
        assert_eq!(quoted(&text).chars().count(), 83);
        assert_eq!(quoted("name"), "`name`");
    }

    #[test]
    fn a_finding_reads_as_one_line() {
        let finding = Finding::new("description-short", Level::Warning, "too short")
            .at("SKILL.md")
            .on(Position::new(3, 14));
        assert_eq!(
            finding.to_string(),
            "SKILL.md:3:14: warning: too short (description-short)"
        );
        assert_eq!(
            Finding::new("file-count", Level::Error, "too many").to_string(),
            "error: too many (file-count)"
        );
    }
}
