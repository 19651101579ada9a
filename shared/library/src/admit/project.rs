//! Installs a skill for one project. It passes the same gate as an own skill, but is signed by the
//! project's key and recorded apart from the user's skills.

use vault_format::manifest::Manifest;

use super::install::{build_report, is_unchanged, unchanged_report};
use super::{AdmitError, AdmitReport, Candidate, sign};
use crate::disk::Batch;
use crate::installed::project_skills::{Project, ProjectFolder};
use crate::store;
use crate::vault::{Vault, VaultError};

/// Installs a candidate for a project, in place of the project's skill of the same name. The bytes
/// go into the vault's store, signed by the project's own key; the user's own skills, whatever
/// their names, stay as they are. [`crate::agents::link_project`] makes the links.
pub fn install_for_project(
    vault: &Vault,
    folder: &ProjectFolder,
    candidate: &Candidate,
) -> Result<AdmitReport, AdmitError> {
    let change = vault.begin_change()?;
    let mut project = Project::find_or_new(vault, folder)?;
    let name = &candidate.package.name;
    // Only the project's own record counts here. If the user has a skill of the same name, that is
    // another skill.
    let before = installed_manifest(&project, vault, candidate);
    if let Some(before) = &before
        && is_unchanged(&project.vault_id(), candidate, before)
        && let Some(bundle) = project.skill_bundles().get(name)
    {
        return Ok(unchanged_report(candidate, before, *bundle));
    }
    let from = before.map(|manifest| manifest.version);
    let version = from.unwrap_or(0) + 1;
    let (id, key) = (project.vault_id(), project.signing_key()?);
    let signed = sign::sign_candidate(&id, candidate, version, vault.clock().now(), &key)?;
    let hash = signed.encoded.hash;
    let trusted = project.trust_in_bundles([hash]);
    // Store the bytes before the record names them, so that a killed process never leaves a record
    // of absent bytes.
    store_bundle(vault, candidate, &signed, &trusted)?;
    project.put_skill(name.clone(), hash);
    project.store_record()?;
    drop(change);
    Ok(build_report(candidate, &signed.manifest, hash, from))
}

/// Returns the manifest of the project's skill of this name, if it is intact.
fn installed_manifest(project: &Project, vault: &Vault, candidate: &Candidate) -> Option<Manifest> {
    let read = project.read_skill(vault, &candidate.package.name)?;
    Some(read.ok()?.manifest)
}

fn store_bundle(
    vault: &Vault,
    candidate: &Candidate,
    signed: &sign::SignedSkill,
    trusted: &store::Trusted,
) -> Result<(), VaultError> {
    let hash = signed.encoded.hash;
    let aside = vault.new_scratch()?;
    let mut batch = Batch::default();
    let (manifest, files) = (signed.envelope.as_bytes(), &candidate.package.files);
    store::stage_bundle(&mut batch, aside.path(), &hash, manifest, files)?;
    batch.flush(aside.path())?;
    Ok(store::admit_bundles(
        &vault.store_folder(),
        aside.path(),
        &[hash],
        trusted,
    )?)
}
