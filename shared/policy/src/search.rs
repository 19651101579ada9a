//! Text search over the descriptions of skills: BM25 over name, tags, categories, description and
//! `when_to_use`.
//!
//! One ranking serves the command line, the MCP server and the hosted vault, so that the same
//! question has the same answer everywhere. Equal scores are ordered by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use unicode_normalization::UnicodeNormalization;
use vault_format::index::IndexEntry;

/// The largest number of words of a query; later ones are ignored.
pub const MAX_QUERY_WORDS: usize = 64;

// The usual constants of BM25 (k1 and b). Descriptions are short, so their length counts a little
// less than usual (b = 0.75).
const SATURATION: f64 = 1.2;
const LENGTH_SHARE: f64 = 0.6;
/// The share of a full match for a word that only begins with the query's word.
const PREFIX_SHARE: f64 = 0.4;
/// Minimum length of a query's word that also matches words beginning with it, in characters.
const SHORTEST_PREFIX: usize = 3;
/// Maximum number of terms that one word of a query matches as their beginning.
const MOST_PREFIX_TERMS: usize = 128;

/// The searchable texts of a skill, borrowed for indexing.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Name in the vault.
    pub name: &'a str,
    /// The description.
    pub description: &'a str,
    /// Tags.
    pub tags: &'a [String],
    /// Categories.
    pub categories: &'a [String],
    /// The situations in which to use it; empty if not stated.
    pub when_to_use: &'a str,
}

impl<'a> From<&'a IndexEntry> for Text<'a> {
    fn from(entry: &'a IndexEntry) -> Self {
        Self {
            name: entry.name.as_str(),
            description: &entry.description,
            tags: &entry.tags,
            categories: &entry.categories,
            when_to_use: &entry.when_to_use,
        }
    }
}

/// One result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit<'a> {
    /// Name of the skill.
    pub name: &'a str,
    /// Its index in the input of the ranking, from 0.
    pub position: usize,
    /// The score: above 0, without an upper bound, comparable within one answer only.
    pub score: f64,
}

/// A search index over a set of skills; built once, searched often.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    documents: Vec<IndexedSkill>,
    terms: BTreeMap<String, Vec<Posting>>,
}

#[derive(Clone, Debug)]
struct IndexedSkill {
    name: String,
    /// Its length in terms.
    length: u32,
    /// The BM25 weight of the document's length relative to the average.
    damping: f64,
}

/// Each document's best score for one word.
struct BestScores {
    scores: Vec<f64>,
    raised: Vec<usize>,
}

impl BestScores {
    fn with_documents(documents: usize) -> Self {
        Self {
            scores: vec![0.0; documents],
            raised: Vec::new(),
        }
    }

    fn raise_score(&mut self, document: usize, score: f64) {
        // Keep the best score, not the sum: a query for `test` must not favour a skill with test,
        // tester and testing.
        let best_score = &mut self.scores[document];
        if *best_score == 0.0 {
            self.raised.push(document);
        }
        *best_score = best_score.max(score);
    }

    /// Adds the best scores to `scores` and resets them.
    fn add_to(&mut self, scores: &mut [f64]) {
        for document in self.raised.drain(..) {
            scores[document] += std::mem::take(&mut self.scores[document]);
        }
    }
}

/// The frequency of a term in a document, each field counted by its weight.
#[derive(Clone, Copy, Debug)]
struct Posting {
    document: usize,
    frequency: u32,
}

impl Ranking {
    /// Indexes these skills in the order given.
    pub fn new<'a>(texts: impl IntoIterator<Item = Text<'a>>) -> Self {
        let mut ranking = Self::default();
        for text in texts {
            ranking.index_text(text);
        }
        // The average length is known only once all texts are indexed.
        ranking.set_damping();
        ranking
    }

    /// Computes the length weight of each document from the average length, once all are indexed.
    fn set_damping(&mut self) {
        let all: u64 = self.documents.iter().map(|it| u64::from(it.length)).sum();
        let all = as_f64(usize::try_from(all).unwrap_or(usize::MAX));
        let average = (all / as_f64(self.documents.len().max(1))).max(1.0);
        for document in &mut self.documents {
            let length = f64::from(document.length) / average;
            document.damping = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * length);
        }
    }

    fn index_text(&mut self, text: Text<'_>) {
        let mut frequencies: HashMap<String, u32> = HashMap::new();
        let mut length = 0_u32;
        let mut add = |field: &str, weight: u32| {
            for term in split_terms(field) {
                let frequency = frequencies.entry(term).or_default();
                *frequency = frequency.saturating_add(weight);
                length = length.saturating_add(1);
            }
        };
        // A hit in a name or tag says more about a skill than one in a long description.
        add(text.name, 4);
        text.tags.iter().for_each(|tag| add(tag, 3));
        text.categories.iter().for_each(|category| add(category, 2));
        add(text.description, 1);
        add(text.when_to_use, 1);
        let document = self.documents.len();
        for (term, frequency) in frequencies {
            self.terms.entry(term).or_default().push(Posting {
                document,
                frequency,
            });
        }
        self.documents.push(IndexedSkill {
            name: text.name.to_owned(),
            length,
            damping: 0.0,
        });
    }

    /// Number of skills in the index.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether the index holds no skill.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Returns the best `top_k` skills for a query, best first; none for a query without words.
    pub fn search(&self, query: &str, top_k: usize) -> Vec<Hit<'_>> {
        let mut scores = vec![0.0_f64; self.documents.len()];
        let mut best = BestScores::with_documents(self.documents.len());
        for term in query_terms(query) {
            self.score_term(&term, &mut best);
            best.add_to(&mut scores);
        }
        let mut hits: Vec<Hit<'_>> = scores
            .into_iter()
            .enumerate()
            .filter(|(_, score)| *score > 0.0)
            .map(|(position, score)| Hit {
                name: &self.documents[position].name,
                position,
                score,
            })
            .collect();
        let order = |a: &Hit<'_>, b: &Hit<'_>| {
            b.score
                .total_cmp(&a.score)
                .then_with(|| a.name.cmp(b.name))
                .then(a.position.cmp(&b.position))
        };
        // Sorting all hits of a large vault for five results would cost more than the search.
        if top_k < hits.len() {
            hits.select_nth_unstable_by(top_k, order);
            hits.truncate(top_k);
        }
        hits.sort_unstable_by(order);
        hits
    }

    /// Scores one word of the query: each document's best score, by the word itself or by a word
    /// that begins with it.
    fn score_term(&self, term: &str, best: &mut BestScores) {
        let mut credit = |postings: &[Posting], share: f64| {
            let weight = share * self.term_rarity(postings.len());
            for posting in postings {
                best.raise_score(
                    posting.document,
                    weight * self.saturated_frequency(*posting),
                );
            }
        };
        if let Some(postings) = self.terms.get(term) {
            credit(postings, 1.0);
        }
        if has_beginnings(term) {
            self.terms
                .range(term.to_owned()..)
                .take_while(|(other, _)| other.starts_with(term))
                .filter(|(other, _)| other.len() > term.len())
                // A short word can begin thousands of terms; a query may have 64 such words.
                .take(MOST_PREFIX_TERMS)
                .for_each(|(_, postings)| credit(postings, PREFIX_SHARE));
        }
    }

    fn term_rarity(&self, holding: usize) -> f64 {
        let (all, holding) = (as_f64(self.documents.len()), as_f64(holding));
        // Without the added 1, a word in more than half of the skills would score below zero.
        (1.0 + (all - holding + 0.5) / (holding + 0.5)).ln()
    }

    fn saturated_frequency(&self, posting: Posting) -> f64 {
        let damping = self.documents[posting.document].damping;
        let frequency = f64::from(posting.frequency);
        frequency * (SATURATION + 1.0) / (frequency + damping)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of skills stay far below 2^52"
)]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Returns the distinct words of a query, up to the limit.
fn query_terms(query: &str) -> impl Iterator<Item = String> {
    let mut seen = BTreeSet::new();
    split_terms(query)
        .filter(move |term| seen.insert(term.clone()))
        .take(MAX_QUERY_WORDS)
}

/// Whether a word is long enough to match words that begin with it.
fn has_beginnings(term: &str) -> bool {
    term.chars().count() >= SHORTEST_PREFIX
}

/// Splits a text into terms: runs of letters and digits in lower case without a plural `s`. Scripts
/// without spaces between words give pairs of neighbouring characters.
fn split_terms(text: &str) -> impl Iterator<Item = String> {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
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
                terms.push(strip_plural(part).to_owned());
            }
            rest = after;
        }
    }
    terms.into_iter()
}

/// Splits a text into words as a search does, to match words outside a ranking.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = String> {
    split_terms(text)
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

fn strip_plural(word: &str) -> &str {
    match word.strip_suffix('s') {
        // `class` and `bus` are no plurals.
        Some(stem) if stem.len() > 2 && !stem.ends_with('s') => stem,
        _ => word,
    }
}

/// Whether a character is Han, kana or Thai, which are written without spaces between words.
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
    use proptest::prelude::*;

    fn text<'a>(name: &'a str, description: &'a str) -> Text<'a> {
        Text {
            name,
            description,
            tags: &[],
            categories: &[],
            when_to_use: "",
        }
    }

    fn names<'a>(ranking: &'a Ranking, query: &str) -> Vec<&'a str> {
        ranking
            .search(query, 10)
            .iter()
            .map(|hit| hit.name)
            .collect()
    }

    #[test]
    fn the_name_weighs_more_than_the_description() {
        let ranking = Ranking::new([
            text("release-notes", "Writes notes; mentions review once."),
            text("code-review", "Looks at a change."),
            text("weather", "Says whether it rains."),
        ]);
        assert_eq!(names(&ranking, "review"), ["code-review", "release-notes"]);
    }

    #[test]
    fn tags_categories_and_when_to_use_are_searched() {
        let (tags, categories) = (["kubernetes".to_owned()], ["operations".to_owned()]);
        let ranking = Ranking::new([Text {
            name: "roll-out",
            description: "Brings a version up.",
            tags: &tags,
            categories: &categories,
            when_to_use: "Before a maintenance window.",
        }]);
        for query in ["kubernetes", "operations", "window", "ROLL", "version"] {
            assert_eq!(names(&ranking, query), ["roll-out"], "{query}");
        }
    }

    #[test]
    fn more_words_found_is_better_and_rare_words_count_more() {
        let ranking = Ranking::new([
            text("a", "git commit log"),
            text("b", "git"),
            text("c", "git bisect"),
            text("d", "git blame"),
        ]);
        assert_eq!(names(&ranking, "git commit")[0], "a");
        assert_eq!(names(&ranking, "git bisect")[0], "c");
    }

    #[test]
    fn plurals_and_beginnings_match_but_whole_words_come_first() {
        let ranking = Ranking::new([
            text("x", "deployment of services"),
            text("y", "deploy a service"),
        ]);
        assert_eq!(names(&ranking, "deploy"), ["y", "x"]);
        assert_eq!(names(&ranking, "service").len(), 2);
        assert_eq!(
            names(&ranking, "de"),
            Vec::<&str>::new(),
            "two letters are too few for a beginning"
        );
    }

    #[test]
    fn equal_scores_are_ordered_by_name() {
        let ranking = Ranking::new([
            text("zebra", "same"),
            text("ant", "same"),
            text("mole", "same"),
        ]);
        assert_eq!(names(&ranking, "same"), ["ant", "mole", "zebra"]);
        let two: Vec<_> = ranking
            .search("same", 2)
            .iter()
            .map(|hit| (hit.name, hit.position))
            .collect();
        assert_eq!(two, [("ant", 1), ("mole", 2)]);
    }

    #[test]
    fn scripts_without_spaces_are_found_by_parts() {
        let ranking = Ranking::new([text("a", "代码审查工具"), text("b", "天气预报 weather")]);
        assert_eq!(names(&ranking, "审查"), ["a"]);
        assert_eq!(names(&ranking, "weather预报"), ["b"]);
    }

    #[test]
    fn compatibility_forms_and_case_are_one() {
        let ranking = Ranking::new([text("a", "Ｄｅｐｌｏｙ ÄPFEL")]);
        assert_eq!(names(&ranking, "deploy"), ["a"]);
        assert_eq!(names(&ranking, "äpfel"), ["a"]);
    }

    #[test]
    fn nothing_asked_or_nothing_there_gives_nothing() {
        assert!(Ranking::new([]).search("x", 5).is_empty());
        let ranking = Ranking::new([text("a", "b")]);
        assert!(ranking.search("", 5).is_empty());
        assert!(ranking.search("-- !", 5).is_empty());
        assert!(ranking.search("b", 0).is_empty());
        assert_eq!(ranking.len(), 1);
    }

    proptest! {
        #[test]
        fn any_query_is_answered_in_order(query in ".{0,200}", texts in proptest::collection::vec("[a-c ]{0,12}", 0..20), top_k in 0_usize..25) {
            let ranking = Ranking::new(texts.iter().map(|description| text("n", description)));
            let hits = ranking.search(&query, top_k);
            prop_assert!(hits.len() <= top_k.min(texts.len()));
            prop_assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
            prop_assert_eq!(&hits, &ranking.search(&query, top_k));
            let all = ranking.search(&query, usize::MAX);
            prop_assert_eq!(&all[..hits.len()], &hits[..], "a shorter answer is the beginning of a longer one");
        }
    }
}
