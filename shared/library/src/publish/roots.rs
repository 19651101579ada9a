//! Changes the keys of the vault. Each change is a new root version (a signed list of the vault's
//! keys and their roles), signed by keys of the root role.
//!
//! A change first stages the new secret keys, then stores the version that names them in one write,
//! and then removes the keys that it ended. The next process that takes the writer lock completes
//! or undoes an interrupted change, so a kill leaves either the old keys or the new ones in force.

use std::collections::BTreeSet;

use vault_format::catalog::SignedCatalog;
use vault_format::keys::{PublicKey, SecretKey, Signer};
use vault_format::name::SkillName;
use vault_format::root;
use vault_format::root::{
    KeyEntry, KeyFingerprint, KeyName, KeyRequestError, RootChain, RootEdit, RootState,
    RootWriteError, VaultFingerprint, VaultId,
};
use vault_format::time::Timestamp;

use super::recovery_file::{RecoveryError, RecoveryKey};
use crate::admit::{Resigned, list_unsigned, sign_waiting};
use crate::disk::FileError;
use crate::installed::installations::Origin;
use crate::installed::listing;
use crate::installed::root_versions::conclude_trust;
use crate::vault::keys::{self, KeyError};
use crate::vault::trust::{RootChanges, VaultTrust};
use crate::vault::{Change, Vault, VaultError, releases};

/// Error of changing the vault's keys or of joining a vault. No key has changed.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// No key of the root role is on this machine, and no recovery key was given.
    #[error("changing the vault's keys needs its recovery key, which is not on this machine")]
    RootKeyNeeded,
    /// The new version breaks a rule, or its signatures do not reach the threshold.
    #[error(transparent)]
    Write(RootWriteError),
    /// The old key has the root role, so a key in an SSH agent can't take its place.
    #[error(
        "this machine's key may also change the vault's keys, so it can't move into an SSH agent"
    )]
    RootRoleInAgent,
    /// This machine knows no root version of the vault that it is to join. Linking the vault first
    /// stores them, after a person has compared the fingerprint.
    #[error("this machine does not know the vault {0}")]
    NotLinked(VaultId),
    /// The request to become a publisher can't be signed.
    #[error(transparent)]
    Request(#[from] KeyRequestError),
    /// The recovery file is missing, invalid, for another vault, or its key may not change keys.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<RootWriteError> for RootsError {
    fn from(error: RootWriteError) -> Self {
        Self::Write(error)
    }
}

impl From<KeyError> for RootsError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<FileError> for RootsError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

/// The effects of a new root version.
#[derive(Debug)]
pub struct RootReport {
    /// Keys that were added, removed or revoked.
    pub changes: RootChanges,
    /// Fingerprint of the vault after the change.
    pub fingerprint: VaultFingerprint,
    /// Own skills that a revoked key signed and that the last release listed. They are rejected
    /// until [`sign_again`].
    pub to_sign_again: Vec<SkillName>,
    /// Own skills that are no longer accepted. Their owner must add or remove them.
    pub lost: Vec<SkillName>,
    /// Error of updating the recovery file. The file then still names an earlier root version.
    pub unwritten: Option<RecoveryError>,
}

/// Replaces this machine's release key with a new one, and deletes the old secret key. The old
/// key's signatures stay valid on published releases and on the verified own skills.
pub fn rotate_key(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    name: Option<KeyName>,
) -> Result<RootReport, RootsError> {
    let new = keys::generate_key(vault.random());
    let public_key = new.public();
    change_roots(vault, root_key, &[&new], |edit, before| {
        replace_key(edit, before, vault.release_key()?, public_key, name)
    })
}

/// Like [`rotate_key`], but the new key is one that the SSH agent holds and that is not used for
/// logins. Fails if the old key has the root role, which a key in an agent never gets.
pub fn rotate_to_agent(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    name: Option<KeyName>,
    key: PublicKey,
) -> Result<RootReport, RootsError> {
    let trust = vault.require_trust()?;
    if trust
        .chain()
        .document()
        .root()
        .contains(&vault.release_key()?)
    {
        return Err(RootsError::RootRoleInAgent);
    }
    // Let the agent prove that it signs before a root version names its key.
    vault.keys().use_agent(&key)?;
    change_roots(vault, root_key, &[], |edit, before| {
        replace_key(edit, before, vault.release_key()?, key, name)
    })
}

/// Puts a new key in the place of an old one, in all roles of the old one.
fn replace_key(
    edit: &mut RootEdit<'_>,
    before: &RootChain,
    old: PublicKey,
    new: PublicKey,
    name: Option<KeyName>,
) -> Result<(), RootsError> {
    let old_name = before.document().name_of(&old).cloned();
    // Only a name that a person chose passes to the new key.
    let known = old_name.filter(|known| *known != KeyName::default_for(&old));
    edit.replace(&old, key_entry(new, name.or(known)))?;
    Ok(())
}

/// A change of the keys that [`check_change`] can try without making it.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// Gives another key the release role, so that its owner is a publisher.
    Add(KeyEntry),
    /// Removes a key from every role.
    Remove {
        /// Key that loses all its roles.
        key: PublicKey,
        /// Whether nothing that the key signed is accepted any more.
        revoke: bool,
    },
    /// Sets how many publishers must sign a release.
    Threshold(usize),
    /// Replaces a key of this machine by a new one, which is generated when the change is made.
    Rotate,
    /// Signs further versions, so that readers of a fork accept this chain. A recovery file that
    /// names newer versions than those on this machine is accepted.
    Heal,
}

impl KeyChange {
    fn apply_to(&self, edit: &mut RootEdit<'_>) -> Result<(), RootWriteError> {
        match self {
            Self::Add(entry) => {
                edit.add_publisher(entry.clone())?;
            }
            Self::Remove { key, revoke: true } => {
                edit.revoke(key);
            }
            Self::Remove { key, revoke: false } => {
                edit.retire(key)?;
            }
            Self::Threshold(needed) => {
                edit.set_release_threshold(*needed);
            }
            Self::Rotate | Self::Heal => {}
        }
        Ok(())
    }
}

/// Fails if the change would fail, because the right key is missing or the new list of keys breaks
/// a rule. Nothing is stored.
pub fn check_change(
    vault: &Vault,
    root_key: Option<&RecoveryKey>,
    change: &KeyChange,
) -> Result<(), RootsError> {
    let before = vault.require_trust()?;
    if matches!(change, KeyChange::Heal) {
        root_signers(vault, &before, root_key, &[], before.chain())?;
        return Ok(());
    }
    next_version(vault, &before, root_key, &[], |edit, _| {
        Ok(change.apply_to(edit)?)
    })?;
    Ok(())
}

fn apply_key_change(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    change: &KeyChange,
) -> Result<RootReport, RootsError> {
    change_roots(vault, root_key, &[], |edit, _| Ok(change.apply_to(edit)?))
}

/// Gives another key the release role, so that its owner is a publisher.
pub fn add_publisher(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    entry: KeyEntry,
) -> Result<RootReport, RootsError> {
    apply_key_change(vault, root_key, &KeyChange::Add(entry))
}

/// Removes a key from every role. With `revoke`, nothing that the key signed is accepted any more;
/// without it, its earlier signatures stay valid.
pub fn remove_key(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    key: &PublicKey,
    revoke: bool,
) -> Result<RootReport, RootsError> {
    let key = *key;
    apply_key_change(vault, root_key, &KeyChange::Remove { key, revoke })
}

/// Sets how many publishers must sign a release.
pub fn set_threshold(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    threshold: usize,
) -> Result<RootReport, RootsError> {
    apply_key_change(vault, root_key, &KeyChange::Threshold(threshold))
}

/// Sets the time at which releases under the vault's present keys expire at the latest; `None` for
/// no limit.
pub fn set_expiry(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    expires_at: Option<Timestamp>,
) -> Result<RootReport, RootsError> {
    change_roots(vault, root_key, &[], |edit, _| {
        edit.set_expiry(expires_at);
        Ok(())
    })
}

/// Signs unchanged versions until their number is above `above`, so that readers who follow a fork
/// of the chain accept this chain.
pub fn heal_fork(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    above: u64,
) -> Result<RootReport, RootsError> {
    let mut change = vault.begin_change()?;
    let before = vault.require_trust()?;
    let signers = root_signers(vault, &before, root_key.as_deref(), &[], before.chain())?;
    let now = vault.clock().now();
    let chain = root::heal_fork(before.chain(), above, now, &signer_references(&signers))?;
    store_version(vault, &mut change, &before, chain, root_key)
}

/// Creates a key on this machine that no root version names, for a machine that asks to become a
/// publisher. `in_agent` is a key in the SSH agent, to be used instead.
pub fn create_key(vault: &Vault, in_agent: Option<PublicKey>) -> Result<PublicKey, RootsError> {
    if let Some(key) = in_agent {
        vault.keys().use_agent(&key)?;
        return Ok(key);
    }
    let _change = vault.begin_change()?;
    let key = keys::generate_key(vault.random());
    vault.keys().store_key(&key)?;
    Ok(key.public())
}

/// Lists the own skills whose signing key was revoked and that are not signed again yet.
pub fn waiting_skills(vault: &Vault) -> Result<Vec<SkillName>, VaultError> {
    list_unsigned(vault)
}

/// Lists the addresses whose current release was signed under older root versions, as far as this
/// machine knows. Readers there have not learned the last change of the keys.
pub fn releases_behind(vault: &Vault) -> Result<Vec<String>, VaultError> {
    let Some(trust) = vault.trust()? else {
        return Ok(Vec::new());
    };
    let newest = trust.chain().newest().payload_sha256();
    let mut behind = Vec::new();
    for state in releases::list_states(vault)? {
        let (Some(bytes), Some(published)) = (state.catalog_bytes(vault)?, &state.published) else {
            continue;
        };
        let catalog = SignedCatalog::parse(&bytes)
            .and_then(|file| file.read_counted(&published.payload_sha256));
        if catalog.is_ok_and(|catalog| catalog.root_sha256 != *newest) {
            behind.push(format!("{}/v/{}", state.base, state.slug));
        }
    }
    Ok(behind)
}

/// Signs the own skills again whose signing key was revoked, if they pass the gate. Call it after
/// the owner has seen their names.
pub fn sign_again(vault: &Vault) -> Result<Resigned, VaultError> {
    let mut change = vault.begin_change()?;
    sign_waiting(vault, &mut change)
}

/// The reason for which a text does not identify a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FindKeyError {
    /// The vault never had such a key.
    #[error("the vault has no such key")]
    Unknown,
    /// Several former keys had this name, so only a fingerprint identifies one.
    #[error("several former keys had this name")]
    Ambiguous,
}

/// Finds a key of the vault by its fingerprint or name, whether or not it is still in use. A
/// fingerprint is tried before names, and the names of present keys before those of former ones.
pub fn find_key(chain: &RootChain, text: &str) -> Result<PublicKey, FindKeyError> {
    let all = chain.versions().iter();
    let all = || all.clone().flat_map(|version| version.document().keys());
    if let Ok(fingerprint) = text.parse::<KeyFingerprint>() {
        let mut keys = all().map(|entry| entry.public_key);
        let matching_key = keys.find(|key| fingerprint.matches(key));
        return matching_key.ok_or(FindKeyError::Unknown);
    }
    let is_named = |entry: &&KeyEntry| entry.name.as_str() == text;
    let present = chain.document().keys().iter().find(is_named);
    if let Some(present) = present {
        return Ok(present.public_key);
    }
    let former: BTreeSet<_> = all()
        .filter(is_named)
        .map(|entry| entry.public_key)
        .collect();
    match former.into_iter().collect::<Vec<_>>()[..] {
        [] => Err(FindKeyError::Unknown),
        [only] => Ok(only),
        _ => Err(FindKeyError::Ambiguous),
    }
}

/// Returns a key with its name, or with a name made from the key.
pub(super) fn key_entry(public_key: PublicKey, name: Option<KeyName>) -> KeyEntry {
    KeyEntry {
        public_key,
        name: name.unwrap_or_else(|| KeyName::default_for(&public_key)),
    }
}

/// Signs the next root version and stores it, together with the new secret keys that it names.
pub(super) fn change_roots(
    vault: &Vault,
    root_key: Option<&mut RecoveryKey>,
    new_keys: &[&SecretKey],
    edit: impl FnOnce(&mut RootEdit<'_>, &RootChain) -> Result<(), RootsError>,
) -> Result<RootReport, RootsError> {
    let mut change = vault.begin_change()?;
    let before = vault.require_trust()?;
    let chain = next_version(vault, &before, root_key.as_deref(), new_keys, edit)?;
    for key in new_keys {
        vault.keys().stage_key(key)?;
    }
    store_version(vault, &mut change, &before, chain, root_key)
}

/// Signs the next root version without storing it.
pub(super) fn next_version(
    vault: &Vault,
    before: &VaultTrust,
    root_key: Option<&RecoveryKey>,
    new_keys: &[&SecretKey],
    edit: impl FnOnce(&mut RootEdit<'_>, &RootChain) -> Result<(), RootsError>,
) -> Result<RootChain, RootsError> {
    // If the file names newer versions, the vault on this machine is an older copy.
    if let Some(key) = root_key {
        key.check_known(before.chain(), None)?;
    }
    let mut next = RootEdit::begin_after(before.chain(), vault.clock().now());
    edit(&mut next, before.chain())?;
    let mut signers = root_signers(vault, before, root_key, new_keys, before.chain())?;
    let role = next.to_document()?.root().clone();
    let old = before.chain().document().root();
    // The candidates include new publisher keys, but only keys of the old and the new root role may
    // sign a version.
    signers.retain(|key| role.contains(&key.public()) || old.contains(&key.public()));
    Ok(next.sign(&signer_references(&signers))?)
}

/// Returns the keys that can sign a root version: keys on this machine, a recovery key, and new
/// keys. Fails if none of them has the root role.
fn root_signers(
    vault: &Vault,
    before: &VaultTrust,
    root_key: Option<&RecoveryKey>,
    new_keys: &[&SecretKey],
    chain: &RootChain,
) -> Result<Vec<SecretKey>, RootsError> {
    let role = chain.document().root();
    let mut signers = Vec::new();
    for key in vault.keys().list()? {
        if role.contains(&key) && !before.roots.is_revoked(&key) {
            signers.push(vault.keys().read_secret_key(&key)?);
        }
    }
    signers.extend(root_key.map(|key| key.file().key.clone()));
    if !signers.iter().any(|key| role.contains(&key.public())) {
        return Err(RootsError::RootKeyNeeded);
    }
    signers.extend(new_keys.iter().map(|key| (*key).clone()));
    Ok(signers)
}

fn signer_references(keys: &[SecretKey]) -> Vec<&dyn Signer> {
    keys.iter().map(|key| key as &dyn Signer).collect()
}

/// Stores a new version together with what it means for the own skills, and updates the key files.
pub(super) fn store_version(
    vault: &Vault,
    change: &mut Change<'_>,
    before: &VaultTrust,
    chain: RootChain,
    root_key: Option<&mut RecoveryKey>,
) -> Result<RootReport, RootsError> {
    let roots = RootState::new(chain, before.roots.revoked_elsewhere().clone());
    let after = conclude_trust(vault, Some(before), roots, &BTreeSet::new())?;
    change.mark_changing()?;
    vault.change_trust(vault.id(), |now| match now {
        // Another vault of this user may have stored newer versions of this vault in between.
        Some(now) if now.roots != before.roots => {
            let version = before.chain().version();
            Err(VaultError::Roots(root::RootError::Forked { version }))
        }
        _ => Ok(after),
    })?;
    complete_change(vault, before, root_key)
}

/// Completes a change that is stored: updates the key files and the recovery file, and reports what
/// the change means for the own skills.
pub(super) fn complete_change(
    vault: &Vault,
    before: &VaultTrust,
    root_key: Option<&mut RecoveryKey>,
) -> Result<RootReport, RootsError> {
    let after = vault.require_trust()?;
    // Delete old secrets only now, because until the new version was stored only the old keys
    // counted.
    vault.keys().settle_files(&after.roots)?;
    // The version is in force already, so a recovery file that can't be written is reported and
    // does not fail the change.
    let unwritten = root_key.and_then(|key| key.record_version(after.chain()).err());
    let to_sign_again = list_unsigned(vault)?;
    let damaged = listing::list_installed(vault)?.damaged.into_iter();
    let lost = damaged
        .filter(|(name, origin, _)| *origin == Origin::Local && !to_sign_again.contains(name));
    let version = after.chain().version();
    let changes = RootChanges::between(Some(&before.roots), &after.roots);
    Ok(RootReport {
        changes: changes.unwrap_or_else(|| RootChanges::none_at(version)),
        fingerprint: after.fingerprint(),
        lost: lost.map(|(name, ..)| name).collect(),
        to_sign_again,
        unwritten,
    })
}
