//! The request of a machine to become a publisher of a vault. Its signature proves that the machine
//! holds the secret of the key that it names.

use serde::{Deserialize, Serialize};

use super::{KeyName, VaultId};
use crate::dsse::{Envelope, EnvelopeError};
use crate::json::{self, JsonError};
use crate::keys::{PublicKey, Signer, SignerError};
use crate::name::Slug;
use crate::text::constant;
use crate::time::Timestamp;

/// The payload type that is signed with every key request.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.key-request.v1+json";
/// Maximum number of bytes of a key request.
pub const MAX_KEY_REQUEST_BYTES: usize = 4 << 10;

constant!(
    /// The member `schema` of a key request.
    Schema,
    "vault.key-request/1"
);

/// The request of a user who wants to become a publisher.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyRequest {
    schema: Schema,
    /// The vault that should admit the key.
    pub vault_id: VaultId,
    /// The namespace in which the vault is published.
    pub slug: Slug,
    /// The key to be admitted, which also signs the request.
    pub public_key: PublicKey,
    /// The name that the owner shall give the key.
    pub name: KeyName,
    /// The time of the request by the requester's clock; no check depends on it.
    pub requested_at: Timestamp,
}

/// A reason to reject a key request.
#[derive(Debug, thiserror::Error)]
pub enum KeyRequestError {
    /// The request has more than 4 KiB.
    #[error("the key request is larger than 4 KiB")]
    TooLarge,
    /// The bytes are not an envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries another type of payload.
    #[error("the envelope does not carry a key request")]
    PayloadType,
    /// The payload is not JSON of the right shape.
    #[error("not a key request: {0}")]
    Json(#[from] JsonError),
    /// The key that the request names has not signed it.
    #[error("the key request is not signed by the key that it names")]
    Signature,
    /// The request is for another vault or namespace.
    #[error("the key request is for another vault")]
    OtherVault,
    /// The signer of a new request failed to sign.
    #[error(transparent)]
    Signer(#[from] SignerError),
}

impl KeyRequest {
    /// Signs a request and returns its exact bytes.
    pub fn sign(
        vault_id: VaultId,
        slug: Slug,
        name: KeyName,
        requested_at: Timestamp,
        signer: &dyn Signer,
    ) -> Result<Vec<u8>, KeyRequestError> {
        let request = Self {
            schema: Schema,
            vault_id,
            slug,
            public_key: signer.public_key(),
            name,
            requested_at,
        };
        let payload = json::to_bytes(&request);
        Ok(Envelope::sign_with(PAYLOAD_TYPE, &payload, &[signer])?.to_bytes())
    }

    /// Reads a request for this vault and namespace. The payload is read before its signature is
    /// verified, since it names the key; nothing of it counts unless that key has signed.
    pub fn verify(bytes: &[u8], vault_id: VaultId, slug: &Slug) -> Result<Self, KeyRequestError> {
        if bytes.len() > MAX_KEY_REQUEST_BYTES {
            return Err(KeyRequestError::TooLarge);
        }
        let envelope = Envelope::parse(bytes)?;
        if envelope.payload_type() != PAYLOAD_TYPE {
            return Err(KeyRequestError::PayloadType);
        }
        let request: Self = json::parse_payload(envelope.payload())?;
        // Possession is proven here, so a new key need not sign the root version that admits it.
        if envelope.valid_signers(&[request.public_key]).is_empty() {
            return Err(KeyRequestError::Signature);
        }
        if request.vault_id != vault_id || request.slug != *slug {
            return Err(KeyRequestError::OtherVault);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Digest;
    use crate::keys::SecretKey;

    #[test]
    fn requests_of_the_vectors() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/vectors/formats/key-requests.json"
        );
        let set: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = set["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 10);
        for case in cases {
            let text = |name: &str| case[name].as_str().unwrap();
            let (vault_id, slug) = (text("vault_id").parse(), text("slug").parse());
            let judged =
                KeyRequest::verify(text("bytes").as_bytes(), vault_id.unwrap(), &slug.unwrap());
            assert_eq!(judged.is_ok(), case["good"], "{}", case["why"]);
        }
    }

    #[test]
    fn a_request_counts_for_its_key_vault_and_namespace() {
        let key = SecretKey::from_seed([5; 32]);
        let vault_id = VaultId::derive(&Digest::of(b"vault"));
        let slug: Slug = "acme".parse().unwrap();
        let name: KeyName = "bob".parse().unwrap();
        let now = Timestamp::default();
        let bytes = KeyRequest::sign(vault_id, slug.clone(), name, now, &key).unwrap();
        let request = KeyRequest::verify(&bytes, vault_id, &slug).unwrap();
        assert_eq!(
            (request.public_key, request.name.as_str()),
            (key.public(), "bob")
        );
        let other = VaultId::derive(&Digest::of(b"other"));
        let refused = |result: Result<KeyRequest, KeyRequestError>| result.unwrap_err();
        let result = refused(KeyRequest::verify(&bytes, other, &slug));
        assert!(matches!(result, KeyRequestError::OtherVault));
        let result = refused(KeyRequest::verify(
            &bytes,
            vault_id,
            &"other".parse().unwrap(),
        ));
        assert!(matches!(result, KeyRequestError::OtherVault));
        // Sign the same payload with another key than it names.
        let payload = Envelope::parse(&bytes).unwrap().payload().to_vec();
        let forged = Envelope::sign(PAYLOAD_TYPE, &payload, &[&SecretKey::from_seed([6; 32])]);
        let result = refused(KeyRequest::verify(&forged.to_bytes(), vault_id, &slug));
        assert!(matches!(result, KeyRequestError::Signature));
        let schema = String::from_utf8(payload)
            .unwrap()
            .replace("request/1", "request/2");
        let later = Envelope::sign(PAYLOAD_TYPE, schema.as_bytes(), &[&key]);
        let result = refused(KeyRequest::verify(&later.to_bytes(), vault_id, &slug));
        assert!(matches!(result, KeyRequestError::Json(_)));
    }
}
