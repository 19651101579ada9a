//! The form of the scanner's rules. A rule is data, with a small function where regular expressions
//! are not enough.

use crate::finding::{Rule, Severity};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

/// Kinds of places in a text, as bits, so that a rule can name several.
pub(crate) mod place {
    /// The frontmatter.
    pub const FRONT: u16 = 1;
    /// A paragraph or list item.
    pub const PROSE: u16 = 1 << 1;
    /// A heading.
    pub const HEAD: u16 = 1 << 2;
    /// A row of a table.
    pub const TABLE: u16 = 1 << 3;
    /// A shell script, a fenced block of a shell, or one without a language.
    pub const SHELL: u16 = 1 << 4;
    /// A script or fenced block of another programming language.
    pub const CODE: u16 = 1 << 5;
    /// JSON, YAML, TOML.
    pub const DATA: u16 = 1 << 6;
    /// A comment in code.
    pub const COMMENT: u16 = 1 << 7;
    /// Text that agents read and people do not see, such as a comment in Markdown.
    pub const HIDDEN: u16 = 1 << 8;
    /// Text that was decoded.
    pub const DECODED: u16 = 1 << 9;
    /// A fenced block without a language, or of plain text.
    pub const PLAIN: u16 = 1 << 10;
    /// All of them.
    pub const ANY: u16 = u16::MAX;
}

/// The stretch of text in which all signals of a rule must stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// One command, statement, sentence or list item.
    Statement,
    /// One fenced block, paragraph, or top-level definition of a script.
    Block,
    /// Everything below one heading.
    Section,
}

/// Effect of a hit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Act {
    /// Blocks if the gate is strict, and warns otherwise.
    Block,
    /// Warns, whatever else is found.
    Warn,
    /// Adds points; the hints of a skill become warnings once they add up to
    /// `scan::total::HINT_THRESHOLD`.
    Hint(u32),
}

/// A rule over text.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub(crate) struct ScanRule {
    /// Properties that all its findings share.
    pub rule: Rule,
    /// Effect of a hit.
    pub act: Act,
    /// Scope in which all signals must stand together.
    pub scope: Scope,
    /// Kinds of places in which the rule looks, as bits of [`place`].
    pub places: u16,
    /// Groups of words; the scope must contain one word of each. The words of all rules are found
    /// in one pass over the text.
    pub needs: &'static [&'static [&'static str]],
    /// Expressions that must all match in the scope; the first one gives the place of the finding.
    pub all: &'static [&'static str],
    /// Expressions that lower a flag to a warning if one of them matches in the statement that
    /// holds the match. A word elsewhere changes nothing.
    pub eases: &'static [&'static str],
    /// Like `eases`, for conditions that an expression cannot state.
    pub eased: Option<fn(&Seen<'_>) -> bool>,
    /// If not empty, one of these must match in the surrounding block; otherwise a flag is lowered
    /// to a warning.
    pub second: &'static [&'static str],
    /// Whether the value that the first expression matches must be passed on, by names, to
    /// something that sends it; otherwise a flag is lowered to a warning.
    pub is_flow: bool,
    /// Whether the rule is about something that is fetched to be run; if it comes from the
    /// publisher of the skill, a flag is lowered to a warning.
    pub installer: bool,
    /// Final check of a match: returns the offset of the hit in the scope, or `None` to drop it.
    pub check: Option<fn(&Seen<'_>) -> Option<usize>>,
    /// Returns text that the message adds to the matched words.
    pub detail: Option<fn(&Seen<'_>) -> Option<String>>,
    /// Whether the rule is about shell commands. In code of another language, a command counts only
    /// where something starts a process.
    pub command: bool,
    /// Whether a hit in a quotation blocks too, because the text is never a mere example.
    pub literal: bool,
    /// The problem, in one sentence.
    pub message: &'static str,
    /// Advice to the author, worded to follow "ask its author to".
    pub mend: &'static str,
    /// Examples in which the rule must find something; a first line `@path` gives the file's name.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub bad: &'static [&'static str],
    /// Examples in which it must find nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub good: &'static [&'static str],
}

impl ScanRule {
    /// Returns the advice for the person who installs the skill.
    pub(crate) fn advice(&self) -> String {
        format!("ask its author to {}", self.mend)
    }

    /// Returns the kinds of places in which the rule looks. A rule about paragraphs covers headings
    /// and tables too.
    pub(crate) const fn places_with_headings(&self) -> u16 {
        // An instruction in a heading or a table cell works on an agent like one in a paragraph.
        if self.places & place::PROSE == 0 {
            self.places
        } else {
            self.places | place::HEAD | place::TABLE
        }
    }
}

/// Whether a word stands in a text.
pub(crate) fn has(text: &[u8], word: impl AsRef<[u8]>) -> bool {
    position(text, word).is_some()
}

/// Returns the offset of the first occurrence of a word. The word must not be empty.
pub(crate) fn position(text: &[u8], word: impl AsRef<[u8]>) -> Option<usize> {
    let word = word.as_ref();
    text.windows(word.len()).position(|window| window == word)
}

/// Returns a text with every occurrence of one word replaced. The word must not be empty.
pub(crate) fn replace(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = position(rest, from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to.as_bytes());
        rest = &rest[at + from.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// A match of a rule's first expression, as the rule's functions get it.
pub(crate) struct Seen<'a> {
    /// The scope's text, lower case.
    pub text: &'a [u8],
    /// Range that the first expression matched.
    pub first: std::ops::Range<usize>,
    /// Statement that holds the match.
    pub statement: &'a [u8],
    /// Kinds of places in the scope.
    pub place: u16,
}

impl Seen<'_> {
    /// Returns the text that the first expression matched.
    pub(crate) fn matched(&self) -> &[u8] {
        &self.text[self.first.clone()]
    }
}

/// Whether the statement is a build step of a container (`RUN …`), which is no command of a shell.
pub(crate) fn is_container_build(seen: &Seen<'_>) -> bool {
    seen.place & place::PROSE == 0 && seen.statement.trim_ascii_start().starts_with(b"run ")
}

/// Template for rules: blocks, looks at statements, in every kind of place.
pub(crate) const RULE: ScanRule = ScanRule {
    rule: Rule {
        id: "",
        name: "",
        category: "AST01",
        severity: Severity::High,
        why: "",
    },
    act: Act::Block,
    scope: Scope::Statement,
    places: place::ANY,
    needs: &[],
    all: &[],
    eases: &[],
    eased: None,
    second: &[],
    is_flow: false,
    installer: false,
    check: None,
    detail: None,
    command: false,
    literal: false,
    message: "",
    mend: "",
    bad: &[],
    good: &[],
};

/// A regular expression that is compiled on first use, because most skills need few of them.
pub(crate) struct Lazy {
    pattern: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

impl Lazy {
    pub(crate) const fn new(pattern: &'static str) -> Self {
        Self {
            pattern,
            compiled: OnceLock::new(),
        }
    }

    fn regex(&self) -> Option<&Regex> {
        self.compiled
            .get_or_init(|| {
                RegexBuilder::new(self.pattern)
                    // Expressions name single bytes of a character (`\xe2`), which in Unicode mode
                    // would be code points.
                    .unicode(false)
                    .size_limit(4 << 20)
                    // With a lower limit, long expressions give up their automaton, and matching
                    // them becomes much slower.
                    .dfa_size_limit(16 << 20)
                    .build()
                    // An expression that does not compile matches nothing; a test compiles all of
                    // them.
                    .ok()
            })
            .as_ref()
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text))
    }

    pub(crate) fn find(&self, text: &[u8]) -> Option<std::ops::Range<usize>> {
        self.regex()?.find(text).map(|found| found.range())
    }

    /// Returns the first match that begins at or after an offset.
    pub(crate) fn find_at(&self, text: &[u8], from: usize) -> Option<std::ops::Range<usize>> {
        // Searching a slice instead would hide the byte before it from anchors and word boundaries.
        self.regex()?.find_at(text, from).map(|found| found.range())
    }

    #[cfg(test)]
    pub(crate) fn compiles(&self) -> bool {
        self.regex().is_some()
    }
}

/// A rule with its expressions, ready to run.
pub(crate) struct CompiledRule {
    pub rule: &'static ScanRule,
    pub all: Vec<Lazy>,
    pub eases: Vec<Lazy>,
    pub second: Vec<Lazy>,
    /// Numbers of its groups of words.
    pub groups: Vec<u16>,
}
