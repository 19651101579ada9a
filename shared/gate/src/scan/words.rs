//! Finds many words in one pass over a text.

use aho_corasick::AhoCorasick;

/// The search for many words at once.
pub(super) struct Words(AhoCorasick);

impl Words {
    /// Prepares the search for these words; none of them may be empty.
    #[expect(
        clippy::expect_used,
        reason = "the words stand in the rules: no input makes them too many"
    )]
    pub(super) fn new(words: &[&str]) -> Self {
        Self(AhoCorasick::new(words).expect("the words of the rules fit one search"))
    }

    /// Returns the offset and the number of each occurrence of each word, sorted.
    pub(super) fn find(&self, text: &[u8]) -> Vec<(usize, usize)> {
        // Search for overlapping words, because the word of one rule may be inside that of another.
        let hits = self.0.find_overlapping_iter(text);
        let mut found: Vec<_> = hits
            .map(|hit| (hit.start(), hit.pattern().as_usize()))
            .collect();
        // The search returns them sorted by their ends, so each is only a few places off.
        for at in 1..found.len() {
            let mut place = at;
            while place > 0 && found[place - 1] > found[place] {
                found.swap(place - 1, place);
                place -= 1;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_lie_over_each_other_are_all_found() {
        let words = Words::new(&["aa", "aab", "b", "\u{7d42}"]);
        let found = words.find("aaab\u{7d42}".as_bytes());
        assert_eq!(found, [(0, 0), (1, 0), (1, 1), (3, 2), (4, 3)]);
        assert_eq!(words.find(b""), []);
    }
}
