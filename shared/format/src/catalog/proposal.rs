//! Whether a publisher may sign the release that another publisher proposes.

use super::judge::judge_with_threshold;
use super::{
    CatalogError, CatalogJudgement, CatalogOutcome, CatalogReader, OutdatedProposal, Stored,
};
use crate::hash::Digest;
use crate::root::RootError;

/// Judges a proposal as a device judges a catalog, but for the threshold: one publisher's signature
/// is enough, and what another release or root has overtaken is outdated. `reader.last` is the
/// publisher's own last counted catalog, and `follows` is the release that is published now, which
/// the proposal must name as the one before it; `None` if there is none that matters.
///
/// `signed_before` is the payload that this machine has signed under the same slug, root version
/// and release, if there is one: a machine signs no second one. The caller asks the gate about
/// every changed bundle and shows the differences.
pub fn judge_proposal(
    bytes: &[u8],
    reader: &CatalogReader<'_>,
    follows: Option<Stored>,
    signed_before: &dyn Fn(u64, u64) -> Option<Digest>,
) -> CatalogJudgement {
    let mut judgement = judge_with_threshold(bytes, reader, Some(1));
    judgement.outcome = match judgement.outcome {
        Ok(CatalogOutcome::Release(release)) => {
            let catalog = release.catalog();
            let follows = follows
                .is_none_or(|current| release.voids_last() || catalog.previous == Some(current));
            let signed = signed_before(catalog.root_version, catalog.release);
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
