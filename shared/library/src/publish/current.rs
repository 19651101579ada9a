//! Reads the service's current catalog and compares it with the vault's own skills.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::catalog::{Catalog, CatalogError, SignedCatalog, Stored};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::root::RootChain;
use vault_format::time::Timestamp;

use super::error::{Difference, PlanError};
use super::request::PlanRequest;
use super::state::AcknowledgedRelease;
use crate::index::Row;
use crate::installed::list;
use crate::installed::place::{Origin, Place};
use crate::vault::Vault;
use crate::vault::trust::VaultTrust;

/// The service's current catalog, whose signatures are by keys of this vault.
pub(super) struct Current {
    pub(super) catalog: Catalog,
    pub(super) stored: Stored,
    pub(super) file_sha256: Digest,
    /// The publishers of the root version that it names who signed it.
    pub(super) signers: Vec<PublicKey>,
    /// Whether it counts for nothing any more, because a key that signed it is revoked.
    pub(super) voided: bool,
}

impl Current {
    /// Verifies that the catalog is this vault's: signed by enough publishers of the root version
    /// that it names, in this library's chain or in one that forked from it. A catalog that is
    /// expired, or that a thief signed, is read too: the next release replaces it.
    pub(super) fn read(
        trust: &VaultTrust,
        request: &PlanRequest<'_>,
        bytes: &[u8],
    ) -> Result<Self, PlanError> {
        let file = SignedCatalog::parse(bytes)?;
        let payload_sha256 = file.payload_sha256();
        let catalog = file.read_counted(&payload_sha256)?;
        if catalog.vault_id != trust.roots.vault_id() {
            return Err(PlanError::OtherVault);
        }
        let shown = RootChain::verify(file.roots()).map_err(CatalogError::from)?;
        let fork =
            Some(&shown).filter(|shown| shown.root1_sha256() == trust.chain().root1_sha256());
        let mut chains = [Some(trust.chain()), fork].into_iter().flatten();
        let version = chains.find_map(|chain| chain.find(&catalog.root_sha256));
        let version = version.ok_or(PlanError::NotOurs(
            "it names keys that this vault does not trust",
        ))?;
        let role = version.document().release();
        let signers = file.valid_signers(role.keys());
        if signers.len() < role.threshold() {
            return Err(PlanError::NotOurs(
                "it is not signed by keys that this vault trusts",
            ));
        }
        if catalog.slug != *request.slug {
            return Err(PlanError::NotOurs("it is for another namespace"));
        }
        Ok(Self {
            stored: Stored {
                release: catalog.release,
                payload_sha256,
            },
            file_sha256: Digest::of(bytes),
            voided: trust.roots.voids_release(&signers),
            signers,
            catalog,
        })
    }

    pub(super) fn acknowledged(&self, at: Timestamp) -> AcknowledgedRelease {
        AcknowledgedRelease {
            release: self.stored.release,
            payload_sha256: self.stored.payload_sha256,
            file_sha256: self.file_sha256,
            expires_at: self.catalog.expires_at,
            skills: self.catalog.skills.len() as u64,
            at,
            inputs: None,
            follows: None,
        }
    }
}

/// An own skill, as it goes into the release.
pub(super) struct Skill {
    pub(super) place: Place,
    pub(super) row: Row,
}

pub(super) fn own_skills(vault: &Vault) -> Result<Vec<Skill>, PlanError> {
    let mut skills = Vec::new();
    let mut damaged = Vec::new();
    for seen in list::scan(vault)? {
        if seen.place.origin != Origin::Local {
            continue;
        }
        match seen.state {
            Ok(row) => skills.push(Skill {
                place: seen.place,
                row,
            }),
            Err(damage) => damaged.push((seen.place.name, damage)),
        }
    }
    if !damaged.is_empty() {
        return Err(PlanError::Damaged(damaged));
    }
    skills.sort_by(|a, b| a.place.name.cmp(&b.place.name));
    Ok(skills)
}

pub(super) fn difference(skills: &[Skill], catalog: &Catalog) -> Difference {
    let ours: BTreeMap<_, _> = skills
        .iter()
        .map(|skill| (&skill.place.name, skill.place.bundle))
        .collect();
    let mut difference = Difference {
        release: catalog.release,
        ..Difference::default()
    };
    for entry in &catalog.skills {
        match ours.get(&entry.name) {
            None => difference.theirs.push(entry.name.clone()),
            Some(bundle) if *bundle != entry.bundle_hash => {
                difference.differing.push(entry.name.clone());
            }
            Some(_) => {}
        }
    }
    difference.ours = ours
        .into_keys()
        .filter(|name| catalog.skill(name).is_none())
        .cloned()
        .collect();
    difference
}

/// Whether two releases have the same content, ignoring release numbers and times.
pub(super) fn same_content(new: &Catalog, current: &Current) -> bool {
    let old = &current.catalog;
    let withdrawn = |catalog: &Catalog| {
        catalog
            .withdrawn
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect::<BTreeSet<_>>()
    };
    new.skills == old.skills
        && new.index == old.index
        && new.policy == old.policy
        && new.profiles == old.profiles
        && new.audience == old.audience
        && new.root_sha256 == old.root_sha256
        && withdrawn(new) == withdrawn(old)
}
