//! The catalog file: the vault's root versions (signed lists of keys), and the signed catalog.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Catalog, CatalogError, MAX_OBJECT_BYTES, PAYLOAD_TYPE, ReleaseRef};
use crate::dsse::{self, Envelope};
use crate::hash::Digest;
use crate::json;
use crate::keys::{PublicKey, Signer};
use crate::root::{RootChain, RootList, RootState};

/// The payload type in vaults that were made before root documents existed.
const EARLIER_PAYLOAD_TYPE: &str = "application/vnd.vault.catalog.v1+json";

/// A catalog file with a valid outer shape. No signature in it is verified yet.
#[derive(Clone, Debug)]
pub struct SignedCatalog {
    public_key: PublicKey,
    roots: RootList,
    envelope: Envelope,
}

#[derive(Deserialize)]
struct TypeOnly<'a> {
    #[serde(borrow, rename = "payloadType")]
    payload_type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CatalogFileWire<'a> {
    public_key: PublicKey,
    roots: RootList,
    #[serde(borrow, rename = "payloadType")]
    payload_type: Cow<'a, str>,
    #[serde(borrow)]
    payload: Cow<'a, str>,
    #[serde(borrow)]
    signatures: Vec<dsse::SignatureWire<'a>>,
}

#[derive(Serialize)]
struct FileWritten<'a> {
    public_key: PublicKey,
    roots: &'a RootList,
    #[serde(flatten)]
    envelope: &'a Envelope,
}

impl SignedCatalog {
    /// Signs a catalog under the newest version of a root chain, with all given signers. Fails if
    /// the catalog breaks a rule of its shape or names another root version, if the key that it
    /// names is not among the signers and in the release role, or if the file is larger than 4 MiB.
    /// With fewer signers than the threshold, the result is a proposal for other publishers to
    /// sign.
    pub fn sign(
        catalog: &Catalog,
        roots: &RootChain,
        signers: &[&dyn Signer],
    ) -> Result<Self, CatalogError> {
        catalog.check_own_rules()?;
        let newest = roots.newest();
        if catalog.root_version != roots.version()
            || catalog.root_sha256 != *newest.payload_sha256()
        {
            return Err(CatalogError::Shape(
                "a new catalog names the newest root version",
            ));
        }
        // Every reader rejects such a catalog, so it is not signed in the first place.
        let names_signer = signers
            .iter()
            .any(|signer| signer.public_key() == catalog.public_key);
        if !names_signer || !roots.document().release().contains(&catalog.public_key) {
            return Err(CatalogError::Key(
                "the catalog names a key that does not sign it or is not in the release role",
            ));
        }
        let envelope = Envelope::sign_with(PAYLOAD_TYPE, &json::to_bytes(catalog), signers)?;
        let file = Self {
            public_key: catalog.public_key,
            roots: roots.to_list(),
            envelope,
        };
        file.check_size()
    }

    /// Reads the file. Fails if it is too large or does not have the shape of a catalog file.
    pub fn parse(bytes: &[u8]) -> Result<Self, CatalogError> {
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(CatalogError::TooLarge);
        }
        let wire: CatalogFileWire<'_> =
            // A file of the earlier format has other members and fails here first. Its owner gets
            // the command that helps instead of a parser's message.
            json::parse(bytes).map_err(|error| match json::parse::<TypeOnly<'_>>(bytes) {
                Ok(only) if only.payload_type == EARLIER_PAYLOAD_TYPE => {
                    CatalogError::EarlierFormat
                }
                _ => error.into(),
            })?;
        let envelope = dsse::Wire {
            payload_type: wire.payload_type,
            payload: wire.payload,
            signatures: wire.signatures,
        }
        .decode_envelope()?;
        match envelope.payload_type() {
            PAYLOAD_TYPE => Ok(Self {
                public_key: wire.public_key,
                roots: wire.roots,
                envelope,
            }),
            EARLIER_PAYLOAD_TYPE => Err(CatalogError::EarlierFormat),
            _ => Err(CatalogError::PayloadType),
        }
    }

    /// The JSON of `catalog.json` in its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::to_bytes(&FileWritten {
            public_key: self.public_key,
            roots: &self.roots,
            envelope: &self.envelope,
        })
    }

    /// Adds the signature of another publisher to the same payload.
    pub fn add_signature(&mut self, signer: &dyn Signer) -> Result<(), CatalogError> {
        Ok(self.envelope.add_signature(signer)?)
    }

    /// Returns the same payload and signatures with a longer root chain, so that a new root version
    /// can be published before the next release. Fails if the file becomes larger than 4 MiB.
    pub fn with_roots(&self, roots: &RootChain) -> Result<Self, CatalogError> {
        Self {
            roots: roots.to_list(),
            ..self.clone()
        }
        .check_size()
    }

    fn check_size(self) -> Result<Self, CatalogError> {
        if self.to_bytes().len() > MAX_OBJECT_BYTES {
            Err(CatalogError::TooLarge)
        } else {
            Ok(self)
        }
    }

    /// The root versions in the file, not verified.
    pub const fn roots(&self) -> &RootList {
        &self.roots
    }

    /// SHA-256 of the signed payload.
    pub fn payload_sha256(&self) -> Digest {
        Digest::of(self.envelope.payload())
    }

    /// Returns the keys of `keys` that have a valid signature in the file.
    pub fn valid_signers(&self, keys: &[PublicKey]) -> Vec<PublicKey> {
        self.envelope.valid_signers(keys)
    }

    /// The payload's bytes before any signature is verified.
    pub(super) fn unverified_payload(&self) -> &[u8] {
        self.envelope.payload()
    }

    /// The signatures without their order.
    // A set, because a host can reorder the entries of the envelope, which is not signed itself.
    fn signature_set(&self) -> BTreeSet<(Box<str>, [u8; 64])> {
        let entries = self.envelope.signatures().iter();
        entries
            .map(|entry| (entry.keyid.clone(), *entry.signature.as_bytes()))
            .collect()
    }

    /// Reads the payload of a catalog that this reader accepted and stored before. Fails unless its
    /// SHA-256 is the one that was recorded at that time.
    pub fn read_counted(&self, payload_sha256: &Digest) -> Result<Catalog, CatalogError> {
        // The store is not trusted: only the payload whose signatures counted before is read
        // without checking them again.
        if self.payload_sha256() != *payload_sha256 {
            return Err(CatalogError::Shape(
                "the catalog is not the one that was stored",
            ));
        }
        let catalog = self.read_payload()?;
        self.check_named_key(&catalog)?;
        Ok(catalog)
    }

    /// Reads a catalog that an archive carries, for a reader of these root versions. Enough
    /// publishers of the newest version must have signed it; it may name an older root version.
    /// Times are not compared: such a catalog proves that a skill was released, not that this is
    /// the current release.
    pub fn read_carried(&self, state: &RootState) -> Result<Catalog, CatalogError> {
        let found = self.valid_signers(&state.release_keys()).len();
        let needed = state.document().release().threshold();
        if found < needed {
            return Err(CatalogError::SignaturesMissing { found, needed });
        }
        let catalog = self.read_payload()?;
        if catalog.vault_id != state.vault_id() {
            return Err(CatalogError::VaultId);
        }
        // An older version of this chain is accepted too: an archive stays valid after a change of
        // keys.
        if state.chain().find(&catalog.root_sha256).is_none() {
            return Err(CatalogError::Shape(
                "the catalog names a root version that is not of this vault",
            ));
        }
        Ok(catalog)
    }

    /// Reads the payload and checks its shape. The caller verifies signatures and every other rule.
    pub(super) fn read_payload(&self) -> Result<Catalog, CatalogError> {
        let catalog: Catalog = json::parse_payload(self.unverified_payload())?;
        catalog.check_shape()?;
        Ok(catalog)
    }

    /// Checks that the unsigned `public_key` of the file is the one in the signed catalog.
    pub(super) fn check_named_key(&self, catalog: &Catalog) -> Result<(), CatalogError> {
        if catalog.public_key == self.public_key {
            Ok(())
        } else {
            Err(CatalogError::Key(
                "the key in the catalog is not the key of its file",
            ))
        }
    }
}

/// The catalog that a reader accepted last, with its signers.
#[derive(Clone, Debug)]
pub struct LastCatalog {
    /// The accepted catalog.
    pub catalog: Catalog,
    /// Release number of the catalog, and the SHA-256 of its payload.
    pub stored: ReleaseRef,
    /// The keys whose valid signatures the reader counted.
    pub signers: Vec<PublicKey>,
    signatures: BTreeSet<(Box<str>, [u8; 64])>,
}

impl LastCatalog {
    /// Reads a catalog that was accepted before from the reader's store. Fails if the bytes are not
    /// those whose SHA-256 was recorded then.
    pub fn read_stored(
        bytes: &[u8],
        payload_sha256: &Digest,
        signers: Vec<PublicKey>,
    ) -> Result<Self, CatalogError> {
        let file = SignedCatalog::parse(bytes)?;
        let catalog = file.read_counted(payload_sha256)?;
        Ok(Self {
            stored: ReleaseRef {
                release: catalog.release,
                payload_sha256: *payload_sha256,
            },
            catalog,
            signers,
            signatures: file.signature_set(),
        })
    }

    /// Returns whether a file has the same key, payload and signatures (in any order) as the
    /// accepted one.
    pub fn is_same_file(&self, file: &SignedCatalog) -> bool {
        self.catalog.public_key == file.public_key
            && self.stored.payload_sha256 == file.payload_sha256()
            && self.signatures == file.signature_set()
    }
}
