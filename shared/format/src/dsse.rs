//! The envelope around every signed payload (DSSE): payload type, base64 payload, signatures.
//!
//! The signed bytes are `DSSEv1 SP len(type) SP type SP len(payload) SP payload`. The payload is
//! decoded once, into the buffer that already has the text before it: the bytes that are verified
//! are the bytes that are parsed. An envelope proves nothing until [`Envelope::valid_signers`]
//! returns keys. An entry is tried with the key that its `keyid` names and with no other.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, Serializer};

use crate::json::{self, JsonError};
use crate::keys::{PublicKey, SecretKey, Signature, Signer, SignerError};

/// Maximum number of signatures that one envelope may carry.
pub const MAX_SIGNATURES: usize = 16;

/// A signed payload that is parsed but not verified: it may come from anybody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Envelope {
    payload_type: Box<str>,
    /// The signed bytes: DSSE head, then payload.
    signed: Vec<u8>,
    payload_at: usize,
    signatures: Vec<SignatureEntry>,
}

/// One signature of an envelope.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignatureEntry {
    /// The key that claims to have signed: hex SHA-256 of its 32 bytes. It is not signed itself and
    /// may be any text.
    pub keyid: Box<str>,
    /// The signature over the DSSE head and the payload; not verified.
    pub signature: Signature,
}

/// A reason why bytes are not an envelope.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not strict JSON of the envelope's shape.
    #[error("not an envelope: {0}")]
    Json(#[from] JsonError),
    /// The payload is not base64 in its only canonical spelling (padded, no stray bits).
    #[error("the payload is not canonical base64")]
    Payload,
    /// A signature is not canonical base64 of 64 bytes.
    #[error("a signature is not canonical base64 of 64 bytes")]
    Signature,
    /// No signature, or more than sixteen.
    #[error("envelope must have 1 to {MAX_SIGNATURES} signatures")]
    SignatureCount,
    /// Two entries have the same `keyid`.
    #[error("two signatures have the same keyid")]
    DuplicateKeyId,
}

impl Envelope {
    /// Signs the payload with each key, in the order given. Repeated keys and keys after the
    /// sixteenth are left out.
    pub fn sign(payload_type: &str, payload: &[u8], keys: &[&SecretKey]) -> Self {
        let (mut signed, payload_at) = write_head(payload_type, payload.len());
        signed.extend_from_slice(payload);
        let mut signatures: Vec<SignatureEntry> = Vec::new();
        for key in keys {
            let keyid = key.public().key_id().to_string().into();
            let repeated = signatures.iter().any(|entry| entry.keyid == keyid);
            if !repeated && signatures.len() < MAX_SIGNATURES {
                let signature = key.sign(&signed);
                signatures.push(SignatureEntry { keyid, signature });
            }
        }
        Self {
            payload_type: payload_type.into(),
            signed,
            payload_at,
            signatures,
        }
    }

    /// Signs the payload with each signer, in the order given, one entry for each key. Fails when a
    /// signer gives no good signature, or when there are none or too many signers.
    pub fn sign_with(
        payload_type: &str,
        payload: &[u8],
        signers: &[&dyn Signer],
    ) -> Result<Self, SignerError> {
        let mut envelope = Self::sign(payload_type, payload, &[]);
        for signer in signers {
            envelope.add_signature(*signer)?;
        }
        if envelope.signatures.is_empty() {
            return Err(SignerError::new("no signer is given"));
        }
        Ok(envelope)
    }

    /// Adds the signature of one more signer; an entry under the same key is replaced. Fails when
    /// the signer gives no signature that is good under its own key, or when the envelope has
    /// sixteen already.
    pub fn add_signature(&mut self, signer: &dyn Signer) -> Result<(), SignerError> {
        let key = signer.public_key();
        let signature = signer.sign_message(&self.signed)?;
        // A signer outside of this process may return anything, so verify its signature.
        if !key.verify(&self.signed, &signature) {
            return Err(SignerError::new(
                "the signature is not good under the signer's key",
            ));
        }
        // Replace an entry of the same key: two entries with one key id make the envelope invalid.
        let keyid: Box<str> = key.key_id().to_string().into();
        self.signatures.retain(|entry| entry.keyid != keyid);
        if self.signatures.len() >= MAX_SIGNATURES {
            return Err(SignerError::new("the envelope has 16 signatures already"));
        }
        self.signatures.push(SignatureEntry { keyid, signature });
        Ok(())
    }

    /// Reads an envelope. Fails unless the bytes are strict JSON with canonical base64 inside.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        Wire::decode_envelope(json::parse(bytes)?)
    }

    /// The media type that says what the payload is. It is signed together with the payload.
    pub fn payload_type(&self) -> &str {
        &self.payload_type
    }

    /// The payload's bytes. Do not use them before [`Envelope::valid_signers`] has returned a key.
    pub fn payload(&self) -> &[u8] {
        self.signed.get(self.payload_at..).unwrap_or_default()
    }

    /// The signatures in the order received, none of them verified.
    pub fn signatures(&self) -> &[SignatureEntry] {
        &self.signatures
    }

    /// Returns the keys of `keys` that have a valid signature in the envelope, in the order given.
    /// An entry is tried only with the key that its `keyid` names, so that no key counts twice.
    pub fn valid_signers(&self, keys: &[PublicKey]) -> Vec<PublicKey> {
        let signed = |key: &&PublicKey| {
            let keyid = key.key_id().to_string();
            self.signatures
                .iter()
                .find(|entry| *entry.keyid == *keyid)
                .is_some_and(|entry| key.verify(&self.signed, &entry.signature))
        };
        keys.iter().filter(signed).copied().collect()
    }

    /// Returns the envelope's JSON in its canonical form: compact, members in a fixed order.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::to_bytes(self)
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            payload_type: Cow::Borrowed(&self.payload_type),
            payload: STANDARD.encode(self.payload()).into(),
            signatures: self
                .signatures
                .iter()
                .map(SignatureWire::from_entry)
                .collect(),
        }
        .serialize(serializer)
    }
}

/// The envelope in JSON. A catalog file has the same members beside its own.
#[derive(Deserialize, Serialize)]
pub(crate) struct Wire<'a> {
    #[serde(borrow, rename = "payloadType")]
    pub payload_type: Cow<'a, str>,
    #[serde(borrow)]
    pub payload: Cow<'a, str>,
    #[serde(borrow)]
    pub signatures: Vec<SignatureWire<'a>>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct SignatureWire<'a> {
    #[serde(borrow)]
    keyid: Cow<'a, str>,
    #[serde(borrow)]
    sig: Cow<'a, str>,
}

impl<'a> SignatureWire<'a> {
    pub(crate) fn from_entry(entry: &'a SignatureEntry) -> Self {
        Self {
            keyid: Cow::Borrowed(&entry.keyid),
            sig: STANDARD.encode(entry.signature.as_bytes()).into(),
        }
    }
}

impl Wire<'_> {
    /// Decodes the base64 of payload and signatures.
    pub(crate) fn decode_envelope(self) -> Result<Envelope, EnvelopeError> {
        // Each entry may cost a verification, so their number is bounded before any is decoded.
        if !(1..=MAX_SIGNATURES).contains(&self.signatures.len()) {
            return Err(EnvelopeError::SignatureCount);
        }
        let length = decoded_length(&self.payload).ok_or(EnvelopeError::Payload)?;
        // Decode the payload directly behind the head, so that there is no second copy that could
        // differ from the signed bytes.
        let (mut signed, payload_at) = write_head(&self.payload_type, length);
        decode_base64(&self.payload, &mut signed).ok_or(EnvelopeError::Payload)?;
        let mut signatures: Vec<SignatureEntry> = Vec::with_capacity(self.signatures.len());
        for entry in self.signatures {
            if signatures.iter().any(|other| *other.keyid == *entry.keyid) {
                return Err(EnvelopeError::DuplicateKeyId);
            }
            let mut bytes = Vec::with_capacity(64);
            decode_base64(&entry.sig, &mut bytes).ok_or(EnvelopeError::Signature)?;
            let bytes = bytes.try_into().map_err(|_| EnvelopeError::Signature)?;
            signatures.push(SignatureEntry {
                keyid: entry.keyid.into(),
                signature: Signature::from_bytes(bytes),
            });
        }
        Ok(Envelope {
            payload_type: self.payload_type.into(),
            signed,
            payload_at,
            signatures,
        })
    }
}

fn write_head(payload_type: &str, payload_length: usize) -> (Vec<u8>, usize) {
    let head = format!(
        "DSSEv1 {} {payload_type} {payload_length} ",
        payload_type.len()
    );
    // Reserve two more bytes: the decoder needs room for a whole last group before it knows the
    // padding.
    let mut signed = Vec::with_capacity(head.len() + payload_length + 2);
    signed.extend_from_slice(head.as_bytes());
    (signed, head.len())
}

/// Returns the number of bytes that a padded base64 text encodes; `None` if its length is
/// impossible.
pub(crate) fn decoded_length(text: &str) -> Option<usize> {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len().is_multiple_of(4) && padding <= 2)
        .then(|| text.len() / 4 * 3 - padding.min(text.len()))
}

/// Appends the bytes of a standard, padded, canonical base64 text; `None` for any other text. The
/// engine rejects missing padding, stray bits and line breaks; encoding the last group again makes
/// sure of it.
pub(crate) fn decode_base64(text: &str, into: &mut Vec<u8>) -> Option<()> {
    let before = into.len();
    into.reserve(decoded_length(text)? + 2);
    STANDARD.decode_vec(text, into).ok()?;
    if into.len() - before != decoded_length(text)? {
        return None;
    }
    // Only the last group can have stray bits; encoding all of 4 MiB again would double the cost.
    let last_group = text.get(text.len().saturating_sub(4)..)?;
    let whole = (text.len() / 4).saturating_sub(1) * 3;
    (STANDARD.encode(into.get(before + whole..)?) == last_group).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_seed([byte; 32])
    }

    #[test]
    fn signed_bytes_have_the_dsse_head() {
        let envelope = Envelope::sign("text/x", b"hello", &[&key(1)]);
        assert_eq!(envelope.signed, b"DSSEv1 6 text/x 5 hello");
        assert_eq!(envelope.payload(), b"hello");
        let keys = [1, 2].map(|byte| key(byte).public());
        assert_eq!(envelope.valid_signers(&keys), keys[..1]);
    }

    #[test]
    fn an_entry_is_tried_with_the_key_of_its_keyid_alone() {
        let mut envelope = Envelope::sign("t", b"p", &[&key(1), &key(2), &key(4)]);
        envelope.signatures[0].keyid = key(3).public().key_id().to_string().into();
        envelope.signatures[1].keyid = "no key".into();
        let keys = [4, 3, 2, 1].map(|byte| key(byte).public());
        assert_eq!(envelope.valid_signers(&keys), keys[..1]);
        assert_eq!(envelope.valid_signers(&[]), []);
    }

    #[test]
    fn a_bad_signature_beside_a_good_one_does_no_harm() {
        let mut envelope = Envelope::sign("t", b"p", &[&key(1), &key(2)]);
        envelope.signatures[0].signature = Signature::from_bytes([7; 64]);
        let keys = [1, 2].map(|byte| key(byte).public());
        assert_eq!(envelope.valid_signers(&keys), keys[1..]);
    }

    #[test]
    fn two_entries_of_one_keyid_are_refused() {
        let mut envelope = Envelope::sign("t", b"p", &[&key(1), &key(2)]);
        envelope.signatures[1].keyid = envelope.signatures[0].keyid.clone();
        let error = Envelope::parse(&envelope.to_bytes()).unwrap_err();
        assert!(matches!(error, EnvelopeError::DuplicateKeyId));
    }

    #[test]
    fn a_signer_that_gives_a_bad_signature_is_found_out() {
        struct Liar;
        impl Signer for Liar {
            fn public_key(&self) -> PublicKey {
                key(1).public()
            }
            fn sign_message(&self, _: &[u8]) -> Result<Signature, SignerError> {
                Ok(Signature::from_bytes([7; 64]))
            }
        }
        assert!(Envelope::sign_with("t", b"p", &[&key(2), &Liar]).is_err());
        assert!(Envelope::sign_with("t", b"p", &[]).is_err());
        let mut envelope = Envelope::sign_with("t", b"p", &[&key(2)]).unwrap();
        envelope.add_signature(&key(1)).unwrap();
        envelope.add_signature(&key(1)).unwrap();
        assert_eq!(envelope, Envelope::sign("t", b"p", &[&key(2), &key(1)]));
    }

    #[test]
    fn base64_has_one_text() {
        for (text, bytes) in [
            ("", b"".as_slice()),
            ("AA==", b"\0"),
            ("AAA=", b"\0\0"),
            ("AAAA", b"\0\0\0"),
            ("AAAAAA==", b"\0\0\0\0"),
        ] {
            let mut decoded = b"x".to_vec();
            assert_eq!(decode_base64(text, &mut decoded), Some(()), "{text}");
            assert_eq!(&decoded[1..], bytes);
        }
        for bad in [
            "A", "AA", "AA=", "AAA", "AB==", "AAB=", "AAAA\n", "AA\nAA", "_-AA", "====", "A===",
            "AA==AAAA", " AAA", "AAAé",
        ] {
            assert_eq!(decode_base64(bad, &mut Vec::new()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn envelopes_survive_a_round_trip(payload_type in ".{0,20}", payload: Vec<u8>, seeds in prop::collection::btree_set(any::<u8>(), 1..=16)) {
            let keys: Vec<_> = seeds.into_iter().map(key).collect();
            let envelope = Envelope::sign(&payload_type, &payload, &keys.iter().collect::<Vec<_>>());
            let bytes = envelope.to_bytes();
            let read = Envelope::parse(&bytes).unwrap();
            prop_assert_eq!(&read, &envelope);
            prop_assert_eq!(read.to_bytes(), bytes);
            let public: Vec<_> = keys.iter().map(SecretKey::public).collect();
            prop_assert_eq!(read.valid_signers(&public), public);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>, payload in "[A-Za-z0-9+/=]{0,12}", sig in "[A-Za-z0-9+/=]{84,90}") {
            let _ = Envelope::parse(&bytes);
            let text = format!(r#"{{"payloadType":"t","payload":"{payload}","signatures":[{{"keyid":"","sig":"{sig}"}}]}}"#);
            if let Ok(envelope) = Envelope::parse(text.as_bytes()) {
                prop_assert_eq!(envelope.to_bytes(), text.into_bytes());
            }
        }
    }
}
