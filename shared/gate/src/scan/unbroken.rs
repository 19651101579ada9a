//! Reads Markdown a second time, as it looks when it is shown: without comments and escapes.
//!
//! A comment, an escape or a line break inside a value of the frontmatter must not hide what a
//! sentence says from rules over sentences: people and agents read on behind it. The first reading
//! judges the file as it stands, so this one only adds what it finds and excuses nothing.

use super::{
    segment::{Segments, Span},
    text::NormalizedText,
};
use crate::rule::place::FRONT;

/// Marks that Markdown writers put a backslash in front of inside names and addresses.
const ESCAPED: &[u8] = b"_~.-:";
/// Maximum length of a numeric character reference with its `&` and `;`.
const LONGEST_REFERENCE: usize = 10;

/// A range of the raw text, and what is shown in its place.
type Cut = (std::ops::Range<usize>, Option<char>);

/// Returns the text of a Markdown file as it is shown. Returns `None` if it is shown as it stands,
/// and no value of its frontmatter, which ends at `front`, has several lines. If only the
/// frontmatter differs, returns only the frontmatter.
pub(super) fn read_unbroken(raw: &str, front: usize) -> Option<NormalizedText> {
    let cuts = find_cuts(raw);
    let has_long_value = raw[..front]
        .lines()
        .any(|line| line.starts_with(char::is_whitespace) && !line.trim().is_empty());
    let end = match cuts.last() {
        Some(last) if last.0.end > front => raw.len(),
        None if !has_long_value => return None,
        _ => front,
    };
    Some(NormalizedText::with_cuts(&raw[..end], &cuts))
}

/// Returns the offset in the raw text at which the frontmatter ends: 0 without frontmatter, `None`
/// if nothing follows it.
pub(super) fn frontmatter_end(reading: &NormalizedText, segments: &Segments) -> Option<usize> {
    let is_front = |section: &&Span| section.place & FRONT != 0;
    let rest = segments.sections.iter().find(|section| !is_front(section));
    match segments.sections.first() {
        Some(first) if is_front(&first) => rest.map(|rest| reading.raw_offset(rest.start)),
        _ => Some(0),
    }
}

/// Finds the comments, escapes and numeric character references of a text, in order.
fn find_cuts(raw: &str) -> Vec<Cut> {
    let bytes = raw.as_bytes();
    let mut cuts = Vec::new();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| b"<\\&".contains(byte)) {
        at += found;
        let cut = match bytes[at] {
            b'<' if bytes[at..].starts_with(b"<!--") => {
                let close = raw[at..].find("-->");
                let end = close.map_or(raw.len(), |close| at + close + 3);
                // Of the two spaces around a comment, only one is shown.
                let is_between = bytes[..at].last() == Some(&b' ') && bytes.get(end) == Some(&b' ');
                Some((end + usize::from(is_between), None))
            }
            b'\\' => bytes
                .get(at + 1)
                .filter(|next| ESCAPED.contains(next))
                .map(|_| (at + 1, None)),
            b'&' => character_reference(&bytes[at..])
                .map(|(character, length)| (at + length, Some(character))),
            _ => None,
        };
        match cut {
            Some((end, shown)) => {
                cuts.push((at..end, shown));
                at = end;
            }
            None => at += 1,
        }
    }
    cuts
}

/// Reads a numeric reference to a printable ASCII character at the beginning of a text, and returns
/// the character and the length of the reference.
fn character_reference(text: &[u8]) -> Option<(char, usize)> {
    let text = &text[..text.len().min(LONGEST_REFERENCE)];
    let length = text.iter().position(|byte| *byte == b';')?;
    let digits = std::str::from_utf8(text[..length].strip_prefix(b"&#")?).ok()?;
    let number = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let byte = number.ok().filter(u8::is_ascii_graphic)?;
    Some((char::from(byte), length + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: &str) -> Option<String> {
        let front = raw.find("\n---\n").map_or(0, |at| at + 4);
        read_unbroken(raw, front).map(|reading| String::from_utf8(reading.bytes).unwrap())
    }

    #[test]
    fn a_text_is_read_as_it_is_shown() {
        for (raw, expected) in [
            ("plain text, a < b & c\n", None),
            ("one <!-- x --> two\n", Some("one two\n")),
            ("one <!-- x", Some("one ")),
            (r"id\_rsa a\b", Some(r"id_rsa a\b")),
            (
                "id&#95;rsa&#x2E;pub &#300; &#; &amp;",
                Some("id_rsa.pub &#300; &#; &amp;"),
            ),
            ("---\nname: a\n---\nplain\n", None),
            (
                "---\nname: >\n  a\n---\nplain\n",
                Some("---\nname: >\n  a\n---"),
            ),
        ] {
            assert_eq!(shown(raw).as_deref(), expected, "{raw:?}");
        }
    }

    #[test]
    fn offsets_lead_back_to_the_file() {
        let raw = "ab <!-- \u{e9} --> C\\_d &#95; e";
        let reading = read_unbroken(raw, 0).unwrap();
        for letter in [b'c', b'd', b'e'] {
            let at = reading
                .bytes
                .iter()
                .position(|byte| *byte == letter)
                .unwrap();
            let there = raw.as_bytes()[reading.raw_offset(at)].to_ascii_lowercase();
            assert_eq!(there, letter);
        }
    }
}
