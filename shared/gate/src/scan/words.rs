//! Many words at once: where each of them stands in a text.
//!
//! One search for all of them takes longer to make ready than a skill of the usual size takes to be searched word by word; from
//! some size on it is many times faster. So the first texts of a process are searched word by word. What is found is the same.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use memchr::memmem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are searched word by word before the search for all words is made: by then both have taken about as long.
const FEW: usize = 32 << 10;

/// Words to look for.
pub(super) struct Words {
    all: Vec<&'static str>,
    /// Bytes that were looked through so far.
    searched: AtomicUsize,
    /// `None` inside where there are too many words for it.
    at_once: OnceLock<Option<AhoCorasick>>,
}

impl Words {
    /// Of these, none of which is empty.
    pub(super) fn new(all: Vec<&'static str>) -> Self {
        Self {
            all,
            searched: AtomicUsize::new(0),
            at_once: OnceLock::new(),
        }
    }

    /// Where a word begins and its number, for each place of each word, in this order.
    pub(super) fn find(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let before = self.searched.fetch_add(text.len(), Ordering::Relaxed);
        let mut found = if before.saturating_add(text.len()) <= FEW {
            self.one_by_one(text)
        } else {
            self.at_once(text)
        };
        found.sort_unstable();
        found
    }

    fn at_once(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let search = self.at_once.get_or_init(|| {
            AhoCorasickBuilder::new()
                .match_kind(MatchKind::Standard)
                // One less than its own choice: ready in half the time, and no slower over a text.
                .dense_depth(2)
                .build(&self.all)
                .ok()
        });
        let Some(search) = search else {
            return self.one_by_one(text);
        };
        search
            .find_overlapping_iter(text)
            .map(|hit| (hit.start(), hit.pattern().as_usize()))
            .collect()
    }

    fn one_by_one(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let pairs = Pairs::of(text);
        let mut found = Vec::new();
        for (number, word) in self.all.iter().enumerate() {
            let word = word.as_bytes();
            if !pairs.could_hold(word) {
                continue;
            }
            let mut from = 0;
            while let Some(at) = memmem::find(&text[from..], word) {
                found.push((from + at, number));
                from += at + 1;
            }
        }
        found
    }
}

/// The pairs of neighbours in a text: a bit for each that there is. Most words hold a pair that a short text does not.
struct Pairs(Box<[u64; 1 << 10]>);

impl Pairs {
    fn of(text: &[u8]) -> Self {
        let mut bits = Box::new([0; 1 << 10]);
        for pair in text.windows(2) {
            let (word, bit) = place(pair);
            bits[word] |= bit;
        }
        Self(bits)
    }

    fn could_hold(&self, word: &[u8]) -> bool {
        word.windows(2).all(|pair| {
            let (word, bit) = place(pair);
            self.0[word] & bit != 0
        })
    }
}

fn place(pair: &[u8]) -> (usize, u64) {
    let number = usize::from(pair[0]) << 8 | usize::from(pair[1]);
    (number >> 6, 1 << (number & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn both(words: &Words, text: &str) -> Vec<(usize, usize)> {
        let mut one_by_one = words.one_by_one(text.as_bytes());
        one_by_one.sort_unstable();
        let mut at_once = words.at_once(text.as_bytes());
        assert!(words.at_once.get().is_some_and(Option::is_some));
        at_once.sort_unstable();
        assert_eq!(one_by_one, at_once, "{text:?}");
        one_by_one
    }

    #[test]
    fn words_that_lie_over_each_other_are_all_found() {
        let words = Words::new(vec!["aa", "aab", "b", "\u{7d42}"]);
        let found = both(&words, "aaab\u{7d42}");
        assert_eq!(found, [(0, 0), (1, 0), (1, 1), (3, 2), (4, 3)]);
        assert_eq!(both(&words, ""), []);
    }

    #[test]
    fn after_some_text_all_words_are_searched_for_at_once() {
        let words = Words::new(vec!["needle"]);
        let text = [&b"a needle "[..], &[b' '; FEW / 2]].concat();
        assert_eq!(words.find(&text), [(2, 0)]);
        assert!(words.at_once.get().is_none());
        assert_eq!(words.find(&text), [(2, 0)]);
        assert!(words.at_once.get().is_some());
    }

    static OF_THE_RULES: LazyLock<Words> = LazyLock::new(|| {
        let groups = super::super::super::rules::all().flat_map(|rule| rule.needs);
        Words::new(groups.copied().flatten().copied().collect())
    });

    proptest! {
        #[test]
        fn both_ways_find_the_same(text in "[ab c\u{e9}]{0,60}") {
            let words = Words::new(vec!["a", "ab", "aba", "ba b", "  ", "b\u{e9}", "cc"]);
            both(&words, &text);
        }

        #[test]
        fn both_ways_find_the_same_words_of_the_rules(
            pieces in prop::collection::vec((any::<prop::sample::Index>(), "[ a-z]{0,2}"), 0..12)
        ) {
            let mut text = String::new();
            for (index, between) in pieces {
                let word: &&str = index.get(&OF_THE_RULES.all);
                text.push_str(word);
                text.push_str(&between);
            }
            both(&OF_THE_RULES, &text);
        }
    }
}
