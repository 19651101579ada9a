//! Decides whether a publisher may add a signature to the release that another publisher proposes.

use super::judge::judge_with_threshold;
use super::{
    CatalogError, CatalogJudgement, CatalogOutcome, CatalogReader, OutdatedProposal, ReleaseRef,
};
use crate::hash::Digest;
use crate::root::RootError;

/// Judges a proposal as a device judges a catalog, with two differences: one publisher's signature
/// is enough, and a proposal that another release or root version has overtaken is outdated.
/// `reader.last` is the catalog that this publisher accepted last. `follows` is the current
/// release, which the proposal must name as its previous one; `None` skips that check.
///
/// `signed_before` returns the payload that this machine has signed under a root version and
/// release number, if any: a machine never signs a second one. The caller scans every changed
/// bundle and shows the differences.
pub fn judge_proposal(
    bytes: &[u8],
    reader: &CatalogReader<'_>,
    follows: Option<ReleaseRef>,
    signed_before: &dyn Fn(u64, u64) -> Option<Digest>,
) -> CatalogJudgement {
    let mut judgement = judge_with_threshold(bytes, reader, Some(1));
    judgement.outcome = match judgement.outcome {
        Ok(CatalogOutcome::Release(release)) => {
            let catalog = release.catalog();
            // If the current release is void, no release can follow it. The proposal then replaces
            // it.
            let follows = follows
                .is_none_or(|current| release.voids_last() || catalog.previous == Some(current));
            let signed = signed_before(catalog.root_version, catalog.release);
            // A second payload under one number would look like an attack to every device that has
            // seen the first.
            if signed.is_some_and(|signed| signed != release.payload_sha256()) {
                Err(CatalogError::ProposalOutdated(
                    OutdatedProposal::OtherSigned,
                ))
            } else if follows {
                Ok(CatalogOutcome::Release(release))
            } else {
                Err(CatalogError::ProposalOutdated(OutdatedProposal::NotNext))
            }
        }
        Ok(CatalogOutcome::Equal { .. } | CatalogOutcome::RootsOnly) => {
            Err(CatalogError::ProposalOutdated(OutdatedProposal::Published))
        }
        Err(CatalogError::ReleaseAwaited | CatalogError::Root(RootError::RolledBack { .. })) => {
            Err(CatalogError::ProposalOutdated(OutdatedProposal::OtherKeys))
        }
        Err(CatalogError::Older { .. } | CatalogError::TwoCatalogs(_)) => {
            Err(CatalogError::ProposalOutdated(OutdatedProposal::Overtaken))
        }
        Err(other) => Err(other),
    };
    judgement
}
