//! Replacing the release key and the recovery key, so that a kill at any point leaves the old key or the new one.
//!
//! The new secret is laid aside, then `rotations.json` gets the statement that names it, then the secret takes its
//! place. Whoever takes the writer lock next completes or undoes what was cut short. Manifests by a key that no longer
//! counts (stolen, lost, or dropped off the end of the chain) are signed again before the key is forgotten.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use vault_skill::catalog::SignedCatalog;
use vault_skill::dsse::Envelope;
use vault_skill::hash::Digest;
use vault_skill::json;
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::name::SkillName;
use vault_skill::rotation::{MAX_ROTATIONS, Reason, Rotation, RotationError, Schema};

use super::state::{self, CloudState};
use crate::admit::{AdmitError, Resigned, sign_again};
use crate::files;
use crate::keys::{self, KeyError, KeyKind};
use crate::store::Trusted;
use crate::vault::{Change, Vault, VaultError};

/// Why a key was not replaced. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The statement is refused by its own rules.
    #[error(transparent)]
    Statement(#[from] RotationError),
    /// The given recovery key is not this vault's.
    #[error("this is not the vault's recovery key")]
    OtherRecoveryKey,
    /// The vault has no recovery key.
    #[error("the vault has no recovery key")]
    NoRecoveryKey,
    /// Neither the public key nor a published catalog is here to say which key is replaced.
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

/// What a replacement did.
#[derive(Debug)]
pub struct RotateReport {
    /// The statement that the next releases carry.
    pub statement: Rotation,
    /// Skills that were signed again, each with a new version.
    pub signed_again: Vec<SkillName>,
    /// Skills that should have been signed again but are not as they were signed; add them again or remove them.
    pub damaged: Vec<SkillName>,
    /// Skills that today's gate refuses, with the reason: nobody can use them until they are added again or removed.
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

/// The content of `rotations.json`.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Oldest first, at most 32.
    pub(crate) statements: Vec<(Envelope, Rotation)>,
    /// Keys that are about to be forgotten: their manifests are good until they have been signed again.
    retiring: Vec<PublicKey>,
}

#[derive(Deserialize)]
struct ChainRead<'a> {
    #[serde(borrow)]
    rotations: Vec<&'a RawValue>,
    retiring: Vec<PublicKey>,
}

#[derive(Serialize)]
struct ChainWritten<'a> {
    rotations: Vec<&'a Envelope>,
    retiring: &'a [PublicKey],
}

impl Chain {
    /// Reads the chain; fails when a statement is not good. Public data: it convinces nobody who has not our key.
    pub(crate) fn read(vault: &Vault) -> Result<Self, VaultError> {
        let path = path(vault);
        let Some(bytes) = files::read(&path, 1 << 20)? else {
            return Ok(Self::default());
        };
        let damaged = |reason: String| VaultError::Damaged {
            path: path.clone(),
            reason,
        };
        let read: ChainRead<'_> =
            json::parse(&bytes).map_err(|reason| damaged(reason.to_string()))?;
        let mut statements = Vec::with_capacity(read.rotations.len());
        for raw in read.rotations {
            let envelope = Envelope::parse(raw.get().as_bytes())
                .map_err(|reason| damaged(reason.to_string()))?;
            let statement =
                Rotation::verify(&envelope).map_err(|reason| damaged(reason.to_string()))?;
            if statement.vault_id != *vault.id() {
                return Err(damaged("a statement is of another vault".to_owned()));
            }
            statements.push((envelope, statement));
        }
        Ok(Self {
            statements,
            retiring: read.retiring,
        })
    }

    fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        let written = ChainWritten {
            rotations: self
                .statements
                .iter()
                .map(|(envelope, _)| envelope)
                .collect(),
            retiring: &self.retiring,
        };
        change.write_record(&path(vault), &written, 0o600)
    }

    /// The keys that may have signed this vault's manifests, given its current one: newest first.
    fn keys(&self, current: PublicKey) -> Vec<PublicKey> {
        let mut keys = vec![current];
        // A reader may come between the new secret and its public half: the known key vouches for what follows it.
        let mut at = current;
        for (_, statement) in &self.statements {
            if statement.from == at && statement.reason == Reason::Rotation {
                at = statement.to;
                keys.push(at);
            }
        }
        let mut at = current;
        for (_, statement) in self.statements.iter().rev() {
            if statement.to != at || statement.from == statement.to {
                continue;
            }
            at = statement.from;
            if !statement.reason.voids_old_key() {
                keys.push(at);
            }
        }
        for key in &self.retiring {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        keys
    }

    /// The statements as a catalog carries them.
    pub(crate) fn envelopes(&self) -> Vec<Envelope> {
        self.statements
            .iter()
            .map(|(envelope, _)| envelope.clone())
            .collect()
    }

    pub(crate) fn last(&self) -> Option<&Rotation> {
        self.statements.last().map(|(_, statement)| statement)
    }

    /// Whether a key was stolen or lost: what it signs may be somebody else's.
    pub(crate) fn is_voided(&self, key: &PublicKey) -> bool {
        self.statements
            .iter()
            .any(|(_, statement)| statement.reason.voids_old_key() && statement.from == *key)
    }

    /// All keys that ever signed releases of this vault, as far as the chain reaches.
    pub(crate) fn all_keys(&self, current: PublicKey) -> Vec<PublicKey> {
        let mut keys = vec![current];
        keys.extend(
            self.statements
                .iter()
                .rev()
                .map(|(_, statement)| statement.from),
        );
        keys
    }
}

fn path(vault: &Vault) -> std::path::PathBuf {
    vault.paths().root.join("rotations.json")
}

impl Vault {
    /// Who may have signed this vault's own manifests. Fails when the public key is not on this machine.
    pub(crate) fn trusted(&self) -> Result<Trusted, VaultError> {
        let keys = Chain::read(self)?.keys(self.keys().public()?);
        Ok(Trusted {
            vault_id: *self.id(),
            keys,
        })
    }

    /// The statements that this vault's releases carry, oldest first.
    pub fn rotations(&self) -> Result<Vec<Rotation>, VaultError> {
        let chain = Chain::read(self)?;
        Ok(chain
            .statements
            .into_iter()
            .map(|(_, statement)| statement)
            .collect())
    }
}

/// Replaces the release key in good order: both keys sign the statement. The former secret is gone afterwards.
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

/// Replaces a stolen or lost release key: the recovery key and the new one sign the statement. From then on the old
/// key's word counts for nothing, and every own skill is signed again.
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

/// Replaces the recovery key: the old one and the release key sign the statement.
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
    push(&mut chain, envelope, statement.clone());
    change.switching()?;
    chain.write(vault, &mut change)?;
    let resigned = finish(vault, &mut change)?;
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
    // A vault with several namespaces has several counters; the statement must not lie ahead of any of them.
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
    push(&mut chain, envelope, statement.clone());
    vault.keys().write_next(KeyKind::Release, new)?;
    change.switching()?;
    chain.write(vault, change)?;
    let resigned = finish(vault, change)?;
    Ok(RotateReport::new(statement.clone(), resigned))
}

/// Adds a statement; the oldest goes when there are 32, and its key with it.
fn push(chain: &mut Chain, envelope: Envelope, statement: Rotation) {
    chain.statements.push((envelope, statement));
    while chain.statements.len() > MAX_ROTATIONS {
        let (_, dropped) = chain.statements.remove(0);
        if dropped.from != dropped.to {
            chain.retiring.push(dropped.from);
        }
    }
}

/// The release key so far and the recovery key's hash: from the key files, else from a catalog that was published.
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

/// Completes or undoes a replacement that was cut short, then signs again what a retiring key had signed. Called under
/// the writer lock before every change.
pub(crate) fn finish(vault: &Vault, change: &mut Change<'_>) -> Result<Resigned, VaultError> {
    let keys = vault.keys();
    keys.sweep()?;
    let mut chain = Chain::read(vault)?;
    if let Some(next) = keys.next(KeyKind::Release)? {
        if chain.last().is_some_and(|last| last.to == next.public()) {
            keys.adopt_next(KeyKind::Release)?;
        } else {
            // The statement was never written: nobody knows this key.
            keys.drop_next(KeyKind::Release)?;
        }
    }
    if let Some(next) = keys.next(KeyKind::Recovery)? {
        let id = next.public().key_id();
        if chain
            .last()
            .is_some_and(|last| last.new_recovery_key_sha256 == Some(id))
        {
            keys.adopt_next(KeyKind::Recovery)?;
        } else {
            keys.drop_next(KeyKind::Recovery)?;
        }
    }
    keys.settle_public()?;
    if chain.retiring.is_empty() {
        return Ok(Resigned::default());
    }
    let retiring = chain.retiring.clone();
    let done = sign_again(vault, change, |_, signer| retiring.contains(signer))?;
    chain.retiring.clear();
    chain.write(vault, change)?;
    Ok(done)
}
