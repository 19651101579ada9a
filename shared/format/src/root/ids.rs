//! The ids of vaults and keys for people and files: the vault id and the fingerprints.
//!
//! All are texts of shortened SHA-256 values: 130 bits in a vault id, 160 bits in a fingerprint. A
//! program that compares a stored chain with a vault uses the full SHA-256 of root version 1
//! instead.

use std::fmt;
use std::str::FromStr;

use crate::hash::Digest;
use crate::keys::PublicKey;
use crate::text::{encode_base32, text_form};

/// The number of bytes of a SHA-256 in a fingerprint: 32 characters of base32.
const SHOWN_BYTES: usize = 20;
/// The number of characters in 8 groups of 4 with hyphens between them.
const GROUPS_LENGTH: usize = 39;
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The id of a vault: `vlt_` and the first 26 base32 characters of the SHA-256 of the payload of
/// root version 1.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct VaultId([u8; 30]);

/// The text is not the id of a vault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("vault id must be `vlt_` and 26 characters a-z and 2-7")]
pub struct BadVaultId;

impl VaultId {
    /// Derives the id of the vault whose root version 1 has a payload with this SHA-256.
    pub fn derive(root1_sha256: &Digest) -> Self {
        let text = encode_base32(root1_sha256.as_bytes());
        let mut id = *b"vlt_00000000000000000000000000";
        id[4..].copy_from_slice(&text.as_bytes()[..26]);
        Self(id)
    }

    /// Returns the id as a text of 30 characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default() // always ASCII, as checked before
    }
}

impl FromStr for VaultId {
    type Err = BadVaultId;

    fn from_str(text: &str) -> Result<Self, BadVaultId> {
        let id: [u8; 30] = text.as_bytes().try_into().map_err(|_| BadVaultId)?;
        let good = id.starts_with(b"vlt_") && id[4..].iter().all(|byte| BASE32.contains(byte));
        if good { Ok(Self(id)) } else { Err(BadVaultId) }
    }
}

impl fmt::Display for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

text_form!(VaultId, BadVaultId, "a vault id", "pattern": "^vlt_[a-z2-7]{26}$");

/// The text is not a fingerprint of the expected kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a fingerprint is `pub:`, `dev:` or `vlt:` and 8 groups of 4 characters a-z and 2-7; a vault's ends with `/` and a version number"
)]
pub struct BadFingerprint;

/// The fingerprint of a vault: a root version's number, and the start of the SHA-256 of its
/// payload. Each version contains the hash of the one before, so the fingerprint fixes all versions
/// up to this one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct VaultFingerprint {
    shown: [u8; SHOWN_BYTES],
    version: u64,
}

impl VaultFingerprint {
    /// Creates the fingerprint of the version with this number and payload.
    pub fn new(version: u64, payload_sha256: &Digest) -> Self {
        Self {
            shown: fingerprint_bytes(payload_sha256),
            version,
        }
    }

    /// The number of the root version from which the fingerprint is made.
    pub const fn version(&self) -> u64 {
        self.version
    }
}

impl FromStr for VaultFingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let rest = text.strip_prefix("vlt:").ok_or(BadFingerprint)?;
        let (groups, number) = rest.split_once('/').ok_or(BadFingerprint)?;
        let version: u64 = number.parse().map_err(|_| BadFingerprint)?;
        // One text for each number: no sign and no leading zero.
        if version == 0 || version.to_string() != number {
            return Err(BadFingerprint);
        }
        Ok(Self {
            shown: parse_groups(groups)?,
            version,
        })
    }
}

impl fmt::Display for VaultFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vlt:{}/{}", format_groups(&self.shown), self.version)
    }
}

text_form!(
    VaultFingerprint,
    BadFingerprint,
    "the fingerprint of a vault",
    "pattern": "^vlt:[a-z2-7]{4}(-[a-z2-7]{4}){7}/[1-9][0-9]*$"
);

/// What a key signs, as the prefix of its fingerprint states.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum KeyUse {
    /// Signs roots or releases: `pub:`.
    Publisher,
    /// Signs the requests of a device: `dev:`.
    Device,
}

/// The fingerprint of a key, for people to compare: the start of the SHA-256 of the key's 32 bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyFingerprint {
    key_use: KeyUse,
    shown: [u8; SHOWN_BYTES],
}

impl KeyFingerprint {
    /// Creates the fingerprint of a key that signs root versions or releases.
    pub fn publisher(key: &PublicKey) -> Self {
        Self {
            key_use: KeyUse::Publisher,
            shown: fingerprint_bytes(&key.key_id()),
        }
    }

    /// Creates the fingerprint of a key that signs the requests of a device.
    pub fn device(key: &PublicKey) -> Self {
        Self {
            key_use: KeyUse::Device,
            shown: fingerprint_bytes(&key.key_id()),
        }
    }

    /// What the key signs.
    pub const fn key_use(&self) -> KeyUse {
        self.key_use
    }

    /// Tells whether this is the fingerprint of `key`. The prefix is not compared.
    pub fn matches(&self, key: &PublicKey) -> bool {
        self.shown == fingerprint_bytes(&key.key_id())
    }
}

impl FromStr for KeyFingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let (key_use, groups) = match text.split_once(':') {
            Some(("pub", groups)) => (KeyUse::Publisher, groups),
            Some(("dev", groups)) => (KeyUse::Device, groups),
            _ => return Err(BadFingerprint),
        };
        Ok(Self {
            key_use,
            shown: parse_groups(groups)?,
        })
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.key_use {
            KeyUse::Publisher => "pub",
            KeyUse::Device => "dev",
        };
        write!(f, "{prefix}:{}", format_groups(&self.shown))
    }
}

text_form!(
    KeyFingerprint, BadFingerprint, "the fingerprint of a key",
    "pattern": "^(pub|dev):[a-z2-7]{4}(-[a-z2-7]{4}){7}$"
);

fn fingerprint_bytes(digest: &Digest) -> [u8; SHOWN_BYTES] {
    let mut shown = [0; SHOWN_BYTES];
    shown.copy_from_slice(&digest.as_bytes()[..SHOWN_BYTES]);
    shown
}

fn format_groups(shown: &[u8; SHOWN_BYTES]) -> String {
    let mut text = String::with_capacity(GROUPS_LENGTH);
    for (index, c) in encode_base32(shown).char_indices() {
        if index > 0 && index % 4 == 0 {
            text.push('-');
        }
        text.push(c);
    }
    text
}

fn parse_groups(text: &str) -> Result<[u8; SHOWN_BYTES], BadFingerprint> {
    let mut shown = [0_u8; SHOWN_BYTES];
    let (mut buffer, mut bits, mut filled) = (0_u32, 0_u32, 0_usize);
    for byte in text.bytes().filter(|byte| *byte != b'-') {
        let value = BASE32.iter().position(|known| *known == byte);
        let value = value.and_then(|value| u32::try_from(value).ok());
        // At most 7 bits are left over from the byte before, so 12 bits are enough.
        buffer = (buffer << 5 | value.ok_or(BadFingerprint)?) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            let [.., low] = (buffer >> bits).to_be_bytes();
            *shown.get_mut(filled).ok_or(BadFingerprint)? = low;
            filled += 1;
        }
    }
    // Writing the bytes again and comparing the texts rejects hyphens in other places and every
    // other length.
    if format_groups(&shown) == text {
        Ok(shown)
    } else {
        Err(BadFingerprint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_have_one_text() {
        let id = VaultId::derive(&Digest::of(b"x"));
        assert_eq!(id.as_str().parse(), Ok(id));
        for bad in [
            "",
            "vlt_",
            "vlt_42lxzqowomyghk6kpyjb2x6yw",
            "vlt_42lxzqowomyghk6kpyjb2x6ywz2",
            "vlt_42LXZQOWOMYGHK6KPYJB2X6YWZ",
            "VLT_42lxzqowomyghk6kpyjb2x6ywz",
            "vlt-42lxzqowomyghk6kpyjb2x6ywz",
            "vlt_12lxzqowomyghk6kpyjb2x6ywz",
            "01JD5VXQ3N8W2K7R4T6Y9ZB1CM",
        ] {
            assert_eq!(bad.parse::<VaultId>(), Err(BadVaultId), "{bad}");
        }
    }

    #[test]
    fn other_fingerprints_are_refused() {
        let good = "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2";
        assert_eq!(good.parse::<VaultFingerprint>().unwrap().to_string(), good);
        for bad in [
            "geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2",
            "pub:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/0",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/02",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/+2",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/-2",
            "vlt:geo3kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvu/2",
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo-aaaa/2",
            "vlt:GEO3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2",
            "vlt:geo1-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2",
            "vlt:/2",
        ] {
            assert_eq!(
                bad.parse::<VaultFingerprint>(),
                Err(BadFingerprint),
                "{bad}"
            );
        }
        assert!(
            "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo"
                .parse::<KeyFingerprint>()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn fingerprints_survive_a_round_trip(seed: [u8; 32], version in 1_u64..2_000) {
            let key = crate::keys::SecretKey::from_seed(seed).public();
            for fingerprint in [KeyFingerprint::publisher(&key), KeyFingerprint::device(&key)] {
                prop_assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
                prop_assert!(fingerprint.matches(&key));
            }
            let vault = VaultFingerprint::new(version, &Digest::of(&seed));
            prop_assert_eq!(vault.to_string().parse(), Ok(vault));
        }
    }
}
