//! The record of rendered variants (skills whose SKILL.md a transform changed for one agent): which
//! bundle replaces which skill, for which agent. It decides what agents get and what a release
//! lists, so it lies in the trust folder.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::manifest::AppliedTransform;
use vault_format::name::{AgentId, SkillName};

use super::installations::{Installation, Origin};
use super::linked_pins::list_links;
use crate::vault::{Change, Vault, VaultError};

/// A variant of a skill for one agent, as recorded.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Variant {
    pub(crate) name: SkillName,
    pub(crate) agent: AgentId,
    /// Bundle of the skill that the variant was rendered from.
    pub(crate) base: Digest,
    pub(crate) transforms: Vec<AppliedTransform>,
    /// Bundle of the variant; `None` if rendering failed, for the reason in `problem`, or if the
    /// variant would have the bytes of the plain skill.
    pub(crate) bundle: Option<Digest>,
    pub(crate) size: u64,
    pub(crate) parts: Vec<Part>,
    pub(crate) problem: Option<String>,
}

/// One part of a large bundle, which is published as an object of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) sha256: Digest,
    pub(crate) size: u64,
}

/// File in the trust folder that holds the [`VariantsRecord`].
const NAME: &str = "variants.json";

/// The content of `variants.json`.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct VariantsRecord {
    pub(crate) variants: Vec<Variant>,
}

impl VariantsRecord {
    /// Reads the record; it is empty if nothing was rendered yet.
    pub(crate) fn read(vault: &Vault) -> Result<Self, VaultError> {
        Ok(vault.trust_folder().read_record(NAME)?.unwrap_or_default())
    }

    /// Writes the record, under the writer lock.
    pub(crate) fn write(&self, vault: &Vault, _lock: &Change<'_>) -> Result<(), VaultError> {
        Ok(vault.trust_folder().write_record(NAME, self)?)
    }
}

/// Returns the bundles of all variants, those that linked vaults publish included. Garbage
/// collection must treat them as used.
pub(crate) fn variant_bundles(vault: &Vault) -> Result<Vec<Digest>, VaultError> {
    let own = VariantsRecord::read(vault)?.variants.into_iter();
    let mut bundles: Vec<_> = own.filter_map(|variant| variant.bundle).collect();
    for link in list_links(vault)? {
        bundles.extend(link.variant_bundles());
    }
    Ok(bundles)
}

/// Returns the variants that this vault's transforms made, as installations, for verification.
pub(crate) fn variant_places(vault: &Vault) -> Result<Vec<Installation>, VaultError> {
    let record = VariantsRecord::read(vault)?;
    let places = record.variants.into_iter().filter_map(|variant| {
        Some(Installation {
            signed_name: variant.name.clone(),
            // A rendering that failed has no bundle to verify.
            bundle: variant.bundle?,
            name: variant.name,
            origin: Origin::Local,
            vault: None,
            bare: true,
        })
    });
    Ok(places.collect())
}
