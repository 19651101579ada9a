//! Local ids of linked vaults.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_format::name::Slug;

/// The id of a linked vault on this machine: its slug and ten hex digits of a hash of its address.
#[derive(Clone, Debug, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct LinkId(String);

impl LinkId {
    /// Returns the id of the vault `slug` at a base address. The same address always gives the same
    /// id.
    pub fn from_address(base: &str, slug: &Slug) -> Self {
        // The line feed keeps the two apart: neither an address nor a slug contains one.
        let hash = Digest::of(format!("{base}\n{slug}").as_bytes()).to_string();
        Self(format!("{slug}-{}", &hash[..10]))
    }

    /// Returns the id as text, which is also the name of the link's folders.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The error for a text that is not a link id: lower-case letters, digits and hyphens, at most 80
/// characters.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not the name of a link")]
pub struct BadLinkId;

impl FromStr for LinkId {
    type Err = BadLinkId;

    fn from_str(text: &str) -> Result<Self, BadLinkId> {
        let good = !text.is_empty()
            && text.len() <= 80
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        // The id becomes a folder name in two places, so it must not contain a dot or a slash.
        good.then(|| Self(text.to_owned())).ok_or(BadLinkId)
    }
}
