//! Ed25519 keys and signatures, checked more strictly than the library does by default.
//!
//! A [`PublicKey`] has exactly one text, and its point on the curve has no part of small order (no
//! factor in the subgroup of eight points). So two different keys always belong to two different
//! secrets. Signatures are checked with `verify_strict` only: with a key of small order, the plain
//! check accepts signatures that were made without any secret.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

use crate::hash::Digest;
use crate::text::{encode_base32, text_form};

/// A device, release or recovery key that passed every check. It keeps the decompressed point, so
/// that a verification does not compute it again. The checks cost about 0.1 ms. A process-wide
/// cache keeps up to 1,024 keys that passed, because a service reads the same few keys all the
/// time.
#[derive(Clone, Copy)]
pub struct PublicKey(VerifyingKey);

/// The 64 bytes of a signature, not verified; [`PublicKey::verify`] does that.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Signature([u8; 64]);

/// A signing key. Its memory is zeroed when it is dropped, and `Debug` does not print it.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// A signer of releases and root versions: a key in memory, or one that an agent (such as
/// ssh-agent) holds.
///
/// The message is DSSE's pre-authentication encoding; the signature is plain Ed25519 over it.
pub trait Signer {
    /// The key that verifies the signatures of this signer.
    fn public_key(&self) -> PublicKey;

    /// Signs the message; fails when the holder of the key refuses or cannot be reached.
    fn sign_message(&self, message: &[u8]) -> Result<Signature, SignerError>;
}

/// The error of a signer that gave no usable signature.
#[derive(Debug, thiserror::Error)]
#[error("cannot sign: {0}")]
pub struct SignerError(Box<dyn std::error::Error + Send + Sync>);

impl SignerError {
    /// Wraps the cause, which may be a plain text.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }

    /// The cause that was wrapped, for a caller that knows its signer's errors.
    pub fn into_cause(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.0
    }
}

/// A reason to reject a public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadKey {
    /// Not 43 characters of canonical base64url.
    #[error("public key must be 43 characters of canonical base64url")]
    Text,
    /// The bytes decode to no point of the curve.
    #[error("the public key is not a point of the curve")]
    NotAPoint,
    /// The bytes are a second encoding of a point.
    #[error("the public key is not in its canonical form")]
    NotCanonical,
    /// The point has small order: signatures under it need no secret.
    #[error("the public key has small order")]
    SmallOrder,
    /// The point has a part of small order, so one secret could appear as eight different keys.
    #[error("the public key has a part of small order")]
    MixedOrder,
}

/// The text is not 86 characters of canonical base64url.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("signature must be 86 characters of canonical base64url")]
pub struct BadSignature;

/// The largest number of cached keys, about 256 KiB.
const MAX_PASSED: usize = 1024;

/// Returns the cache of keys that passed every check. A key that passed once always passes, so
/// removing one from the cache only costs time.
fn checked_keys() -> MutexGuard<'static, HashMap<[u8; 32], PublicKey>> {
    static PASSED: LazyLock<Mutex<HashMap<[u8; 32], PublicKey>>> = LazyLock::new(Mutex::default);
    PASSED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PublicKey {
    /// Reads a key from 32 bytes. Fails unless they are the canonical form of a point without any
    /// part of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, BadKey> {
        if let Some(key) = checked_keys().get(bytes) {
            return Ok(*key);
        }
        let key = Self::decode_strict(bytes)?;
        let mut passed = checked_keys();
        // Empty the whole cache instead of removing the oldest key: that needs no record of when
        // each key was used, and costs only the checks of the next keys.
        if passed.len() >= MAX_PASSED {
            passed.clear();
        }
        passed.insert(*bytes, key);
        Ok(key)
    }

    fn decode_strict(bytes: &[u8; 32]) -> Result<Self, BadKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| BadKey::NotAPoint)?;
        let point = key.to_edwards();
        // The library accepts second encodings of some points. With two texts for one key, a
        // revoked key could come back.
        if point.compress().as_bytes() != bytes {
            return Err(BadKey::NotCanonical);
        }
        if key.is_weak() {
            return Err(BadKey::SmallOrder);
        }
        // Not covered by `is_weak`: one secret could appear as eight different keys.
        if !point.is_torsion_free() {
            return Err(BadKey::MixedOrder);
        }
        Ok(Self(key))
    }

    /// The compressed point, 32 bytes as RFC 8032 defines them.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// SHA-256 of the key's 32 bytes, which names the key in envelopes (`keyid`).
    pub fn key_id(&self) -> Digest {
        Digest::of(self.as_bytes())
    }

    /// The text that people compare: the first 160 bits of the key's SHA-256 in base32, as 8 groups
    /// of 4 characters.
    pub fn fingerprint(&self) -> String {
        let text = encode_base32(&self.key_id().as_bytes()[..20]);
        let mut groups = String::with_capacity(39);
        for (index, c) in text.char_indices() {
            if index > 0 && index % 4 == 0 {
                groups.push('-');
            }
            groups.push(c);
        }
        groups
    }

    /// Tells whether the signature over the message is valid under this key.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        self.0
            // Never use the library's `verify`: it accepts keys of small order, for which anyone
            // can sign.
            .verify_strict(message, &ed25519_dalek::Signature::from_bytes(&signature.0))
            .is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        Self::from_bytes(&decode_base64url::<32>(text, 43).ok_or(BadKey::Text)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_base64url::<43>(self.as_bytes(), f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for PublicKey {}

impl Hash for PublicKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

text_form!(PublicKey, BadKey, "a public key", "pattern": "^[A-Za-z0-9_-]{43}$");

impl Signature {
    /// Wraps 64 bytes without a check; [`PublicKey::verify`] decides whether they are a signature.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The signature's 64 bytes (R, then S).
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl FromStr for Signature {
    type Err = BadSignature;

    fn from_str(text: &str) -> Result<Self, BadSignature> {
        decode_base64url::<64>(text, 86)
            .map(Self)
            .ok_or(BadSignature)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_base64url::<86>(&self.0, f)
    }
}

text_form!(Signature, BadSignature, "a signature");

impl SecretKey {
    /// Creates the key of a 32-byte seed, which must come from a secure random source.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        Self(SigningKey::from_bytes(&seed))
    }

    /// The seed, for storing the key in a file that only its owner can read.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public key that belongs to this secret.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key()) // a multiple of the base point, so it passes all checks
    }

    /// Signs the message. Ed25519 is deterministic: equal messages give equal signatures.
    pub fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

impl Signer for SecretKey {
    fn public_key(&self) -> PublicKey {
        self.public()
    }

    fn sign_message(&self, message: &[u8]) -> Result<Signature, SignerError> {
        Ok(self.sign(message))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public().fingerprint())
    }
}

/// Decodes canonical base64url without padding. The engine already rejects padding, other alphabets
/// and stray bits; encoding the result again makes sure of it.
pub(crate) fn decode_base64url<const N: usize>(text: &str, length: usize) -> Option<[u8; N]> {
    if text.len() != length {
        return None;
    }
    let mut bytes = [0; N];
    let written = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    // 86 characters hold a signature, the longest value that is read here.
    let mut again = [0; 86];
    let end = URL_SAFE_NO_PAD.encode_slice(bytes, &mut again).ok()?;
    (written == N && again.get(..end) == Some(text.as_bytes())).then_some(bytes)
}

pub(crate) fn write_base64url<const N: usize>(
    bytes: &[u8],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut text = [0; N];
    let end = URL_SAFE_NO_PAD
        .encode_slice(bytes, &mut text)
        .map_err(|_| fmt::Error)?;
    f.write_str(std::str::from_utf8(&text[..end]).map_err(|_| fmt::Error)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(name: &str) -> SecretKey {
        SecretKey::from_seed(*Digest::of(format!("vault test {name}").as_bytes()).as_bytes())
    }

    #[test]
    fn rfc_8032_test_1() {
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec,
            0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03,
            0x1c, 0xae, 0x7f, 0x60,
        ];
        let key = SecretKey::from_seed(seed);
        assert_eq!(
            key.public().to_string(),
            "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
        );
        assert_eq!(*key.seed(), seed);
        let hex = [&key.sign(b"").0[..32], &key.sign(b"").0[32..]]
            .map(|half| Digest::from_bytes(half.try_into().unwrap()).to_string());
        assert_eq!(
            hex[0],
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        );
        assert_eq!(
            hex[1],
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        );
        assert!(key.public().verify(b"", &key.sign(b"")));
    }

    #[test]
    fn only_the_canonical_text_is_a_key() {
        let text = secret("release 0").public().to_string();
        assert_eq!(text, "M5Q2NvrUj3C9PXiQTLw8WThVCw_XXT8GuQLkpY9RF2k");
        let (padded, blank, short) = (format!("{text}="), format!(" {text}"), &text[..42]);
        let stray = format!("{}l", &text[..42]); // same bytes, other unused bits
        let other = text.replace('_', "/");
        for bad in [
            padded.as_str(),
            &blank,
            short,
            &stray,
            &other,
            "",
            &"é".repeat(22),
        ] {
            assert_eq!(bad.parse::<PublicKey>().unwrap_err(), BadKey::Text, "{bad}");
        }
    }

    #[test]
    fn keys_that_need_no_secret_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        let everything = Signature::from_bytes({
            let mut bytes = [0; 64];
            bytes[0] = 1; // R = identity, S = 0
            bytes
        });
        assert_eq!(
            PublicKey::from_bytes(&identity).unwrap_err(),
            BadKey::SmallOrder
        );
        assert_eq!(
            PublicKey::from_bytes(&[0; 32]).unwrap_err(),
            BadKey::SmallOrder
        );
        // Even if such a key got in, the strict check would not accept it.
        let weak = PublicKey(VerifyingKey::from_bytes(&identity).unwrap());
        assert!(!weak.verify(b"any message", &everything));
    }

    #[test]
    fn s_plus_l_is_refused() {
        const L: [u8; 32] = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9,
            0xde, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
        ];
        let key = secret("release 0");
        let mut bytes = *key.sign(b"message").as_bytes();
        let mut carry = 0_u16;
        for (byte, l) in bytes[32..].iter_mut().zip(L) {
            carry += u16::from(*byte) + u16::from(l);
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        assert!(
            !key.public()
                .verify(b"message", &Signature::from_bytes(bytes))
        );
    }

    #[test]
    fn fingerprint_has_eight_groups_of_four() {
        let print = secret("release 0").public().fingerprint();
        assert_eq!(print.split('-').map(str::len).collect::<Vec<_>>(), [4; 8]);
        // keyid b5b77f11…: 10110 10110 11011 10111 …
        assert!(print.starts_with("ww3x-"), "{print}");
    }

    #[test]
    fn a_secret_is_not_printed() {
        let key = secret("release 0");
        assert_eq!(
            format!("{key:?}"),
            format!("SecretKey({})", key.public().fingerprint())
        );
    }

    proptest! {
        #[test]
        fn texts_survive_a_round_trip(seed: [u8; 32], message: Vec<u8>) {
            let key = SecretKey::from_seed(seed);
            let (public, signature) = (key.public(), key.sign(&message));
            prop_assert_eq!(public.to_string().parse(), Ok(public));
            prop_assert_eq!(signature.to_string().parse(), Ok(signature));
            prop_assert!(public.verify(&message, &signature));
            prop_assert_eq!(PublicKey::from_bytes(public.as_bytes()), Ok(public));
        }

        #[test]
        fn what_parses_prints_the_same(text in "[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]{86}|.{0,90}") {
            if let Ok(key) = text.parse::<PublicKey>() { prop_assert_eq!(key.to_string(), text.clone()); }
            if let Ok(signature) = text.parse::<Signature>() { prop_assert_eq!(signature.to_string(), text.clone()); }
        }

        #[test]
        fn any_signature_is_judged_without_panic(bytes: [u8; 32], r: [u8; 32], s: [u8; 32]) {
            let signature = Signature::from_bytes([r, s].concat().try_into().unwrap());
            if let Ok(key) = PublicKey::from_bytes(&bytes) {
                prop_assert!(!key.verify(b"message", &signature));
            }
        }
    }
}
