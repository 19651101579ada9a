//! Likeness of skills: the same bytes, nearly the same text, alike under another name.
//!
//! A sketch holds the smallest hashes of all runs of five words, one for each of 128 bins. Likeness is the share of equal
//! bins. Sketches are compared only where one of 32 bands of four bins is equal, and a band keeps a bounded number of
//! sketches, so that a thousand copies cost a thousand look-ups and not a million comparisons.

use crate::bundle::File;
use crate::hash::Digest;
use std::collections::{BTreeSet, HashMap};

/// From here two skills are duplicates.
pub const DUPLICATE: f64 = 0.90;
/// From here two skills are alike.
pub const ALIKE: f64 = 0.75;

const BINS: usize = 128;
const ROWS: usize = 4;
const SHINGLE: usize = 5;
/// Sketches that a band remembers for one value.
const KEPT: usize = 32;

/// What a skill's text is like, in one kilobyte.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sketch {
    bins: Box<[u64; BINS]>,
    digest: Digest,
    empty: bool,
}

impl Sketch {
    /// The sketch of these files; paths and order do not count for likeness, but both count for being the same.
    pub fn of(files: &[File]) -> Self {
        let mut bins = Box::new([u64::MAX; BINS]);
        let mut empty = true;
        for file in files {
            let mut window = [0_u64; SHINGLE];
            let mut count = 0;
            for word in words(&file.bytes) {
                window.rotate_left(1);
                window[SHINGLE - 1] = hash(word);
                count += 1;
                if count >= SHINGLE {
                    let shingle = window
                        .iter()
                        .fold(0x9E37_79B9_7F4A_7C15_u64, |sum, word| mix(sum ^ word));
                    let bin = &mut bins[usize::from(shingle.to_le_bytes()[0]) % BINS];
                    *bin = (*bin).min(shingle);
                    empty = false;
                }
            }
        }
        fill(&mut bins);
        let mut all = Vec::new();
        for file in files {
            all.extend_from_slice(file.path.as_str().as_bytes());
            all.push(0);
            all.extend_from_slice(Digest::of(&file.bytes).to_string().as_bytes());
            all.push(b'\n');
        }
        Self {
            bins,
            digest: Digest::of(&all),
            empty,
        }
    }

    /// Likeness from 0 to 1; 1 for the same bytes, 0 where one has fewer than five words.
    pub fn likeness(&self, other: &Self) -> f64 {
        if self.digest == other.digest {
            return 1.0;
        }
        if self.empty || other.empty {
            return 0.0;
        }
        let equal = self
            .bins
            .iter()
            .zip(other.bins.iter())
            .filter(|(a, b)| a == b)
            .count();
        f64::from(u32::try_from(equal).unwrap_or(0)) / 128.0
    }

    /// Whether both have the same files with the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Words: runs of letters and digits, in lower case; other scripts count by the character.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            let step = if word.is_ascii() { word.len() } else { 12 };
            word.chunks(step)
        })
}

fn hash(word: &[u8]) -> u64 {
    word.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
    })
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Empty bins take the value of the next full one, so that short texts can be compared.
fn fill(bins: &mut [u64; BINS]) {
    let Some(first) = bins.iter().position(|bin| *bin != u64::MAX) else {
        return;
    };
    let mut value = bins[first];
    for step in 0..BINS {
        let at = (first + BINS - step) % BINS;
        if bins[at] == u64::MAX {
            bins[at] = mix(value);
        }
        value = bins[at];
    }
}

/// A skill that another one is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Alike {
    /// The number under which it was added.
    pub number: usize,
    /// From [`ALIKE`] to 1.
    pub likeness: f64,
    /// The same files with the same bytes.
    pub same: bool,
}

/// Sketches by their bands.
#[derive(Debug, Default)]
pub struct Similar {
    sketches: Vec<Sketch>,
    bands: HashMap<(usize, u64), Vec<usize>>,
    compared: u64,
}

impl Similar {
    /// The earlier skills that this one is like, most alike first; then it is added and gets the next number.
    pub fn add(&mut self, sketch: Sketch) -> Vec<Alike> {
        let number = self.sketches.len();
        let mut near = BTreeSet::new();
        for (band, rows) in sketch.bins.chunks_exact(ROWS).enumerate() {
            let key = (band, rows.iter().fold(0, |sum, row| mix(sum ^ row)));
            let bucket = self.bands.entry(key).or_default();
            near.extend(bucket.iter().copied());
            if bucket.len() < KEPT {
                bucket.push(number);
            }
        }
        self.compared += near.len() as u64;
        let mut found: Vec<Alike> = near
            .into_iter()
            .map(|other| Alike {
                number: other,
                likeness: sketch.likeness(&self.sketches[other]),
                same: sketch.is_same(&self.sketches[other]),
            })
            .filter(|alike| alike.likeness >= ALIKE)
            .collect();
        found.sort_by(|a, b| {
            b.likeness
                .total_cmp(&a.likeness)
                .then(a.number.cmp(&b.number))
        });
        self.sketches.push(sketch);
        found
    }

    /// How many sketches were compared with one another so far.
    pub const fn compared(&self) -> u64 {
        self.compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Mode;

    fn skill(text: &str) -> Vec<File> {
        vec![File {
            path: "SKILL.md".parse().unwrap(),
            mode: Mode::Plain,
            bytes: text.as_bytes().to_vec(),
        }]
    }

    fn text(seed: u64, words: u64) -> String {
        let word = |n| format!("w{}", mix(seed * 1_000_003 + n) % 5_000);
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn copies_and_near_copies_are_found() {
        let mut known = Similar::default();
        let base = text(1, 800);
        assert!(known.add(Sketch::of(&skill(&base))).is_empty());
        let same = known.add(Sketch::of(&skill(&base)));
        assert!(same[0].same && same[0].likeness >= 1.0);
        let near = known.add(Sketch::of(&skill(&format!(
            "{base} and a lure of a few more words at the end"
        ))));
        assert!(!near[0].same && near[0].likeness >= DUPLICATE, "{near:?}");
        let part = known.add(Sketch::of(&skill(&format!("{base}{}", text(2, 160)))));
        assert!((ALIKE..DUPLICATE).contains(&part[0].likeness), "{part:?}");
        assert!(known.add(Sketch::of(&skill(&text(3, 800)))).is_empty());
    }

    #[test]
    fn nothing_is_like_nothing() {
        let mut known = Similar::default();
        assert!(known.add(Sketch::of(&skill(""))).is_empty());
        assert!(known.add(Sketch::of(&skill("one two"))).is_empty());
        assert!(known.add(Sketch::of(&skill("three"))).is_empty());
    }

    #[test]
    fn the_work_does_not_grow_with_the_square() {
        let compared = |count: u64, copies: bool| {
            let mut known = Similar::default();
            for number in 0..count {
                known.add(Sketch::of(&skill(&text(
                    if copies { 7 } else { number },
                    60,
                ))));
            }
            known.compared()
        };
        assert!(compared(400, false) <= 2 * compared(200, false) + 200);
        assert!(compared(400, true) <= 400 * KEPT as u64);
    }
}
