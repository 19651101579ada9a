//! The port `Fetch`: how a shelf gets a skill from elsewhere, and how it asks whether the place has
//! something else now.
//!
//! The library knows no network: it is handed a [`Fetch`], and admits what comes back like anything
//! else.

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

/// What is remembered of the place a skill was fetched from, beside its signed provenance: enough
/// to ask there again, and whose signature to expect. Not signed itself; what comes back is gated
/// and signed like anything else.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Upstream {
    /// The place, as the manifest names it.
    pub identifier: ProvenanceId,
    /// The address that was asked, where the identifier does not say it all (another user, another
    /// scheme).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The skill's folder inside the repository; empty for its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Branch, tag, commit or version that was asked for; `None` follows the default.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ref")]
    pub reference: Option<String>,
    /// What was there: a commit, a version, or `sha256:` with the digest of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The id of the skill's folder in that commit: equal as long as the folder is, whatever else
    /// the repository does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The vault whose publisher signed the skill there: the fingerprint of its first root version.
    /// It is pinned: what comes later from that place is signed by that vault too, whatever keys it
    /// has then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<VaultFingerprint>,
    /// The number of the newest root version that was shown there; it does not fall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_version: Option<u64>,
    /// The version that was signed there; it does not fall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_version: Option<u64>,
}

/// Why a skill that was signed at its source is not taken from there any more.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PinError {
    /// It carries no signature any more; the vault that was pinned.
    #[error("it is no longer signed; it was signed by {0}")]
    Unsigned(VaultFingerprint),
    /// Another vault signed it.
    #[error("it is signed by {found}; it was signed by {pinned}")]
    OtherSigner {
        /// The vault that was pinned when the skill was added.
        pinned: VaultFingerprint,
        /// The vault that signed what is there now.
        found: VaultFingerprint,
    },
    /// The same vault, but its keys as they were before: they may have been revoked since.
    #[error(
        "it is signed under version {found} of its vault's keys, which is older than {pinned}, the one that is known"
    )]
    RootsRolledBack {
        /// The version that is known.
        pinned: u64,
        /// The version that is there now.
        found: u64,
    },
    /// The same vault, but an earlier version than the one that is here.
    #[error("version {found} is signed there, which is older than {pinned}, the installed one")]
    RolledBack {
        /// The version that is here.
        pinned: u64,
        /// The version that is there now.
        found: u64,
    },
}

impl Upstream {
    /// Whether what comes from there `now` carries the signature that was pinned, and no earlier
    /// version. Anything does where nothing was.
    pub fn check_pin(&self, now: &Self) -> Result<(), PinError> {
        let Some(pinned) = self.signer else {
            return Ok(());
        };
        let found = now.signer.ok_or(PinError::Unsigned(pinned))?;
        if found != pinned {
            return Err(PinError::OtherSigner { pinned, found });
        }
        if let (Some(pinned), Some(found)) = (self.root_version, now.root_version)
            && found < pinned
        {
            return Err(PinError::RootsRolledBack { pinned, found });
        }
        match (self.signed_version, now.signed_version) {
            (Some(pinned), Some(found)) if found < pinned => {
                Err(PinError::RolledBack { pinned, found })
            }
            _ => Ok(()),
        }
    }
}

/// The member of `_meta` under which an index says whose signature a skill carries: a
/// [`SignedSkill`].
pub const SIGNED_META: &str = "dev.vault/signed";

/// What an index says of a skill that a vault signed. Nothing of it is believed before the
/// signature is verified.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SignedSkill {
    /// The address of the signed manifest, relative to the index.
    pub manifest: String,
    /// The key that signed it.
    pub public_key: PublicKey,
}

/// A skill as it was fetched; nothing about it has been checked but its digests.
#[derive(Clone, Debug)]
pub struct FetchedSkill {
    /// Its files.
    pub files: Vec<RawFile>,
    /// The name of its folder there, for a skill whose own name leaves nothing usable.
    pub folder: Option<String>,
    /// Where it came from.
    pub upstream: Upstream,
}

/// Why nothing was fetched, in words for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// The policy, or a rule that holds for everybody, keeps that place out.
    #[error("{0}")]
    Refused(String),
    /// The place, the reference or the skill is not there, or there are several and none was named.
    #[error("{0}")]
    NotFound(String),
    /// The place did not answer as it should, or not in time.
    #[error("{0}")]
    Unreachable(String),
}

/// What fetches skills from their sources.
#[async_trait]
pub trait Fetch: Send + Sync + std::fmt::Debug {
    /// Fetches one skill. The policy is asked before anything goes over the network; `skill` says
    /// which one where the source has several.
    async fn fetch(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Fetches one skill of a source that is written as on the command line: a local archive, a
    /// repository, the address of a site, an entry of a registry.
    async fn fetch_text(
        &self,
        source: &str,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Fetches a skill again from where it came.
    async fn fetch_again(
        &self,
        upstream: &Upstream,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault>;

    /// Compares skills with their sources, a few at a time; skills of one repository or site share
    /// its requests. `answer` gets each result as it comes, with the index of its question. Never
    /// fails: a failure is part of the result.
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
