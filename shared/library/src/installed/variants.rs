//! The record of rendered variants: which bundle replaces which skill, for which agent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_skill::hash::Digest;
use vault_skill::manifest::AppliedTransform;
use vault_skill::name::{AgentId, SkillName};

use super::place::{Origin, Place};
use crate::vault::{Vault, VaultError, read_record};

/// A rendered variant, as recorded.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Variant {
    pub(crate) name: SkillName,
    pub(crate) agent: AgentId,
    /// The bundle of the skill that the variant was rendered from.
    pub(crate) base: Digest,
    pub(crate) transforms: Vec<AppliedTransform>,
    /// The variant's bundle; `None` if rendering failed, for the reason in `problem`.
    pub(crate) bundle: Option<Digest>,
    pub(crate) size: u64,
    pub(crate) parts: Vec<Part>,
    pub(crate) problem: Option<String>,
}

/// An object that holds a part of a large variant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) sha256: Digest,
    pub(crate) size: u64,
}

/// The content of `variants.json`.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Record {
    pub(crate) variants: Vec<Variant>,
}

pub(crate) fn path(vault: &Vault) -> PathBuf {
    vault.paths().root.join("variants.json")
}

/// The bundles of all variants. Garbage collection must treat them as used.
pub(crate) fn bundles(vault: &Vault) -> Result<Vec<Digest>, VaultError> {
    let record: Record = read_record(&path(vault))?.unwrap_or_default();
    Ok(record
        .variants
        .into_iter()
        .filter_map(|variant| variant.bundle)
        .collect())
}

/// The variants as installed places, for verification.
pub(crate) fn places(vault: &Vault) -> Result<Vec<Place>, VaultError> {
    let record: Record = read_record(&path(vault))?.unwrap_or_default();
    let places = record.variants.into_iter().filter_map(|variant| {
        Some(Place {
            signed_name: variant.name.clone(),
            bundle: variant.bundle?,
            name: variant.name,
            origin: Origin::Local,
            vault: None,
            bare: true,
        })
    });
    Ok(places.collect())
}
