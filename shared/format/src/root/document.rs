//! One root document: the keys of a vault, and the rights of each from this version on. Keys of the
//! root role sign the next root version; keys of the release role (publishers) sign catalogs and
//! manifests.
//!
//! A [`RootDocument`] keeps every rule that needs no other version. [`super::RootChain`] checks the
//! rules between versions.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::InvalidRoot;
use super::{KeyName, VaultId};
use crate::hash::Digest;
use crate::json;
use crate::keys::{self, PublicKey};
use crate::text::text_form;
use crate::time::Timestamp;

/// The value of the member `schema`.
pub const SCHEMA: &str = "vault.root/1";
/// Maximum number of bytes of a root document's payload.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 10;
/// The highest version number, and so the largest number of versions.
pub const MAX_VERSION: u64 = 1_024;
/// Maximum number of keys in all roles together.
pub const MAX_KEYS: usize = 40;
/// Maximum number of keys of the root role, which sign the next root version.
pub const MAX_ROOT_KEYS: usize = 8;
/// Maximum number of keys of the release role.
pub const MAX_RELEASE_KEYS: usize = 32;
/// The highest number of signatures that a role may require.
pub const MAX_THRESHOLD: usize = 4;
/// Maximum number of revoked keys.
pub const MAX_REVOKED: usize = 256;
/// Maximum number of days from `issued_at` to `expires_at`.
pub const MAX_LIFETIME_DAYS: i64 = 1_200;

/// The keys and roles of a vault as one root version defines them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct RootDocument {
    vault_id: Option<VaultId>,
    version: u64,
    previous_sha256: Option<Digest>,
    issued_at: Timestamp,
    expires_at: Option<Timestamp>,
    keys: Vec<KeyEntry>,
    root: Role,
    release: Role,
    revoked: Vec<RevokedKey>,
}

/// A key of a role, with its name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyEntry {
    /// The public key, by which every check identifies the entry.
    pub public_key: PublicKey,
    /// Name for people; no check depends on it.
    pub name: KeyName,
}

/// The keys of one role, and the number of them that must sign together.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "RoleWire", into = "RoleWire")]
pub struct Role {
    threshold: usize,
    keys: Vec<PublicKey>,
}

/// A revoked key: 32 bytes in the text form of a key, ordered by that text. They need not be a
/// point of the curve, since nothing is ever verified with them.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct RevokedKey([u8; 32]);

impl RevokedKey {
    /// Tells whether this is the revocation of `key`.
    pub fn is_key(&self, key: &PublicKey) -> bool {
        self.0 == *key.as_bytes()
    }
}

impl From<&PublicKey> for RevokedKey {
    fn from(key: &PublicKey) -> Self {
        Self(*key.as_bytes())
    }
}

impl FromStr for RevokedKey {
    type Err = keys::BadKey;

    fn from_str(text: &str) -> Result<Self, keys::BadKey> {
        keys::decode_base64url(text, 43)
            .map(Self)
            .ok_or(keys::BadKey::Text)
    }
}

impl fmt::Display for RevokedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        keys::write_base64url::<43>(&self.0, f)
    }
}

impl fmt::Debug for RevokedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for RevokedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.to_string().cmp(&other.to_string())
    }
}

impl PartialOrd for RevokedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

text_form!(RevokedKey, keys::BadKey, "a public key");

impl Role {
    /// Creates a role from these keys, in any order. Fails if there are none, one is repeated, or
    /// the threshold is not between 1 and the smaller of 4 and their number.
    pub fn new(threshold: usize, mut keys: Vec<PublicKey>) -> Result<Self, InvalidRoot> {
        // Sort by the text and not by the bytes: base64url orders them differently, and readers
        // compare the text.
        keys.sort_by_cached_key(ToString::to_string);
        Self::from_sorted_keys(threshold, keys)
    }

    fn from_sorted_keys(threshold: usize, keys: Vec<PublicKey>) -> Result<Self, InvalidRoot> {
        if keys.is_empty() {
            return Err(InvalidRoot::Rule("a role has at least one key"));
        }
        if !is_strictly_sorted(keys.iter().map(ToString::to_string)) {
            return Err(InvalidRoot::Rule(
                "the keys of a role are sorted, and none comes twice",
            ));
        }
        if !(1..=keys.len().min(MAX_THRESHOLD)).contains(&threshold) {
            return Err(InvalidRoot::Rule(
                "a threshold is 1 to 4 and at most the number of keys of its role",
            ));
        }
        Ok(Self { threshold, keys })
    }

    /// The number of distinct keys of the role that must sign.
    pub const fn threshold(&self) -> usize {
        self.threshold
    }

    /// The keys of the role, sorted by their text.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Tells whether the key is in the role.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.keys.contains(key)
    }
}

#[derive(Deserialize, Serialize)]
struct RoleWire {
    threshold: usize,
    keys: Vec<PublicKey>,
}

impl TryFrom<RoleWire> for Role {
    type Error = InvalidRoot;

    fn try_from(wire: RoleWire) -> Result<Self, InvalidRoot> {
        Self::from_sorted_keys(wire.threshold, wire.keys)
    }
}

impl From<Role> for RoleWire {
    fn from(role: Role) -> Self {
        Self {
            threshold: role.threshold,
            keys: role.keys,
        }
    }
}

/// The members of a root document, before the rules between them are checked.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Wire {
    pub schema: String,
    #[serde(deserialize_with = "json::nullable")]
    pub vault_id: Option<VaultId>,
    pub version: u64,
    #[serde(deserialize_with = "json::nullable")]
    pub previous_sha256: Option<Digest>,
    pub issued_at: Timestamp,
    #[serde(deserialize_with = "json::nullable")]
    pub expires_at: Option<Timestamp>,
    pub keys: Vec<KeyEntry>,
    pub root: Role,
    pub release: Role,
    pub revoked: Vec<RevokedKey>,
}

impl From<RootDocument> for Wire {
    fn from(document: RootDocument) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            vault_id: document.vault_id,
            version: document.version,
            previous_sha256: document.previous_sha256,
            issued_at: document.issued_at,
            expires_at: document.expires_at,
            keys: document.keys,
            root: document.root,
            release: document.release,
            revoked: document.revoked,
        }
    }
}

impl TryFrom<Wire> for RootDocument {
    type Error = InvalidRoot;

    fn try_from(wire: Wire) -> Result<Self, InvalidRoot> {
        check_numbers(&wire)?;
        check_keys(&wire)?;
        check_roles(&wire.root, &wire.release)?;
        check_revoked(&wire)?;
        Ok(Self {
            vault_id: wire.vault_id,
            version: wire.version,
            previous_sha256: wire.previous_sha256,
            issued_at: wire.issued_at,
            expires_at: wire.expires_at,
            keys: wire.keys,
            root: wire.root,
            release: wire.release,
            revoked: wire.revoked,
        })
    }
}

fn check_numbers(wire: &Wire) -> Result<(), InvalidRoot> {
    if wire.schema != SCHEMA {
        return Err(InvalidRoot::Rule("the schema is not vault.root/1"));
    }
    if !(1..=MAX_VERSION).contains(&wire.version) {
        return Err(InvalidRoot::Rule("a version is a number from 1 to 1,024"));
    }
    let first = wire.version == 1;
    // The id is derived from version 1, so version 1 cannot contain it.
    if wire.vault_id.is_none() != first || wire.previous_sha256.is_none() != first {
        return Err(InvalidRoot::Rule(
            "vault_id and previous_sha256 are null in version 1 and there alone",
        ));
    }
    let last = wire.issued_at.plus_days(MAX_LIFETIME_DAYS);
    if let Some(end) = wire.expires_at
        && (end <= wire.issued_at || end > last)
    {
        return Err(InvalidRoot::Rule(
            "expires_at is at most 1,200 days after issued_at",
        ));
    }
    Ok(())
}

fn check_keys(wire: &Wire) -> Result<(), InvalidRoot> {
    if !(1..=MAX_KEYS).contains(&wire.keys.len()) {
        return Err(InvalidRoot::Rule("a root document has 1 to 40 keys"));
    }
    if !is_strictly_sorted(wire.keys.iter().map(|entry| entry.public_key.to_string())) {
        return Err(InvalidRoot::Rule(
            "the keys are sorted, and none comes twice",
        ));
    }
    // A key without a role would be shown to people and have no rights.
    let named: BTreeSet<&PublicKey> = wire.root.keys.iter().chain(&wire.release.keys).collect();
    let listed: BTreeSet<&PublicKey> = wire.keys.iter().map(|entry| &entry.public_key).collect();
    if named != listed {
        return Err(InvalidRoot::Rule(
            "the keys are exactly those that a role names",
        ));
    }
    let names: BTreeSet<&KeyName> = wire.keys.iter().map(|entry| &entry.name).collect();
    if names.len() != wire.keys.len() {
        return Err(InvalidRoot::Rule("two keys have the same name"));
    }
    Ok(())
}

fn check_roles(root: &Role, release: &Role) -> Result<(), InvalidRoot> {
    if root.keys.len() > MAX_ROOT_KEYS {
        return Err(InvalidRoot::Rule("the root role has at most 8 keys"));
    }
    if release.keys.len() > MAX_RELEASE_KEYS {
        return Err(InvalidRoot::Rule("the release role has at most 32 keys"));
    }
    let shared = root.keys.iter().filter(|key| release.contains(key)).count();
    // A vault has either root keys that are all publishers' own keys, or root keys that are all
    // recovery keys, which stay offline.
    if shared > 0 && shared < root.keys.len() {
        return Err(InvalidRoot::Rule(
            "either all keys of the root role are in the release role, or none is",
        ));
    }
    // Without this rule, fewer publishers than a release needs could change the keys and lower that
    // number.
    if shared > 0 && root.threshold < release.threshold {
        return Err(InvalidRoot::Rule(
            "where the roles share keys, the root threshold is not lower than the release threshold",
        ));
    }
    Ok(())
}

fn check_revoked(wire: &Wire) -> Result<(), InvalidRoot> {
    if wire.revoked.len() > MAX_REVOKED {
        return Err(InvalidRoot::Rule("at most 256 keys are revoked"));
    }
    if !is_strictly_sorted(wire.revoked.iter().map(ToString::to_string)) {
        return Err(InvalidRoot::Rule(
            "the revoked keys are sorted, and none comes twice",
        ));
    }
    let revoked = |entry: &KeyEntry| wire.revoked.contains(&(&entry.public_key).into());
    if wire.keys.iter().any(revoked) {
        return Err(InvalidRoot::Rule("a revoked key is in no role"));
    }
    Ok(())
}

fn is_strictly_sorted(texts: impl Iterator<Item = String>) -> bool {
    texts.is_sorted_by(|a, b| a < b)
}

impl RootDocument {
    /// Reads a payload. Fails unless it is strict JSON that keeps every rule of the document
    /// itself.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, InvalidRoot> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(InvalidRoot::Rule("a root document has at most 16 KiB"));
        }
        Ok(json::parse_payload(payload)?)
    }

    /// The id of the vault; `None` in version 1, from which it is derived.
    pub const fn vault_id(&self) -> Option<VaultId> {
        self.vault_id
    }

    /// The number of the version, from 1.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// SHA-256 of the payload of the version before; `None` in version 1.
    pub const fn previous_sha256(&self) -> Option<Digest> {
        self.previous_sha256
    }

    /// The time of signing; no check depends on it.
    pub const fn issued_at(&self) -> Timestamp {
        self.issued_at
    }

    /// The last second at which readers accept a catalog under this version; `None` for no end.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// All keys of both roles with their names, sorted by the keys' text.
    pub fn keys(&self) -> &[KeyEntry] {
        &self.keys
    }

    /// The keys that may sign the next version.
    pub const fn root(&self) -> &Role {
        &self.root
    }

    /// The keys that may sign catalogs and manifests.
    pub const fn release(&self) -> &Role {
        &self.release
    }

    /// The keys whose signatures are no longer accepted anywhere, sorted by their text.
    pub fn revoked(&self) -> &[RevokedKey] {
        &self.revoked
    }

    /// Returns the name of a key; `None` if the key is in no role.
    pub fn name_of(&self, key: &PublicKey) -> Option<&KeyName> {
        let entry = self.keys.iter().find(|entry| entry.public_key == *key)?;
        Some(&entry.name)
    }

    /// Returns the name of a key for display. A recovery key (root role only) that was given no
    /// name is shown as "recovery key", since its default name would call it a publisher.
    pub fn shown_name(&self, key: &PublicKey) -> Option<KeyName> {
        let name = self.name_of(key)?;
        let is_unnamed = !self.release.contains(key) && *name == KeyName::default_for(key);
        Some(if is_unnamed {
            KeyName::recovery_key()
        } else {
            name.clone()
        })
    }
}
