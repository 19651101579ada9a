//! Names of keys in a root document.

use std::fmt;
use std::str::FromStr;

use unicode_normalization::UnicodeNormalization as _;

use super::KeyFingerprint;
use crate::keys::PublicKey;
use crate::text::{is_unprintable, text_form};

/// The most characters of a name.
pub const MAX_NAME_CHARS: usize = 64;

/// The name of a key: 1 to 64 characters, none of them invisible or deceptive. No name has the form
/// of a fingerprint: commands take either.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyName(Box<str>);

/// The text is not the name of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "key name must have 1 to {MAX_NAME_CHARS} visible characters, and not the form of a fingerprint"
)]
pub struct BadKeyName;

impl KeyName {
    /// The name that a writer gives to what a person typed: the same text in NFC. Fails on what no
    /// reader accepts.
    pub fn normalized(text: &str) -> Result<Self, BadKeyName> {
        text.nfc().collect::<String>().parse()
    }

    /// The name of a key without a given name: `publisher-` and four characters of its fingerprint.
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
        let is_fingerprint = text.trim().parse::<KeyFingerprint>().is_ok();
        let is_visible = !text.chars().any(is_unprintable);
        if (1..=MAX_NAME_CHARS).contains(&length) && is_visible && !is_fingerprint {
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
    fn no_name_is_another_key_s_fingerprint() {
        let key = crate::keys::SecretKey::from_seed([7; 32]).public();
        let fingerprint = KeyFingerprint::publisher(&key).to_string();
        for name in [fingerprint.clone(), format!(" {fingerprint}")] {
            assert_eq!(name.parse::<KeyName>(), Err(BadKeyName), "{name}");
        }
        let other = fingerprint.replacen("pub:", "pub-", 1);
        assert!(other.parse::<KeyName>().is_ok());
    }

    #[test]
    fn what_a_person_types_becomes_nfc() {
        assert_eq!(KeyName::normalized("e\u{301}").unwrap().as_str(), "é");
    }
}
