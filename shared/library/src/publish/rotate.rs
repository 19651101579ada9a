//! Replaces the release key and the recovery key. A kill at any point leaves either the old key or
//! the new one in force.
//!
//! A rotation first stages the new secret, then writes the statement that names it to
//! `rotations.json`, then moves the secret into place. The next process that takes the writer lock
//! completes or undoes an interrupted rotation. Manifests signed by a key that is no longer valid
//! (stolen, lost, or dropped from the end of the chain) are signed again before that key is removed
//! from the chain.

use vault_skill::catalog::SignedCatalog;
use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::name::SkillName;
use vault_skill::rotation::{Reason, Rotation, RotationError, Schema};

use super::state::{self, CloudState};
use crate::admit::{AdmitError, Resigned, finish_rotation};
use crate::vault::keys::{self, KeyError, KeyKind};
use crate::vault::rotations::Chain;
use crate::vault::{Change, Vault, VaultError};

/// Why a key was not replaced. Nothing has changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The statement violates the rules for rotation statements.
    #[error(transparent)]
    Statement(#[from] RotationError),
    /// The given recovery key does not belong to this vault.
    #[error("this is not the vault's recovery key")]
    OtherRecoveryKey,
    /// The vault has no recovery key.
    #[error("the vault has no recovery key")]
    NoRecoveryKey,
    /// The key to replace is unknown: this machine has neither the public key nor a published
    /// catalog.
    #[error("nothing on this machine says which key was lost; pull a catalog of this vault first")]
    UnknownKey,
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<KeyError> for RotateError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

/// The result of a key replacement.
#[derive(Debug)]
pub struct RotateReport {
    /// The statement that the next releases carry.
    pub statement: Rotation,
    /// Skills signed again, each with a new version.
    pub signed_again: Vec<SkillName>,
    /// Skills that could not be signed again because they fail verification. The user must add them
    /// again or remove them.
    pub damaged: Vec<SkillName>,
    /// Skills that the current gate rejects, with the reason. They are unusable until they are
    /// added again or removed.
    pub refused: Vec<(SkillName, AdmitError)>,
}

impl RotateReport {
    fn new(statement: Rotation, resigned: Resigned) -> Self {
        Self {
            statement,
            signed_again: resigned.signed,
            damaged: resigned.damaged,
            refused: resigned.refused,
        }
    }
}

/// Replaces the release key in the regular case: the old and the new key both sign the statement.
/// The old secret is deleted.
pub fn rotate(vault: &Vault) -> Result<RotateReport, RotateError> {
    let mut change = vault.change()?;
    let old = vault.keys().release()?;
    let new = keys::generate(vault.random());
    let statement = statement(
        vault,
        Reason::Rotation,
        old.public(),
        new.public(),
        None,
        None,
    )?;
    replace_release(vault, &mut change, &statement, &new, &[&old, &new])
}

/// Replaces a stolen or lost release key: the recovery key and the new key sign the statement. From
/// then on signatures of the old key are void, and every own skill is signed again.
pub fn recover(
    vault: &Vault,
    recovery: &SecretKey,
    stolen: bool,
) -> Result<RotateReport, RotateError> {
    let mut change = vault.change()?;
    let (lost, recovery_sha256) = known_keys(vault)?;
    match recovery_sha256 {
        None => return Err(RotateError::NoRecoveryKey),
        Some(known) if known != recovery.public().key_id() => {
            return Err(RotateError::OtherRecoveryKey);
        }
        Some(_) => {}
    }
    let reason = if stolen {
        Reason::Compromise
    } else {
        Reason::Loss
    };
    let new = keys::generate(vault.random());
    let statement = statement(
        vault,
        reason,
        lost,
        new.public(),
        Some(recovery.public()),
        None,
    )?;
    if vault.keys().recovery_public()?.is_none() {
        vault
            .keys()
            .write_public(KeyKind::Recovery, &recovery.public())?;
    }
    replace_release(vault, &mut change, &statement, &new, &[recovery, &new])
}

/// Replaces the recovery key: the old recovery key and the release key sign the statement.
pub fn replace_recovery(vault: &Vault, old: &SecretKey) -> Result<RotateReport, RotateError> {
    let mut change = vault.change()?;
    match vault.keys().recovery_sha256()? {
        None => return Err(RotateError::NoRecoveryKey),
        Some(known) if known != old.public().key_id() => return Err(RotateError::OtherRecoveryKey),
        Some(_) => {}
    }
    let release = vault.keys().release()?;
    let new = keys::generate(vault.random());
    let statement = statement(
        vault,
        Reason::Recovery,
        release.public(),
        release.public(),
        Some(old.public()),
        Some(new.public().key_id()),
    )?;
    let envelope = statement.sign(&[old, &release])?;
    vault.keys().write_next(KeyKind::Recovery, &new)?;
    let mut chain = Chain::read(vault)?;
    chain.push(envelope, statement.clone());
    change.switching()?;
    chain.write(vault, &mut change)?;
    let resigned = finish_rotation(vault, &mut change)?;
    Ok(RotateReport::new(statement, resigned))
}

fn statement(
    vault: &Vault,
    reason: Reason,
    from: PublicKey,
    to: PublicKey,
    recovery_key: Option<PublicKey>,
    new_recovery_key_sha256: Option<Digest>,
) -> Result<Rotation, VaultError> {
    let chain = Chain::read(vault)?;
    // Each namespace counts its own releases. The statement takes the lowest counter, so that it is
    // not ahead of any namespace.
    let highest = state::all(vault)?
        .iter()
        .map(CloudState::highest_release)
        .min()
        .unwrap_or(0);
    let floor = chain.last().map_or(1, |last| last.effective_release);
    Ok(Rotation {
        schema: Schema,
        vault_id: *vault.id(),
        sequence: chain.last().map_or(0, |last| last.sequence) + 1,
        from,
        to,
        reason,
        effective_release: floor.max(highest + 1),
        issued_at: vault.clock().now(),
        recovery_key,
        new_recovery_key_sha256,
    })
}

fn replace_release(
    vault: &Vault,
    change: &mut Change<'_>,
    statement: &Rotation,
    new: &SecretKey,
    signers: &[&SecretKey],
) -> Result<RotateReport, RotateError> {
    let envelope = statement.sign(signers)?;
    let mut chain = Chain::read(vault)?;
    if statement.reason.voids_old_key() {
        chain.retiring.push(statement.from);
    }
    chain.push(envelope, statement.clone());
    // Stage the secret before the statement names it: an interrupted rotation with a written
    // statement can then be completed, and one without it is undone.
    vault.keys().write_next(KeyKind::Release, new)?;
    change.switching()?;
    chain.write(vault, change)?;
    let resigned = finish_rotation(vault, change)?;
    Ok(RotateReport::new(statement.clone(), resigned))
}

/// The current release key and the recovery key's hash, read from the key files or, if those are
/// missing, from the newest published catalog.
fn known_keys(vault: &Vault) -> Result<(PublicKey, Option<Digest>), RotateError> {
    let keys = vault.keys();
    match keys.public() {
        Ok(public) => return Ok((public, keys.recovery_sha256()?)),
        Err(KeyError::Missing(_)) => {}
        Err(failed) => return Err(failed.into()),
    }
    let mut newest: Option<vault_skill::catalog::Catalog> = None;
    for state in state::all(vault)? {
        let catalog = state
            .catalog_bytes(vault)?
            .and_then(|bytes| SignedCatalog::parse(&bytes).ok()?.verify().ok())
            .filter(|catalog| catalog.vault_id == *vault.id());
        if let Some(catalog) = catalog
            && newest
                .as_ref()
                .is_none_or(|newest| newest.issued_at < catalog.issued_at)
        {
            newest = Some(catalog);
        }
    }
    newest
        .map(|catalog| (catalog.public_key, catalog.recovery_key_sha256))
        .ok_or(RotateError::UnknownKey)
}
