//! The port `Fetch`: fetches skills from their sources, and compares skills with their sources to
//! detect upstream changes (drift).
//!
//! The library does not use the network. Its caller passes a [`Fetch`], and the library checks the
//! fetched files like any other input.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use vault_format::draft::Source;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::root::VaultFingerprint;
use vault_gate::RawFile;
use vault_policy::Policy;

use crate::DriftState;

/// The recorded source of a skill, stored beside its signed provenance: enough to fetch from there
/// again, and the signer to expect. The record itself is not signed; everything that is fetched
/// with it is checked and signed like any other input.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Upstream {
    /// The source, as the manifest names it.
    pub identifier: ProvenanceId,
    /// The address that was fetched, if the identifier alone does not lead to it, for example
    /// because the address has another user or scheme; `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The skill's folder in the repository; empty for its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The requested branch, tag, commit or version; `None` means the default of the source.
    // `ref` is a keyword of Rust.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ref")]
    pub reference: Option<String>,
    /// The state that was fetched: a commit, a version, or `sha256:` and the digest of the
    /// artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The git tree id of the skill's folder in that commit. It stays equal as long as the folder
    /// does, whatever else changes in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The vault that signed the skill at its source, as the fingerprint of its first root version
    /// (list of its keys); `None` if it was not signed there. Later versions from this source must
    /// be signed by the same vault (a pin), under any of its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<VaultFingerprint>,
    /// Number of the newest root version that was seen at the source. A lower one is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_version: Option<u64>,
    /// Version number of the signed skill at the source. A lower one is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_version: Option<u64>,
    /// Links of the skill, by their paths in it, in whose place the owner accepted copies of the
    /// files. The same links of later versions become copies too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied_links: Vec<String>,
}

/// The reason why a skill that was signed at its source is no longer accepted from there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PinError {
    /// The skill is no longer signed. Holds the pinned vault.
    #[error("it is no longer signed; it was signed by {0}")]
    Unsigned(VaultFingerprint),
    /// Another vault signed the skill.
    #[error("it is signed by {found}; it was signed by {pinned}")]
    OtherSigner {
        /// The vault that was pinned when the skill was added.
        pinned: VaultFingerprint,
        /// The vault that signed the current state of the source.
        found: VaultFingerprint,
    },
    /// The same vault signed it, but under older keys, which may have been revoked since.
    #[error(
        "it is signed under version {found} of its vault's keys, which is older than {pinned}, the one that is known"
    )]
    RootsRolledBack {
        /// Number of the newest root version that was seen at the source before.
        pinned: u64,
        /// Number of the newest root version at the source now.
        found: u64,
    },
    /// The same vault signed it, but an earlier version than the recorded one.
    #[error("version {found} is signed there, which is older than {pinned}, the installed one")]
    RolledBack {
        /// The recorded version.
        pinned: u64,
        /// The version at the source now.
        found: u64,
    },
}

impl Upstream {
    /// Checks the state `now` of the source: it must have the pinned signer, and neither older keys
    /// nor an earlier version. Without a pin, every state passes.
    pub fn check_pin(&self, now: &Self) -> Result<(), PinError> {
        let Some(pinned) = self.signer else {
            return Ok(());
        };
        let found = now.signer.ok_or(PinError::Unsigned(pinned))?;
        // Compare the vault before any number: the numbers of two vaults have nothing in common.
        if found != pinned {
            return Err(PinError::OtherSigner { pinned, found });
        }
        // Older root versions may still list a key that was revoked since, and a thief of that key
        // could sign with it.
        if let (Some(pinned), Some(found)) = (self.root_version, now.root_version)
            && found < pinned
        {
            return Err(PinError::RootsRolledBack { pinned, found });
        }
        match (self.signed_version, now.signed_version) {
            // An equal version passes, because an unchanged skill may be fetched again.
            (Some(pinned), Some(found)) if found < pinned => {
                Err(PinError::RolledBack { pinned, found })
            }
            _ => Ok(()),
        }
    }
}

/// The member of `_meta` in which a well-known index carries a skill's signature, as a
/// [`SignedSkill`].
pub const SIGNED_META: &str = "dev.vault/signed";

/// The signature that an index lists for a skill. It is untrusted until the signature is verified.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SignedSkill {
    /// The address of the signed manifest, relative to the index.
    pub manifest: String,
    /// The key that signed the manifest.
    pub public_key: PublicKey,
}

/// A fetched skill. Only the digests that the source states are checked; the scan is still to come.
#[derive(Clone, Debug)]
pub struct FetchedSkill {
    /// The files of the skill, not yet checked.
    pub files: Vec<RawFile>,
    /// Name of the skill's folder at the source, from which a name is derived if the skill's own
    /// name is not usable.
    pub folder: Option<String>,
    /// The source to record, so that the skill can be fetched and compared again.
    pub upstream: Upstream,
}

/// The error of a fetch. Each variant holds its message for the user.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// The policy, or a rule that no policy can lift, rejects the source.
    #[error("{0}")]
    Refused(String),
    /// The source, the reference or the skill does not exist, or there are several skills and the
    /// caller named none.
    #[error("{0}")]
    NotFound(String),
    /// The source answered incorrectly or not in time.
    #[error("{0}")]
    Unreachable(String),
}

/// Fetches skills from their sources.
#[async_trait]
pub trait Fetch: Send + Sync + std::fmt::Debug {
    /// Fetches one skill. The policy is checked before the first request. `skill` selects one skill
    /// of a source that has several.
    async fn fetch(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Fetches one skill from a source in the command line's notation: a local archive, a
    /// repository, the address of a site, or an entry of a registry.
    async fn fetch_text(
        &self,
        source: &str,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Fetches a skill again from its recorded source.
    async fn fetch_again(
        &self,
        upstream: &Upstream,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Compares skills with their sources, a few at a time. Skills of one repository or site share
    /// its requests. `answer` is called with each result as it arrives, with the index of the skill
    /// in `upstreams`. Never fails: a failed comparison is part of the result.
    async fn compare(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: Option<&Policy>,
        answer: &mut (dyn FnMut(usize, DriftState) + Send),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_format::hash::Digest;

    #[test]
    fn a_pin_holds_against_other_vaults_no_signature_and_earlier_versions() {
        let [one, two] = [b"1", b"2"].map(|root| VaultFingerprint::new(1, &Digest::of(root)));
        let under = |signer, root_version, signed_version| Upstream {
            identifier: "wellknown:https://docs.example/pdf".parse().unwrap(),
            address: None,
            path: None,
            reference: None,
            revision: None,
            tree: None,
            signer,
            root_version,
            signed_version,
            copied_links: Vec::new(),
        };
        let of = |signer, signed_version| under(signer, Some(2), signed_version);
        let pinned = of(Some(one), Some(3));
        for (found, wanted) in [
            (of(Some(one), Some(3)), Ok(())),
            (of(Some(one), Some(4)), Ok(())),
            (of(None, None), Err(PinError::Unsigned(one))),
            (
                of(Some(two), Some(9)),
                Err(PinError::OtherSigner {
                    pinned: one,
                    found: two,
                }),
            ),
            (under(Some(one), Some(3), Some(3)), Ok(())),
            (
                under(Some(one), Some(1), Some(9)),
                Err(PinError::RootsRolledBack {
                    pinned: 2,
                    found: 1,
                }),
            ),
            (
                of(Some(one), Some(2)),
                Err(PinError::RolledBack {
                    pinned: 3,
                    found: 2,
                }),
            ),
        ] {
            assert_eq!(pinned.check_pin(&found), wanted);
            assert_eq!(
                of(None, None).check_pin(&found),
                Ok(()),
                "nothing was pinned"
            );
        }
    }
}
