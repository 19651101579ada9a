//! The envelope of a manifest before its verification, and the check of its signature.

use serde::Deserialize;

use super::wire::Wire;
use super::{Manifest, ManifestError, PAYLOAD_TYPE};
use crate::dsse::Envelope;
use crate::json;
use crate::keys::{PublicKey, Signer};
use crate::name::SkillName;
use crate::root::{RootList, RootState, SignerRefusal, SkillPlace};

/// The keys from which a reader of manifests accepts signatures.
#[derive(Clone, Copy, Debug)]
pub struct ManifestTrust<'a> {
    /// The vault's keys as the reader knows them. The manifest must be of the same vault.
    pub state: &'a RootState,
    /// How the reader came by the skill (in a catalog, installed, and so on): it decides which
    /// former keys still count.
    pub place: SkillPlace,
}

/// The facts that a reader knows about a manifest before it reads it.
#[derive(Clone, Copy, Debug)]
pub struct ManifestExpectation<'a> {
    /// The name that the manifest must have: the name of its directory, or of the catalog's entry.
    pub name: &'a SkillName,
    /// The version that the catalog names; `None` if no catalog names one.
    pub version: Option<u64>,
    /// The version that the reader has stored already. A lower one is rejected as a rollback.
    pub stored_version: Option<u64>,
}

/// The members that an export adds to the envelope of a manifest, so that a reader without the
/// vault can verify it. No signature of the envelope covers them: the root versions and the release
/// are verified by their own signatures.
#[derive(Debug, Deserialize)]
pub struct ExportMembers {
    /// The root versions (signed lists of keys) of the vault; `None` if the export has none.
    pub roots: Option<RootList>,
    /// The name of the file beside the manifest that holds the release; `None` if there is none.
    pub catalog: Option<String>,
}

/// A manifest's envelope with its exact bytes. No field of the payload can be read before
/// [`SignedManifest::verify`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignedManifest {
    bytes: Vec<u8>,
    envelope: Envelope,
}

impl SignedManifest {
    /// Signs a manifest. Fails if a reader would reject it, or if the signer gives no signature.
    pub fn sign(manifest: &Manifest, signer: &dyn Signer) -> Result<Self, ManifestError> {
        manifest.check_own_rules()?;
        let payload = json::to_bytes(manifest);
        let envelope = Envelope::sign_with(PAYLOAD_TYPE, &payload, &[signer])?;
        Ok(Self {
            bytes: envelope.to_bytes(),
            envelope,
        })
    }

    /// Reads an envelope with one signature. The payload stays unread until it is verified.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let envelope = Envelope::parse(bytes)?;
        if envelope.signatures().len() != 1 {
            return Err(ManifestError::SignatureCount);
        }
        Ok(Self {
            envelope,
            bytes: bytes.to_vec(),
        })
    }

    /// Verifies the signature by a key that the reader trusts, then reads the payload and checks
    /// every rule and expectation.
    pub fn verify(
        &self,
        trust: &ManifestTrust<'_>,
        expected: &ManifestExpectation<'_>,
    ) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, Some(expected))?.0)
    }

    /// Like [`SignedManifest::verify`], for a reader that expects no particular skill or version.
    pub fn verify_signature(&self, trust: &ManifestTrust<'_>) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, None)?.0)
    }

    /// Verifies the signature once and returns the manifest with the key that signed it. `expected`
    /// is checked if it is present; see [`SignedManifest::verify`] and
    /// [`SignedManifest::verify_signature`].
    pub fn verify_with_signer(
        &self,
        trust: &ManifestTrust<'_>,
        expected: Option<&ManifestExpectation<'_>>,
    ) -> Result<(Manifest, PublicKey), ManifestError> {
        if self.envelope.payload_type() != PAYLOAD_TYPE {
            return Err(ManifestError::PayloadType);
        }
        // Read nothing that no key of the vault has signed. Decide last whether that key still
        // counts, so that a manifest of another vault gets another error than one by a revoked key.
        let Some(signer) = self.signer(trust.state) else {
            trust.state.judge_signer(None, trust.place)?;
            return Err(SignerRefusal::Signature.into());
        };
        let manifest = json::parse_payload::<Wire<'_>>(self.envelope.payload())?.open()?;
        manifest.check_own_rules()?;
        if manifest.vault_id != trust.state.vault_id() {
            return Err(ManifestError::VaultId);
        }
        trust.state.judge_signer(Some(&signer), trust.place)?;
        if let Some(expected) = expected {
            manifest.check_expectation(expected)?;
        }
        Ok((manifest, signer))
    }

    /// Returns the key that made the signature, if some version of the vault's root chain names it.
    /// The caller decides whether that key still counts.
    pub fn signer(&self, state: &RootState) -> Option<PublicKey> {
        let [entry] = self.envelope.signatures() else {
            return None;
        };
        let key = *state.chain().key_by_id(&entry.keyid)?;
        let signed = self.envelope.valid_signers(&[key]);
        signed.first().copied()
    }

    /// Whether the envelope has exactly the bytes that the writer of envelopes gives it. Others may
    /// hold spaces and members that no signature covers.
    pub fn is_canonical(&self) -> bool {
        self.envelope.to_bytes() == self.bytes
    }

    /// The envelope's bytes as received or as signed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Copies the envelope's bytes, for example to write `manifest.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}
