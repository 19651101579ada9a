//! Reads a query: its words and phrases, and which of its words are written like names.
//!
//! It does not know the skills. Whether a word that is written like a name is the caller's own, the
//! ranking decides: no skill has it.

use std::collections::BTreeSet;

use super::thesaurus::{Span, THESAURUS};
use super::words;

/// The largest number of distinct words and phrases of a query; a search ignores later ones.
/// Everyday words that it ignores anyway do not count. A request in Chinese has about one for each
/// character.
pub(super) const MAX_QUERY_TERMS: usize = 256;

/// One word or phrase of a query, in the form in which the index holds it.
#[derive(Clone, Debug)]
pub(super) struct QueryTerm {
    pub(super) text: String,
    /// The words of a phrase; empty for a single word.
    pub(super) parts: Vec<String>,
    /// Weight from 0 to 1: less than 1 for an everyday word.
    pub(super) share: f64,
    /// Whether its spelling may be corrected.
    pub(super) is_correctable: bool,
    /// The word of the query that it begins in, as written.
    pub(super) written: WrittenWord,
}

/// A word of a query as written between spaces. It may hold several words of the index:
/// `acme/web-shop`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenWord {
    /// Its place in the query, from 0.
    pub(super) position: usize,
    /// The number of its name, if it is written like one. Capitalized neighbours share the
    /// number, so that `Acme Corp` is one name.
    pub(super) name: Option<usize>,
    /// Whether it is a path or an address.
    pub(super) is_path: bool,
}

impl QueryTerm {
    fn new(words: &[String], is_correctable: bool, written: WrittenWord) -> Self {
        let text = words.join(" ");
        let is_phrase = words.len() > 1;
        Self {
            share: if is_phrase {
                1.0
            } else {
                words::share_of(&text)
            },
            parts: if is_phrase {
                words.to_vec()
            } else {
                Vec::new()
            },
            text,
            is_correctable,
            written,
        }
    }
}

/// Returns the distinct words and phrases of a query, up to the limit. Words that say nothing
/// (weight 0) are left out unless there are no others.
pub(super) fn query_terms(query: &str) -> Vec<QueryTerm> {
    let (mut texts, mut stems, mut origins) = (Vec::new(), Vec::new(), Vec::new());
    for text in query.split_whitespace() {
        let found = words::stems(text);
        if !found.is_empty() {
            origins.resize(origins.len() + found.len(), texts.len());
            stems.extend(found);
            texts.push(text);
        }
    }
    let is_title = is_title(&texts);
    let names = number_names(&texts, is_title);
    let term_at = |span: Span| {
        let position = origins[span.start];
        let text = texts[position];
        // The first word of a sentence, and each word of a title, has a capital anyway.
        let is_correctable = is_title || position == 0 || !begins_with_capital(text);
        let written = WrittenWord {
            position,
            name: names[position],
            is_path: text.contains(['/', '@']),
        };
        let words = &stems[span.start..span.start + span.length];
        QueryTerm::new(words, is_correctable, written)
    };
    let mut seen = BTreeSet::new();
    let mut terms: Vec<QueryTerm> = THESAURUS
        .divide_phrases(&stems)
        .into_iter()
        .map(term_at)
        .filter(|term| seen.insert(term.text.clone()))
        .collect();
    if terms.iter().all(|term| term.share == 0.0) {
        for term in &mut terms {
            term.share = 1.0;
        }
    }
    terms.retain(|term| term.share > 0.0);
    // Only now: repeated and ignored words must not push out those that matter.
    terms.truncate(MAX_QUERY_TERMS);
    terms
}

/// Returns for each word of a query the number of the name that it belongs to, if it is written
/// like one. Capitalized neighbours are one name, except in a title, where capitals say nothing.
fn number_names(texts: &[&str], is_title: bool) -> Vec<Option<usize>> {
    let without_case = texts.iter().filter(|text| is_without_case(text)).count();
    let takes_scripts = without_case * 2 <= texts.len();
    let (mut number, mut joined) = (0, false);
    let numbers = texts.iter().enumerate().map(|(position, text)| {
        // "Jenkinsfile for Maven" asks for its first word, "Contoso release notes" does not.
        let is_asked = position == 0 && texts.get(1).is_some_and(|next| is_ignored(next));
        let is_name =
            (is_written_like_name(text) && !is_asked) || (takes_scripts && is_without_case(text));
        let joins = is_name && !is_title && (begins_with_capital(text) || is_without_case(text));
        if !(joins && joined) {
            number += 1;
        }
        joined = joins;
        is_name.then_some(number)
    });
    numbers.collect()
}

/// Whether all words of a query begin with a capital.
fn is_title(texts: &[&str]) -> bool {
    texts.len() > 1 && texts.iter().all(|text| begins_with_capital(text))
}

fn begins_with_capital(text: &str) -> bool {
    trim_signs(text).starts_with(char::is_uppercase)
}

/// Whether a word has a capital, a digit beside letters, or a sign inside that names have:
/// `Contoso`, `eBay`, `v2`, `acme-web`, `contoso.com`.
fn is_written_like_name(text: &str) -> bool {
    let inside = trim_signs(text);
    inside.contains(char::is_uppercase)
        || (inside.contains(char::is_numeric) && inside.contains(char::is_alphabetic))
        || inside.contains(['/', '@', '.', '-', '_'])
}

fn is_ignored(text: &str) -> bool {
    words::stems(text)
        .iter()
        .all(|stem| words::share_of(stem) <= 0.0)
}

/// Whether a word is of a script that has no capitals, such as Han or Arabic.
fn is_without_case(text: &str) -> bool {
    let mut letters = text.chars().filter(|c| c.is_alphabetic()).peekable();
    letters.peek().is_some() && letters.all(|c| !c.is_lowercase() && !c.is_uppercase())
}

fn trim_signs(text: &str) -> &str {
    text.trim_matches(|character: char| !character.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of a query that are written like names, neighbours together.
    fn names(query: &str) -> Vec<String> {
        let texts: Vec<&str> = query.split_whitespace().collect();
        let numbers = number_names(&texts, is_title(&texts));
        let mut names: Vec<(usize, String)> = Vec::new();
        for (text, number) in texts.iter().zip(numbers) {
            match (number, names.last_mut()) {
                (Some(number), Some((last, name))) if *last == number => {
                    *name = format!("{name} {text}");
                }
                (Some(number), _) => names.push((number, (*text).to_owned())),
                (None, _) => {}
            }
        }
        names.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn capitals_digits_and_signs_make_a_name() {
        let cases: [(&str, &[&str]); 18] = [
            (
                "notes for Contoso and (Fabrikam)",
                &["Contoso", "(Fabrikam)"],
            ),
            ("notes for contoso", &[]),
            ("Contoso notes", &["Contoso"]),
            ("Jenkinsfile for Maven notes", &["Maven"]),
            ("notes for eBay", &["eBay"]),
            ("notes for v2.3.1", &["v2.3.1"]),
            ("3 notes for 4.2", &["4.2"]),
            ("notes for acme-web.", &["acme-web."]),
            ("notes for contoso.com", &["contoso.com"]),
            (
                "notes for https://contoso.com/web",
                &["https://contoso.com/web"],
            ),
            ("notes for a1 b2", &["a1", "b2"]),
            ("notes - don't stop.", &[]),
            ("notes for Acme Corp, Contoso now", &["Acme Corp, Contoso"]),
            ("Notes For Acme Corp", &["For", "Acme", "Corp"]),
            ("notes for 株式会社コントソ", &["株式会社コントソ"]),
            ("email שלום", &["שלום"]),
            ("代码审查 微软中国 email", &[]),
            ("", &[]),
        ];
        for (query, expected) in cases {
            assert_eq!(names(query), expected, "{query}");
        }
    }

    #[test]
    fn only_a_capital_that_means_something_forbids_a_correction() {
        let cases = [
            ("call Linus", vec![true, false]),
            ("Flakey tests", vec![true, true]),
            ("Fix Flakey Tests", vec![true, true, true]),
        ];
        for (query, expected) in cases {
            let terms = query_terms(query);
            let found: Vec<bool> = terms.iter().map(|term| term.is_correctable).collect();
            assert_eq!(found, expected, "{query}");
        }
    }
}
