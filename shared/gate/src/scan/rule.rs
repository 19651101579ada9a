//! What a rule is: data, with a small function where expressions are not enough.

use crate::finding::Rule;
use regex::bytes::{Regex, RegexBuilder};
use std::sync::OnceLock;

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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Act {
    /// Blocks while the gate is strict.
    Block,
    /// A warning by itself.
    Warn,
    /// So many points; the hints of a skill are said when they come to [`super::SAID`] together.
    Hint(u32),
}

/// A rule over text.
#[derive(Clone, Copy)]
pub(crate) struct ScanRule {
    /// What all its findings share.
    pub rule: Rule,
    /// What a hit does.
    pub act: Act,
    /// Where all signals must stand together.
    pub scope: Scope,
    /// Kinds of places it looks at.
    pub places: u16,
    /// One word of each group must occur in the scope; found by one pass over the text for all rules.
    pub needs: &'static [&'static [&'static str]],
    /// Expressions that must all match in the scope; the first one says where.
    pub all: &'static [&'static str],
    /// Expressions of which none may match in the scope.
    pub none: &'static [&'static str],
    /// A last look: the offset in the scope, or nothing.
    pub check: Option<fn(&Seen<'_>) -> Option<usize>>,
    /// It is about commands: in another language it counts only where something starts a process.
    pub command: bool,
    /// It counts in quotations too: what it looks for is no example anywhere.
    pub literal: bool,
    /// What is the matter, in one sentence.
    pub message: &'static str,
    /// How to fix it.
    pub mend: &'static str,
    /// Texts that it must find something in; a first line `@path` says what file it is.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub bad: &'static [&'static str],
    /// Texts that it must pass.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for tests"))]
    pub good: &'static [&'static str],
}

/// What a check sees.
pub(crate) struct Seen<'a> {
    /// The scope's text, lower case.
    pub text: &'a [u8],
    /// Where the first expression matched.
    pub first: std::ops::Range<usize>,
    /// The kinds of places in the scope.
    pub place: u16,
}

impl Seen<'_> {
    /// What the first expression matched.
    pub(crate) fn matched(&self) -> &[u8] {
        &self.text[self.first.clone()]
    }
}

/// Where rules begin: a blocking rule over statements, in every place.
pub(crate) const RULE: ScanRule = ScanRule {
    rule: Rule {
        id: "",
        name: "",
        category: "AST01",
        severity: crate::finding::Severity::High,
        why: "",
    },
    act: Act::Block,
    scope: Scope::Statement,
    places: super::place::ANY,
    needs: &[],
    all: &[],
    none: &[],
    check: None,
    command: false,
    literal: false,
    message: "",
    mend: "",
    bad: &[],
    good: &[],
};

/// An expression that is compiled when it is first needed; most skills need few.
pub(super) struct Lazy {
    pattern: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

impl Lazy {
    pub(super) const fn new(pattern: &'static str) -> Self {
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
                    .build()
                    .ok()
            })
            .as_ref()
    }

    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text))
    }

    pub(super) fn find(&self, text: &[u8]) -> Option<std::ops::Range<usize>> {
        self.regex()?.find(text).map(|found| found.range())
    }

    #[cfg(test)]
    pub(super) fn compiles(&self) -> bool {
        self.regex().is_some()
    }
}

/// A rule with its expressions.
pub(super) struct Ready {
    pub rule: &'static ScanRule,
    pub all: Vec<Lazy>,
    pub none: Vec<Lazy>,
    /// Numbers of its groups of words.
    pub groups: Vec<u16>,
}
