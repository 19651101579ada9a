//! Text search over the descriptions of skills: BM25 over name, tags, categories, description and
//! `when_to_use`.
//!
//! The command line, the MCP server and the hosted vault share this one ranking, so that a query
//! has the same answer everywhere. Equal scores are ordered by name.
//!
//! A word of the query matches the same word with any ending, longer words that begin with it, and
//! words that mean the same (`thesaurus`); if no skill has it, it matches the words that it may
//! misspell. A skill that matches too small a share of the query is no answer, so a search may find
//! nothing. A name that no skill has, such as that of the caller's project, counts little for this.

mod query;
mod spelling;
mod thesaurus;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use vault_format::index::IndexEntry;

use self::query::{QueryTerm, query_terms};
use self::thesaurus::THESAURUS;
use self::words::LIGHT_SHARE;
pub(crate) use self::words::split_words;

/// The largest number of words of a query that context rules of a policy compare; later ones are
/// ignored.
pub const MAX_QUERY_WORDS: usize = 64;

// The constants k1 and b of BM25. Descriptions are short, so their length counts a little less than
// usual (b = 0.75).
const SATURATION: f64 = 1.2;
const LENGTH_SHARE: f64 = 0.6;
/// The share of a full match for a word that only begins with the query's word.
const PREFIX_SHARE: f64 = 0.4;
/// The share of a full match for a word that means the same as the query's word.
const SYNONYM_SHARE: f64 = 0.8;
/// The share of a full match for a word that the query misspells.
const MISSPELLING_SHARE: f64 = 0.6;
/// Minimum length of a query's word that also matches words beginning with it, in characters.
const SHORTEST_PREFIX: usize = 3;
/// Maximum number of indexed terms that one word of a query matches because they begin with it.
const MOST_PREFIX_TERMS: usize = 128;
/// Maximum number of words of a query whose spelling is corrected: each is compared with all
/// indexed terms.
const MOST_CORRECTED_WORDS: usize = 8;

/// The share of a query's weight that a skill must match to be an answer.
const REQUIRED_SHARE: f64 = 0.45;
/// The largest weight that a query has for [`REQUIRED_SHARE`], counted in words that no skill has.
/// Without this bound, a long query would find nothing.
const FULL_QUERY_WORDS: f64 = 4.0;
/// The number of skills that is assumed at least when the rarity of a word decides whether a skill
/// is an answer. In a small vault, almost every word is as rare as any other.
const SMALL_VAULT: usize = 1000;

/// The searchable texts of a skill, borrowed for indexing.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Name of the skill in the vault.
    pub name: &'a str,
    /// The description in the frontmatter of SKILL.md.
    pub description: &'a str,
    /// Tags in the frontmatter, in any letter case.
    pub tags: &'a [String],
    /// Categories in the frontmatter, in any letter case.
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
    /// Name of the skill that matches the query.
    pub name: &'a str,
    /// Index of the skill in the input of the ranking, from 0.
    pub position: usize,
    /// The score: above 0, without an upper bound, comparable within one answer only.
    pub score: f64,
}

/// A search index over a set of skills; built once, searched often.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    documents: Vec<IndexedSkill>,
    terms: BTreeMap<String, Vec<Posting>>,
    /// For each term, the skills (by index) whose description names it only to say what they are
    /// not for.
    excluded: HashMap<String, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct IndexedSkill {
    name: String,
    /// Number of terms in all fields of the skill.
    length: u32,
    /// The BM25 weight of the document's length relative to the average.
    damping: f64,
}

/// The frequency of a term in a skill: the sum over its fields, each counted by its weight.
#[derive(Clone, Copy, Debug)]
struct Posting {
    document: usize,
    frequency: u32,
}

/// How well a skill matches a query, or one word of it.
#[derive(Clone, Copy, Debug, Default)]
struct Match {
    score: f64,
    /// The weight of those words of the query that the skill has.
    covered: f64,
}

/// The best match of each skill for one word of the query.
struct BestMatches {
    matches: Vec<Match>,
    raised: Vec<usize>,
}

impl BestMatches {
    fn with_documents(documents: usize) -> Self {
        Self {
            matches: vec![Match::default(); documents],
            raised: Vec::new(),
        }
    }

    fn raise(&mut self, document: usize, found: Match) {
        // Keep the best score, not the sum: a query for `test` must not favour a skill with test,
        // tester and testing.
        let best = &mut self.matches[document];
        if best.covered == 0.0 {
            self.raised.push(document);
        }
        best.score = best.score.max(found.score);
        best.covered = best.covered.max(found.covered);
    }

    /// Adds the best matches to `totals` and resets them for the next word.
    fn add_to(&mut self, totals: &mut [Match]) {
        for document in self.raised.drain(..) {
            let found = std::mem::take(&mut self.matches[document]);
            totals[document].score += found.score;
            totals[document].covered += found.covered;
        }
    }
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

    /// Computes the length weight of each skill from the average length, once all are indexed.
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
            for term in field_terms(field) {
                let frequency = frequencies.entry(term).or_default();
                *frequency = frequency.saturating_add(weight);
                length = length.saturating_add(1);
            }
        };
        let (purpose, excluded) = words::split_exclusions(text.description);
        // A hit in a name or tag says more about a skill than one in a long description.
        add(text.name, 4);
        text.tags.iter().for_each(|tag| add(tag, 3));
        text.categories.iter().for_each(|category| add(category, 2));
        add(&purpose, 1);
        add(text.when_to_use, 1);
        let document = self.documents.len();
        let excluded: BTreeSet<String> = field_terms(&excluded).into_iter().collect();
        for term in excluded {
            // "Not for tests of a browser" excludes no tests if the skill is for other tests.
            if !frequencies.contains_key(&term) {
                self.excluded.entry(term).or_default().push(document);
            }
        }
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

    /// Returns the best `top_k` answers to a query, best first. The result is empty for a query
    /// without words, or if no skill matches a large enough share of the query.
    pub fn search(&self, query: &str, top_k: usize) -> Vec<Hit<'_>> {
        let (totals, asked) = self.match_query(query);
        let answers = totals.into_iter().enumerate();
        let answers = answers.filter(|(_, found)| found.covered >= REQUIRED_SHARE * asked);
        self.best_hits(answers, asked, top_k)
    }

    /// Returns all skills that match any part of a query, best first, for lists that show the other
    /// skills as well.
    pub fn rank(&self, query: &str) -> Vec<Hit<'_>> {
        let (totals, asked) = self.match_query(query);
        self.best_hits(totals.into_iter().enumerate(), asked, usize::MAX)
    }

    /// Whether the thesaurus has this word, or a skill says that it is not for it ("Do not use for
    /// ..."). Then the word is no name of the caller's, although no skill matches it.
    fn is_known_elsewhere(&self, word: &str) -> bool {
        self.excluded.contains_key(word) || THESAURUS.has_term(word)
    }

    /// Returns the match of each skill with a query, and the weight of a full match.
    fn match_query(&self, query: &str) -> (Vec<Match>, f64) {
        let mut totals = vec![Match::default(); self.documents.len()];
        let mut best = BestMatches::with_documents(self.documents.len());
        let mut corrections = MOST_CORRECTED_WORDS;
        let terms = query_terms(query).into_iter();
        let terms: Vec<(QueryTerm, Vec<(&str, f64)>)> = terms
            .map(|term| {
                let known = self.known_terms(&term, &mut corrections);
                (term, known)
            })
            .collect();
        let own_words = self.own_words(&terms);
        let (mut asked, mut known_words) = (0.0, 0.0);
        let mut own_names = BTreeSet::new();
        for (mut term, known) in terms {
            let name = term.written.name;
            let name = name.filter(|_| own_words.contains(&term.written.position));
            if name.is_some() && term.written.is_path {
                // The `github` of an address is not what the query is about.
                term.share = term.share.min(LIGHT_SHARE);
            }
            let full = self.match_term(&term, &known, &mut best);
            match name {
                Some(name) if known.is_empty() => _ = own_names.insert(name),
                _ => asked += full,
            }
            if self.terms.contains_key(&term.text) {
                known_words += term.share * as_f64(term.parts.len().max(1));
            }
            best.add_to(&mut totals);
            self.subtract_excluded(&term, &mut totals);
        }
        asked += self.coverage_weight(0) * weight_of_names(as_f64(own_names.len()), known_words);
        (
            totals,
            asked.min(FULL_QUERY_WORDS * self.coverage_weight(0)),
        )
    }

    /// Returns the positions of the written words of a query that are names of the caller's: written
    /// like a name, with a part that no skill has and that is no everyday word.
    fn own_words(&self, terms: &[(QueryTerm, Vec<(&str, f64)>)]) -> BTreeSet<usize> {
        let own = terms.iter().filter(|(term, known)| {
            term.written.name.is_some()
                && known.is_empty()
                && !words::is_everyday(&term.text)
                && !self.is_known_elsewhere(&term.text)
        });
        own.map(|(term, _)| term.written.position).collect()
    }

    fn best_hits(
        &self,
        matches: impl Iterator<Item = (usize, Match)>,
        asked: f64,
        top_k: usize,
    ) -> Vec<Hit<'_>> {
        let mut hits: Vec<Hit<'_>> = matches
            .filter(|(_, found)| found.score > 0.0 && found.covered > 0.0)
            .map(|(position, found)| Hit {
                name: &self.documents[position].name,
                position,
                // A skill with half of the words twice scores less than one with all of them once.
                score: found.score * (found.covered / asked).min(1.0),
            })
            .collect();
        let order = |a: &Hit<'_>, b: &Hit<'_>| {
            b.score
                .total_cmp(&a.score)
                .then_with(|| a.name.cmp(b.name))
                .then(a.position.cmp(&b.position))
        };
        // Sorting all hits of a large vault would cost more than the search, for a few results.
        if top_k < hits.len() {
            hits.select_nth_unstable_by(top_k, order);
            hits.truncate(top_k);
        }
        hits.sort_unstable_by(order);
        hits
    }

    /// Returns the indexed terms that match a term of a query, each with its share of a full match.
    /// An everyday word does not match longer words: `own` in a query does not mean ownership.
    fn known_terms(&self, term: &QueryTerm, corrections: &mut usize) -> Vec<(&str, f64)> {
        let mut known = Vec::new();
        self.push_known(&term.text, 1.0, &mut known);
        if term.parts.is_empty() && term.share >= 1.0 && has_beginnings(&term.text) {
            self.terms
                .range(term.text.clone()..)
                .map(|(other, _)| other.as_str())
                .take_while(|other| other.starts_with(&term.text))
                .filter(|other| other.len() > term.text.len() && !other.contains(' '))
                // A short word can begin thousands of terms, and a query may have many such words.
                .take(MOST_PREFIX_TERMS)
                .for_each(|other| known.push((other, PREFIX_SHARE)));
        }
        let mut meant = vec![term.text.clone()];
        if known.is_empty()
            && *corrections > 0
            && term.is_correctable
            && spelling::may_be_misspelled(&term.text)
            && !THESAURUS.has_term(&term.text)
        {
            *corrections -= 1;
            meant.extend(self.corrections_of(&term.text));
        }
        for word in &meant[1..] {
            self.push_known(word, MISSPELLING_SHARE, &mut known);
        }
        for word in &meant {
            for related in THESAURUS.related_terms(word) {
                self.push_known(related, SYNONYM_SHARE, &mut known);
            }
        }
        known
    }

    fn push_known<'a>(&'a self, term: &str, share: f64, known: &mut Vec<(&'a str, f64)>) {
        if let Some((term, _)) = self.terms.get_key_value(term) {
            known.push((term, share));
        }
    }

    /// Returns the words of the index and of the thesaurus of which a word may be a misspelling.
    fn corrections_of(&self, word: &str) -> BTreeSet<String> {
        let indexed = self.terms.keys().map(String::as_str);
        indexed
            .chain(THESAURUS.words())
            .filter(|known| spelling::is_misspelling(word, known))
            .map(str::to_owned)
            .collect()
    }

    /// Raises the best match of each skill that has one of these terms. Returns the weight that the
    /// query's term has in a full match.
    fn match_term(&self, term: &QueryTerm, known: &[(&str, f64)], best: &mut BestMatches) -> f64 {
        // A term that the index lacks gets the rarity of the rarest term that matches it.
        let rarest = |weight: &dyn Fn(usize) -> f64| {
            let own = self.terms.get(&term.text).map(|own| weight(own.len()));
            let others = known
                .iter()
                .map(|(other, _)| weight(self.postings(other).len()));
            term.share * own.unwrap_or_else(|| others.reduce(f64::max).unwrap_or(weight(0)))
        };
        let highest = rarest(&|holding| self.term_rarity(holding));
        let asked = rarest(&|holding| self.coverage_weight(holding));
        for (other, share) in known {
            let postings = self.postings(other);
            // A matching term never weighs more than the query's own term.
            let weight = share * (term.share * self.term_rarity(postings.len())).min(highest);
            // A synonym covers the whole term of the query, a longer word half of it.
            let covered = if *share > PREFIX_SHARE {
                asked
            } else {
                asked / 2.0
            };
            for posting in postings {
                let score = weight * self.saturated_frequency(*posting);
                best.raise(posting.document, Match { score, covered });
            }
        }
        self.match_parts(term, highest, asked, best);
        asked
    }

    /// Raises the matches of skills that have some of the words of a phrase.
    fn match_parts(&self, term: &QueryTerm, highest: f64, asked: f64, best: &mut BestMatches) {
        let mut found: BTreeMap<usize, Match> = BTreeMap::new();
        let share = 1.0 / as_f64(term.parts.len().max(1));
        for part in term
            .parts
            .iter()
            .filter(|part| words::share_of(part) >= 1.0)
        {
            let postings = self.postings(part);
            for posting in postings {
                let part = found.entry(posting.document).or_default();
                let score = self.term_rarity(postings.len()) * self.saturated_frequency(*posting);
                part.score += share * score;
                part.covered += share * asked;
            }
        }
        for (document, part) in found {
            // The words of a phrase, if they stand apart, are not worth more than the phrase.
            let score = part.score.min(highest * 2.0);
            best.raise(document, Match { score, ..part });
        }
    }

    /// Subtracts the weight of a term from the skills whose description says that they are not for
    /// it.
    fn subtract_excluded(&self, term: &QueryTerm, totals: &mut [Match]) {
        if term.share < 1.0 {
            return;
        }
        for document in self.excluded.get(&term.text).into_iter().flatten() {
            totals[*document].score -= self.term_rarity(0);
            totals[*document].covered -= self.coverage_weight(0);
        }
    }

    fn postings(&self, term: &str) -> &[Posting] {
        self.terms.get(term).map_or(&[], Vec::as_slice)
    }

    fn term_rarity(&self, holding: usize) -> f64 {
        let (all, holding) = (as_f64(self.documents.len()), as_f64(holding));
        // Without the added 1, a word in more than half of the skills would score below zero.
        (1.0 + (all - holding + 0.5) / (holding + 0.5)).ln()
    }

    /// Returns the weight of a term that `holding` skills have, for the decision what is an answer.
    fn coverage_weight(&self, holding: usize) -> f64 {
        let all = as_f64(self.documents.len().max(SMALL_VAULT));
        (1.0 + (all + 0.5) / (as_f64(holding) + 0.5)).ln()
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

/// Returns the terms of a field of a skill: its words, and the phrases that the thesaurus has.
fn field_terms(text: &str) -> Vec<String> {
    let mut terms = words::stems(text);
    let phrases = THESAURUS.divide_phrases(&terms).into_iter();
    let phrases: Vec<String> = phrases
        .filter(|span| span.length > 1)
        .map(|span| terms[span.start..span.start + span.length].join(" "))
        .collect();
    terms.extend(phrases);
    terms
}

/// Returns the weight of the caller's own names in a query, as a number of words. "Release notes for
/// Contoso" asks for release notes: no skill can know the caller's names, so the lack of one must not
/// hide an answer. More names than words that skills have are no such query: their capitals do not
/// make "review the Hotel and the Restaurant" a question about code.
fn weight_of_names(names: f64, known_words: f64) -> f64 {
    let light = names.min(known_words);
    light * LIGHT_SHARE + (names - light)
}

/// Tells whether a word is long enough to match longer words that begin with it.
fn has_beginnings(term: &str) -> bool {
    term.chars().count() >= SHORTEST_PREFIX
}

#[cfg(test)]
mod tests;
