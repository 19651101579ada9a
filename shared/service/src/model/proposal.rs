//! Proposals: releases that a publisher has submitted as a draft because they lack signatures. The
//! state of a proposal is derived in [`super::outcome`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::namespace::Namespace;
use super::release;

/// Time for which a proposal waits for signatures, in seconds: 14 days.
pub const PROPOSAL_SECONDS: i64 = 14 * 24 * 3600;

/// The part of a draft's record that describes a proposed release.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Proposed {
    /// Number that the release will have.
    #[serde(rename = "proposed_release")]
    pub number: u64,
    /// Number of the root version (document with the vault's keys) that the release names.
    pub root_version: u64,
    /// SHA-256 of the payload of the root version that the release names.
    pub root_sha256: Digest,
    /// SHA-256 of the payload of the release.
    pub payload_sha256: Digest,
    /// Keys of the release role whose signatures are valid.
    pub signers: Vec<PublicKey>,
    /// State of the namespace at the submission, on which the release builds.
    pub base: Base,
    /// SHA-256 of the object of the class `closures` with the objects that the release names and
    /// the one before does not.
    pub added: Digest,
    /// Time from which the proposal is outdated.
    pub ends_at: Timestamp,
}

/// The part of a namespace's state on which a proposal builds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Base {
    /// SHA-256 of the payload of the current release; `None` before the first one.
    pub payload_sha256: Option<Digest>,
    /// SHA-256 of the payload of the pinned root version; `None` if nothing is pinned.
    pub root_sha256: Option<Digest>,
}

impl Base {
    /// Returns the base of a proposal that is submitted now.
    pub fn of_namespace(namespace: &Namespace) -> Self {
        let current = namespace.current.as_ref();
        let pin = namespace.pin.vault_pin();
        Self {
            payload_sha256: current.map(|current| current.payload_sha256),
            root_sha256: pin.map(|pin| pin.root_sha256),
        }
    }
}

impl Proposed {
    /// Returns the key that the record of the release has if it was published.
    pub fn release_key(&self, namespace: &NamespaceId) -> RecordKey {
        release::release_key(namespace, self.root_version, self.number)
    }

    /// Whether both are the same release with signatures of the same keys.
    pub fn is_same(&self, other: &Self) -> bool {
        // Compared as sets, because the order of signatures does not matter.
        let keys = |proposed: &Self| BTreeSet::from_iter(proposed.signers.clone());
        self.payload_sha256 == other.payload_sha256 && keys(self) == keys(other)
    }
}
