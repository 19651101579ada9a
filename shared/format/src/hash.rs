//! SHA-256 digests, by which bundles, catalogs and keys are named.
//!
//! The only text form is 64 lower-case hex characters; upper case is another text and therefore
//! refused.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::text::text_form;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A SHA-256 digest.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Digest([u8; 32]);

/// The text is not 64 lower-case hex characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("SHA-256 must be 64 lower-case hex characters")]
pub struct BadDigest;

impl Digest {
    /// Returns the SHA-256 of the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Wraps 32 bytes that already are a digest, without hashing them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn to_hex(self) -> [u8; 64] {
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let text: &[u8; 64] = text.as_bytes().try_into().map_err(|_| BadDigest)?;
        let mut bytes = [0; 32];
        let mut seen = 0;
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
            *byte = high << 4 | low & 15;
            seen |= high | low;
        }
        // Decide once at the end and not for each digit: parsing should be fast, because a manifest
        // has a digest for every file.
        if seen > 15 {
            return Err(BadDigest);
        }
        Ok(Self(bytes))
    }
}

/// The value of each byte as a hex digit; 0xff for a byte that is not a lower-case hex digit.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    nibbles
};

text_form!(
    Digest, BadDigest, "a SHA-256 in lower-case hex", "pattern": "^[0-9a-f]{64}$"
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_digest() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of(b"abc")));
    }

    #[test]
    fn only_the_canonical_text_is_read() {
        let text = Digest::of(b"abc").to_string();
        for bad in [
            text.to_uppercase(),
            text[1..].to_owned(),
            format!("{text}0"),
            text.replace('b', "g"),
            String::new(),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(BadDigest), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(bytes: [u8; 32]) {
            let digest = Digest::from_bytes(bytes);
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        }

        #[test]
        fn what_parses_prints_the_same(text in ".{0,80}") {
            if let Ok(digest) = text.parse::<Digest>() {
                prop_assert_eq!(digest.to_string(), text);
            }
        }
    }
}
