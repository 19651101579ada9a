//! Names of keys in a root document.
//!
//! The list of refused characters is fixed, so that every reader refuses the same documents whatever Unicode it knows.

use std::fmt;
use std::str::FromStr;

use unicode_normalization::UnicodeNormalization as _;

use super::KeyFingerprint;
use crate::keys::PublicKey;
use crate::text::text_form;

/// The most characters of a name.
pub const MAX_NAME_CHARS: usize = 64;

/// Control, format, bidi, default-ignorable, separators but U+0020, surrogates, private use, noncharacters.
const REFUSED: [(u32, u32); 45] = [
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

/// The name of a key: 1 to 64 characters, none of them invisible or deceptive.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyName(Box<str>);

/// The text is not the name of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key name has 1 to {MAX_NAME_CHARS} visible characters")]
pub struct BadKeyName;

impl KeyName {
    /// The name that a writer gives to what a person typed: the same text in NFC. Fails on what no reader accepts.
    pub fn normalized(text: &str) -> Result<Self, BadKeyName> {
        text.nfc().collect::<String>().parse()
    }

    /// The name of a key that nobody named: `publisher-` and four characters of its fingerprint.
    pub fn default_for(key: &PublicKey) -> Self {
        let fingerprint = KeyFingerprint::publisher(key).to_string();
        let start: String = fingerprint.chars().skip("pub:".len()).take(4).collect();
        Self(format!("publisher-{start}").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = BadKeyName;

    fn from_str(text: &str) -> Result<Self, BadKeyName> {
        let length = text.chars().take(MAX_NAME_CHARS + 1).count();
        if (1..=MAX_NAME_CHARS).contains(&length) && !text.chars().any(is_refused) {
            Ok(Self(text.into()))
        } else {
            Err(BadKeyName)
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn is_refused(c: char) -> bool {
    let code = u32::from(c);
    REFUSED
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&code))
}

text_form!(KeyName, BadKeyName, "the name of a key");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_visible_characters() {
        for good in ["anna, laptop", " ", "é", "x".repeat(64).as_str()] {
            assert!(good.parse::<KeyName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "a\nb",
            "a\u{200b}b",
            "a\u{202e}b",
            "\u{a0}",
            "x".repeat(65).as_str(),
        ] {
            assert_eq!(bad.parse::<KeyName>(), Err(BadKeyName), "{bad:?}");
        }
    }

    #[test]
    fn what_a_person_types_becomes_nfc() {
        assert_eq!(KeyName::normalized("e\u{301}").unwrap().as_str(), "é");
    }
}
