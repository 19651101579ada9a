//! Names of keys in a root document, which people give and read.

use std::fmt;
use std::str::FromStr;

use unicode_normalization::UnicodeNormalization as _;

use super::KeyFingerprint;
use crate::keys::PublicKey;
use crate::text::{is_unprintable, text_form};

/// Maximum number of characters of a name.
pub const MAX_NAME_CHARS: usize = 64;
/// The name that messages use for a recovery key (one that only changes keys and stays offline).
const RECOVERY_KEY_NAME: &str = "recovery key";
/// The number of characters of a fingerprint without prefix and hyphens.
const FINGERPRINT_CHARS: usize = 32;

/// The name of a key: 1 to 64 characters, none of them invisible or deceptive. No name has the form
/// of a fingerprint, since commands accept either.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyName(Box<str>);

/// The text is empty, too long, or looks like a fingerprint, or has invisible characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "key name must have 1 to {MAX_NAME_CHARS} visible characters, and not the form of a fingerprint"
)]
pub struct BadKeyName;

/// The reason why a program that writes root documents does not give a key this name. Readers
/// accept such names, because earlier documents have them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DeceptiveKeyName {
    /// The text is not a key name at all.
    #[error(transparent)]
    Bad(#[from] BadKeyName),
    /// The name looks the same as the one without the spaces.
    #[error("key name must not begin or end with a space")]
    Spaces,
    /// A list of keys would show the name as several names.
    #[error("key name must not contain `,` or `;`: lists of keys separate names with them")]
    Separator,
    /// The name reads as the state or the fingerprint of another key, as in `bob (revoked)`.
    #[error("key name must not contain parentheses: vault writes the state of a key in them")]
    Parentheses,
    /// The name reads as a fingerprint or a public key.
    #[error("key name must not look like a fingerprint or a public key")]
    Fingerprint,
    /// The name is the one that messages use for the recovery key.
    #[error("key name must not be `{RECOVERY_KEY_NAME}`: vault calls the recovery key so")]
    RecoveryKey,
}

impl KeyName {
    /// Converts a text that a person typed to a name in NFC. Fails on texts that readers reject,
    /// and on names that read as something else.
    pub fn normalized(text: &str) -> Result<Self, DeceptiveKeyName> {
        let name: Self = text.nfc().collect::<String>().parse()?;
        name.check_new()?;
        Ok(name)
    }

    /// Fails if the name would read as something else in the output of commands: as two names, as
    /// the state of a key, or as a fingerprint. A writer also checks names that another machine
    /// chose.
    pub fn check_new(&self) -> Result<(), DeceptiveKeyName> {
        // NFKC maps the wide forms of `,`, `(` and `:`, which look like the plain ones, to these.
        let text: String = self.0.nfkc().flat_map(char::to_lowercase).collect();
        if text.trim() != text {
            return Err(DeceptiveKeyName::Spaces);
        }
        if text.contains([',', ';', '\u{60c}', '\u{61b}', '\u{3001}']) {
            return Err(DeceptiveKeyName::Separator);
        }
        if text.contains(['(', ')']) {
            return Err(DeceptiveKeyName::Parentheses);
        }
        if looks_like_fingerprint(&text) || self.0.parse::<PublicKey>().is_ok() {
            return Err(DeceptiveKeyName::Fingerprint);
        }
        if text == RECOVERY_KEY_NAME {
            return Err(DeceptiveKeyName::RecoveryKey);
        }
        Ok(())
    }

    /// The name that messages use for a recovery key.
    pub fn recovery_key() -> Self {
        Self(RECOVERY_KEY_NAME.into())
    }

    /// The name of a key without a given name: `publisher-` and four characters of its fingerprint.
    pub fn default_for(key: &PublicKey) -> Self {
        let fingerprint = KeyFingerprint::publisher(key).to_string();
        let start: String = fingerprint.chars().skip("pub:".len()).take(4).collect();
        Self(format!("publisher-{start}").into())
    }

    /// Returns the name as text, which has no invisible or deceptive characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = BadKeyName;

    fn from_str(text: &str) -> Result<Self, BadKeyName> {
        // Stop counting once the name is too long: the text may come from a hostile host.
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

text_form!(KeyName, BadKeyName, "the name of a key", "minLength": 1, "maxLength": 64);

/// Tells whether a lower-case text has the prefix of a fingerprint or a vault id, or reads as one
/// with other separators or with similar letters.
fn looks_like_fingerprint(text: &str) -> bool {
    let unprefixed = ["pub", "dev", "vlt"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix));
    if unprefixed.is_some_and(|rest| rest.trim_start().starts_with([':', '_'])) {
        return true;
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    // Eight groups of four characters look like a fingerprint in any alphabet: people compare the
    // shape and not each letter.
    let is_grouped = words
        .windows(FINGERPRINT_CHARS / 4)
        .any(|groups| groups.iter().all(|group| group.chars().count() == 4));
    let compact: String = unprefixed
        .unwrap_or(text)
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect();
    // A vault's fingerprint ends with its version number, so digits may follow its characters.
    let (start, version) = compact
        .split_at_checked(FINGERPRINT_CHARS)
        .unwrap_or_default();
    let is_compact = !start.is_empty()
        && start.chars().all(|c| matches!(c, 'a'..='z' | '2'..='7'))
        && version.chars().all(|c| c.is_ascii_digit());
    is_grouped || is_compact
}

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
    fn writers_refuse_names_that_read_as_something_else() {
        use DeceptiveKeyName::{Bad, Fingerprint, Parentheses, RecoveryKey, Separator, Spaces};
        let key = crate::keys::SecretKey::from_seed([7; 32]).public();
        let fingerprint = KeyFingerprint::publisher(&key).to_string();
        let groups = fingerprint.trim_start_matches("pub:");
        let compact = groups.replace('-', "");
        for (name, reason) in [
            ("a\nb".to_owned(), Bad(BadKeyName)),
            ("bob ".to_owned(), Spaces),
            ("anna, bob".to_owned(), Separator),
            ("anna，bob".to_owned(), Separator),
            ("anna; bob".to_owned(), Separator),
            ("bob (revoked)".to_owned(), Parentheses),
            ("bob（revoked）".to_owned(), Parentheses),
            (format!("bob ({fingerprint})"), Parentheses),
            (fingerprint.to_uppercase(), Fingerprint),
            (fingerprint.replace('-', ""), Fingerprint),
            (fingerprint.replace('-', " "), Fingerprint),
            (fingerprint.replace('-', "–"), Fingerprint),
            (fingerprint.replace(':', " : "), Fingerprint),
            (fingerprint.replace("pub:", "Dev："), Fingerprint),
            (fingerprint.replace("pub:", "pub "), Fingerprint),
            (format!("vlt:{groups}/1"), Fingerprint),
            (format!("vlt {groups}/12"), Fingerprint),
            ("pub:abcd…".to_owned(), Fingerprint),
            ("vlt_abcd".to_owned(), Fingerprint),
            (groups.to_owned(), Fingerprint),
            (compact.to_uppercase(), Fingerprint),
            (groups.replace('a', "\u{430}"), Fingerprint),
            (key.to_string(), Fingerprint),
            ("Recovery Key".to_owned(), RecoveryKey),
        ] {
            assert_eq!(KeyName::normalized(&name), Err(reason), "{name:?}");
        }
        for good in [
            "anna",
            "Anna's laptop",
            "bob/1",
            "publisher-abcd",
            "the laptop of the marketing department",
            "dev machine",
            "public",
            "Ünal 2",
        ] {
            assert!(KeyName::normalized(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn what_a_person_types_becomes_nfc() {
        assert_eq!(KeyName::normalized("e\u{301}").unwrap().as_str(), "é");
    }
}
