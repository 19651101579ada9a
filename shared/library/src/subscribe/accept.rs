//! Judges the catalog of a linked vault, and stores its new root versions.

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
use crate::installed::linked::{Link, PullGate};
use crate::installed::roots;
use crate::vault::trust::{RootChanges, VaultTrust};
use crate::vault::{Change, Vault, VaultError};

/// Options for accepting a catalog.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptOptions {
    /// The fingerprint that the vault must have. It replaces the one that
    /// [`expect_fingerprint`](super::expect_fingerprint) recorded.
    pub expected: Option<VaultFingerprint>,
    /// Pin the vault that is shown, even if another one is pinned.
    pub repin: bool,
    /// Accept a catalog that names another payload of the pinned release as its previous one.
    pub accept_fork: bool,
    /// Ignore flags of the gate on a pulled skill (`VAULT_SECURITY_STRICT=false`).
    pub lenient: bool,
}

/// An accepted catalog that is not pinned or installed yet.
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
    /// The catalog.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the root versions that are in force for the vault from now on.
    pub const fn roots(&self) -> &RootState {
        &self.roots
    }

    /// The vault's fingerprint.
    pub fn fingerprint(&self) -> VaultFingerprint {
        self.roots.chain().fingerprint()
    }

    /// Returns whether no vault was pinned before, so that this one will be.
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

/// The state of a link before it judges a catalog.
struct LinkState {
    /// The trusted state of the vault that the catalog names.
    trust: Option<VaultTrust>,
    /// The last accepted catalog, if it is of that vault.
    last: Option<LastCatalog>,
    /// Whether the link has pinned that vault.
    pinned: bool,
}

/// An accepted catalog, new or known.
struct AcceptedRelease {
    catalog: Catalog,
    stored: ReleaseRef,
    signers: Vec<PublicKey>,
    warnings: Vec<CatalogWarning>,
}

impl LinkState {
    /// Returns the accepted catalog for this outcome. Fails if it would bring a skill back below
    /// the version that this machine had.
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
                // A link that now shows another vault starts without history, because the old
                // vault's versions say nothing about the new one's skills.
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
                let last = self.last.ok_or_else(no_catalog)?;
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
            // The judge gives this outcome to a service only.
            CatalogOutcome::RootsOnly => Err(no_catalog()),
        }
    }
}

impl Link {
    /// Judges the exact bytes of a catalog. Root versions that validly follow the known ones are
    /// stored at once, even if the catalog is then rejected, so that no host can undo a revocation.
    /// Nothing else is written.
    pub fn accept_catalog(
        &self,
        vault: &Vault,
        bytes: &[u8],
        options: &AcceptOptions,
    ) -> Result<AcceptedCatalog, LinkError> {
        self.accept_under(vault, None, bytes, options)
    }

    /// Like [`Self::accept_catalog`], for a caller that may hold the writer lock already.
    pub(super) fn accept_under(
        &self,
        vault: &Vault,
        change: Option<&mut Change<'_>>,
        bytes: &[u8],
        options: &AcceptOptions,
    ) -> Result<AcceptedCatalog, LinkError> {
        let link_state = self.read_known_state(vault, bytes, options.repin)?;
        let own = link_state.trust.as_ref().map(|trust| &trust.roots);
        // The recorded fingerprint matters only while no vault is pinned.
        let recorded = self
            .pin
            .expected
            .filter(|_| !options.repin && !link_state.pinned);
        // The fingerprint of this call wins: the user compared it now.
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
            // A vault that is met for the first time is pinned only together with an accepted
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
            roots: roots.ok_or_else(|| refused(no_catalog()))?,
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

    fn read_known_state(
        &self,
        vault: &Vault,
        bytes: &[u8],
        repin: bool,
    ) -> Result<LinkState, LinkError> {
        if let Some(id) = self.pin.vault_id.filter(|_| !repin) {
            // Without its keys, a pinned vault can't be distinguished from another one.
            let trust = vault.trust_of(&id)?.ok_or(VaultError::Untrusted(id))?;
            return Ok(LinkState {
                trust: Some(trust),
                last: self.last_catalog(vault)?,
                pinned: true,
            });
        }
        // All links to a vault share its root versions, so look whether it is known already.
        let shown_id = shown_vault(bytes);
        // A repin that meets the pinned vault again keeps its protection against old releases.
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

/// Returns the vault that a catalog file names, if the file's root versions form a valid chain.
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
        Some(change) => roots::store_counted_roots(change, id, id_and_roots, &listed, None)?,
        None => {
            roots::store_counted_roots(&mut vault.begin_change()?, id, id_and_roots, &listed, None)?
        }
    };
    Ok(())
}

/// The error for an outcome that the judge returns only to a caller that gave it a last catalog.
const fn no_catalog() -> CatalogError {
    CatalogError::Shape("there is no catalog that it could be equal to")
}
