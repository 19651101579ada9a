//! Compares skills by their text, to find copies under another name.
//!
//! A sketch summarises a text for comparison. It hashes all runs of five words, assigns each hash
//! to one of 128 bins, and keeps the smallest hash of each bin. The likeness of two texts is the
//! share of equal bins. Sketches are compared only if one of their 32 bands (of four bins each) is
//! equal, and a band keeps a bounded number of sketches, so that a thousand copies cost a thousand
//! look-ups and not a million comparisons. Files that are not text are ignored, and a text with few
//! runs of words is too short to be compared.

use crate::finding::{Finding, Level, Rule, Severity};
use std::collections::{BTreeSet, HashMap};
use vault_format::text::quoted;

/// Likeness from which one skill is reported as a duplicate of another.
pub const DUPLICATE: f64 = 0.90;
/// Likeness from which two skills are reported as alike.
pub const ALIKE: f64 = 0.75;

const BINS: usize = 128;
const ROWS: usize = 4;
const SHINGLE: usize = 5;
/// Maximum number of sketches that a band remembers for one value.
const MAX_SKETCHES_PER_VALUE: usize = 32;
/// Fewest bins with a hash of their own that a text must have to be compared: about fifty different
/// runs of words.
const MIN_BINS: usize = 40;

/// The rule that warns about skills with nearly the same text.
pub const DUPLICATE_RULE: Rule = Rule {
    id: "VG-LK-001",
    name: "duplicate",
    category: "AST04",
    severity: Severity::Low,
    why: "Two skills that say the same compete for the same requests, and a copy may hold what the first does not.",
};

/// The rule that warns about skills with similar texts under two names.
pub const ALIKE_RULE: Rule = Rule {
    id: "VG-LK-002",
    name: "alike",
    category: "AST04",
    severity: Severity::Low,
    why: "A copy under another name may hold what the first does not.",
};

/// Returns the warning about a skill whose likeness to another one, with another name, is at least
/// [`ALIKE`]. `hint` tells how to compare them.
pub fn likeness_warning(other: &str, likeness: f64, hint: &str) -> Finding {
    let rule = if likeness >= DUPLICATE {
        &DUPLICATE_RULE
    } else {
        &ALIKE_RULE
    };
    let message = if likeness >= 1.0 {
        format!("it says the same as {}", quoted(other))
    } else {
        format!(
            "{} of its text is that of {}",
            format_percent(likeness),
            quoted(other)
        )
    };
    Finding::of(rule, Level::Warning, message)
        .at(crate::document::SKILL_MD)
        .hint(hint)
}

/// Formats a likeness for people, rounded down: `97 %`.
pub fn format_percent(likeness: f64) -> String {
    format!("{:.0} %", (likeness.clamp(0.0, 1.0) * 100.0).floor())
}

/// A summary of a skill's text for comparisons, in 256 bytes; without content if the text is too
/// short.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sketch(Option<Box<[u16; BINS]>>);

impl Sketch {
    /// Computes the sketch of these files. Their order and paths do not matter; files with a NUL
    /// byte are skipped.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut bins = [u64::MAX; BINS];
        for file in files.into_iter().filter(|file| !file.contains(&0)) {
            let mut window = [0_u64; SHINGLE];
            let mut count = 0;
            for word in split_words(file) {
                window.rotate_left(1);
                window[SHINGLE - 1] = hash_word(word);
                count += 1;
                if count >= SHINGLE {
                    let shingle = window
                        .iter()
                        .fold(0x9E37_79B9_7F4A_7C15_u64, |sum, word| mix_bits(sum ^ word));
                    let bin = &mut bins[usize::from(shingle.to_le_bytes()[0]) % BINS];
                    *bin = (*bin).min(shingle);
                }
            }
        }
        if bins.iter().filter(|bin| **bin != u64::MAX).count() < MIN_BINS {
            return Self(None);
        }
        fill_empty_bins(&mut bins);
        // Keep the middle bits of each hash: the low bits choose the bin, and the high bits of a
        // smallest hash are always small.
        let short = bins.map(|bin| {
            let bytes = bin.to_le_bytes();
            u16::from_le_bytes([bytes[2], bytes[3]])
        });
        Self(Some(Box::new(short)))
    }

    /// Returns the likeness from 0 to 1; 0 if one of the two texts is too short to be compared.
    pub fn likeness(&self, other: &Self) -> f64 {
        let (Some(mine), Some(others)) = (&self.0, &other.0) else {
            return 0.0;
        };
        let equal = mine.iter().zip(others.iter()).filter(|(a, b)| a == b);
        f64::from(u32::try_from(equal.count()).unwrap_or(0)) / 128.0
    }

    /// Tells whether the text is long enough to be compared with others.
    pub const fn is_comparable(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the sketch as 256 bytes, or no bytes if the text is too short.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bins = self.0.iter().flat_map(|bins| bins.iter());
        bins.flat_map(|bin| bin.to_le_bytes()).collect()
    }

    /// Reads the result of [`Sketch::to_bytes`]. Bytes of another length give a sketch that has
    /// likeness 0 to every other.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() != 2 * BINS {
            return Self(None);
        }
        let mut bins = Box::new([0; BINS]);
        for (bin, pair) in bins.iter_mut().zip(bytes.chunks_exact(2)) {
            *bin = u16::from_le_bytes([pair[0], pair[1]]);
        }
        Self(Some(bins))
    }

    fn bands(&self) -> impl Iterator<Item = (usize, u64)> {
        let bins = self.0.iter().flat_map(|bins| bins.chunks_exact(ROWS));
        bins.enumerate().map(|(band, rows)| {
            let value = rows
                .iter()
                .fold(0, |sum, row| (sum << 16) | u64::from(*row));
            (band, value)
        })
    }
}

/// Splits a text into words: runs of ASCII letters and digits. Runs with other characters are cut
/// into pieces of 12 bytes.
fn split_words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            // Chinese and Japanese have no spaces between words; 12 bytes are four of their
            // characters.
            let step = if word.is_ascii() { word.len() } else { 12 };
            word.chunks(step)
        })
}

fn hash_word(word: &[u8]) -> u64 {
    // FNV-1a. Sketches are stored, so the hash must not change between versions. A deliberate
    // collision gains nothing, because likeness only warns.
    word.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
    })
}

const fn mix_bits(value: u64) -> u64 {
    // The finaliser of SplitMix64. It spreads FNV's weak low bits, which choose the bin.
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Fills each empty bin with a value derived from the next full one, so that texts with few runs
/// can be compared.
fn fill_empty_bins(bins: &mut [u64; BINS]) {
    let Some(first) = bins.iter().position(|bin| *bin != u64::MAX) else {
        return;
    };
    let mut value = bins[first];
    for step in 0..BINS {
        let at = (first + BINS - step) % BINS;
        if bins[at] == u64::MAX {
            // Mix the value again at each step, so that a row of empty bins does not repeat it.
            bins[at] = mix_bits(value);
        }
        value = bins[at];
    }
}

/// An earlier skill whose text is similar.
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarSkill {
    /// Number under which the earlier skill was added.
    pub number: usize,
    /// Likeness of the two, from [`ALIKE`] to 1.
    pub likeness: f64,
}

/// Sketches of skills, indexed by their bands.
#[derive(Debug, Default)]
pub struct SketchIndex {
    sketches: Vec<Sketch>,
    bands: HashMap<(usize, u64), Vec<usize>>,
    compared: u64,
}

impl SketchIndex {
    /// Returns the earlier skills with a similar text, those with the highest likeness first.
    pub fn find_similar(&mut self, sketch: &Sketch) -> Vec<SimilarSkill> {
        // Two similar skills share many bands but are compared only once.
        let mut near = BTreeSet::new();
        for key in sketch.bands() {
            near.extend(self.bands.get(&key).into_iter().flatten().copied());
        }
        self.compared += near.len() as u64;
        let mut similar: Vec<SimilarSkill> = near
            .into_iter()
            .map(|number| SimilarSkill {
                number,
                likeness: sketch.likeness(&self.sketches[number]),
            })
            .filter(|alike| alike.likeness >= ALIKE)
            .collect();
        sort_by_likeness(&mut similar);
        similar
    }

    /// Adds a skill under the next number, from 0.
    pub fn add(&mut self, sketch: Sketch) {
        let number = self.sketches.len();
        for key in sketch.bands() {
            let bucket = self.bands.entry(key).or_default();
            // Copies of one text share every band. Without a bound, each would be compared with all
            // the ones before it.
            if bucket.len() < MAX_SKETCHES_PER_VALUE {
                bucket.push(number);
            }
        }
        self.sketches.push(sketch);
    }

    /// Returns the number of comparisons so far.
    pub const fn compared(&self) -> u64 {
        self.compared
    }
}

fn sort_by_likeness(found: &mut [SimilarSkill]) {
    found.sort_by(|a, b| {
        b.likeness
            .total_cmp(&a.likeness)
            .then(a.number.cmp(&b.number))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(text: &str) -> Sketch {
        Sketch::of([text.as_bytes()])
    }

    fn among(sketch: &Sketch, others: &[Sketch]) -> Vec<SimilarSkill> {
        let likeness = others.iter().map(|other| sketch.likeness(other));
        let alike = likeness
            .enumerate()
            .map(|(number, likeness)| SimilarSkill { number, likeness });
        let mut found: Vec<SimilarSkill> = alike.filter(|alike| alike.likeness >= ALIKE).collect();
        sort_by_likeness(&mut found);
        found
    }

    fn add(known: &mut SketchIndex, text: &str) -> Vec<SimilarSkill> {
        let sketch = sketch(text);
        let found = known.find_similar(&sketch);
        assert_eq!(
            found,
            among(&sketch, &known.sketches),
            "bands miss nothing here"
        );
        known.add(sketch);
        found
    }

    fn text(seed: u64, words: u64) -> String {
        let word = |n| format!("w{}", mix_bits(seed * 1_000_003 + n) % 5_000);
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn copies_and_near_copies_are_found() {
        let mut known = SketchIndex::default();
        let base = text(1, 800);
        assert!(add(&mut known, &base).is_empty());
        let same = add(&mut known, &base);
        assert!(same[0].likeness >= 1.0);
        let near = add(
            &mut known,
            &format!("{base} and a lure of a few more words at the end"),
        );
        assert!(near[0].likeness >= DUPLICATE, "{near:?}");
        let part = add(&mut known, &format!("{base}{}", text(2, 160)));
        assert!((ALIKE..DUPLICATE).contains(&part[0].likeness), "{part:?}");
        assert!(add(&mut known, &text(3, 800)).is_empty());
    }

    #[test]
    fn little_text_and_binary_files_are_like_nothing() {
        let mut known = SketchIndex::default();
        let repeated = "the same words again and ".repeat(50_000);
        for short in [
            "",
            "one two",
            "one two",
            &text(1, 30),
            &text(1, 30),
            &repeated,
            &repeated,
        ] {
            assert!(!sketch(short).is_comparable());
            assert!(add(&mut known, short).is_empty());
        }
        let long = text(1, 400);
        let binary = format!("\0{}", text(2, 4_000));
        let both = Sketch::of([long.as_bytes(), binary.as_bytes()]);
        assert_eq!(both, sketch(&long));
    }

    #[test]
    fn a_sketch_survives_as_bytes() {
        let long = sketch(&text(1, 400));
        assert_eq!(long.to_bytes().len(), 256);
        assert_eq!(Sketch::from_bytes(&long.to_bytes()), long);
        assert_eq!(Sketch::from_bytes(&sketch("").to_bytes()), sketch(""));
        assert!(!Sketch::from_bytes(&[1; 255]).is_comparable());
    }

    #[test]
    fn the_likeness_is_told_as_it_is() {
        for (likeness, rule, message) in [
            (1.0, "duplicate", "it says the same as `pdf`"),
            (0.999, "duplicate", "99 % of its text is that of `pdf`"),
            (0.90, "duplicate", "90 % of its text is that of `pdf`"),
            (0.899, "alike", "89 % of its text is that of `pdf`"),
        ] {
            let found = likeness_warning("pdf", likeness, "");
            assert_eq!((found.rule, found.message.as_str()), (rule, message));
        }
    }

    #[test]
    fn the_work_does_not_grow_with_the_square() {
        let compared = |count: u64, copies: bool| {
            let mut known = SketchIndex::default();
            for number in 0..count {
                let sketch = sketch(&text(if copies { 7 } else { number }, 200));
                known.find_similar(&sketch);
                known.add(sketch);
            }
            known.compared()
        };
        assert!(compared(400, false) <= 2 * compared(200, false) + 200);
        let copies = compared(400, true);
        assert!(copies > 0 && copies <= 400 * MAX_SKETCHES_PER_VALUE as u64);
    }
}
