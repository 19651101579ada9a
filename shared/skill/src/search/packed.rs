//! A ranking as bytes, and the part of it that one query asks for: reading that much is a small share of making it anew.
//!
//! ```text
//! u32 documents, u32 terms, u32 bytes of the documents
//! documents:  length, bytes of the name, name        in the ranking's order
//! places:     u32 for each term: where its record begins, from the first record on
//! records:    bytes of the term, term, postings, then for each: documents since the last one, frequency
//! ```
//! Terms are in byte order. Fixed numbers are little-endian, all others LEB128. Reading believes nothing: bytes that are no ranking
//! give `None`, never a panic. Whether they are the right ranking is for the reader to know.

use std::collections::BTreeMap;

use super::{Indexed, MOST_PREFIX_TERMS, Posting, Ranking, asked, has_beginnings};

impl Ranking {
    /// The ranking as bytes, for [`Ranking::of_query`]. Empty, which is no ranking, where it has more than 4 GiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pack().unwrap_or_default()
    }

    fn pack(&self) -> Option<Vec<u8>> {
        let mut documents = Vec::new();
        for document in &self.documents {
            push(&mut documents, u64::from(document.length));
            push_text(&mut documents, &document.name);
        }
        let (mut places, mut records) = (Vec::new(), Vec::new());
        for (term, postings) in &self.terms {
            places.extend(u32::try_from(records.len()).ok()?.to_le_bytes());
            push_text(&mut records, term);
            push(&mut records, postings.len() as u64);
            let mut last = 0;
            for posting in postings {
                push(&mut records, (posting.document - last) as u64);
                push(&mut records, u64::from(posting.frequency));
                last = posting.document;
            }
        }
        let mut bytes = Vec::with_capacity(12 + documents.len() + places.len() + records.len());
        for number in [self.documents.len(), self.terms.len(), documents.len()] {
            bytes.extend(u32::try_from(number).ok()?.to_le_bytes());
        }
        bytes.append(&mut documents);
        bytes.append(&mut places);
        bytes.append(&mut records);
        Some(bytes)
    }

    /// What of a packed ranking counts for a query: all documents, and the words that are asked for. Asked this query it answers as the
    /// whole ranking does; asked another it may find less. `None` where the bytes are no packed ranking.
    pub fn of_query(bytes: &[u8], query: &str) -> Option<Self> {
        let packed = Packed::open(bytes)?;
        let mut ranking = Self {
            documents: packed.documents()?,
            terms: BTreeMap::new(),
        };
        ranking.damp();
        for term in asked(query) {
            packed.matching(&term, &mut ranking)?;
        }
        Some(ranking)
    }
}

struct Packed<'a> {
    count: usize,
    documents: &'a [u8],
    places: &'a [u8],
    records: &'a [u8],
}

impl<'a> Packed<'a> {
    fn open(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(12)?;
        let number = |at: usize| fixed(head, at).and_then(|number| usize::try_from(number).ok());
        let (documents, rest) = rest.split_at_checked(number(2)?)?;
        let (places, records) = rest.split_at_checked(number(1)?.checked_mul(4)?)?;
        // A document takes two bytes at least: a count beyond that must not reserve memory.
        let count = number(0).filter(|count| *count <= documents.len())?;
        Some(Self {
            count,
            documents,
            places,
            records,
        })
    }

    fn documents(&self) -> Option<Vec<Indexed>> {
        let mut rest = self.documents;
        let mut documents = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            let length = u32::try_from(take(&mut rest)?).ok()?;
            let name = take_text(&mut rest)?;
            documents.push(Indexed {
                name: name.to_owned(),
                length,
                damping: 0.0,
            });
        }
        rest.is_empty().then_some(documents)
    }

    /// Puts a word into the ranking, and those that begin with it, as far as a search looks at them.
    fn matching(&self, term: &str, into: &mut Ranking) -> Option<()> {
        let terms = self.places.len() / 4;
        let (mut low, mut high) = (0, terms);
        while low < high {
            let middle = low.midpoint(high);
            if self.record(middle)?.0 < term {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let most = if has_beginnings(term) {
            MOST_PREFIX_TERMS + 1
        } else {
            1
        };
        for at in (low..terms).take(most) {
            let (found, rest) = self.record(at)?;
            if !found.starts_with(term) {
                break;
            }
            if found.len() > term.len() && !has_beginnings(term) {
                break;
            }
            if !into.terms.contains_key(found) {
                let postings = postings(rest, into.documents.len())?;
                into.terms.insert(found.to_owned(), postings);
            }
        }
        Some(())
    }

    /// A term, and the bytes that its postings begin.
    fn record(&self, at: usize) -> Option<(&'a str, &'a [u8])> {
        let begin = usize::try_from(fixed(self.places, at)?).ok()?;
        let mut rest = self.records.get(begin..)?;
        let term = take_text(&mut rest)?;
        Some((term, rest))
    }
}

fn postings(mut rest: &[u8], documents: usize) -> Option<Vec<Posting>> {
    let count = usize::try_from(take(&mut rest)?).ok()?;
    let mut postings = Vec::with_capacity(Some(count).filter(|count| *count <= documents)?);
    let mut document = 0_usize;
    for number in 0..count {
        let step = usize::try_from(take(&mut rest)?).ok()?;
        if number > 0 && step == 0 {
            return None;
        }
        document = document.checked_add(step).filter(|at| *at < documents)?;
        let frequency = u32::try_from(take(&mut rest)?).ok()?;
        postings.push(Posting {
            document,
            frequency,
        });
    }
    Some(postings)
}

/// The fixed number at this place of a list of them.
fn fixed(bytes: &[u8], at: usize) -> Option<u32> {
    let begin = at.checked_mul(4)?;
    let bytes = bytes.get(begin..begin.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;
    use proptest::prelude::*;

    fn ranking() -> Ranking {
        let tags = ["deploy".to_owned(), "äpfel".to_owned()];
        Ranking::new(
            [
                "deployment of services",
                "deploy a service",
                "",
                "代码审查工具",
            ]
            .iter()
            .map(|description| Text {
                name: "a-name",
                description,
                tags: &tags,
                categories: &[],
                when_to_use: "deploying",
            }),
        )
    }

    #[test]
    fn a_part_holds_the_words_asked_for_and_no_others() {
        let packed = ranking().to_bytes();
        let part = Ranking::of_query(&packed, "deploy").unwrap();
        let terms: Vec<_> = part.terms.keys().map(String::as_str).collect();
        assert_eq!(terms, ["deploy", "deploying", "deployment"]);
        assert_eq!(part.len(), 4);
        let part = Ranking::of_query(&packed, "a of").unwrap();
        let terms: Vec<_> = part.terms.keys().map(String::as_str).collect();
        assert_eq!(terms, ["a", "of"], "short words have no beginnings");
    }

    #[test]
    fn no_more_beginnings_are_read_than_count() {
        let many: Vec<String> = (0..300).map(|number| format!("word{number:03}")).collect();
        let text = Text {
            name: "a",
            description: &many.join(" "),
            tags: &[],
            categories: &[],
            when_to_use: "",
        };
        let whole = Ranking::new([text, Text { name: "b", ..text }]);
        let part = Ranking::of_query(&whole.to_bytes(), "word").unwrap();
        assert_eq!(part.terms.len(), MOST_PREFIX_TERMS + 1);
        assert_eq!(part.search("word", 5), whole.search("word", 5));
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_ranking_are_refused_without_a_panic(
            at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(), query in "(deploy|a|代码|x)",
        ) {
            let good = ranking().to_bytes();
            let mut bad = good.clone();
            bad[at.index(good.len())] = byte;
            if let Some(part) = Ranking::of_query(&bad, &query) {
                part.search(&query, 3);
            }
            let cut = &good[..cut.index(good.len())];
            if let Some(part) = Ranking::of_query(cut, &query) {
                part.search(&query, 3);
            }
        }
    }
}
