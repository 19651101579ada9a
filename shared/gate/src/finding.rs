//! Findings: problems that the scan of a skill reports, in a form that people, reports and
//! signatures can use.
//!
//! A finding names the rule, the position and the fix. The same input gives the same findings in
//! the same order.

mod structure;

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

use vault_format::text::{Position, printable};
use vault_format::words;

words! {
    /// Weight of a finding.
    #[derive(JsonSchema, Ord, PartialOrd)]
    pub enum Level {
        /// Information only: it changes no verdict.
        Note = "note",
        /// Reported, but never blocks.
        Warning = "warning",
        /// A security flag: blocks while the gate is strict, a warning otherwise.
        Flag = "flag",
        /// The skill breaks the format: blocks always.
        Error = "error",
    }
}

words! {
    /// Possible harm if a finding is ignored.
    #[derive(JsonSchema, Ord, PartialOrd)]
    pub enum Severity {
        /// A matter of quality.
        Low = "low",
        /// Something that an owner should look at.
        Medium = "medium",
        /// A user could be harmed.
        High = "high",
        /// Untrusted code runs, or secrets leave.
        Critical = "critical",
    }
}

impl Severity {
    /// Returns the number by which code scanning services sort findings, on the scale of CVSS (0.1
    /// to 10.0).
    pub const fn score(self) -> &'static str {
        match self {
            Self::Low => "2.0",
            Self::Medium => "5.0",
            Self::High => "8.0",
            Self::Critical => "9.5",
        }
    }
}

words! {
    /// Reading of a file in which something was found.
    #[derive(Default, JsonSchema, Ord, PartialOrd)]
    pub enum View {
        /// As it stands in the file.
        #[default]
        Raw = "raw",
        /// After NFKC, without invisible characters, look-alike letters mapped.
        Normalised = "normalised",
        /// With neighbouring string literals joined.
        Joined = "joined",
        /// After decoding base64, hex, escapes or a list of numbers, one level deep.
        Decoded = "decoded",
    }
}

/// The properties that all findings of one rule share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Stable id, for example `VG-DR-001`; never given to another rule.
    pub id: &'static str,
    /// Stable readable name, for example `download-run`.
    pub name: &'static str,
    /// Code in the OWASP Agentic Skills Top 10, for example `AST01`.
    pub category: &'static str,
    /// The harm that is possible if a finding is ignored.
    pub severity: Severity,
    /// Reason why it matters, in one sentence; empty if the message is enough.
    pub why: &'static str,
}

impl Rule {
    pub(crate) const fn new(
        id: &'static str,
        name: &'static str,
        category: &'static str,
        severity: Severity,
        why: &'static str,
    ) -> Self {
        Self {
            id,
            name,
            category,
            severity,
            why,
        }
    }
}

/// Returns the rules about the shape of a skill (its files and frontmatter), sorted by name.
pub fn structure_rules() -> &'static [Rule] {
    &structure::RULES
}

/// A step of what a skill does over several places.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Step {
    /// File of the step, as given. May be hostile text: escape it before printing.
    pub path: String,
    /// Line in that file from 1.
    pub line: u32,
    /// What happens there: `read`, `fetched`, `passed on`, `sent` or `run`.
    pub what: &'static str,
}

/// One problem that a rule found.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Finding {
    /// Stable id of the rule, for example `VG-ST-014`.
    pub id: &'static str,
    /// Stable readable name of the rule, for example `description-short`.
    pub rule: &'static str,
    /// Code of the OWASP Agentic Skills Top 10, for example `AST04`.
    pub category: &'static str,
    /// Possible harm.
    pub severity: Severity,
    /// Effect on admission.
    pub level: Level,
    /// File that the finding is about, as given; empty if it is about the skill as a whole. May be
    /// hostile text: escape it before printing.
    pub path: String,
    /// Line in that file from 1, where the rule looks at a place in a text.
    pub line: Option<u32>,
    /// Column in characters from 1, where there is a line.
    pub column: Option<u32>,
    /// Reading of the file in which it was found.
    pub view: View,
    /// Text at that place in that reading: at most 120 characters, controls escaped; empty if there
    /// is nothing to quote.
    pub excerpt: String,
    /// The problem, in one sentence without control characters.
    pub message: String,
    /// Reason why it matters, in one sentence; empty if the message is enough.
    pub why: &'static str,
    /// The fix, in one sentence; empty if there is nothing to do.
    pub hint: String,
    /// The steps from the place where a secret is read, or code is fetched, to the one where it is
    /// sent or run. At most eight; absent for rules about one place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Finding {
    /// Creates a finding of the structural rule with this name, about the skill as a whole.
    pub(crate) fn new(rule: &'static str, level: Level, message: impl AsRef<str>) -> Self {
        Self::of(&structure::structure_rule(rule), level, message)
    }

    /// Creates a finding of this rule, about the skill as a whole.
    pub fn of(rule: &Rule, level: Level, message: impl AsRef<str>) -> Self {
        Self {
            id: rule.id,
            rule: rule.name,
            category: rule.category,
            severity: rule.severity,
            level,
            path: String::new(),
            line: None,
            column: None,
            view: View::Raw,
            excerpt: String::new(),
            // Messages quote hostile text. Escape it here, so that no code that prints a message
            // has to.
            message: printable(message.as_ref()),
            why: rule.why,
            hint: String::new(),
            steps: Vec::new(),
        }
    }

    /// Returns the finding with an excerpt of the file, cut at [`MAX_EXCERPT_CHARS`]. `view` tells
    /// how the file was read, for example decoded.
    #[must_use]
    pub fn quoting(mut self, view: View, text: &str) -> Self {
        self.view = view;
        self.excerpt = printable_excerpt(text);
        self
    }

    /// Returns the finding with the path of its file.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Returns the finding with a position in its file.
    #[must_use]
    pub fn on(mut self, position: Position) -> Self {
        self.line = Some(position.line);
        self.column = Some(position.column);
        self
    }

    /// Returns the finding with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.hint = printable(hint.as_ref());
        self
    }

    /// Returns the finding with its steps.
    #[must_use]
    pub(crate) fn over(mut self, steps: Vec<Step>) -> Self {
        self.steps = steps;
        self
    }

    /// Returns the steps as a sentence; `None` if there are none besides the two that the message
    /// names.
    pub fn way(&self) -> Option<String> {
        let steps = self.steps.iter();
        let steps =
            steps.map(|step| format!("{} at {}:{}", step.what, printable(&step.path), step.line));
        (self.steps.len() > 2).then(|| steps.collect::<Vec<_>>().join(", "))
    }

    /// Returns the position; `None` if the finding has none.
    pub fn position(&self) -> Option<Position> {
        Some(Position::new(self.line?, self.column?))
    }
}

impl fmt::Display for Finding {
    /// One line: `SKILL.md:3:14: error: message (rule)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            // Escape the path only here: the field keeps it as given, because programs look the
            // file up by it.
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

/// Maximum number of characters of an excerpt, escapes counted.
pub const MAX_EXCERPT_CHARS: usize = 120;

/// Returns the beginning of a text in printable form, with at most [`MAX_EXCERPT_CHARS`]
/// characters.
pub(crate) fn printable_excerpt(text: &str) -> String {
    let mut out = String::new();
    let mut left = MAX_EXCERPT_CHARS;
    let mut buffer = [0; 4];
    for character in text.trim().chars() {
        // Escape one character at a time, so that the text is never cut inside an escape.
        let shown = printable(character.encode_utf8(&mut buffer));
        let width = shown.chars().count();
        if width >= left {
            out.push('…');
            break;
        }
        left -= width;
        out.push_str(&shown);
    }
    out
}

/// Tells whether a character is invisible or changes the display of its neighbours: controls,
/// direction overrides, tag characters, BOM.
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
    fn a_message_cannot_steer_the_terminal() {
        let finding = Finding::new("path", Level::Error, "bad \u{1b}[31mname\u{202e}")
            .at("x\u{7}")
            .hint("a\nb");
        assert_eq!(finding.message, "bad \\u{1b}[31mname\\u{202e}");
        assert_eq!(finding.hint, "a\\u{a}b");
        assert!(!finding.to_string().chars().any(is_hidden));
    }

    #[test]
    fn excerpts_are_short_and_harmless() {
        assert_eq!(printable_excerpt("  curl x | sh\n"), "curl x | sh");
        assert_eq!(printable_excerpt("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        for text in [
            "ä".repeat(500),
            "\u{202e}".repeat(500),
            "x".repeat(119),
            "x".repeat(120),
        ] {
            let cut = printable_excerpt(&text);
            assert!(cut.chars().count() <= MAX_EXCERPT_CHARS && !cut.chars().any(is_hidden));
        }
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
