//! The signed catalog: what a namespace offers in one release, and the one function that decides whether to believe it.
//!
//! [`accept`] serves the client that pulls and the service that is pushed to; it changes nothing, but returns what is
//! pinned afterwards. It refuses before it reads: envelope, signature, shape, key, vault, slug, audience, clock, release, previous.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::dsse::{self, Envelope, EnvelopeError};
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::keys::{PublicKey, SecretKey};
use crate::name::{AgentId, SkillName, Slug, VaultId};
use crate::rotation::{MAX_ROTATIONS, Position, Recovery, Rotation, RotationError, Walk, walk};
use crate::text::{constant, is_deceptive};
use crate::time::Timestamp;

pub use crate::bundle::MAX_OBJECT_BYTES;

/// The payload type that is signed with every catalog.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.catalog.v1+json";
/// The most entries in `withdrawn`.
pub const MAX_WITHDRAWN: usize = 1_000;
/// The most releases that one catalog may skip.
pub const MAX_RELEASE_JUMP: u64 = 1_000_000;
/// How far `issued_at` may lie ahead of a clock, in seconds.
pub const MAX_AHEAD_SECONDS: i64 = 300;
/// The fewest and most days from `issued_at` to `expires_at`.
pub const LIFETIME_DAYS: (i64, i64) = (1, 400);

constant!(
    /// The member `schema` of a catalog.
    Schema,
    "vault.catalog/1"
);

/// One release of a namespace. A value that was not signed or accepted by this module promises nothing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Catalog {
    /// The constant `schema`.
    pub schema: Schema,
    /// The vault it belongs to.
    pub vault_id: VaultId,
    /// The namespace it is for.
    pub slug: Slug,
    /// The addresses it may be served from: base address + `/v/<slug>/`.
    pub audience: Vec<String>,
    /// Its number, from 1, higher with every catalog.
    pub release: u64,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// Until when it counts.
    pub expires_at: Timestamp,
    /// The key that signs it.
    pub public_key: PublicKey,
    /// SHA-256 of the offline recovery key, if there is one.
    #[serde(deserialize_with = "json::nullable")]
    pub recovery_key_sha256: Option<Digest>,
    /// The release before.
    #[serde(deserialize_with = "json::nullable")]
    pub previous: Option<Stored>,
    /// The skills, sorted by name.
    pub skills: Vec<SkillEntry>,
    /// The objects with the search texts.
    pub index: Vec<ObjectEntry>,
    /// The policy object, if there is one.
    #[serde(deserialize_with = "json::nullable")]
    pub policy: Option<PolicyEntry>,
    /// The rendered profiles.
    pub profiles: Vec<ProfileEntry>,
    /// Bundles that must be uninstalled.
    pub withdrawn: Vec<Withdrawn>,
}

/// A release by its number and the SHA-256 of its payload.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stored {
    /// The number.
    pub release: u64,
    /// SHA-256 of the signed payload (not of the file, whose unsigned parts a host may change).
    pub payload_sha256: Digest,
}

/// A skill of a release.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "SkillWire", into = "SkillWire")]
pub struct SkillEntry {
    /// Its name.
    pub name: SkillName,
    /// The version in its manifest.
    pub version: u64,
    /// SHA-256 of its bundle.
    pub bundle_hash: Digest,
    /// The exact length of the bundle in bytes.
    pub size: u64,
}

/// An object of a release that is named by its hash alone.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "ObjectWire", into = "ObjectWire")]
pub struct ObjectEntry {
    /// SHA-256 of the object.
    pub bundle_hash: Digest,
    /// Its exact length in bytes.
    pub size: u64,
}

/// The policy object of a release.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyEntry {
    /// SHA-256 of the object.
    pub sha256: Digest,
    /// Its exact length in bytes.
    pub size: u64,
}

/// A rendered profile of a release.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "ProfileWire", into = "ProfileWire")]
pub struct ProfileEntry {
    /// Its name.
    pub name: String,
    /// The agent it is for.
    pub agent: AgentId,
    /// SHA-256 of the profile object.
    pub bundle_hash: Digest,
    /// Its exact length in bytes.
    pub size: u64,
}

/// A bundle that a client must uninstall and that the service no longer serves.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Withdrawn {
    /// The skill's name.
    pub name: SkillName,
    /// SHA-256 of the bundle.
    pub bundle_hash: Digest,
    /// Why, in the owner's words.
    pub reason: String,
    /// The release that withdrew it.
    pub since_release: u64,
}

/// The path of an object as a catalog writes it, below `/v/<slug>/`: `bundles/<sha256>.json`.
pub fn object_path(hash: &Digest) -> String {
    format!("bundles/{hash}.json")
}

/// The text of `path`, which repeats the hash so that the release's signature covers the address.
#[derive(Clone, Copy, Eq, PartialEq)]
struct ObjectPath(Digest);

impl Serialize for ObjectPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("bundles/{}.json", self.0))
    }
}

impl<'de> Deserialize<'de> for ObjectPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Path;
        impl Visitor<'_> for Path {
            type Value = ObjectPath;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bundles/<sha256>.json")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ObjectPath, E> {
                let hash = text
                    .strip_prefix("bundles/")
                    .and_then(|rest| rest.strip_suffix(".json"));
                let hash = hash.and_then(|hash| hash.parse().ok());
                hash.map(ObjectPath)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Path)
    }
}

/// Checks what every entry with a path and a size has in common.
fn check_object(hash: Digest, path: ObjectPath, size: u64) -> Result<(), &'static str> {
    if path.0 != hash {
        return Err("a path is not bundles/<bundle_hash>.json");
    }
    if size > MAX_OBJECT_BYTES as u64 {
        Err("an object is larger than 4 MiB")
    } else {
        Ok(())
    }
}

#[derive(Deserialize, Serialize)]
struct SkillWire {
    name: SkillName,
    version: u64,
    bundle_hash: Digest,
    path: ObjectPath,
    size: u64,
}

impl TryFrom<SkillWire> for SkillEntry {
    type Error = &'static str;
    fn try_from(wire: SkillWire) -> Result<Self, &'static str> {
        check_object(wire.bundle_hash, wire.path, wire.size)?;
        if wire.version == 0 {
            return Err("a version begins at 1");
        }
        Ok(Self {
            name: wire.name,
            version: wire.version,
            bundle_hash: wire.bundle_hash,
            size: wire.size,
        })
    }
}

impl From<SkillEntry> for SkillWire {
    fn from(
        SkillEntry {
            name,
            version,
            bundle_hash,
            size,
        }: SkillEntry,
    ) -> Self {
        Self {
            name,
            version,
            bundle_hash,
            path: ObjectPath(bundle_hash),
            size,
        }
    }
}

#[derive(Deserialize, Serialize)]
struct ObjectWire {
    bundle_hash: Digest,
    path: ObjectPath,
    size: u64,
}

impl TryFrom<ObjectWire> for ObjectEntry {
    type Error = &'static str;
    fn try_from(wire: ObjectWire) -> Result<Self, &'static str> {
        check_object(wire.bundle_hash, wire.path, wire.size)?;
        Ok(Self {
            bundle_hash: wire.bundle_hash,
            size: wire.size,
        })
    }
}

impl From<ObjectEntry> for ObjectWire {
    fn from(ObjectEntry { bundle_hash, size }: ObjectEntry) -> Self {
        Self {
            bundle_hash,
            path: ObjectPath(bundle_hash),
            size,
        }
    }
}

#[derive(Deserialize, Serialize)]
struct ProfileWire {
    name: String,
    agent: AgentId,
    bundle_hash: Digest,
    path: ObjectPath,
    size: u64,
}

impl TryFrom<ProfileWire> for ProfileEntry {
    type Error = &'static str;
    fn try_from(wire: ProfileWire) -> Result<Self, &'static str> {
        check_object(wire.bundle_hash, wire.path, wire.size)?;
        if wire.name.is_empty() || wire.name.chars().any(is_deceptive) {
            return Err("the name of a profile is empty or holds control or invisible characters");
        }
        Ok(Self {
            name: wire.name,
            agent: wire.agent,
            bundle_hash: wire.bundle_hash,
            size: wire.size,
        })
    }
}

impl From<ProfileEntry> for ProfileWire {
    fn from(
        ProfileEntry {
            name,
            agent,
            bundle_hash,
            size,
        }: ProfileEntry,
    ) -> Self {
        Self {
            name,
            agent,
            bundle_hash,
            path: ObjectPath(bundle_hash),
            size,
        }
    }
}

/// Why a catalog is refused.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// More bytes than any object may have.
    #[error("the catalog is larger than 4 MiB")]
    TooLarge,
    /// The file has not the shape of a catalog file.
    #[error("not a catalog: {0}")]
    Json(#[from] JsonError),
    /// The envelope in it is none.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries something else.
    #[error("the envelope does not carry a catalog")]
    PayloadType,
    /// The payload breaks a rule of its shape.
    #[error("{0}")]
    Shape(&'static str),
    /// More withdrawn bundles than a catalog may name.
    #[error("a catalog withdraws at most {MAX_WITHDRAWN} bundles")]
    Withdrawn,
    /// No signature is good under the key that the file names.
    #[error("the catalog is not signed by the key it names")]
    Signature,
    /// The key is neither the pinned one nor reached from it.
    #[error("{0}")]
    Key(&'static str),
    /// A rotation is refused.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// It is of another vault.
    #[error("the catalog belongs to another vault")]
    VaultId,
    /// It is for another namespace.
    #[error("the catalog is for another namespace")]
    Slug,
    /// It is not for the address it came from.
    #[error("the catalog does not name this address in its audience")]
    Audience,
    /// It is expired, from the future, or lives too short or too long.
    #[error("{0}")]
    Clock(&'static str),
    /// It is older than the stored one.
    #[error("release {release} is older than the stored release {stored}")]
    Older {
        /// The catalog's release.
        release: u64,
        /// The stored release.
        stored: u64,
    },
    /// Another catalog with the stored release's number is known.
    #[error("two different catalogs carry release {0}")]
    TwoCatalogs(u64),
    /// It was published before.
    #[error("release {0} is published already")]
    Published(u64),
    /// It skips more releases than it may.
    #[error("the release is more than {MAX_RELEASE_JUMP} above the stored one")]
    Jump,
    /// It does not follow the release that it should follow.
    #[error("the catalog does not name the current release as its previous one")]
    Previous,
}

impl CatalogError {
    /// The machine-readable code: what a push is refused with, and the word in the test vectors.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::TooLarge
            | Self::Json(_)
            | Self::Envelope(_)
            | Self::PayloadType
            | Self::Shape(_) => "catalog_schema",
            Self::Withdrawn => "catalog_withdrawn",
            Self::Signature => "catalog_signature",
            Self::Key(_) => "catalog_key",
            Self::Rotation(_) => "catalog_rotation",
            Self::VaultId => "catalog_vault_id",
            Self::Slug => "catalog_slug",
            Self::Audience => "catalog_audience",
            Self::Clock(_) => "catalog_clock",
            Self::Older { .. } | Self::TwoCatalogs(_) | Self::Published(_) | Self::Jump => {
                "catalog_release"
            }
            Self::Previous => "catalog_previous",
        }
    }
}

/// A catalog file as it came, parsed but not yet believed.
#[derive(Clone, Debug)]
pub struct SignedCatalog {
    public_key: PublicKey,
    rotations: Vec<Envelope>,
    envelope: Envelope,
}

#[derive(Deserialize)]
struct FileWire<'a> {
    public_key: PublicKey,
    #[serde(borrow, default)]
    rotations: Vec<&'a RawValue>,
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rotations: &'a [Envelope],
    #[serde(flatten)]
    envelope: &'a Envelope,
}

impl SignedCatalog {
    /// Signs a catalog and returns the exact bytes of `catalog.json`; fails when it breaks a rule that a reader would
    /// refuse it for, names another key, or is larger than 4 MiB.
    pub fn sign(
        catalog: &Catalog,
        rotations: &[Envelope],
        key: &SecretKey,
    ) -> Result<Vec<u8>, CatalogError> {
        if catalog.public_key != key.public() {
            return Err(CatalogError::Key(
                "the catalog names another key than the one that signs it",
            ));
        }
        if rotations.len() > MAX_ROTATIONS {
            return Err(RotationError::TooMany.into());
        }
        catalog.check()?;
        let envelope = Envelope::sign(PAYLOAD_TYPE, &json::to_bytes(catalog), &[key]);
        let bytes = json::to_bytes(&FileWritten {
            public_key: catalog.public_key,
            rotations,
            envelope: &envelope,
        });
        if bytes.len() > MAX_OBJECT_BYTES {
            Err(CatalogError::TooLarge)
        } else {
            Ok(bytes)
        }
    }

    /// Reads the file; fails when it is too large or has not the shape of a catalog file.
    pub fn parse(bytes: &[u8]) -> Result<Self, CatalogError> {
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(CatalogError::TooLarge);
        }
        let wire: FileWire<'_> = json::parse(bytes)?;
        let FileWire {
            public_key,
            rotations,
            payload_type,
            payload,
            signatures,
        } = wire;
        if rotations.len() > MAX_ROTATIONS {
            return Err(RotationError::TooMany.into());
        }
        let statement =
            |raw: &RawValue| Envelope::parse(raw.get().as_bytes()).map_err(RotationError::from);
        let rotations = rotations
            .into_iter()
            .map(statement)
            .collect::<Result<_, _>>()?;
        let envelope = dsse::Wire {
            payload_type,
            payload,
            signatures,
        }
        .open()?;
        Ok(Self {
            public_key,
            rotations,
            envelope,
        })
    }

    /// Checks the signature under the key that the file itself names, then reads the payload and checks its shape.
    /// Enough for bytes that were accepted before; anything else goes through [`accept`].
    pub fn verify(&self) -> Result<Catalog, CatalogError> {
        if self.envelope.payload_type() != PAYLOAD_TYPE {
            return Err(CatalogError::PayloadType);
        }
        if !self.envelope.verified_by(&self.public_key) {
            return Err(CatalogError::Signature);
        }
        let catalog: Catalog = json::parse(self.envelope.payload())?;
        if catalog.public_key != self.public_key {
            return Err(CatalogError::Key(
                "the key in the catalog is not the key of its file",
            ));
        }
        catalog.check_shape()?;
        Ok(catalog)
    }

    /// The key that the file names; unsigned.
    pub const fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// The statements that the file carries, oldest first; each stands on its own signatures.
    pub fn rotations(&self) -> &[Envelope] {
        &self.rotations
    }

    /// SHA-256 of the payload.
    pub fn payload_sha256(&self) -> Digest {
        Digest::of(self.envelope.payload())
    }

    fn verified_rotations(&self, vault_id: VaultId) -> Result<Vec<Rotation>, RotationError> {
        let verify = |envelope| {
            let statement = Rotation::verify(envelope)?;
            if statement.vault_id == vault_id {
                Ok(statement)
            } else {
                Err(RotationError::VaultId)
            }
        };
        self.rotations.iter().map(verify).collect()
    }
}

impl Catalog {
    /// Checks every rule that needs no other knowledge than the catalog itself.
    pub fn check(&self) -> Result<(), CatalogError> {
        self.check_shape()?;
        self.check_lifetime()
    }

    /// The rules of the shape; those of the clock have their own place in the order of checks.
    fn check_shape(&self) -> Result<(), CatalogError> {
        if self.release == 0 {
            return Err(CatalogError::Shape("releases begin at 1"));
        }
        if !self.skills.is_sorted_by(|a, b| a.name < b.name) {
            return Err(CatalogError::Shape(
                "the skills are not sorted by name, or one comes twice",
            ));
        }
        let mut profiles = HashSet::new();
        if !self
            .profiles
            .iter()
            .all(|profile| profiles.insert(&profile.name))
        {
            return Err(CatalogError::Shape("two profiles have one name"));
        }
        if self
            .policy
            .is_some_and(|policy| policy.size > MAX_OBJECT_BYTES as u64)
        {
            return Err(CatalogError::Shape("an object is larger than 4 MiB"));
        }
        self.check_withdrawn()
    }

    fn check_lifetime(&self) -> Result<(), CatalogError> {
        let (shortest, longest) = LIFETIME_DAYS;
        if self.expires_at < self.issued_at.plus_days(shortest)
            || self.expires_at > self.issued_at.plus_days(longest)
        {
            return Err(CatalogError::Clock(
                "a catalog expires 1 to 400 days after it was issued",
            ));
        }
        Ok(())
    }

    fn check_withdrawn(&self) -> Result<(), CatalogError> {
        if self.withdrawn.len() > MAX_WITHDRAWN {
            return Err(CatalogError::Withdrawn);
        }
        if self
            .withdrawn
            .iter()
            .any(|entry| entry.reason.contains('\0'))
        {
            return Err(CatalogError::Shape(
                "the reason of a withdrawal holds U+0000",
            ));
        }
        if self.withdrawn.is_empty() {
            return Ok(());
        }
        let hashes: HashSet<_> = self
            .withdrawn
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect();
        if self
            .skills
            .iter()
            .any(|skill| hashes.contains(&skill.bundle_hash))
        {
            return Err(CatalogError::Shape(
                "a bundle is both offered and withdrawn",
            ));
        }
        Ok(())
    }

    /// The entry of a skill, if the release has it.
    pub fn skill(&self, name: &SkillName) -> Option<&SkillEntry> {
        let index = self
            .skills
            .binary_search_by(|entry| entry.name.cmp(name))
            .ok()?;
        self.skills.get(index)
    }
}

/// What is pinned of a vault; `Default` is nothing.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Trust {
    /// The vault.
    pub vault_id: Option<VaultId>,
    /// The key that signs its catalogs; `None` before the first one.
    pub public_key: Option<PublicKey>,
    /// The keys before, oldest first.
    pub former_keys: Vec<PublicKey>,
    /// The sequence of the last rotation that was followed.
    pub rotation_sequence: u64,
    /// SHA-256 of the recovery key; `None` also where the vault has none.
    pub recovery_key_sha256: Option<Digest>,
    /// The highest release that was accepted.
    pub stored: Option<Stored>,
}

/// On which side a catalog arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// A device pulls: it may have missed releases, and may see one again.
    Client,
    /// A service is pushed to: each catalog follows the one before.
    Service,
}

/// What the reader knows besides what is pinned.
#[derive(Clone, Copy)]
pub struct Expectation<'a> {
    /// Which side reads.
    pub side: Side,
    /// The base address, with its path prefix if it has one, such as `https://vault.example/base`.
    pub base: &'a str,
    /// The namespace.
    pub slug: &'a Slug,
    /// The reader's clock.
    pub now: Timestamp,
    /// The latest time that the reader has ever seen; a device judges expiry by it when its clock went back.
    pub latest_seen_at: Option<Timestamp>,
    /// The payload hashes of earlier releases, as far as the reader knows them.
    pub history: &'a dyn Fn(u64) -> Option<Digest>,
}

/// What a reader should tell its user about an accepted catalog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Warning {
    /// The catalog was issued more than 300 seconds in this clock's future.
    IssuedInFuture,
    /// This clock shows an earlier time than it did before.
    ClockWentBack,
    /// The catalog names the stored release as its previous one, but with another payload.
    PreviousDiffers,
}

/// A catalog that was found good, and what follows from it.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The catalog.
    pub catalog: Catalog,
    /// What is to be pinned from now on.
    pub trust: Trust,
    /// SHA-256 of the signed payload.
    pub payload_sha256: Digest,
    /// SHA-256 of the file's bytes.
    pub file_sha256: Digest,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// Whether this is the stored release again.
    pub same_release: bool,
    /// The keys that may have signed the manifests of this catalog's bundles: the current one, then former ones.
    pub keys: Vec<PublicKey>,
    /// Those of `keys` that were stolen or lost: a manifest by one of them counts only if this catalog names its bundle.
    pub voided: Vec<PublicKey>,
    /// Set where a compromise or loss was news: releases above this one were void and no longer count.
    pub reset_release: Option<u64>,
    /// The statements that the catalog carries, one for each sequence.
    pub rotations: Vec<Rotation>,
}

/// Decides whether to believe a catalog, given what is pinned; changes nothing.
pub fn accept(
    bytes: &[u8],
    trust: &Trust,
    expected: &Expectation<'_>,
) -> Result<Accepted, CatalogError> {
    let file = SignedCatalog::parse(bytes)?;
    let catalog = file.verify()?;
    let walk = check_key(&file, &catalog, trust)?;
    check_address(&catalog, trust, expected)?;
    let mut warnings = check_clock(&catalog, expected)?;
    let stored = Stored {
        release: catalog.release,
        payload_sha256: file.payload_sha256(),
    };
    let base = Base::of(trust.stored, walk.reset_release, expected);
    let same_release = base.check_release(stored, expected.side)?;
    match expected.side {
        Side::Service => base.check_previous(catalog.previous)?,
        Side::Client if base.differs_from(catalog.previous) => {
            warnings.push(Warning::PreviousDiffers);
        }
        Side::Client => {}
    }
    let (keys, voided) = signers(&walk, file.public_key);
    Ok(Accepted {
        trust: Trust {
            vault_id: Some(catalog.vault_id),
            public_key: Some(file.public_key),
            former_keys: walk.position.former_keys,
            rotation_sequence: walk.position.sequence,
            recovery_key_sha256: catalog.recovery_key_sha256,
            stored: Some(stored),
        },
        catalog,
        payload_sha256: stored.payload_sha256,
        file_sha256: Digest::of(bytes),
        warnings,
        same_release,
        keys,
        voided,
        reset_release: walk.reset_release,
        rotations: walk.statements,
    })
}

/// The file's key must be the pinned one or the end of the walk that begins there.
fn check_key(file: &SignedCatalog, catalog: &Catalog, trust: &Trust) -> Result<Walk, CatalogError> {
    let pinned = Position {
        former_keys: trust.former_keys.clone(),
        public_key: trust.public_key,
        sequence: trust.rotation_sequence,
        recovery: match trust.recovery_key_sha256 {
            _ if trust.public_key.is_none() => Recovery::Unknown,
            Some(hash) => Recovery::Key(hash),
            None => Recovery::Absent,
        },
    };
    let walk = walk(&pinned, &file.verified_rotations(catalog.vault_id)?)?;
    match walk.position.public_key {
        Some(key) if key != file.public_key && trust.public_key.is_some() => {
            return Err(CatalogError::Key(
                "the catalog's key is neither the pinned one nor the one that the rotations lead to",
            ));
        }
        Some(key) if key != file.public_key => return Err(RotationError::WrongEnd.into()),
        _ => {}
    }
    let first_release = walk
        .statements
        .iter()
        .map(|statement| statement.effective_release)
        .max();
    if let Some(first) = first_release.filter(|first| *first > catalog.release) {
        return Err(RotationError::NotYetEffective(first).into());
    }
    let named = catalog
        .recovery_key_sha256
        .map_or(Recovery::Absent, Recovery::Key);
    if walk.position.recovery != Recovery::Unknown && walk.position.recovery != named {
        return Err(RotationError::RecoveryChanged.into());
    }
    Ok(walk)
}

fn check_address(
    catalog: &Catalog,
    trust: &Trust,
    expected: &Expectation<'_>,
) -> Result<(), CatalogError> {
    if trust
        .vault_id
        .is_some_and(|pinned| pinned != catalog.vault_id)
    {
        return Err(CatalogError::VaultId);
    }
    if catalog.slug != *expected.slug {
        return Err(CatalogError::Slug);
    }
    let address = format!(
        "{}/v/{}/",
        expected.base.trim_end_matches('/'),
        expected.slug
    );
    if catalog.audience.contains(&address) {
        Ok(())
    } else {
        Err(CatalogError::Audience)
    }
}

fn check_clock(
    catalog: &Catalog,
    expected: &Expectation<'_>,
) -> Result<Vec<Warning>, CatalogError> {
    catalog.check_lifetime()?;
    let ahead = catalog.issued_at > expected.now.plus_seconds(MAX_AHEAD_SECONDS);
    let mut warnings = Vec::new();
    let judged_at = match expected.side {
        Side::Service if ahead => {
            return Err(CatalogError::Clock("the catalog is issued in the future"));
        }
        Side::Service => expected.now,
        Side::Client => {
            let latest = expected.latest_seen_at.unwrap_or(expected.now);
            warnings.extend(ahead.then_some(Warning::IssuedInFuture));
            warnings.extend((latest > expected.now).then_some(Warning::ClockWentBack));
            latest.max(expected.now)
        }
    };
    if judged_at > catalog.expires_at {
        Err(CatalogError::Clock("the catalog is expired"))
    } else {
        Ok(warnings)
    }
}

/// The release that a catalog is compared with: the stored one, or the last before a compromise that is news.
struct Base {
    release: Option<u64>,
    payload_sha256: Option<Digest>,
}

impl Base {
    fn of(stored: Option<Stored>, reset: Option<u64>, expected: &Expectation<'_>) -> Self {
        let Some(stored) = stored else {
            return Self {
                release: None,
                payload_sha256: None,
            };
        };
        match reset {
            Some(release) if release != stored.release => Self {
                release: Some(release),
                payload_sha256: (expected.history)(release),
            },
            _ => Self {
                release: Some(stored.release),
                payload_sha256: Some(stored.payload_sha256),
            },
        }
    }

    /// Returns whether it is the very release that is stored.
    fn check_release(&self, new: Stored, side: Side) -> Result<bool, CatalogError> {
        let Some(base) = self.release else {
            return Ok(false);
        };
        if new.release < base {
            return Err(CatalogError::Older {
                release: new.release,
                stored: base,
            });
        }
        if new.release == base {
            return match side {
                _ if self.payload_sha256 != Some(new.payload_sha256) => {
                    Err(CatalogError::TwoCatalogs(base))
                }
                Side::Service => Err(CatalogError::Published(base)),
                Side::Client => Ok(true),
            };
        }
        if new.release - base > MAX_RELEASE_JUMP {
            Err(CatalogError::Jump)
        } else {
            Ok(false)
        }
    }

    /// The first catalog of a namespace may follow anything.
    fn check_previous(&self, previous: Option<Stored>) -> Result<(), CatalogError> {
        let good = match (self.release, previous) {
            (None, _) | (Some(0), None) => true,
            (Some(release), Some(previous)) => {
                release == previous.release
                    && self
                        .payload_sha256
                        .is_none_or(|known| known == previous.payload_sha256)
            }
            (Some(_), None) => false,
        };
        if good {
            Ok(())
        } else {
            Err(CatalogError::Previous)
        }
    }

    fn differs_from(&self, previous: Option<Stored>) -> bool {
        previous.is_some_and(|previous| {
            self.release == Some(previous.release)
                && self
                    .payload_sha256
                    .is_some_and(|known| known != previous.payload_sha256)
        })
    }
}

/// The keys that may have signed manifests, newest first, and those among them that were stolen or lost.
fn signers(walk: &Walk, current: PublicKey) -> (Vec<PublicKey>, Vec<PublicKey>) {
    let mut keys = vec![current];
    let stated = walk.statements.iter().rev().map(|statement| statement.from);
    for key in walk
        .position
        .former_keys
        .iter()
        .rev()
        .copied()
        .chain(stated)
    {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let lost = walk
        .statements
        .iter()
        .filter(|statement| statement.reason.voids_old_key());
    (keys, lost.map(|statement| statement.from).collect())
}
