//! Judges the catalog of a linked vault (its signed list of skills), and stores the new root
//! versions (signed lists of the vault's keys) that come with it.

use std::collections::BTreeSet;

use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, CatalogWarning, LastCatalog, NewRoots,
    ReaderKind, ReleaseRef, SignedCatalog, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::SkillName;
use vault_format::root::{RootChain, RootState, RootWarning, VaultFingerprint, VaultId};
use vault_format::time::Timestamp;

use super::error::LinkError;
use crate::installed::link_id::LinkId;
use crate::installed::linked_pins::{Link, PullGate};
use crate::installed::root_versions;
use crate::vault::trust::{RootChanges, VaultTrust};
use crate::vault::{Change, Vault, VaultError};

/// The strictness with which a catalog is judged, and the decisions of the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptOptions {
    /// Fingerprint that the vault must have, as the user compared it. It replaces the one that
    /// [`expect_fingerprint`](super::expect_fingerprint) recorded.
    pub expected: Option<VaultFingerprint>,
    /// Whether to pin the shown vault even if the link has pinned another one.
    pub repin: bool,
    /// Whether to accept a catalog that names another payload of the pinned release as its previous
    /// one.
    pub accept_fork: bool,
    /// Whether to ignore security findings of the gate on a pulled skill
    /// (`VAULT_SECURITY_STRICT=false`).
    pub lenient: bool,
}

/// A catalog that was accepted. It is not pinned and nothing of it is installed before
/// [`super::install_selection`] or [`super::pin_only`].
#[derive(Clone, Debug)]
pub struct AcceptedCatalog {
    pub(super) link: LinkId,
    pub(super) bytes: Vec<u8>,
    pub(super) options: AcceptOptions,
    pub(super) catalog: Catalog,
    pub(super) roots: RootState,
    pub(super) stored: ReleaseRef,
    pub(super) signers: Vec<PublicKey>,
    pub(super) seen_at: Timestamp,
    pub(super) gate: PullGate,
    first: bool,
    warnings: Vec<CatalogWarning>,
    root_warnings: Vec<RootWarning>,
    root_changes: Option<RootChanges>,
}

impl AcceptedCatalog {
    /// The catalog, with its signatures verified. It may list objects that are not fetched yet.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Root versions that are in force for the vault from now on.
    pub const fn roots(&self) -> &RootState {
        &self.roots
    }

    /// Returns the fingerprint of the vault that the catalog is from, for the user to compare.
    pub fn fingerprint(&self) -> VaultFingerprint {
        self.roots.chain().fingerprint()
    }

    /// Returns whether the link has pinned no vault yet, so that this one becomes the first.
    pub const fn is_first(&self) -> bool {
        self.first
    }

    /// Warnings about the catalog, for the user.
    pub fn warnings(&self) -> &[CatalogWarning] {
        &self.warnings
    }

    /// Warnings about the vault's root versions, for the user.
    pub fn root_warnings(&self) -> &[RootWarning] {
        &self.root_warnings
    }

    /// The changes of the vault's keys since the last accepted catalog; `None` if there are none.
    pub const fn root_changes(&self) -> Option<&RootChanges> {
        self.root_changes.as_ref()
    }
}

/// The knowledge with which a link judges a catalog.
struct LinkState {
    /// Trusted state of the vault that the catalog names; `None` if this machine does not know it.
    trust: Option<VaultTrust>,
    /// Last accepted catalog, if it belongs to the vault that the new catalog names.
    last: Option<LastCatalog>,
    /// Whether the link has pinned the vault that the catalog names.
    pinned: bool,
}

/// An accepted catalog with what judging it found, whether it is new or already pinned.
struct AcceptedRelease {
    catalog: Catalog,
    stored: ReleaseRef,
    signers: Vec<PublicKey>,
    warnings: Vec<CatalogWarning>,
}

impl LinkState {
    /// Returns the accepted catalog for this outcome. Fails if a skill would come back below the
    /// version that this machine had.
    fn counted_release(
        self,
        link: &Link,
        outcome: CatalogOutcome,
        now: Timestamp,
    ) -> Result<AcceptedRelease, CatalogError> {
        match outcome {
            CatalogOutcome::Release(release) => {
                let state = release.state().clone();
                // Compare the versions of installed skills only, and only if the signer of the
                // installed version is still accepted. The signer comes from the pin, so that
                // removing a manifest from the store does not avoid the comparison.
                let counted = release.settle_versions(|entry| {
                    let mut installed = link.installed_skills();
                    installed.any(|(_, skill)| {
                        skill.name == entry.name && state.was_publisher(&skill.signer)
                    })
                })?;
                // If the link now shows another vault, compare nothing: the old vault's versions
                // say nothing about the skills of the new one.
                if self.pinned {
                    let has =
                        |name: &SkillName| link.installed_skills().any(|(_, it)| it.name == *name);
                    let former = &link.pin.former;
                    former.check_returned(has, &counted.catalog, &state)?;
                }
                Ok(AcceptedRelease {
                    catalog: counted.catalog,
                    stored: counted.stored,
                    signers: counted.signers,
                    warnings: counted.warnings,
                })
            }
            CatalogOutcome::Equal { signers } => {
                let last = self.last.ok_or_else(no_catalog_error)?;
                let latest_seen_at = self.trust.and_then(|trust| trust.latest_seen_at);
                let went_back = latest_seen_at > Some(now);
                Ok(AcceptedRelease {
                    catalog: last.catalog,
                    stored: last.stored,
                    signers,
                    warnings: went_back
                        .then_some(CatalogWarning::ClockWentBack)
                        .into_iter()
                        .collect(),
                })
            }
            // This outcome is only given to a service, which may accept root versions alone.
            CatalogOutcome::RootsOnly => Err(no_catalog_error()),
        }
    }
}

impl Link {
    /// Judges the exact bytes of a catalog. Root versions that validly follow the known ones are
    /// stored at once, even if the catalog is then rejected, so that no host can hide a revocation
    /// again. Nothing else is written.
    pub fn accept_catalog(
        &self,
        vault: &Vault,
        bytes: &[u8],
        options: &AcceptOptions,
    ) -> Result<AcceptedCatalog, LinkError> {
        self.accept_under(vault, None, bytes, options)
    }

    /// Like [`Self::accept_catalog`], for a caller that may hold the writer lock.
    pub(super) fn accept_under(
        &self,
        vault: &Vault,
        change: Option<&mut Change<'_>>,
        bytes: &[u8],
        options: &AcceptOptions,
    ) -> Result<AcceptedCatalog, LinkError> {
        let link_state = self.read_known_state(vault, bytes, options.repin)?;
        let own = link_state.trust.as_ref().map(|trust| &trust.roots);
        // The recorded fingerprint counts only as long as no vault is pinned.
        let recorded = self
            .pin
            .expected
            .filter(|_| !options.repin && !link_state.pinned);
        // The fingerprint of this call comes first, because the user has compared it now.
        let expected = options.expected.or(recorded);
        let now = vault.clock().now();
        let judged = judge_catalog(
            bytes,
            &CatalogReader {
                side: ReaderKind::Device,
                base: &self.pin.base,
                slug: &self.pin.slug,
                now,
                latest_seen_at: link_state
                    .trust
                    .as_ref()
                    .and_then(|trust| trust.latest_seen_at),
                own,
                expected: expected.as_ref(),
                last: link_state.last.as_ref(),
                accept_fork: options.accept_fork,
            },
        );
        let mut root_changes = None;
        let roots = match &judged.roots {
            NewRoots::None => own.cloned(),
            // A vault that is seen for the first time is pinned only together with an accepted
            // catalog.
            NewRoots::WithCatalog(state) => Some(state.clone()),
            NewRoots::Now(state) => {
                root_changes = RootChanges::between(own, state);
                store_roots(vault, change, state)?;
                Some(state.clone())
            }
        };
        let refused = |cause| LinkError::Catalog {
            cause,
            roots: root_changes.clone().map(Box::new),
        };
        let first = !link_state.pinned;
        let counted = judged
            .outcome
            .and_then(|outcome| link_state.counted_release(self, outcome, now))
            .map_err(refused)?;
        Ok(AcceptedCatalog {
            link: self.id.clone(),
            bytes: bytes.to_vec(),
            options: *options,
            roots: roots.ok_or_else(|| refused(no_catalog_error()))?,
            catalog: counted.catalog,
            stored: counted.stored,
            signers: counted.signers,
            seen_at: now,
            gate: self.pin.gate,
            first,
            warnings: counted.warnings,
            root_warnings: judged.warnings,
            root_changes,
        })
    }

    /// Returns what this machine knows of the pinned vault, from which the catalog must come.
    /// Without a pin, or with `repin`, that is the vault that the catalog names.
    fn read_known_state(
        &self,
        vault: &Vault,
        bytes: &[u8],
        repin: bool,
    ) -> Result<LinkState, LinkError> {
        if let Some(id) = self.pin.vault_id.filter(|_| !repin) {
            // Without its keys, a pinned vault can't be told from another one.
            let trust = vault.trust_of(&id)?.ok_or(VaultError::Untrusted(id))?;
            return Ok(LinkState {
                trust: Some(trust),
                last: self.last_catalog(vault)?,
                pinned: true,
            });
        }
        // All links to a vault share its root versions, so this machine may know the vault already.
        let shown_id = shown_vault(bytes);
        // A repin that finds the pinned vault again keeps its protection against old releases.
        let pinned = shown_id.is_some() && shown_id == self.pin.vault_id;
        Ok(LinkState {
            trust: match &shown_id {
                Some(id) => vault.trust_of(id)?,
                None => None,
            },
            last: if pinned {
                self.last_catalog(vault)?
            } else {
                None
            },
            pinned,
        })
    }
}

/// Returns the vault that a catalog file names; `None` unless its root versions form a valid chain.
fn shown_vault(bytes: &[u8]) -> Option<VaultId> {
    let file = SignedCatalog::parse(bytes).ok()?;
    let chain = RootChain::verify(file.roots()).ok()?;
    Some(chain.vault_id())
}

fn store_roots(
    vault: &Vault,
    change: Option<&mut Change<'_>>,
    state: &RootState,
) -> Result<(), VaultError> {
    let (id, id_and_roots) = (&state.vault_id(), &state.chain().to_list());
    let listed = BTreeSet::<Digest>::new();
    match change {
        Some(change) => {
            root_versions::store_accepted_roots(change, id, id_and_roots, &listed, None)?
        }
        None => root_versions::store_accepted_roots(
            &mut vault.begin_change()?,
            id,
            id_and_roots,
            &listed,
            None,
        )?,
    };
    Ok(())
}

/// Returns the error for an outcome that is possible only with a last catalog to compare with.
const fn no_catalog_error() -> CatalogError {
    CatalogError::Shape("there is no catalog that it could be equal to")
}
