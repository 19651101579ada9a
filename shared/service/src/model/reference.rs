//! References: names of sign-ups for a hosted vault, by which payments refer to them.

use std::fmt;

use serde::{Deserialize, Serialize};
use vault_store::random::{Random, random_bytes};

/// The reference of a sign-up: 128 random bits, as 32 lower-case hexadecimal digits.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Reference(String);

impl Reference {
    /// Creates a random reference.
    pub fn fresh(random: &dyn Random) -> Self {
        Self(format!(
            "{:032x}",
            u128::from_be_bytes(random_bytes(random))
        ))
    }

    /// Parses a reference; returns `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        // The text comes from outside and becomes part of record keys.
        (text.len() == 32 && text.bytes().all(digit)).then(|| Self(text.to_owned()))
    }

    /// Returns the 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
