//! One line of a file for people: cut around the position of a finding, without anything that
//! controls a terminal.

use std::borrow::Cow;
use std::ops::Range;

use vault_format::text::is_invisible;

/// Maximum number of characters of a line that are shown, before escaping.
const WIDTH: usize = 120;
/// Number of characters before the position that are shown of a line that is cut.
const BEFORE: usize = 40;

/// A line of a text, with one character marked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Excerpt {
    /// The line's number, from 1.
    pub number: u32,
    /// At most 120 characters of the line around the position, with `…` where it is cut. Each tab
    /// becomes one space. Control and invisible characters are escaped, which makes the text
    /// longer.
    pub text: String,
    /// Byte range of the marked character in `text`; empty at the end of the line.
    pub mark: Range<usize>,
}

impl Excerpt {
    /// Returns the line with this number, with the character in this column marked. Both count from
    /// 1, and columns count characters; without a column, the first character is marked. Returns
    /// `None` if the text has no such line.
    pub fn of(text: &str, number: u32, column: Option<u32>) -> Option<Self> {
        let line = text
            .split('\n')
            .nth(usize::try_from(number.checked_sub(1)?).ok()?)?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let column = column.map_or(0, |column| column.saturating_sub(1) as usize);
        let total = line.chars().count();
        let from = if total <= WIDTH {
            0
        } else {
            // A position near the end of the line still gets an excerpt of full width.
            column.saturating_sub(BEFORE).min(total - WIDTH)
        };
        let mut excerpt = String::new();
        let mut mark = None;
        if from > 0 {
            excerpt.push('…');
        }
        for (at, character) in line.chars().enumerate().skip(from).take(WIDTH) {
            let start = excerpt.len();
            if character == '\t' {
                // A tab takes one column, so that a mark printed below the line stands under its
                // character.
                excerpt.push(' ');
            } else if is_invisible(character) {
                excerpt.extend(character.escape_unicode());
            } else {
                excerpt.push(character);
            }
            if at == column {
                mark = Some(start..excerpt.len());
            }
        }
        if from + WIDTH < total {
            excerpt.push('…');
        }
        Some(Self {
            number,
            mark: mark.unwrap_or(excerpt.len()..excerpt.len()),
            text: excerpt,
        })
    }
}

/// Decodes the bytes of a file for people: UTF-16 if a byte order mark says so, else UTF-8 with
/// U+FFFD for anything invalid.
pub fn decode_text(bytes: &[u8]) -> Cow<'_, str> {
    let decode_utf16 = |rest: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest
            .chunks_exact(2)
            .map(|pair| read([pair[0], pair[1]]))
            .collect();
        Cow::Owned(String::from_utf16_lossy(&units))
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, number: u32, column: u32) -> (String, String) {
        let excerpt = Excerpt::of(text, number, Some(column)).unwrap();
        let mark = excerpt.text[excerpt.mark.clone()].to_owned();
        (excerpt.text, mark)
    }

    #[test]
    fn a_short_line_is_shown_whole() {
        assert_eq!(marked("a\nbüc\r\n", 2, 2), ("büc".into(), "ü".into()));
        assert_eq!(marked("\tx", 1, 2), (" x".into(), "x".into()));
        assert_eq!(marked("abc", 1, 9), ("abc".into(), String::new()));
        assert_eq!(marked("", 1, 1), (String::new(), String::new()));
        assert_eq!(Excerpt::of("a", 2, None), None);
        assert_eq!(Excerpt::of("a", 0, None), None);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}X{}", "a".repeat(500_000), "b".repeat(500_000));
        let (text, mark) = marked(&line, 1, 500_001);
        assert_eq!(mark, "X");
        assert!(text.starts_with("…aaa") && text.ends_with("bbb…"));
        assert_eq!(text.chars().count(), WIDTH + 2);
        let (text, mark) = marked(&line, 1, 1_000_001);
        assert_eq!(mark, "b");
        assert!(text.starts_with('…') && text.ends_with('b'));
    }

    #[test]
    fn controls_are_escaped_and_the_mark_stays_on_its_character() {
        let (text, mark) = marked("\u{1b}[2J\u{202e}x\u{200b}y", 1, 6);
        assert_eq!(text, "\\u{1b}[2J\\u{202e}x\\u{200b}y");
        assert_eq!(mark, "x");
        let (_, mark) = marked("\u{1b}[2J", 1, 1);
        assert_eq!(mark, "\\u{1b}");
    }

    #[test]
    fn every_file_has_some_text() {
        assert_eq!(decode_text(b"plain"), "plain");
        assert_eq!(decode_text(b"\xff\xfea\0b\0"), "ab");
        assert_eq!(decode_text(b"\xfe\xff\0a\0b"), "ab");
        assert_eq!(decode_text(b"a\xffb"), "a\u{fffd}b");
    }
}
