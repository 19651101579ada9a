//! What a rule is: data, with a small function where expressions are not enough.

use crate::finding::{Rule, Severity};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

/// Where a piece of text stands. Bits, so that a rule can name several.
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
    /// A comment in Markdown: agents read it, people do not.
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

/// What a hit does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Act {
    /// Blocks while the gate is strict.
    Block,
    /// A warning by itself.
    Warn,
    /// Points; the hints of a skill become warnings once they add up to
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
    /// What all its findings share.
    pub rule: Rule,
    /// What a hit does.
    pub act: Act,
    /// Where all signals must stand together.
    pub scope: Scope,
    /// Kinds of places it looks at.
    pub places: u16,
    /// One word of each group must occur in the scope; found by one pass over the text for all
    /// rules.
    pub needs: &'static [&'static [&'static str]],
    /// Expressions that must all match in the scope; the first one says where.
    pub all: &'static [&'static str],
    /// Expressions of which each makes a warning of a flag where it matches in the statement that
    /// holds the match. A word elsewhere changes nothing.
    pub eases: &'static [&'static str],
    /// As `eases`, for what an expression cannot say about the match.
    pub eased: Option<fn(&Seen<'_>) -> bool>,
    /// Where there are any, one of them must match in the block around, too; else what would block
    /// is a warning.
    pub second: &'static [&'static str],
    /// What the first expression matches must be handed on, by names, to something that sends; else
    /// what would block is a warning.
    pub is_flow: bool,
    /// It is about what is fetched to be run: from the publisher of the skill that is a warning.
    pub installer: bool,
    /// A last look: the offset in the scope, or nothing.
    pub check: Option<fn(&Seen<'_>) -> Option<usize>>,
    /// What the message says beside the words that matched.
    pub detail: Option<fn(&Seen<'_>) -> Option<String>>,
    /// It is about commands: in another language it counts only where something starts a process.
    pub command: bool,
    /// It counts in quotations too: what it looks for is not an example anywhere.
    pub literal: bool,
    /// What is the matter, in one sentence.
    pub message: &'static str,
    /// What its author is to do about it; it goes on "ask its author to".
    pub mend: &'static str,
    /// Texts that it must find something in; a first line `@path` says what file it is.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub bad: &'static [&'static str],
    /// Texts that it must pass.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub good: &'static [&'static str],
}

impl ScanRule {
    /// What whoever installs the skill can do about a finding.
    pub(crate) fn advice(&self) -> String {
        format!("ask its author to {}", self.mend)
    }

    /// The places it looks at: what counts in a paragraph counts in a heading and in a table, too.
    pub(crate) const fn reach(&self) -> u16 {
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

/// Where a word stands first in a text. The word must not be empty.
pub(crate) fn position(text: &[u8], word: impl AsRef<[u8]>) -> Option<usize> {
    let word = word.as_ref();
    text.windows(word.len()).position(|window| window == word)
}

/// A text with one word in place of another. The word to replace must not be empty.
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

/// What a check sees.
pub(crate) struct Seen<'a> {
    /// The scope's text, lower case.
    pub text: &'a [u8],
    /// Where the first expression matched.
    pub first: std::ops::Range<usize>,
    /// The statement that holds it.
    pub statement: &'a [u8],
    /// The kinds of places in the scope.
    pub place: u16,
}

impl Seen<'_> {
    /// What the first expression matched.
    pub(crate) fn matched(&self) -> &[u8] {
        &self.text[self.first.clone()]
    }
}

/// Whether the statement is a step that builds a container: there is no such command for a shell.
pub(crate) fn is_container_build(seen: &Seen<'_>) -> bool {
    seen.place & place::PROSE == 0 && seen.statement.trim_ascii_start().starts_with(b"run ")
}

/// Where rules begin: a blocking rule over statements, in every place.
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

/// An expression that is compiled when it is first needed; most skills need few.
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
                    .unicode(false)
                    .size_limit(4 << 20)
                    // With less, long expressions give up their automaton and are walked state by
                    // state.
                    .dfa_size_limit(16 << 20)
                    .build()
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

    /// The first match that begins at an offset or after it.
    pub(crate) fn find_at(&self, text: &[u8], from: usize) -> Option<std::ops::Range<usize>> {
        self.regex()?.find_at(text, from).map(|found| found.range())
    }

    #[cfg(test)]
    pub(crate) fn compiles(&self) -> bool {
        self.regex().is_some()
    }
}

/// A rule with its expressions.
pub(crate) struct Ready {
    pub rule: &'static ScanRule,
    pub all: Vec<Lazy>,
    pub eases: Vec<Lazy>,
    pub second: Vec<Lazy>,
    /// Numbers of its groups of words.
    pub groups: Vec<u16>,
}
