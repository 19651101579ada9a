//! Compares the origin of a new version with that of the installed one. An update must not put
//! another skill, or one by another signer, in its place.

use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::SkillName;
use vault_format::provenance::is_archive;

use super::{AdmitError, Candidate};
use crate::installed::upstream;
use crate::vault::Vault;

/// Fails if the installed version was signed at its source, and the candidate is not signed by the
/// same vault or is older.
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
    match upstream::of_bundle(vault, before)? {
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

/// Fails if the record of the installed version names no folder in its archive, and the archive has
/// another skill now. Such a record is from a version of vault that left the folder of the only
/// skill out, so the name tells whether this is the same one.
pub(super) fn check_own_name(
    vault: &Vault,
    candidate: &Candidate,
    manifest: &Manifest,
    before: &Digest,
) -> Result<(), AdmitError> {
    let Some(now) = candidate
        .upstream
        .as_ref()
        .filter(|_| !candidate.options.replace)
    else {
        return Ok(());
    };
    let address = now.identifier.as_str().split(['?', '#']).next();
    let recorded = upstream::of_bundle(vault, before)?;
    if manifest.provenance.identifier != now.identifier
        || recorded.is_some_and(|recorded| recorded.path.is_some())
        || !address.is_some_and(is_archive)
    {
        return Ok(());
    }
    let package = &candidate.package;
    let own = |given: &Option<String>, name: &SkillName| {
        given.clone().unwrap_or_else(|| name.to_string())
    };
    let found = own(&package.frontmatter_name, &package.name);
    if found == own(&manifest.frontmatter_name, &manifest.name) {
        return Ok(());
    }
    Err(AdmitError::OtherSkill {
        name: package.name.clone(),
        place: now.identifier.clone(),
        found,
    })
}
