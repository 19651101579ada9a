//! The entries of a catalog: skills and other stored objects. Each names its object by SHA-256,
//! exact size and a path that repeats the hash.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{CatalogError, MAX_OBJECT_BYTES};
use crate::hash::Digest;
use crate::name::{AgentId, SkillName};
use crate::text::is_deceptive;

/// A release by its number and the SHA-256 of its payload.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReleaseRef {
    /// Number of the release, from 1.
    pub release: u64,
    /// SHA-256 of the signed payload (not of the file, whose unsigned parts a host may change).
    pub payload_sha256: Digest,
}

/// A skill as a catalog lists it, with the hash and size of its bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "SkillWire", into = "SkillWire")]
pub struct SkillEntry {
    /// Name of the skill in the vault.
    pub name: SkillName,
    /// Version number in the skill's manifest.
    pub version: u64,
    /// SHA-256 of the skill's bundle.
    pub bundle_hash: Digest,
    /// The exact length of the bundle in bytes.
    pub size: u64,
}

impl SkillEntry {
    /// Fails if this entry is an older version of the skill than `had`, the entry that the reader
    /// has stored, or has the same version with other content.
    pub fn check_not_before(&self, had: &Self) -> Result<(), CatalogError> {
        let name = || self.name.clone();
        // A host that replays an old release, or a publisher that reuses a number, would bring back
        // bytes that the owner has replaced.
        if self.version < had.version {
            return Err(CatalogError::SkillRolledBack {
                name: name(),
                version: self.version,
                stored: had.version,
            });
        }
        if self.version == had.version && self.bundle_hash != had.bundle_hash {
            return Err(CatalogError::SkillTwice {
                name: name(),
                version: self.version,
            });
        }
        Ok(())
    }
}

/// An object of a release that has no name but its hash, such as a part of the search index.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "ObjectWire", into = "ObjectWire")]
pub struct ObjectEntry {
    /// SHA-256 of the object's bytes.
    pub bundle_hash: Digest,
    /// Exact length of the object in bytes.
    pub size: u64,
}

/// The policy of a release, as its catalog lists it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyEntry {
    /// SHA-256 of the object's bytes.
    pub sha256: Digest,
    /// Exact length of the object in bytes.
    pub size: u64,
}

/// The profile of a release for one agent: which skills the agent gets, in which form.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "ProfileWire", into = "ProfileWire")]
pub struct ProfileEntry {
    /// Name of the profile, unique in the release.
    pub name: String,
    /// The agent for which the profile is made.
    pub agent: AgentId,
    /// SHA-256 of the profile object.
    pub bundle_hash: Digest,
    /// Exact length of the profile object in bytes.
    pub size: u64,
}

/// A bundle that a client must uninstall and that the service no longer serves.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "WithdrawnBundle")]
pub struct Withdrawn {
    /// Name under which the vault published the bundle.
    pub name: SkillName,
    /// SHA-256 of the bundle: clients uninstall exactly these bytes.
    pub bundle_hash: Digest,
    /// The reason, in the owner's words.
    pub reason: String,
    /// Number of the first release that lists the withdrawal.
    pub since_release: u64,
}

/// Returns the path of an object as a catalog writes it, below `/v/<slug>/`:
/// `bundles/<sha256>.json`.
pub fn object_path(hash: &Digest) -> String {
    format!("bundles/{hash}.json")
}

/// The member `path` of an entry. It repeats the hash, so that the release's signature also covers
/// the address.
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

fn check_object(hash: Digest, path: ObjectPath, size: u64) -> Result<(), &'static str> {
    // Two members that could name different objects would let two readers install different bytes
    // from one signature.
    if path.0 != hash {
        return Err("a path is not bundles/<bundle_hash>.json");
    }
    // Readers use the signed size as the limit of a download.
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

/// The profile of a release for one agent: which skills the agent gets, in which form.
#[derive(Deserialize, JsonSchema, Serialize)]
struct ProfileWire {
    /// Name of the profile, unique in the release.
    name: String,
    /// The agent for which the profile is made.
    agent: AgentId,
    /// SHA-256 of the profile object.
    bundle_hash: Digest,
    /// The path of the object below the vault's address.
    #[schemars(with = "String")]
    path: ObjectPath,
    /// Exact length of the profile object in bytes.
    size: u64,
}

impl TryFrom<ProfileWire> for ProfileEntry {
    type Error = &'static str;
    fn try_from(wire: ProfileWire) -> Result<Self, &'static str> {
        check_object(wire.bundle_hash, wire.path, wire.size)?;
        // Profile names are free text that terminals print, unlike skill names, which have a
        // grammar.
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
