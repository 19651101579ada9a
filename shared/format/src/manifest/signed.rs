//! The envelope of a manifest, and the check of its signature.

use serde::Deserialize;

use super::wire::Wire;
use super::{Manifest, ManifestError, PAYLOAD_TYPE};
use crate::dsse::Envelope;
use crate::json;
use crate::keys::{PublicKey, Signer};
use crate::name::SkillName;
use crate::root::{RootList, RootState, SignerRefusal, SkillPlace};

/// The signers that a reader of manifests trusts.
#[derive(Clone, Copy, Debug)]
pub struct ManifestTrust<'a> {
    /// The reader's state of the vault's keys. The manifest must be of that vault.
    pub state: &'a RootState,
    /// The place in which the reader found the skill.
    pub place: SkillPlace,
}

/// The expectations of a reader before it reads a manifest.
#[derive(Clone, Copy, Debug)]
pub struct ManifestExpectation<'a> {
    /// The name it must have: that of its directory, or of the catalog's entry.
    pub name: &'a SkillName,
    /// The version it must have, where a catalog names one.
    pub version: Option<u64>,
    /// The version that is stored already; a lower one is rejected.
    pub stored_version: Option<u64>,
}

/// The members that an export adds to the envelope of a manifest. No signature covers them: the
/// root versions and the release that they name are verified on their own.
#[derive(Debug, Deserialize)]
pub struct ExportMembers {
    /// The root versions of the vault.
    pub roots: Option<RootList>,
    /// The name of the file beside the manifest that holds the release.
    pub catalog: Option<String>,
}

/// A manifest's envelope: the exact bytes as received or signed, with no readable field.
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

    /// Verifies that the signer counts for the reader, then reads the payload and checks every rule
    /// and expectation.
    pub fn verify(
        &self,
        trust: &ManifestTrust<'_>,
        expected: &ManifestExpectation<'_>,
    ) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, Some(expected))?.0)
    }

    /// Like [`SignedManifest::verify`], for a reader that expects nothing but a manifest of the
    /// vault.
    pub fn verify_signature(&self, trust: &ManifestTrust<'_>) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, None)?.0)
    }

    /// Returns the manifest and the key that signed it, with one check of the signature. Works like
    /// [`SignedManifest::verify`] if something is expected, else like
    /// [`SignedManifest::verify_signature`].
    pub fn verify_with_signer(
        &self,
        trust: &ManifestTrust<'_>,
        expected: Option<&ManifestExpectation<'_>>,
    ) -> Result<(Manifest, PublicKey), ManifestError> {
        if self.envelope.payload_type() != PAYLOAD_TYPE {
            return Err(ManifestError::PayloadType);
        }
        // Read nothing that no key of the vault has signed. Judge last whether that key counts
        // here, so that a manifest of another vault gets another error than one by a revoked key.
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

    /// Returns the key that signed, if some version of the vault's chain names it. Does not decide
    /// whether it counts.
    pub fn signer(&self, state: &RootState) -> Option<PublicKey> {
        let [entry] = self.envelope.signatures() else {
            return None;
        };
        let key = *state.chain().key_by_id(&entry.keyid)?;
        let signed = self.envelope.valid_signers(&[key]);
        signed.first().copied()
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy of the exact bytes, for `manifest.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}
