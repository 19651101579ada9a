//! Reviews the releases that a service shows after a recovery from a stolen key: who signed each,
//! and everything that a revoked key has published since the last good release. All are verified
//! under the vault's root versions (signed lists of its keys).
//!
//! Numbers, dates and the order are not proven, because a thief who had the key could choose them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::catalog::{Catalog, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::time::Timestamp;

use super::current::Current;
use super::error::PlanError;
use super::request::PlanRequest;
use super::state;
use crate::vault::Vault;
use crate::vault::trust::{NamedKey, VaultTrust};

/// A release that keys of this vault signed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ShownRelease {
    /// Number of the release, from 1.
    pub release: u64,
    /// Number of the root version (signed list of keys) that the release names.
    pub root_version: u64,
    /// SHA-256 of the signed payload of its catalog.
    pub payload_sha256: Digest,
    /// Time of signing, which the signer chose: nothing proves it.
    pub issued_at: Timestamp,
    /// Number of skills in the release.
    pub skills: usize,
    /// Keys of the vault whose signatures on the release are valid.
    pub signers: Vec<NamedKey>,
    /// Whether a key that signed the release is revoked now.
    pub by_revoked: bool,
    /// Whether this machine published the release, or the owner named it as the last good one.
    pub known: bool,
}

/// A bundle that a revoked key has published or withdrawn since the last good release.
#[derive(Clone, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct SuspectSkill {
    /// Name of the skill in the release.
    pub name: SkillName,
    /// Version of the bundle; `null` if the revoked key withdrew it.
    pub version: Option<u64>,
    /// SHA-256 of the bundle that the revoked key published or withdrew.
    pub bundle_hash: Digest,
    /// Number of the first reviewed release that has the entry.
    pub release: u64,
}

/// The findings of [`review_catalogs`].
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// Releases by this vault's keys, sorted by number.
    pub releases: Vec<ShownRelease>,
    /// Bundles to inspect before they are published again. Empty if no good release is known.
    pub suspects: Vec<SuspectSkill>,
    /// Release with which the suspects were compared; `None` if no good release is known.
    pub last_good: Option<u64>,
    /// Whether the service shows another payload with the number of the owner's last good release.
    pub contradicts: bool,
    /// Catalogs that were left out: their positions in the input, and why.
    pub refused: Vec<(usize, String)>,
}

struct ReviewedCatalog {
    catalog: Catalog,
    shown: ShownRelease,
}

/// Reviews the exact bytes of catalogs that a service shows. `request` names the namespace and the
/// last good release, if the owner knows it.
pub fn review_catalogs(
    vault: &Vault,
    request: &PlanRequest<'_>,
    catalogs: &[Vec<u8>],
) -> Result<Review, PlanError> {
    let trust = vault.require_trust()?;
    let state = state::read_state(vault, request.base, request.slug)?;
    let own = |stored: ReleaseRef| {
        let recorded = state
            .as_ref()
            .and_then(|state| state.payload_of(stored.release));
        recorded == Some(stored.payload_sha256) || request.last_good == Some(stored)
    };
    let mut review = Review::default();
    let mut seen = Vec::new();
    for (place, bytes) in catalogs.iter().enumerate() {
        match read_shown_catalog(&trust, request, bytes, &own) {
            Ok(one) => seen.push(one),
            Err(PlanError::Vault(error)) => return Err(error.into()),
            Err(error) => review.refused.push((place, error.to_string())),
        }
    }
    seen.sort_by_key(|one| (one.shown.release, one.shown.root_version));
    review.contradicts = request.last_good.is_some_and(|good| {
        let mut same = seen.iter().filter(|one| one.shown.release == good.release);
        same.clone().next().is_some()
            && same.all(|one| one.shown.payload_sha256 != good.payload_sha256)
    });
    let good = match request.last_good {
        Some(good) => seen.iter().find(|one| {
            (one.shown.release, one.shown.payload_sha256) == (good.release, good.payload_sha256)
        }),
        None => seen.iter().rev().find(|one| one.shown.known),
    };
    if let Some(good) = good {
        review.last_good = Some(good.shown.release);
        review.suspects = list_suspects(good, &seen);
    }
    review.releases = seen.into_iter().map(|one| one.shown).collect();
    Ok(review)
}

/// Reads one catalog and finds out who signed it.
fn read_shown_catalog(
    trust: &VaultTrust,
    request: &PlanRequest<'_>,
    bytes: &[u8],
    own: &dyn Fn(ReleaseRef) -> bool,
) -> Result<ReviewedCatalog, PlanError> {
    let current = Current::identify(trust, request, bytes)?;
    let chain = trust.chain();
    let keys: Vec<PublicKey> = trust.ever_released();
    // Show every key that was a publisher's at any time, not only those of the root version that
    // the catalog names.
    let signers = SignedCatalog::parse(bytes)?.valid_signers(&keys);
    let by_revoked = trust.roots.voids_release(&current.signers);
    let Current {
        catalog, stored, ..
    } = current;
    Ok(ReviewedCatalog {
        shown: ShownRelease {
            release: catalog.release,
            root_version: catalog.root_version,
            payload_sha256: stored.payload_sha256,
            issued_at: catalog.issued_at,
            skills: catalog.skills.len(),
            signers: signers
                .iter()
                .map(|key| NamedKey::from_chain(chain, key))
                .collect(),
            by_revoked,
            known: own(stored),
        },
        catalog,
    })
}

/// Lists the bundles that a release by a revoked key lists or withdraws and the good release does
/// not. Only releases with a higher number than the good one count, and each bundle is listed once.
fn list_suspects(good: &ReviewedCatalog, seen: &[ReviewedCatalog]) -> Vec<SuspectSkill> {
    let listed = good
        .catalog
        .skills
        .iter()
        .map(|entry| (entry.bundle_hash, true));
    let withdrawn = good
        .catalog
        .withdrawn
        .iter()
        .map(|entry| (entry.bundle_hash, false));
    // To withdraw a bundle that the good release lists is suspect as well, so compare listed and
    // withdrawn bundles separately.
    let mut known: BTreeSet<(Digest, bool)> = listed.chain(withdrawn).collect();
    let mut suspects = Vec::new();
    for one in seen {
        let is_later = one.shown.release > good.shown.release;
        if !is_later || !one.shown.by_revoked || one.shown.known {
            continue;
        }
        for entry in &one.catalog.skills {
            if known.insert((entry.bundle_hash, true)) {
                suspects.push(SuspectSkill {
                    name: entry.name.clone(),
                    version: Some(entry.version),
                    bundle_hash: entry.bundle_hash,
                    release: one.shown.release,
                });
            }
        }
        for entry in &one.catalog.withdrawn {
            if known.insert((entry.bundle_hash, false)) {
                suspects.push(SuspectSkill {
                    name: entry.name.clone(),
                    version: None,
                    bundle_hash: entry.bundle_hash,
                    release: one.shown.release,
                });
            }
        }
    }
    suspects.sort();
    suspects
}
