//! Signs the manifests of skills. Nothing else in this workspace does, except tests and fuzz
//! targets.

use vault_format::bundle;
use vault_format::bundle::EncodedBundle;
use vault_format::hash::Digest;
use vault_format::keys::Signer;
use vault_format::manifest::{FileEntry, Gate, Manifest, SignedManifest};
use vault_format::root::VaultId;
use vault_format::time::Timestamp;
use vault_gate as gate;

use super::{AdmitError, Candidate, Purpose};

/// A signed manifest, with the encoded bundle.
pub(super) struct SignedSkill {
    pub(super) manifest: Manifest,
    pub(super) envelope: SignedManifest,
    pub(super) encoded: EncodedBundle,
}

/// Signs a candidate as this version and encodes its bundle. An adopted skill keeps its existing
/// signature.
pub(super) fn sign_candidate(
    vault_id: &VaultId,
    candidate: &Candidate,
    version: u64,
    now: Timestamp,
    key: &dyn Signer,
) -> Result<SignedSkill, AdmitError> {
    let (manifest, envelope) = match &candidate.earlier {
        Some((manifest, Purpose::Adopt(envelope))) => (manifest.clone(), envelope.clone()),
        _ => {
            let manifest = Manifest {
                version,
                ..build_manifest(vault_id, candidate, now)
            };
            let envelope = SignedManifest::sign(&manifest, key)?;
            (manifest, envelope)
        }
    };
    let encoded = bundle::encode(&envelope, &manifest, &candidate.package.files)
        .map_err(|reason| AdmitError::Unsignable(reason.to_string()))?;
    Ok(SignedSkill {
        manifest,
        envelope,
        encoded,
    })
}

/// Builds the manifest of a candidate, with version 1.
pub(super) fn build_manifest(
    vault_id: &VaultId,
    candidate: &Candidate,
    now: Timestamp,
) -> Manifest {
    let package = &candidate.package;
    let entry = |file: &bundle::File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    Manifest {
        vault_id: *vault_id,
        name: package.name.clone(),
        frontmatter_name: package.frontmatter_name.clone(),
        // The caller sets the version after it compared the content with the installed one.
        version: 1,
        signed_at: now,
        files: package.files.iter().map(entry).collect(),
        actions: package.actions.clone(),
        agents: candidate.agents(),
        rendered_from: match &candidate.earlier {
            Some((_, Purpose::Variant(from))) => Some(from.clone()),
            _ => None,
        },
        provenance: candidate.provenance.clone(),
        gate: Gate {
            strict: candidate.options.strict,
            rules: gate::RULES.to_owned(),
            flags: package.flags.clone(),
            waivers: package.waivers.clone(),
        },
    }
}
