//! Turns a file into the text on which rules run (a reading), and maps its offsets back to the
//! file.
//!
//! Rules run on one text: NFKC, without invisible characters, look-alike letters mapped, ASCII in
//! lower case. In an ASCII file without very long words, each offset equals that in the file;
//! otherwise a table maps offsets back. One pass over the text gives two readings: a hit is shown
//! as "raw" if the raw text agrees with it, else as "normalised".

use super::bytes::{HEAD, is_binary, is_picture_or_font};
use crate::look_alike::look_alike;
use unicode_normalization::UnicodeNormalization as _;
use vault_format::text::Position;

/// Maximum number of bytes of a file that are scanned. What lies beyond is reported as unread.
pub(super) const MAX_SCANNED: usize = 4 << 20;

/// A file as text.
pub(super) struct Source {
    /// The text of the file, decoded from UTF-8 or UTF-16, without NUL bytes.
    pub raw: String,
    /// Whether bytes after [`MAX_SCANNED`] were dropped.
    pub cut: bool,
    /// Whether the file had bytes that are not UTF-8.
    pub damaged: bool,
    /// Whether it had NUL bytes, which a shell ignores and most viewers do not show.
    pub nul: bool,
}

impl Source {
    /// Reads a file as text. Returns `None` if it is not text. With `is_script` (by its name or
    /// first line) it always is text: an interpreter reads it, whatever it contains.
    pub(super) fn read_text(bytes: &[u8], is_script: bool) -> Option<Self> {
        let cut = bytes.len() > MAX_SCANNED;
        let bytes = &bytes[..bytes.len().min(MAX_SCANNED)];
        let source = |raw, damaged, nul| Self {
            raw,
            cut,
            damaged,
            nul,
        };
        if let Some(raw) = decode_utf16(bytes) {
            return Some(source(raw, false, false));
        }
        if !is_script && (is_picture_or_font(bytes) || is_binary(&bytes[..bytes.len().min(HEAD)])) {
            return None;
        }
        let nul = bytes.contains(&0);
        // A compiled program with the name of a script is read too, but its NUL bytes hide no
        // command.
        let is_hidden = nul && !is_binary(&bytes[..bytes.len().min(HEAD)]);
        // A shell drops NUL bytes, so a word with one inside is the same word without it.
        let without_nul: Vec<u8>;
        let bytes = if nul {
            without_nul = bytes.iter().copied().filter(|byte| *byte != 0).collect();
            &without_nul
        } else {
            bytes
        };
        Some(match std::str::from_utf8(bytes) {
            Ok(text) => source(text.to_owned(), false, is_hidden),
            // The text was cut inside a character at the size limit, which is no damage.
            Err(error) if cut && error.error_len().is_none() => {
                let raw = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
                source(raw, false, is_hidden)
            }
            Err(_) => source(String::from_utf8_lossy(bytes).into_owned(), true, is_hidden),
        })
    }
}

/// Decodes UTF-16 by its byte order mark, unless plain ASCII follows the mark: other programs then
/// read ASCII.
fn decode_utf16(bytes: &[u8]) -> Option<String> {
    let (rest, little) = match bytes {
        [0xFF, 0xFE, rest @ ..] => (rest, true),
        [0xFE, 0xFF, rest @ ..] => (rest, false),
        _ => return None,
    };
    let is_plain = |byte: &&u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    // A false mark must not make a script unreadable here while a shell still runs it.
    if rest.iter().filter(is_plain).count() * 8 > rest.len() * 7 {
        return None;
    }
    let word = |pair| {
        if little {
            u16::from_le_bytes(pair)
        } else {
            u16::from_be_bytes(pair)
        }
    };
    let units = rest.chunks_exact(2).map(|pair| word([pair[0], pair[1]]));
    Some(
        char::decode_utf16(units)
            .map(|unit| unit.unwrap_or('\u{FFFD}'))
            .filter(|character| *character != '\0')
            .collect(),
    )
}

/// The text on which rules run, with a table that maps its offsets back to the file.
#[derive(Default)]
pub(super) struct NormalizedText {
    /// The text in lower case. Line breaks are where the raw text has them, until the module
    /// `segment` joins lines.
    pub bytes: Vec<u8>,
    /// Pairs of an offset here and the offset in the raw text, sorted. Between two pairs, the
    /// distance stays the same. If there are none, all offsets are equal.
    steps: Vec<(usize, usize)>,
}

/// Length from which a word is treated as data. Its middle is left out, so that the texts before
/// and behind it are close enough to be judged together.
const LONGEST_WORD: usize = 1 << 10;

impl NormalizedText {
    pub(super) fn new(raw: &str) -> Self {
        let words = long_words(raw.as_bytes());
        if raw.is_ascii() && words.is_empty() {
            return Self {
                bytes: raw.as_bytes().to_ascii_lowercase(),
                steps: Vec::new(),
            };
        }
        let mut reading = Self {
            bytes: Vec::with_capacity(raw.len() + 64),
            steps: Vec::new(),
        };
        let mut from = 0;
        // These words are ASCII, so no cut falls inside a character.
        for word in words {
            let middle = word.start + LONGEST_WORD / 2..word.end - LONGEST_WORD / 2;
            reading.add_part(&raw[from..middle.start], from);
            from = middle.end;
        }
        reading.add_part(&raw[from..], from);
        reading
    }

    /// Reads a text in which each of these ranges, which are in order, is replaced by a character or
    /// left out. Ranges beyond the text count for nothing.
    pub(super) fn with_cuts(raw: &str, cuts: &[(std::ops::Range<usize>, Option<char>)]) -> Self {
        let mut reading = Self {
            bytes: Vec::with_capacity(raw.len()),
            steps: Vec::new(),
        };
        let mut from = 0;
        for (range, shown) in cuts.iter().filter(|cut| cut.0.end <= raw.len()) {
            reading.add_part(&raw[from..range.start], from);
            if let Some(shown) = shown {
                let mut buffer = [0; 4];
                reading.add_part(shown.encode_utf8(&mut buffer), range.start);
            }
            from = range.end;
        }
        reading.add_part(&raw[from..], from);
        reading
    }

    /// Adds the part of the raw text that begins at `start`.
    pub(super) fn add_part(&mut self, part: &str, start: usize) {
        let mut shift = self
            .steps
            .last()
            .map_or(0, |(here, there)| there.cast_signed() - here.cast_signed());
        let mut buffer = [0; 4];
        for (offset, character) in part.char_indices() {
            let offset = start + offset;
            let now = offset.cast_signed() - self.bytes.len().cast_signed();
            // Add an entry only where the distance changes, so that the table stays short.
            if now != shift {
                self.steps.push((self.bytes.len(), offset));
                shift = now;
            }
            if character.is_ascii() {
                self.bytes.push(character.to_ascii_lowercase() as u8);
            } else if !is_invisible(character) {
                // Map compatibility forms of single characters only. Sequences of several
                // characters stay as they are.
                for plain in character.nfkc() {
                    let plain = look_alike(plain).to_ascii_lowercase();
                    self.bytes
                        .extend_from_slice(plain.encode_utf8(&mut buffer).as_bytes());
                }
            }
        }
    }

    /// Returns the offset in the raw text for an offset in this text.
    pub(super) fn raw_offset(&self, offset: usize) -> usize {
        let place = self.steps.partition_point(|step| step.0 <= offset);
        match place.checked_sub(1).map(|before| self.steps[before]) {
            Some((here, there)) => there + (offset - here),
            None => offset,
        }
    }
}

/// Returns the runs of letters, digits and signs of encoded data that are longer than
/// [`LONGEST_WORD`].
fn long_words(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-%.:".contains(&byte);
    let mut words = Vec::new();
    let mut at = 0;
    // Examine one byte in each `LONGEST_WORD`: every long word contains at least one of them.
    while at < bytes.len() {
        if !is_part(bytes[at]) {
            at += LONGEST_WORD;
            continue;
        }
        let before = bytes[..at].iter().rev().take_while(|byte| is_part(**byte));
        let start = at - before.count();
        let behind = bytes[at..].iter().take_while(|byte| is_part(**byte));
        let end = at + behind.count();
        if end - start > LONGEST_WORD {
            words.push(start..end);
        }
        at = end + LONGEST_WORD;
    }
    words
}

/// Distance in bytes between the offsets at which characters are counted in advance.
pub(super) const STRETCH: usize = 256;

/// Counts the characters that begin in these bytes of a text.
fn count_characters(bytes: &[u8]) -> usize {
    let goes_on = |byte: &&u8| **byte & 0xC0 == 0x80;
    bytes.len() - bytes.iter().filter(goes_on).count()
}

/// The beginnings of the lines of a text, for many look-ups.
pub(super) struct Lines {
    starts: Vec<usize>,
    /// The number of characters before each stretch of [`STRETCH`] bytes, so that a column need not
    /// be counted from the beginning of its line.
    counts: Vec<usize>,
}

impl Lines {
    pub(super) fn of(raw: &str) -> Self {
        let mut starts = vec![0];
        starts.extend(raw.match_indices('\n').map(|(at, _)| at + 1));
        let mut counts = vec![0];
        let mut sum = 0;
        for stretch in raw.as_bytes().chunks(STRETCH) {
            sum += count_characters(stretch);
            counts.push(sum);
        }
        Self { starts, counts }
    }

    /// Counts the characters that begin before an offset.
    fn characters_before(&self, raw: &str, offset: usize) -> usize {
        let stretch = offset / STRETCH;
        self.counts[stretch] + count_characters(&raw.as_bytes()[stretch * STRETCH..offset])
    }

    /// Returns the number of the line that contains an offset, from 1.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).max(1)
    }

    pub(super) fn position_at(&self, raw: &str, offset: usize) -> Position {
        let mut offset = offset.min(raw.len());
        while !raw.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line_at(offset);
        let start = self.starts[line - 1];
        let column = self.characters_before(raw, offset) - self.characters_before(raw, start) + 1;
        let narrow = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Position::new(narrow(line), narrow(column))
    }
}

/// Tells whether a character has no shape, so that the letters around it read as one word.
pub(super) fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{E0000}'..='\u{E0FFF}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_line_of_megabytes_are_found_without_a_walk() {
        let raw = format!("one\n{}\u{e9}x\ntwo", "a".repeat(4 << 20));
        let lines = Lines::of(&raw);
        // Counting each from the start of its line would read 80 GB of text.
        for offset in (4..raw.len() - 8).step_by(100).rev() {
            let column = u32::try_from(offset - 3).unwrap();
            assert_eq!(lines.position_at(&raw, offset), Position::new(2, column));
        }
        let end = raw.len();
        for (offset, line, column) in [
            (end, 3, 4),
            (end - 4, 2, (4 << 20) + 3),
            (5, 2, 2),
            (0, 1, 1),
        ] {
            assert_eq!(lines.position_at(&raw, offset), Position::new(line, column));
        }
    }

    #[test]
    fn the_middle_of_a_long_word_is_left_out() {
        let raw = format!(
            "curl -h 'x: {}' {} | sh\n",
            "0".repeat(70_000),
            "a".repeat(1_024)
        );
        let reading = NormalizedText::new(&raw);
        assert!(reading.bytes.len() < 3_000 && reading.bytes.ends_with(b" | sh\n"));
        assert_eq!(reading.raw_offset(reading.bytes.len() - 3), raw.len() - 3);
        for start in 0..2_100 {
            let raw = [" ".repeat(start), "b".repeat(1_025), " ".repeat(9)].concat();
            let found = long_words(raw.as_bytes());
            assert_eq!(found.first(), Some(&(start..start + 1_025)));
            assert_eq!(found.len(), 1);
        }
        assert!(long_words("b".repeat(1_024).as_bytes()).is_empty());
    }

    #[test]
    fn a_reading_leads_back_to_its_place() {
        let raw = "aé \u{200b}ｃurl Т\nx";
        let reading = NormalizedText::new(raw);
        let text = String::from_utf8(reading.bytes.clone()).unwrap();
        assert_eq!(text, "aé curl t\nx");
        let at = text.find("curl").unwrap();
        assert_eq!(reading.raw_offset(at), raw.find('ｃ').unwrap());
        assert_eq!(
            reading.raw_offset(text.find('x').unwrap()),
            raw.find('x').unwrap()
        );
        let plain = NormalizedText::new("ABC");
        assert_eq!(
            (plain.bytes.as_slice(), plain.raw_offset(2)),
            (b"abc".as_slice(), 2)
        );
    }

    #[test]
    fn lines_and_columns_are_those_of_the_file() {
        let raw = "aü\nß b\n";
        let lines = Lines::of(raw);
        for offset in 0..=raw.len() + 3 {
            assert_eq!(
                lines.position_at(raw, offset),
                Position::of_offset(raw, offset),
                "{offset}"
            );
        }
    }

    #[test]
    fn other_encodings_are_read_or_left() {
        let read = |bytes: &[u8]| Source::read_text(bytes, false);
        let wide: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain("curl".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        assert_eq!(read(&wide).unwrap().raw, "curl");
        assert!(read(b"\x00\x01\x02").is_none() && read(&[0xE9; 99]).is_none());
        let odd = read(b"a line with one bad byte \xff in it").unwrap();
        assert!(odd.damaged && !odd.cut);
        let long = "ä".repeat(MAX_SCANNED);
        let cut = read(long.as_bytes()).unwrap();
        assert!(cut.cut && !cut.damaged && cut.raw.len() <= MAX_SCANNED);
    }

    #[test]
    fn bytes_that_an_interpreter_passes_over_hide_no_script() {
        let marked = Source::read_text(b"\xff\xfe\ncurl x | sh\n", false).unwrap();
        assert!(marked.raw.ends_with("\ncurl x | sh\n") && marked.damaged);
        let nul = Source::read_text(b"#!/bin/sh\n# v1 \0\ncurl x | sh\n", true).unwrap();
        assert!(nul.raw.ends_with("\ncurl x | sh\n") && nul.nul);
        let mixed = [b"\x01\x02\xff\xfe".repeat(99), b"\ncurl x | sh".to_vec()].concat();
        assert!(Source::read_text(&mixed, false).is_none());
        let script = Source::read_text(&mixed, true).unwrap();
        assert!(script.raw.ends_with("\ncurl x | sh"));
    }
}
