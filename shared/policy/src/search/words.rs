//! Splits a text into the words that a search compares: in lower case, without endings, each with a
//! weight that is lower for everyday words.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

/// Lists of everyday words with a lower weight; the head of the file describes its form.
const COMMON_WORDS: &str = include_str!("common-words.txt");
/// Weight in a query of light everyday words, numbers, and names that no skill has; other words weigh
/// 1.
pub(super) const LIGHT_SHARE: f64 = 0.3;

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// The weight of each everyday word, from 0 to 1, by its stem.
static SHARES: LazyLock<HashMap<String, f64>> = LazyLock::new(|| {
    let mut shares = HashMap::new();
    let mut share = 0.0;
    for line in COMMON_WORDS.lines().filter(|line| !line.starts_with('#')) {
        match line {
            "[ignored]" => share = 0.0,
            "[light]" => share = LIGHT_SHARE,
            words => shares.extend(
                words
                    .split_whitespace()
                    .map(|word| (stem_word(word), share)),
            ),
        }
    }
    shares
});

/// The words with which a description begins to say what the skill is not for; that part lasts to
/// the end of the sentence.
static EXCLUSION: LazyLock<Regex> = LazyLock::new(|| {
    // "Never use weak passwords again" is advice about passwords, so "use" alone is not enough.
    let use_of =
        "(?:do not|don['’]t|never) use(?::|\\s+(?:it|this|for|to|with|when|if|as|in|on)\\b)";
    let pattern = format!(r"(?i)\b(?:{use_of}|not (?:intended |meant )?for\b)");
    Regex::new(&pattern).expect("a constant pattern")
});

/// Names of programming languages that end in a sign (`C#`, `C++`). Without the sign only a letter
/// would be left.
static SIGNED_NAME: LazyLock<Regex> = LazyLock::new(|| {
    // `\B` after the sign: no letter follows, as one does in `c#m`.
    Regex::new(r"(?i)\b(?:([cf])#|c\+\+)\B").expect("a constant pattern")
});

/// Returns the words of a text without their endings, in order.
pub(super) fn stems(text: &str) -> Vec<String> {
    let named = SIGNED_NAME.replace_all(text, |found: &Captures<'_>| match found.get(1) {
        Some(letter) => format!("{}sharp", letter.as_str()),
        None => "cplusplus".to_owned(),
    });
    split_runs(&named, stem_word)
}

/// Splits a text into words without a plural `s`, to match words outside a ranking.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = String> {
    split_runs(text, |run| strip_plural(run).to_owned()).into_iter()
}

/// Returns the weight of a word in a query, from 0 to 1: everyday words and numbers count less.
pub(super) fn share_of(stem: &str) -> f64 {
    if stem.bytes().all(|byte| byte.is_ascii_digit()) {
        return LIGHT_SHARE;
    }
    SHARES.get(stem).copied().unwrap_or(1.0)
}

/// Whether a word, given as its stem, is on a list of everyday words.
pub(super) fn is_everyday(stem: &str) -> bool {
    SHARES.contains_key(stem)
}

/// Splits a description into what the skill is for and what it is not for ("Do not use for ...").
pub(super) fn split_exclusions(description: &str) -> (String, String) {
    let (mut purpose, mut excluded) = (String::new(), String::new());
    let mut rest = description;
    while let Some(found) = EXCLUSION.find(rest) {
        let (before, clause) = rest.split_at(found.start());
        let end = clause_end(clause);
        purpose.push_str(before);
        // Keep the words on both sides of the clause apart.
        purpose.push(' ');
        excluded.push_str(&clause[..end]);
        excluded.push(' ');
        rest = &clause[end..];
    }
    purpose.push_str(rest);
    (purpose, excluded)
}

/// Returns where the sentence at the beginning of a text ends, in bytes.
fn clause_end(text: &str) -> usize {
    let ends = [". ", ".\n", ";", "\n\n"];
    let first = ends.iter().filter_map(|end| text.find(end)).min();
    first.unwrap_or(text.len())
}

/// Splits a text into runs of letters and digits in lower case, each changed by `term`. Scripts
/// without spaces between words give pairs of neighbouring characters.
fn split_runs(text: &str, term: impl Fn(&str) -> String) -> Vec<String> {
    // In lower case, the Turkish `İ` is `i` with a dot of its own, which would split the word.
    let folded: String = text
        .nfkc()
        .flat_map(char::to_lowercase)
        .filter(|character| *character != '\u{307}')
        .collect();
    let mut terms = Vec::new();
    for run in folded.split(|character: char| !character.is_alphanumeric()) {
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let spaceless = is_spaceless(first);
            let end = rest
                .find(|c| is_spaceless(c) != spaceless)
                .unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            if spaceless {
                push_pairs(part, &mut terms);
            } else {
                terms.push(term(part));
            }
            rest = after;
        }
    }
    terms
}

fn push_pairs(part: &str, terms: &mut Vec<String>) {
    let characters: Vec<char> = part.chars().collect();
    // A single character forms no pair, so it becomes a term by itself.
    if characters.len() == 1 {
        terms.push(part.to_owned());
    }
    terms.extend(
        characters
            .windows(2)
            .map(|pair| pair.iter().collect::<String>()),
    );
}

fn stem_word(word: &str) -> String {
    STEMMER.stem(word).into_owned()
}

fn strip_plural(word: &str) -> &str {
    match word.strip_suffix('s') {
        // `class` and `bus` are no plurals.
        Some(stem) if stem.len() > 2 && !stem.ends_with('s') => stem,
        _ => word,
    }
}

/// Tells whether a character is Han, kana or Thai, which are written without spaces between words.
const fn is_spaceless(character: char) -> bool {
    matches!(
        character,
        '\u{0E00}'..='\u{0E7F}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_and_case_do_not_matter() {
        assert_eq!(stems("Deploying deploys DEPLOYED"), ["deploy"; 3]);
        assert_eq!(stems("ＦＬＡＫＹ-tests"), ["flaki", "test"]);
        assert_eq!(stems("İHRACAT"), stems("ihracat"));
    }

    #[test]
    fn a_language_with_a_sign_in_its_name_is_a_word_of_its_own() {
        assert_eq!(
            stems("C# or c++, F#."),
            ["csharp", "or", "cplusplus", "fsharp"]
        );
        assert_eq!(stems("C#m issue#2"), ["c", "m", "issu", "2"]);
    }

    #[test]
    fn everyday_words_count_less_than_others() {
        assert!(share_of("the") <= 0.0);
        let (light, number) = (share_of("quick"), share_of("3000"));
        assert!(light > 0.0 && light < 1.0);
        assert!(number > 0.0 && number < 1.0);
        assert!(share_of("kubernet") >= 1.0);
        assert!(share_of("k8s") >= 1.0, "a name with digits is no number");
    }

    #[test]
    fn every_list_of_everyday_words_has_words() {
        let ignored = SHARES.values().filter(|share| **share <= 0.0).count();
        let light = SHARES.len() - ignored;
        assert!(ignored > 50 && light > 200, "{ignored} {light}");
    }

    #[test]
    fn what_a_skill_is_not_for_is_split_off() {
        let cases = [
            (
                "Dumps. DO NOT USE FOR: reading dumps. Needs root.",
                "Dumps.  . Needs root.",
                "DO NOT USE FOR: reading dumps ",
            ),
            (
                "Loads files, not for reindexing; fast",
                "Loads files,  ; fast",
                "not for reindexing ",
            ),
            ("Don’t use with node.js", " ", "Don’t use with node.js "),
            (
                "Never use for tests: slow",
                " ",
                "Never use for tests: slow ",
            ),
            ("Do not use: tests", " ", "Do not use: tests "),
            ("Not only for tests", "Not only for tests", ""),
            (
                "Never use weak passwords again: makes strong ones. Don't use old ones",
                "Never use weak passwords again: makes strong ones. Don't use old ones",
                "",
            ),
            ("", "", ""),
        ];
        for (text, purpose, excluded) in cases {
            let expected = (purpose.to_owned(), excluded.to_owned());
            assert_eq!(split_exclusions(text), expected, "{text}");
        }
    }
}
