//! Reads Markdown a second time, as it looks when it is shown: without comments and escapes, and
//! with the values of the frontmatter as a reader of YAML gets them.
//!
//! None of these must hide what a sentence says from rules over sentences: people and agents read
//! on behind it. The first reading judges the file as it stands, so these only add what they find
//! and excuse nothing.

use super::text::NormalizedText;
use crate::document::{FrontmatterText, frontmatter_texts};
use std::ops::Range;
use unicode_normalization::UnicodeNormalization as _;

/// Marks that Markdown writers put a backslash in front of inside names and addresses.
const ESCAPED: &[u8] = b"_~.-:/@=?%";
/// Maximum length of a character reference with its `&` and `;`.
const LONGEST_REFERENCE: usize = 10;
/// Names of references to characters of paths and addresses.
const REFERENCES: [(&str, char); 11] = [
    ("period", '.'),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("sol", '/'),
    ("bsol", '\\'),
    ("colon", ':'),
    ("commat", '@'),
    ("num", '#'),
    ("equals", '='),
    ("quest", '?'),
    ("Tab", ' '),
];
/// Longest code of Markdown that is looked for, and longest tag inside a word.
const LONGEST_CODE: usize = 16 << 10;
const LONGEST_TAG: usize = 64;

/// A range of the raw text, and what is shown in its place.
type Cut = (Range<usize>, Option<char>);

/// Which comments of a text are left out.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Comments {
    /// What begins like one anywhere, to the next end.
    All,
    /// Those that do not begin in code or inside another one, and that end. A false beginning in
    /// front cuts nothing then.
    Whole,
}

/// Returns the readings of a Markdown text as it is shown, as far as they differ from the text.
pub(super) fn read_unbroken(raw: &str) -> Vec<NormalizedText> {
    let all = find_cuts(raw, Comments::All);
    let whole = find_cuts(raw, Comments::Whole);
    let mut readings = Vec::new();
    if !all.is_empty() {
        readings.push(NormalizedText::with_cuts(raw, &all));
    }
    if !whole.is_empty() && whole != all {
        readings.push(NormalizedText::with_cuts(raw, &whole));
    }
    readings
}

/// Returns the values of the frontmatter as a reader of YAML gets them, each on a line with its key;
/// `None` if all of them stand on a line as they are.
pub(super) fn read_values(raw: &str) -> Option<NormalizedText> {
    let texts = frontmatter_texts(raw);
    let mut reading = NormalizedText::default();
    let mut is_new = false;
    let (mut at, mut line) = (0, 1);
    for FrontmatterText {
        key,
        value,
        line: begun,
    } in texts
    {
        while line < begun
            && let Some(end) = raw[at..].find('\n')
        {
            at += end + 1;
            line += 1;
        }
        let value = cut_text(&value, &find_cuts(&value, Comments::Whole));
        let near = window(raw, at, key.len() + value.len() + LONGEST_TAG);
        is_new |= value.contains('\n') || !near.contains(value.as_str());
        let begun = at;
        reading.add_word(raw, &key, &mut at);
        reading.add_part(": ", at);
        for word in value.split_whitespace() {
            reading.add_word(raw, word, &mut at);
            reading.add_part(" ", at);
        }
        reading.add_part("\n", at);
        line += u32::try_from(raw[begun..at].matches('\n').count()).unwrap_or_default();
    }
    is_new.then_some(reading)
}

impl NormalizedText {
    /// Adds a word that stands in the raw text soon behind an offset, unless it is written otherwise
    /// there.
    fn add_word(&mut self, raw: &str, word: &str, at: &mut usize) {
        let found = window(raw, *at, word.len() + LONGEST_TAG).find(word);
        let from = found.map_or(*at, |found| *at + found);
        self.add_part(word, from);
        *at = found.map_or(*at, |_| from + word.len());
    }
}

/// The text that begins at an offset, up to a length.
fn window(raw: &str, at: usize, length: usize) -> &str {
    let end = raw.floor_char_boundary((at + length).min(raw.len()));
    raw.get(at..end).unwrap_or_default()
}

fn cut_text(text: &str, cuts: &[Cut]) -> String {
    let mut shown = String::new();
    let mut from = 0;
    for (range, character) in cuts {
        shown += &text[from..range.start];
        shown.extend(*character);
        from = range.end;
    }
    shown + &text[from..]
}

/// Finds the comments, escapes and character references of a text, in order.
fn find_cuts(raw: &str, comments: Comments) -> Vec<Cut> {
    let bytes = raw.as_bytes();
    let mut cuts = Vec::new();
    let mut at = 0;
    let mut code_end = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| b"<\\&`".contains(byte)) {
        at += found;
        let cut = match bytes[at] {
            b'`' => {
                let marks = bytes[at..].iter().take_while(|byte| **byte == b'`').count();
                if at >= code_end {
                    code_end = end_of_code(raw, at, marks);
                }
                at += marks;
                continue;
            }
            b'<' if comments == Comments::All => all_of_comment(raw, at),
            b'<' if at < code_end => None,
            b'<' => whole_comment(raw, at).or_else(|| tag_in_word(bytes, at)),
            b'\\' => match bytes.get(at + 1) {
                Some(next) if ESCAPED.contains(next) => Some((at + 1, None)),
                Some(b'<' | b'`') if comments == Comments::Whole && at >= code_end => {
                    at += 2;
                    continue;
                }
                _ => None,
            },
            _ => character_reference(&bytes[at..])
                .map(|(character, length)| (at + length, Some(character))),
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

/// The comment that begins here and ends anywhere, or with the text.
fn all_of_comment(raw: &str, at: usize) -> Option<(usize, Option<char>)> {
    if !raw[at..].starts_with("<!--") {
        return None;
    }
    let close = raw[at..].find("-->");
    let end = close.map_or(raw.len(), |close| at + close + 3);
    Some((end_with_space(raw, at, end), None))
}

/// The comment that begins here and ends before the next one begins.
fn whole_comment(raw: &str, at: usize) -> Option<(usize, Option<char>)> {
    let inner = raw[at..].strip_prefix("<!--")?;
    let next = inner.find("<!--").unwrap_or(inner.len());
    let inner = &inner[..next];
    let ends = ["-->", "--!>"].map(|end| inner.find(end).map(|at| at + end.len()));
    let end = at + 4 + ends.into_iter().flatten().min()?;
    Some((end_with_space(raw, at, end), None))
}

/// Of the two spaces around a comment, only one is shown.
fn end_with_space(raw: &str, at: usize, end: usize) -> usize {
    let bytes = raw.as_bytes();
    let is_between = bytes[..at].last() == Some(&b' ') && bytes.get(end) == Some(&b' ');
    end + usize::from(is_between)
}

/// A tag of HTML between two letters: `cred<b></b>entials`.
fn tag_in_word(bytes: &[u8], at: usize) -> Option<(usize, Option<char>)> {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    if !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before))) {
        return None;
    }
    let mut end = at;
    while bytes.get(end) == Some(&b'<') && end - at < LONGEST_TAG {
        let name = end + 1 + usize::from(bytes.get(end + 1) == Some(&b'/'));
        let tag = &bytes[name..bytes.len().min(name + LONGEST_TAG)];
        let length = tag.iter().position(|byte| b"<>\n".contains(byte))?;
        if tag[length] != b'>' || !tag[0].is_ascii_alphabetic() {
            return None;
        }
        end = name + length + 1;
    }
    is_letter(bytes.get(end)).then_some((end, None))
}

/// Returns where the code ends that these back ticks begin: a span, or a block that begins a line.
/// Without an end, it is none.
fn end_of_code(raw: &str, at: usize, marks: usize) -> usize {
    let before = &raw.as_bytes()[at.saturating_sub(LONGEST_TAG)..at];
    let line = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map(|end| end + 1);
    let line = line.or((at < LONGEST_TAG).then_some(0));
    let begins_line =
        line.is_some_and(|line| before[line..].iter().all(|byte| b" \t>-*".contains(byte)));
    let rest = window(raw, at + marks, LONGEST_CODE);
    let is_block = marks >= 3 && begins_line;
    let mut from = 0;
    while let Some(found) = rest[from..].find('`') {
        // A span ends with its paragraph.
        if !is_block && rest[from..from + found].contains("\n\n") {
            break;
        }
        from += found;
        let count = rest[from..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        let is_end = if is_block {
            count >= marks
                && rest[..from]
                    .trim_end_matches([' ', '\t', '>'])
                    .ends_with('\n')
        } else {
            count == marks
        };
        from += count;
        if is_end {
            return at + marks + from;
        }
    }
    at + marks
}

/// Reads a reference to a printable ASCII character at the beginning of a text, and returns the
/// character and the length of the reference.
fn character_reference(text: &[u8]) -> Option<(char, usize)> {
    let text = &text[..text.len().min(LONGEST_REFERENCE)];
    let length = |from: usize, is_part: fn(&u8) -> bool| {
        from + text[from..].iter().take_while(|byte| is_part(byte)).count()
    };
    let (end, number) = match text {
        [b'&', b'#', b'x' | b'X', ..] => {
            let end = length(3, u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(&text[3..end]).ok()?;
            (end, u32::from_str_radix(digits, 16).ok()?)
        }
        [b'&', b'#', ..] => {
            let end = length(2, u8::is_ascii_digit);
            (end, std::str::from_utf8(&text[2..end]).ok()?.parse().ok()?)
        }
        _ => {
            let end = length(1, u8::is_ascii_alphabetic);
            let name = REFERENCES
                .iter()
                .find(|one| *one.0.as_bytes() == text[1..end]);
            return (text.get(end) == Some(&b';')).then_some((name?.1, end + 1));
        }
    };
    // Browsers need no semicolon behind a number.
    let end = end + usize::from(text.get(end) == Some(&b';'));
    let mut plain = char::from_u32(number)?.nfkc();
    let character = plain.next().filter(char::is_ascii_graphic)?;
    plain.next().is_none().then_some((character, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: &str) -> Vec<String> {
        let texts = read_unbroken(raw).into_iter().chain(read_values(raw));
        texts
            .map(|reading| String::from_utf8(reading.bytes).unwrap())
            .collect()
    }

    #[test]
    fn a_text_is_read_as_it_is_shown() {
        for (raw, expected) in [
            ("plain text, a < b & c\n", &[][..]),
            ("one <!-- x --> two\n", &["one two\n"]),
            ("one <!-- x", &["one "]),
            (
                "a `<!--` b &#99; <!-- x --> c",
                &["a ` c", "a `<!--` b c c"],
            ),
            (
                "a `<!--` b `-->` c <!-- x --> d",
                &["a `` c d", "a `<!--` b `-->` c d"],
            ),
            (
                "```html\n<!-- a\n```\nb <!-- x --> c",
                &["```html\n c", "```html\n<!-- a\n```\nb c"],
            ),
            ("a \\<!-- b <!-- x --> c", &["a \\ c", "a \\<!-- b c"]),
            ("a <!-- x --!> b --> c", &["a c", "a b --> c"]),
            ("cred<b></b>entials a<b> c", &["credentials a<b> c"]),
            (r"id\_rsa a\b ~\/x", &[r"id_rsa a\b ~/x"]),
            (
                "id&#95;rsa&#x2E;pub &#300; &#; &amp; &#101n&period;&#65349;",
                &["id_rsa.pub &#300; &#; &amp; en.e"],
            ),
            ("---\nname: a\n---\nplain\n", &[]),
            ("---\nname: >\n  a\n\n  b\n---\nplain\n", &["name: a b \n"]),
            ("---\nname: \"a\nb\"\n---\nplain\n", &["name: a b \n"]),
            (
                "---\nname: \"\\x61\\\n  b\"\nx: [c, d]\n---\n",
                &["name: ab \nx: c \nx: d \n"],
            ),
        ] {
            assert_eq!(shown(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn offsets_lead_back_to_the_file() {
        let raw = "ab <!-- \u{e9} --> C\\_d &#95; e";
        let reading = read_unbroken(raw).remove(0);
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
