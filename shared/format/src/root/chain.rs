//! The chain of root versions (signed, numbered lists of a vault's keys), and the unverified lists
//! of versions that hosts send. Each version is signed by the root role of the version before it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::document::{MAX_VERSION, RootDocument};
use super::error::{InvalidRoot, RootError};
use super::{Role, VaultFingerprint, VaultId};
use crate::dsse::Envelope;
use crate::hash::Digest;
use crate::json;
use crate::keys::PublicKey;

/// The payload type that is signed with every root document.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.root.v1+json";
/// Maximum number of bytes of all envelopes of a chain together. Each is measured in canonical
/// form: compact JSON without unknown members.
pub const MAX_CHAIN_BYTES: usize = 512 << 10;

/// Root versions as a host sends them, oldest first, each as its JSON text; none is verified.
/// [`RootChain::verify`] does that. Deserialize it only as a member of an object that
/// [`json::parse`] reads, whose checks also cover these texts.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct RootList(Vec<Box<RawValue>>);

impl RootList {
    /// The number of versions in the list.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether the list has no version. Such a list is always rejected.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One verified version of a chain.
#[derive(Clone, Eq, PartialEq)]
pub struct RootVersion {
    document: RootDocument,
    payload_sha256: Digest,
    envelope: Envelope,
}

impl fmt::Debug for RootVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RootVersion({}, {})",
            self.document.version(),
            self.payload_sha256
        )
    }
}

impl RootVersion {
    /// The keys and roles that the version defines.
    pub const fn document(&self) -> &RootDocument {
        &self.document
    }

    /// SHA-256 of the signed payload, by which catalogs name the version.
    pub const fn payload_sha256(&self) -> &Digest {
        &self.payload_sha256
    }

    /// The envelope with every signature that it came with.
    pub const fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}

/// All versions from version 1, each valid in itself and signed by the root role before it. Never
/// empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RootChain {
    versions: Vec<RootVersion>,
    /// Every key that some version names in a role, by the text of its `keyid`.
    named: HashMap<Box<str>, PublicKey>,
    /// Every key that some version names in the release role.
    released: HashSet<PublicKey>,
    /// The lengths of all envelopes together, in canonical form.
    bytes: usize,
}

impl RootChain {
    /// Verifies every version of a list. The caller compares the vault's id, or a fingerprint, with
    /// what it expects: anybody can make a valid chain of some vault.
    pub fn verify(list: &RootList) -> Result<Self, RootError> {
        Ok(read_after(None, list)?.chain)
    }

    /// All versions, oldest first.
    pub fn versions(&self) -> &[RootVersion] {
        &self.versions
    }

    /// Version 1, which identifies the vault.
    pub fn first(&self) -> &RootVersion {
        self.versions.first().expect("a chain has a version 1")
    }

    /// The newest version.
    pub fn newest(&self) -> &RootVersion {
        self.versions.last().expect("a chain has a version 1")
    }

    /// The document of the newest version: its keys and roles are in force.
    pub fn document(&self) -> &RootDocument {
        &self.newest().document
    }

    /// The number of the newest version.
    pub fn version(&self) -> u64 {
        self.document().version()
    }

    /// The vault's id, derived from version 1.
    pub fn vault_id(&self) -> VaultId {
        VaultId::derive(self.root1_sha256())
    }

    /// SHA-256 of the payload of version 1, which identifies the vault.
    pub fn root1_sha256(&self) -> &Digest {
        &self.first().payload_sha256
    }

    /// Returns the version whose payload has this SHA-256.
    pub fn find(&self, payload_sha256: &Digest) -> Option<&RootVersion> {
        let known = |version: &&RootVersion| version.payload_sha256 == *payload_sha256;
        self.versions.iter().find(known)
    }

    /// Returns the chain as it was when the version with this number was the newest; `None` if
    /// there is no such version.
    pub fn until_version(&self, version: u64) -> Option<Self> {
        let length = usize::try_from(version).ok()?;
        let versions = self
            .versions
            .get(..length)
            .filter(|first| !first.is_empty())?;
        let mut chain = Self::without_versions();
        for version in versions {
            chain.push_verified(version.clone());
        }
        Some(chain)
    }

    /// The fingerprint by which people recognise the vault. It names the newest version that
    /// changed the root role, so it stays the same while only publishers change.
    pub fn fingerprint(&self) -> VaultFingerprint {
        let changed = self
            .versions
            .windows(2)
            .rev()
            .find(|pair| pair[0].document.root() != pair[1].document.root());
        let version = changed.map_or_else(|| self.first(), |pair| &pair[1]);
        VaultFingerprint::new(version.document.version(), &version.payload_sha256)
    }

    /// Returns the version that a fingerprint names, if the chain has it.
    pub fn version_of(&self, fingerprint: &VaultFingerprint) -> Option<&RootVersion> {
        let place = usize::try_from(fingerprint.version() - 1).ok()?;
        let version = self.versions.get(place)?;
        let own = VaultFingerprint::new(fingerprint.version(), &version.payload_sha256);
        (own == *fingerprint).then_some(version)
    }

    /// Tells whether the newest version revokes the key.
    pub fn revokes(&self, key: &PublicKey) -> bool {
        self.document()
            .revoked()
            .iter()
            .any(|other| other.is_key(key))
    }

    /// Tells whether the key was in the release role in some version, the newest included.
    pub fn ever_released(&self, key: &PublicKey) -> bool {
        self.released.contains(key)
    }

    /// Tells whether the key was in a role in some version, the newest included.
    pub fn ever_named(&self, key: &PublicKey) -> bool {
        self.key_by_id(&key.key_id().to_string()).is_some()
    }

    /// Returns the key with this `keyid`, if it was in a role in some version.
    pub fn key_by_id(&self, keyid: &str) -> Option<&PublicKey> {
        self.named.get(keyid)
    }

    /// The lengths of all envelopes together, in bytes, to be compared with [`MAX_CHAIN_BYTES`].
    pub const fn byte_length(&self) -> usize {
        self.bytes
    }

    /// Returns the list of the chain's envelopes, to be stored or sent.
    pub fn to_list(&self) -> RootList {
        let raw = |version: &RootVersion| {
            serde_json::value::to_raw_value(&version.envelope).expect("envelopes are JSON")
        };
        RootList(self.versions.iter().map(raw).collect())
    }

    /// Adds a version that this program signed. Fails if a reader would reject it.
    pub(super) fn with_version(&self, envelope: Envelope) -> Result<Self, RootError> {
        let mut chain = self.clone();
        chain.append_version(envelope)?;
        Ok(chain)
    }

    /// Starts a chain with a version 1 that this program signed. Fails if a reader would reject it.
    pub(super) fn begin_with(envelope: Envelope) -> Result<Self, RootError> {
        let mut chain = Self::without_versions();
        chain.append_version(envelope)?;
        Ok(chain)
    }

    /// Creates an empty chain, to append versions to. It never leaves this module, so that every
    /// other chain has a version 1.
    fn without_versions() -> Self {
        Self {
            versions: Vec::new(),
            named: HashMap::new(),
            released: HashSet::new(),
            bytes: 0,
        }
    }

    /// Verifies a version as the successor of the last one and appends it.
    fn append_version(&mut self, envelope: Envelope) -> Result<(), RootError> {
        let number = self.versions.len() as u64 + 1;
        let invalid = |reason: InvalidRoot| RootError::Invalid {
            version: number,
            reason,
        };
        let rule = |text| invalid(InvalidRoot::Rule(text));
        let before = self.versions.last();
        // Check the signatures of the previous version's root role first. Nothing else of a later
        // version is read until that role has signed it.
        let mut signers = Vec::new();
        if let Some(before) = before {
            let role = before.document.root();
            signers = envelope.valid_signers(role.keys());
            if signers.len() < role.threshold() {
                return Err(rule(
                    "too few keys of the root role of the version before have signed it",
                ));
            }
        }
        // Look at the format's number only now: a number that the previous root role has not signed
        // must not make readers report that they need a newer program.
        if let Some(newer) = format_number(envelope.payload_type(), TYPE_FRAME)
            && newer != 1
        {
            return Err(RootError::NewerVault { version: number });
        }
        if envelope.payload_type() != PAYLOAD_TYPE {
            return Err(rule("the envelope does not carry a root document"));
        }
        if is_newer_schema(envelope.payload()) {
            return Err(RootError::NewerVault { version: number });
        }
        let document = RootDocument::parse(envelope.payload()).map_err(invalid)?;
        let role = document.root();
        // Signatures of keys in both root roles were verified above. Verifying them again would
        // only cost time.
        let is_tried =
            |key: &PublicKey| before.is_some_and(|before| before.document.root().contains(key));
        let untried: Vec<PublicKey> = role
            .keys()
            .iter()
            .filter(|key| !is_tried(key))
            .copied()
            .collect();
        signers.retain(|key| role.contains(key));
        signers.extend(envelope.valid_signers(&untried));
        if signers.len() < role.threshold() {
            return Err(rule("too few keys of its own root role have signed it"));
        }
        // The place in the list decides the number, so no version can be left out or repeated.
        if document.version() != number {
            return Err(rule("its number is not one more than the one before"));
        }
        if let Some(before) = before {
            self.check_after(before, &document).map_err(rule)?;
        }
        let payload_sha256 = Digest::of(envelope.payload());
        self.push_verified(RootVersion {
            document,
            payload_sha256,
            envelope,
        });
        // Every catalog file carries the whole chain, so its length is bounded.
        if self.bytes > MAX_CHAIN_BYTES {
            return Err(rule("the versions together are larger than 512 KiB"));
        }
        Ok(())
    }

    /// Checks the rules for a version that depend on the versions before it.
    fn check_after(&self, before: &RootVersion, next: &RootDocument) -> Result<(), &'static str> {
        if next.vault_id() != Some(self.vault_id()) {
            return Err("it belongs to another vault");
        }
        if next.previous_sha256() != Some(before.payload_sha256) {
            return Err("it does not follow the version before");
        }
        let revoked = next.revoked();
        if !before
            .document
            .revoked()
            .iter()
            .all(|key| revoked.contains(key))
        {
            return Err("a key that was revoked before is no longer revoked");
        }
        // A key that has left may have been lost; its return would make old signatures count again.
        let came_back =
            |key: &PublicKey| self.ever_named(key) && before.document.name_of(key).is_none();
        if next.keys().iter().any(|entry| came_back(&entry.public_key)) {
            return Err("a key that was out of every role is in a role again");
        }
        Ok(())
    }

    /// Appends a verified version and records its keys.
    fn push_verified(&mut self, version: RootVersion) {
        for entry in version.document.keys() {
            let keyid = entry.public_key.key_id().to_string().into();
            self.named.insert(keyid, entry.public_key);
        }
        self.released.extend(version.document.release().keys());
        self.bytes += version.envelope.to_bytes().len();
        self.versions.push(version);
    }
}

impl Serialize for RootChain {
    /// Writes the list of envelopes. It is read back as a [`RootList`] and verified.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.versions.iter().map(RootVersion::envelope))
    }
}

/// A verified list of root versions, not yet compared with the reader's chain.
pub(super) struct ShownChain {
    /// The chain of the list. For versions that the reader already has, it holds the reader's own
    /// envelopes.
    pub chain: RootChain,
    /// The number of versions, from version 1, that the reader's own chain has too.
    pub shared: usize,
}

/// Verifies a list. A version that the reader already has is recognised by the hash of its payload
/// and not verified again: the reader keeps its own envelope, so a host that changes signatures
/// does no harm.
pub(super) fn read_after(
    own: Option<&RootChain>,
    list: &RootList,
) -> Result<ShownChain, RootError> {
    if list.is_empty() {
        return Err(RootError::Empty);
    }
    let mut chain = RootChain::without_versions();
    let mut shared = 0;
    let mut shown_bytes = 0;
    for (place, raw) in list.0.iter().enumerate() {
        let version = place as u64 + 1;
        let invalid = |reason| RootError::Invalid { version, reason };
        if version > MAX_VERSION {
            return Err(invalid(InvalidRoot::Rule(
                "a chain has at most 1,024 versions",
            )));
        }
        let envelope =
            Envelope::parse(raw.get().as_bytes()).map_err(|error| invalid(error.into()))?;
        // Count the envelopes as they were shown, even where the reader's own envelope replaces one
        // below: a reader without a chain would count these.
        shown_bytes += envelope.to_bytes().len();
        if shown_bytes > MAX_CHAIN_BYTES {
            return Err(invalid(InvalidRoot::Rule(
                "the versions together are larger than 512 KiB",
            )));
        }
        // Compare only while every version so far was shared: after a fork, the rest of the
        // reader's chain does not apply.
        let own_version = own
            .filter(|_| shared == place)
            .and_then(|own| own.versions.get(place));
        match own_version {
            Some(known) if known.payload_sha256 == Digest::of(envelope.payload()) => {
                chain.push_verified(known.clone());
                shared += 1;
            }
            _ => chain.append_version(envelope)?,
        }
    }
    Ok(ShownChain { chain, shared })
}

/// Tells whether enough distinct keys of the role have signed the envelope.
pub(super) fn reaches_threshold(envelope: &Envelope, role: &Role) -> bool {
    envelope.valid_signers(role.keys()).len() >= role.threshold()
}

/// The text before and after the version number of the format, in a payload type and in a schema.
const TYPE_FRAME: (&str, &str) = ("application/vnd.vault.root.v", "+json");
const SCHEMA_FRAME: (&str, &str) = ("vault.root/", "");

/// Returns the number of a root format, if the text names one.
fn format_number(text: &str, (before, after): (&str, &str)) -> Option<u64> {
    let number = text.strip_prefix(before)?.strip_suffix(after)?;
    let digits = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for `u64` is still a format that this program does not know.
    (digits && !number.is_empty()).then(|| number.parse().unwrap_or(u64::MAX))
}

fn is_newer_schema(payload: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct SchemaOnly {
        schema: String,
    }
    json::parse::<SchemaOnly>(payload)
        .ok()
        .and_then(|only| format_number(&only.schema, SCHEMA_FRAME))
        .is_some_and(|number| number != 1)
}
