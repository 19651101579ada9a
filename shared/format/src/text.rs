//! Shared code for types whose values have one canonical text, and for the safe display of text
//! that other people or hosts wrote.
//!
//! A type with `FromStr` and `Display` gets its serde form from the macro `text_form`, so that a
//! value from JSON passes the same parser as any other.

use std::fmt;

use serde::Serialize;

/// Gives a `FromStr + Display` type its serde form, its JSON schema and the usual conversions, all
/// through its text. Further keywords of the schema, such as `pattern`, come last. They only
/// document the type: the parser decides.
macro_rules! text_form {
    ($type:ty, $error:ty, $expected:literal $(, $keyword:literal: $value:literal)*) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "description": $expected $(, $keyword: $value)*
                })
            }
        }

        impl TryFrom<&str> for $type {
            type Error = $error;
            fn try_from(text: &str) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

pub(crate) use text_form;

/// Defines the type of a JSON member with one allowed value, such as `schema`. Reading any other
/// value fails.
macro_rules! constant {
    ($(#[$doc:meta])* $type:ident, $value:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $type;

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($value)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Constant;
                impl serde::de::Visitor<'_> for Constant {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "{:?}", $value)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        if text == $value { Ok($type) } else { Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)) }
                    }
                }
                deserializer.deserialize_str(Constant)
            }
        }
    };
}

pub(crate) use constant;

/// Defines an enum whose variants are fixed words of an interface: `Role::Owner` is `role:owner` in
/// JSON, in text and in a setting.
///
/// Beside the variants, the enum has `ALL`, `as_str`, `Display`, `FromStr` (fails with
/// [`UnknownWord`]), and `Serialize` and `Deserialize` through the same words. Further traits, such
/// as `JsonSchema`, are derived above the enum as usual.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        $vis enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every variant, in the order of their declaration.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word as the interface writes it.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, out: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                out.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::text::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let mut known = Self::ALL.into_iter();
                known
                    .find(|known| known.as_str() == word)
                    .ok_or($crate::text::UnknownWord)
            }
        }
    };
}

/// The error for a text that is none of the words of its enum; made by [`words!`](crate::words).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not one of the words that are known here")]
pub struct UnknownWord;

/// Tells whether a character is forbidden in names, paths and labels: controls (C0, DEL, C1), line
/// and paragraph separators, bidirectional controls, zero-width characters. They hide or reorder
/// the text that a person reads.
pub const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{200b}'..='\u{200d}' | '\u{feff}'
        | '\u{2028}' | '\u{2029}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The unprintable characters: control, format, bidi, default-ignorable, separators but U+0020,
/// surrogates, private use, noncharacters. The list is fixed, so that every reader rejects the same
/// bytes with any version of Unicode.
const UNPRINTABLE: [(u32, u32); 45] = [
    (0x0000, 0x001f),
    (0x007f, 0x00a0),
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x0600, 0x0605),
    (0x061c, 0x061c),
    (0x06dd, 0x06dd),
    (0x070f, 0x070f),
    (0x0890, 0x0891),
    (0x08e2, 0x08e2),
    (0x115f, 0x1160),
    (0x1680, 0x1680),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x2000, 0x200f),
    (0x2028, 0x202f),
    (0x205f, 0x206f),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xd800, 0xf8ff),
    (0xfdd0, 0xfdef),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0xfffe, 0xffff),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0x1fffe, 0x1ffff),
    (0x2fffe, 0x2ffff),
    (0x3fffe, 0x3ffff),
    (0x4fffe, 0x4ffff),
    (0x5fffe, 0x5ffff),
    (0x6fffe, 0x6ffff),
    (0x7fffe, 0x7ffff),
    (0x8fffe, 0x8ffff),
    (0x9fffe, 0x9ffff),
    (0xafffe, 0xaffff),
    (0xbfffe, 0xbffff),
    (0xcfffe, 0xcffff),
    (0xdfffe, 0xe0fff),
    (0xefffe, 0x0010_ffff),
];

/// Tells whether a character is invisible, looks like a plain space, or changes the display of
/// others: two names that differ only in it look the same.
pub(crate) fn is_unprintable(c: char) -> bool {
    let code = u32::from(c);
    UNPRINTABLE
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&code))
}

/// Tells whether a character deceives a reader of prose: it controls a terminal, changes the
/// writing direction, or is invisible (tag characters, zero-width characters). Spaces of any width
/// are harmless in prose, and so are the two selectors that show a symbol as text or as a picture
/// (U+FE0E, U+FE0F).
pub fn is_invisible(c: char) -> bool {
    is_unprintable(c)
        && !matches!(
            c,
            '\u{a0}' | '\u{1680}' | '\u{2000}'
                ..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{fe0e}' | '\u{fe0f}'
        )
}

/// Makes foreign text safe for a terminal or an agent: every character that [`is_invisible`]
/// becomes an escape such as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_invisible(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// Tells whether a name is a Windows device, with any extension: Windows cannot create such a file.
pub(crate) fn is_device_name(segment: &str) -> bool {
    // Windows ignores the extension and spaces before it: `con .txt` opens the console.
    let stem = segment.split('.').next().unwrap_or_default();
    let stem = stem.trim_end_matches(' ').to_ascii_lowercase();
    let port = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"));
    let mut number = port.unwrap_or_default().chars();
    // Windows reads a superscript as the digit.
    let is_port = matches!(
        (number.next(), number.next()),
        (Some('1'..='9' | '¹' | '²' | '³'), None)
    );
    is_port
        || matches!(
            stem.as_str(),
            "con" | "prn" | "aux" | "nul" | "conin$" | "conout$"
        )
}

/// Encodes bytes as lower-case base32 (RFC 4648) without padding. Bits that do not fill a last
/// character are dropped.
pub(crate) fn encode_base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(bytes.len() * 8 / 5);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(buffer >> bits) as usize & 31]));
        }
    }
    text
}

/// Converts the bytes of a file to readable text, with `\xNN` for each byte that is not UTF-8.
/// `None` for a binary file: it has a NUL, or more than one byte in eight is not text.
pub fn to_readable(bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len());
    let mut odd = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            odd += 1;
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    (odd * 8 <= bytes.len() && !bytes.contains(&0)).then_some(text)
}

/// Quotes the first 80 characters of a text and makes them printable, for use inside a message.
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{}`", printable(&shown))
}

/// Quotes a whole text and makes it printable. Nothing is cut: a person decides by this text.
pub fn quoted_whole(text: &str) -> String {
    format!("`{}`", printable(text))
}

/// A position in a text: line and column, both counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Position {
    /// Creates a position from a line and a column, both counted from 1.
    pub const fn new(line: u32, column: u32) -> Self {
        Self { line, column }
    }

    /// Returns the position of the byte at `offset` in `text`, or of the end if the offset lies
    /// beyond it.
    pub fn of_offset(text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        // Parsers may report an offset inside a character.
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: to_u32_saturating(before.matches('\n').count() + 1),
            column: to_u32_saturating(before[line_start..].chars().count() + 1),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

fn to_u32_saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Formats an error and its causes in one line, for logs.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::words! {
        enum Colour {
            Red = "colour:red",
            Green = "green",
        }
    }

    #[test]
    fn a_word_is_the_same_in_text_and_in_json() {
        for (colour, word) in [(Colour::Red, "colour:red"), (Colour::Green, "green")] {
            assert_eq!(colour.to_string(), word);
            assert_eq!(word.parse(), Ok(colour));
            let json = serde_json::to_string(&colour).unwrap();
            assert_eq!(json, format!("{word:?}"));
            assert_eq!(serde_json::from_str::<Colour>(&json).unwrap(), colour);
        }
        assert_eq!("Red".parse::<Colour>(), Err(UnknownWord));
        serde_json::from_str::<Colour>("\"Red\"").unwrap_err();
    }

    #[test]
    fn positions_count_characters_and_lines_from_one() {
        let text = "aü\nß b\n";
        assert_eq!(Position::of_offset(text, 0), Position::new(1, 1));
        assert_eq!(Position::of_offset(text, 3), Position::new(1, 3));
        assert_eq!(Position::of_offset(text, 4), Position::new(2, 1));
        assert_eq!(Position::of_offset(text, 7), Position::new(2, 3));
        assert_eq!(
            Position::of_offset(text, 2),
            Position::new(1, 2),
            "inside a character: its start"
        );
        assert_eq!(Position::of_offset(text, 999), Position::new(3, 1));
    }

    #[test]
    fn long_quotes_are_cut() {
        let text = "ä".repeat(200);
        assert_eq!(quoted(&text).chars().count(), 83);
        assert_eq!(quoted("name"), "`name`");
    }

    #[test]
    fn base32_follows_rfc_4648() {
        assert_eq!(encode_base32(b"foobar"), "mzxw6ytbo"); // the last three bits of MZXW6YTBOI need padding
        assert_eq!(encode_base32(b"fooba"), "mzxw6ytb");
    }

    #[test]
    fn device_names_are_known_with_any_extension_and_case() {
        for name in [
            "con",
            "NUL",
            "Com1.tar.gz",
            "lpt9",
            "aux .txt",
            "prn.",
            "COM¹",
            "lpt³.txt",
            "CONIN$",
            "conout$.log",
        ] {
            assert!(is_device_name(name), "{name}");
        }
        for name in [
            "com0", "com10", "com¹1", "com⁴", "console", "conx", "conin", "lpt", "a.con", "",
        ] {
            assert!(!is_device_name(name), "{name}");
        }
    }
    #[test]
    fn what_cannot_be_seen_or_told_from_a_space_is_unprintable() {
        for c in [
            '\0',
            '\u{a0}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{200e}',
            '\u{202e}',
            '\u{2060}',
            '\u{206a}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{e000}',
            '\u{e0041}',
            '\u{e01ef}',
        ] {
            assert!(is_unprintable(c), "{}", c.escape_unicode());
        }
        for c in [' ', 'a', 'ü', '語', '\u{301}', '😀'] {
            assert!(!is_unprintable(c), "{}", c.escape_unicode());
        }
        for c in ['\u{1b}', '\u{61c}', '\u{200d}', '\u{202e}', '\u{e0041}'] {
            let shown = printable(&format!("a{c}b"));
            assert_eq!(shown, format!("a{}b", c.escape_unicode()));
        }
        for text in ["plain — ü 語 😀", "⚠\u{fe0f}", "5\u{a0}kg\u{3000}x"] {
            assert_eq!(printable(text), text);
        }
        // Every character that labels reject is also rejected in paths.
        assert!(
            ('\0'..=char::MAX)
                .filter(|c| is_deceptive(*c))
                .all(is_unprintable)
        );
    }
}
