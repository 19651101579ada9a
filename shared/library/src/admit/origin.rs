//! Compares the source of a new version with that of the installed one, so that an update does not
//! put another skill, or the same skill by another signer, in its place.

use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::provenance::{Kind, is_archive};
use vault_shelf::fetch::Upstream;

use super::check::own_name;
use super::{AdmitError, Candidate};
use crate::installed::source_records;
use crate::vault::Vault;

/// Fails if the signature of the installed version was pinned to a vault at its source, and the
/// candidate lacks that vault's signature or is older.
pub(super) fn check_pin(
    vault: &Vault,
    candidate: &Candidate,
    before: &Digest,
) -> Result<(), AdmitError> {
    // An owner who replaces the skill accepts the other signer.
    let Some(now) = candidate
        .upstream
        .as_ref()
        .filter(|_| !candidate.options.replace)
    else {
        return Ok(());
    };
    match source_records::of_bundle(vault, before)? {
        Some(recorded) if recorded.identifier == now.identifier => {
            recorded.check_pin(now).map_err(|cause| AdmitError::Signer {
                name: candidate.package.name.clone(),
                place: now.identifier.clone(),
                cause,
            })
        }
        // A pin applies to its own source only. `check_replace` decides about a change of source.
        _ => Ok(()),
    }
}

/// Fails if the source has a skill with another name now, in the cases in which the record can't
/// tell two skills of one source apart: the installed version came from the root of an archive or
/// registry, or from a folder that is not recorded. (The record leaves out a folder around all
/// files of an archive, and older records lack the folder of a source's only skill.)
pub(super) fn check_own_name(
    vault: &Vault,
    candidate: &Candidate,
    manifest: &Manifest,
    before: &Digest,
) -> Result<(), AdmitError> {
    let Some(now) = same_source(candidate, manifest) else {
        return Ok(());
    };
    let address = now.identifier.as_str().split(['?', '#']).next();
    let has_several = address.is_some_and(is_archive) || now.identifier.kind() == Kind::Registry;
    let recorded = source_records::of_bundle(vault, before)?.and_then(|recorded| recorded.path);
    if !has_several || recorded.is_some_and(|folder| !folder.is_empty()) {
        return Ok(());
    }
    let package = &candidate.package;
    let found = own_name(package.frontmatter_name.as_deref(), &package.name);
    if found == own_name(manifest.frontmatter_name.as_deref(), &manifest.name) {
        return Ok(());
    }
    Err(AdmitError::OtherSkill {
        name: package.name.clone(),
        place: now.identifier.clone(),
        found: found.to_owned(),
    })
}

/// Fails if the installed version came from another folder of the same source. All skills of an
/// archive have one identifier, so it does not tell them apart.
pub(super) fn check_folder(
    vault: &Vault,
    candidate: &Candidate,
    manifest: &Manifest,
    before: &Digest,
) -> Result<(), AdmitError> {
    // An update was fetched from the recorded folder. Older records contain the folder around all
    // files of the archive, too.
    let is_update = candidate.options.require_installed;
    let Some(now) = same_source(candidate, manifest).filter(|_| !is_update) else {
        return Ok(());
    };
    let recorded = source_records::of_bundle(vault, before)?.and_then(|recorded| recorded.path);
    match (recorded, &now.path) {
        (Some(recorded), Some(given)) if recorded != *given => Err(AdmitError::OtherPart {
            name: candidate.package.name.clone(),
            place: now.identifier.clone(),
            recorded,
            given: given.clone(),
        }),
        _ => Ok(()),
    }
}

/// Returns the origin of a fetched candidate if the installed version is from the same source.
/// `None` if the owner asked to replace that version, because the checks above do not apply then.
fn same_source<'c>(candidate: &'c Candidate, manifest: &Manifest) -> Option<&'c Upstream> {
    let now = candidate.upstream.as_ref()?;
    let is_same = manifest.provenance.identifier == now.identifier;
    (is_same && !candidate.options.replace).then_some(now)
}
