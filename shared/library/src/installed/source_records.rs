//! The source from which a bundle was fetched: `upstream/<bundle hash>.json`, one small record for
//! each bundle, in the vault's part of the trust folder.
//!
//! A record belongs to a bundle, not to a name. It is written before the link is switched, so that
//! a killed writer leaves the old skill with its old record, or the new skill with its new one. The
//! record says where to check for updates and whose signature to expect there. An attacker who
//! could change it could get other bytes fetched, and signed, under the name of a known source.

use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::SkillName;
use vault_format::provenance::Kind;
use vault_shelf::fetch::Upstream;

use super::installations::read_own_skill;
use crate::vault::{Vault, VaultError};

const FOLDER: &str = "upstream";

fn file_name(bundle: &Digest) -> String {
    format!("{bundle}.json")
}

/// Returns the recorded source of a bundle; `None` if it has no record.
pub fn of_bundle(vault: &Vault, bundle: &Digest) -> Result<Option<Upstream>, VaultError> {
    let folder = vault.trust_folder().child(FOLDER);
    folder.read_record(&file_name(bundle))
}

/// Returns the source of an own skill: its record, or else what its signed manifest states. Returns
/// `None` for a local folder, submitted text or another vault, which can't be checked for updates.
pub fn of_skill(vault: &Vault, name: &SkillName) -> Result<Option<Upstream>, VaultError> {
    let own_skill = read_own_skill(vault, name, &vault.trusted()?)?;
    let Some((bundle, manifest)) =
        own_skill.and_then(|found| Some((found.bundle, found.manifest?)))
    else {
        return Ok(None);
    };
    Ok(of_bundle(vault, &bundle)?
        // The record is not signed; it may add details to the signed source but not replace it.
        .filter(|upstream| upstream.identifier == manifest.provenance.identifier)
        .or_else(|| of_manifest(&manifest)))
}

/// Returns the source of a skill as its signed manifest states it; `None` for a local folder,
/// submitted text or another vault.
pub fn of_manifest(manifest: &Manifest) -> Option<Upstream> {
    let provenance = &manifest.provenance;
    let fetched = !matches!(provenance.kind(), Kind::Local | Kind::Inline | Kind::Vault);
    fetched.then(|| Upstream {
        identifier: provenance.identifier.clone(),
        address: None,
        path: None,
        reference: None,
        revision: provenance.revision.clone(),
        tree: None,
        signer: None,
        root_version: None,
        signed_version: None,
        copied_links: Vec::new(),
    })
}

/// Records the source of a bundle. Call it under the writer lock. A record that is already equal is
/// not written again.
pub(crate) fn note_upstream(
    vault: &Vault,
    bundle: &Digest,
    upstream: &Upstream,
) -> Result<(), VaultError> {
    // A record that can't be read is replaced.
    if matches!(of_bundle(vault, bundle), Ok(Some(known)) if known == *upstream) {
        return Ok(());
    }
    let name = file_name(bundle);
    Ok(vault
        .trust_folder()
        .write_record_in(FOLDER, &name, upstream)?)
}

/// Removes the records of bundles that no longer exist.
pub(crate) fn forget_upstreams(vault: &Vault, bundles: &[Digest]) -> Result<(), VaultError> {
    let folder = vault.trust_folder().child(FOLDER);
    for bundle in bundles {
        folder.remove_file(&file_name(bundle))?;
    }
    Ok(())
}
