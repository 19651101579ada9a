//! Published releases: `/admin/vaults/{slug}/releases`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::root::KeyFingerprint;
use vault_format::time::Timestamp;

/// A published release; also what the service stores of it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Release {
    /// Number of the release, as its catalog states it.
    pub release: u64,
    /// The root version that its catalog names; 0: published by an earlier version of vault.
    #[serde(default)]
    pub root_version: u64,
    /// SHA-256 of the catalog's bytes; other bytes of the same payload replace it when root
    /// versions are added.
    pub sha256: Digest,
    /// SHA-256 of the payload that the keys signed.
    pub payload_sha256: Digest,
    /// Time at which it became current, by the service's clock.
    pub published_at: Timestamp,
    /// Id of the user who published it, or `server` if the service signed it itself.
    pub by: String,
    /// Number of skills that the previous release did not have.
    pub added: u64,
    /// Number of skills that have another bundle than in the previous release.
    pub changed: u64,
    /// Number of skills of the previous release that this release no longer has.
    pub removed: u64,
    /// Number of skills in the release; null if it was published before this was recorded.
    pub skills: Option<u64>,
    /// The fingerprints of the keys that signed it; empty: published before this was recorded.
    // Fingerprints and not keys, since parsing a key costs more than all else of a record, and lists
    // read many.
    #[serde(default)]
    pub signers: Vec<KeyFingerprint>,
}
