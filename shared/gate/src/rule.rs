//! The form of the scanner's rules. A rule is data: words and regular expressions, and a small
//! function where expressions are not enough.

use crate::finding::{Rule, Severity};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

/// The kinds of places in a text, such as prose or shell code. Each is a bit, so that a rule can
/// name several.
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

/// The stretch of text in which all words and expressions of a rule must match.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// One command, statement, sentence or list item.
    Statement,
    /// One fenced block, paragraph, or top-level definition of a script.
    Block,
    /// Everything below one heading.
    Section,
}

/// What a hit (a match that counts) does to the skill.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Act {
    /// Blocks if the gate is strict, and warns otherwise.
    Block,
    /// Warns, whatever else is found.
    Warn,
    /// Adds points. A hint by itself is no warning; the hints of a skill become warnings once their
    /// points reach `scan::total::HINT_THRESHOLD`.
    Hint(u32),
}

/// A rule over text. A "match" is found by its expressions; a "hit" is a match that passes all its
/// other conditions.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub(crate) struct ScanRule {
    /// The properties that all its findings share.
    pub rule: Rule,
    /// What a hit does to the skill.
    pub act: Act,
    /// The stretch of text in which everything must match together.
    pub scope: Scope,
    /// The kinds of places in which the rule applies, as bits of [`place`].
    pub places: u16,
    /// Groups of words; the scope must contain one word of each. The words of all rules are found
    /// in one pass over the text.
    pub needs: &'static [&'static [&'static str]],
    /// Expressions that must all match in the scope. The finding stands where the first one
    /// matches.
    pub all: &'static [&'static str],
    /// Expressions of which one, if it matches in the statement with the match, lowers a flag to a
    /// warning. The same words in another statement change nothing.
    pub eases: &'static [&'static str],
    /// Like `eases`, for conditions that no expression can state.
    pub eased: Option<fn(&Seen<'_>) -> bool>,
    /// If not empty, one of these must match in the surrounding block; otherwise a flag is lowered
    /// to a warning.
    pub second: &'static [&'static str],
    /// Whether the rule is about data that is sent away: the value that the first expression
    /// matches must be passed on, by names, to something that sends it. Otherwise a flag is lowered
    /// to a warning.
    pub is_flow: bool,
    /// Whether the rule is about something that is downloaded and run. If it comes from the skill's
    /// own publisher, a flag is lowered to a warning.
    pub installer: bool,
    /// A last check of a match. Returns the offset of the hit in the scope, or `None` if it is
    /// none.
    pub check: Option<fn(&Seen<'_>) -> Option<usize>>,
    /// Returns text that the message adds to the matched words.
    pub detail: Option<fn(&Seen<'_>) -> Option<String>>,
    /// Whether the rule is about shell commands. In code of another language, a command counts only
    /// if something there starts a process.
    pub command: bool,
    /// Whether a hit in a quotation blocks too, because such a text is never a mere example.
    pub literal: bool,
    /// What is wrong, in one sentence.
    pub message: &'static str,
    /// Advice for the author, which is printed after "ask its author to".
    pub mend: &'static str,
    /// Texts in which the rule must find something. A first line `@path` gives the file's name.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub bad: &'static [&'static str],
    /// Texts in which the rule must find nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub good: &'static [&'static str],
}

impl ScanRule {
    /// Returns the advice for a person who installs the skill.
    pub(crate) fn advice(&self) -> String {
        format!("ask its author to {}", self.mend)
    }

    /// Returns the kinds of places in which the rule applies. A rule about paragraphs also covers
    /// headings and tables.
    pub(crate) const fn places_with_headings(&self) -> u16 {
        // An instruction in a heading or a table cell works on an agent like one in a paragraph.
        if self.places & place::PROSE == 0 {
            self.places
        } else {
            self.places | place::HEAD | place::TABLE
        }
    }
}

/// Tells whether a word occurs in a text.
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

/// A match of a rule's first expression, as the functions of the rule receive it.
pub(crate) struct Seen<'a> {
    /// The scope's text, in lower case.
    pub text: &'a [u8],
    /// The range in `text` that the first expression matched.
    pub first: std::ops::Range<usize>,
    /// The statement that contains the match.
    pub statement: &'a [u8],
    /// The kinds of places that occur in the scope.
    pub place: u16,
}

impl Seen<'_> {
    /// Returns the text that the first expression matched.
    pub(crate) fn matched(&self) -> &[u8] {
        &self.text[self.first.clone()]
    }
}

/// Tells whether the statement is a build step of a container (`RUN …`), which is no shell command
/// here.
pub(crate) fn is_container_build(seen: &Seen<'_>) -> bool {
    seen.place & place::PROSE == 0 && seen.statement.trim_ascii_start().starts_with(b"run ")
}

/// The defaults for rules: a hit blocks, the scope is a statement, and every kind of place counts.
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
                    // Expressions name single bytes of a character (`\xe2`). In Unicode mode those
                    // would be code points.
                    .unicode(false)
                    .size_limit(4 << 20)
                    // With a lower limit, the engine gives up the automaton of long expressions and
                    // becomes much slower.
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

/// A rule with its expressions, compiled when they are first needed.
pub(crate) struct CompiledRule {
    pub rule: &'static ScanRule,
    pub all: Vec<Lazy>,
    pub eases: Vec<Lazy>,
    pub second: Vec<Lazy>,
    /// The numbers of its groups of words in the engine's table.
    pub groups: Vec<u16>,
}
