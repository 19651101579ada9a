//! Synonyms: words that mean the same to people who search and to authors of descriptions.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use super::words::stems;

/// Groups of synonyms; the head of the file describes its form.
const SYNONYMS: &str = include_str!("synonyms.txt");

/// The thesaurus of all searches.
pub(super) static THESAURUS: LazyLock<Thesaurus> = LazyLock::new(|| Thesaurus::parse(SYNONYMS));

/// Terms that mean the same. A term is a stem (a word without its ending), or several stems with
/// spaces between them.
#[derive(Debug, Default)]
pub(super) struct Thesaurus {
    related: HashMap<String, BTreeSet<String>>,
    /// The terms of several words by their first word, longest first.
    phrases: HashMap<String, Vec<Vec<String>>>,
}

/// One or several neighbouring words of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    /// The index of the first word.
    pub start: usize,
    pub length: usize,
}

impl Thesaurus {
    fn parse(text: &str) -> Self {
        let mut thesaurus = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (asked, found) = line.split_once("=>").unwrap_or((line, line));
            let asked = thesaurus.parse_side(asked);
            let found = thesaurus.parse_side(found);
            for term in asked {
                let others = found.iter().filter(|other| **other != term).cloned();
                thesaurus
                    .related
                    .entry(term.clone())
                    .or_default()
                    .extend(others);
            }
        }
        for phrases in thesaurus.phrases.values_mut() {
            phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.len()));
            phrases.dedup();
        }
        thesaurus
    }

    fn parse_side(&mut self, side: &str) -> Vec<String> {
        let mut terms = Vec::new();
        for words in side.split(',').map(stems).filter(|words| !words.is_empty()) {
            terms.push(words.join(" "));
            if words.len() > 1 {
                self.phrases
                    .entry(words[0].clone())
                    .or_default()
                    .push(words);
            }
        }
        terms
    }

    /// Returns the terms that mean the same as this one, in order.
    pub(super) fn related_terms(&self, term: &str) -> impl Iterator<Item = &str> {
        self.related
            .get(term)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    pub(super) fn has_term(&self, term: &str) -> bool {
        self.related.contains_key(term)
    }

    /// Returns all terms of one word, in no order.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let terms = self.related.keys().map(String::as_str);
        terms.filter(|term| !term.contains(' '))
    }

    /// Divides words into the longest known phrases and the single words between them.
    pub(super) fn divide_phrases(&self, words: &[String]) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut start = 0;
        while let Some(first) = words.get(start) {
            let known = self.phrases.get(first).into_iter().flatten();
            let length = known
                .filter(|phrase| words[start..].starts_with(phrase))
                .map(Vec::len)
                // The first one is the longest.
                .next()
                .unwrap_or(1);
            spans.push(Span { start, length });
            start += length;
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn related<'a>(thesaurus: &'a Thesaurus, term: &str) -> Vec<&'a str> {
        thesaurus.related_terms(term).collect()
    }

    #[test]
    fn a_group_relates_both_ways_and_an_arrow_one_way() {
        let thesaurus = Thesaurus::parse("# words\npr, pull request\n\nvue, svelte => spa\n");
        assert_eq!(related(&thesaurus, "pr"), ["pull request"]);
        assert_eq!(related(&thesaurus, "pull request"), ["pr"]);
        assert_eq!(related(&thesaurus, "vue"), ["spa"]);
        assert!(related(&thesaurus, "spa").is_empty());
        assert!(related(&thesaurus, "words").is_empty());
    }

    #[test]
    fn the_longest_phrase_is_found_first() {
        let thesaurus = Thesaurus::parse("access token, jwt\naccess token list, crl\n");
        let words = stems("an access token lists access");
        let spans: Vec<_> = thesaurus
            .divide_phrases(&words)
            .iter()
            .map(|span| (span.start, span.length))
            .collect();
        assert_eq!(spans, [(0, 1), (1, 3), (4, 1)]);
    }

    #[test]
    fn every_line_of_the_file_relates_terms() {
        for line in SYNONYMS
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let alone = Thesaurus::parse(line);
            let relates = alone.related.values().any(|others| !others.is_empty());
            assert!(relates, "no two terms: {line}");
            assert!(
                !line.contains(", ,") && !line.ends_with(','),
                "an empty term: {line}"
            );
        }
    }
}
