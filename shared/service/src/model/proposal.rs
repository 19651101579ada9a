//! The records of proposed releases.

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

/// A release that lacks signatures.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Proposed {
    /// Its number.
    #[serde(rename = "proposed_release")]
    pub number: u64,
    /// The root version that it names.
    pub root_version: u64,
    /// SHA-256 of the payload of that version.
    pub root_sha256: Digest,
    /// SHA-256 of its own payload.
    pub payload_sha256: Digest,
    /// The keys of the release role whose signatures are good.
    pub signers: Vec<PublicKey>,
    /// State of the namespace against which it was judged.
    pub base: Base,
    /// The object of the class `closures` that lists what it names beyond the release that it
    /// follows.
    pub added: Digest,
    /// Time at which it ends.
    pub ends_at: Timestamp,
}

/// State of a namespace, as far as a proposal builds on it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Base {
    /// SHA-256 of the payload of the current release.
    pub payload_sha256: Option<Digest>,
    /// SHA-256 of the payload of the pinned root version.
    pub root_sha256: Option<Digest>,
}

impl Base {
    /// Returns the present state of the namespace.
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
    /// Returns the key of the record of the release, if it was published.
    pub fn release_key(&self, namespace: &NamespaceId) -> RecordKey {
        release::release_key(namespace, self.root_version, self.number)
    }

    /// Whether both carry the same payload with the same signatures.
    pub fn is_same(&self, other: &Self) -> bool {
        // As sets: the order in which people signed makes no other proposal.
        let keys = |proposed: &Self| BTreeSet::from_iter(proposed.signers.clone());
        self.payload_sha256 == other.payload_sha256 && keys(self) == keys(other)
    }
}
