//! The trust record of one vault, own or linked: its root versions (signed lists of its keys) that
//! count on this machine, and what this machine has concluded from them. It is one file,
//! `vaults/<vault id>/trust.json`, and is written in one step.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
pub use vault_format::catalog::{NamedKey, RoleChange, RootChanges};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::root;
use vault_format::root::{RevokedKey, RootChain, RootList, RootState, VaultFingerprint, VaultId};
use vault_format::time::Timestamp;

use super::folder::{INDEX_SEAL_FILE, PrivateFolder, vault_folder};
use super::{DEFAULT_WAIT, Vault, VaultError};
use crate::disk::{self, lock};

/// File in a vault's part of the trust folder that holds the [`VaultTrust`].
const RECORD: &str = "trust.json";
/// Entries that are not copied when a vault with keys replaces one that only held links, because
/// they belong to the old identity.
pub(crate) const IDENTITY_ENTRIES: [&str; 3] = [RECORD, "keys", INDEX_SEAL_FILE];
const SCHEMA: &str = "vault.trust/1";

/// The trust of this machine in one vault. The signatures are verified again whenever it is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VaultTrust {
    pub(crate) roots: RootState,
    /// Latest time at which this machine accepted a catalog of the vault, by its own clock.
    pub(crate) latest_seen_at: Option<Timestamp>,
    /// Own bundles that a key signed before it was retired. Its signature is accepted on these
    /// bundles only.
    pub(crate) taken_over: BTreeSet<Digest>,
    /// Own bundles that a key signed before it was revoked, or before the vault got another id.
    /// They are rejected until they pass the gate and are signed again.
    pub(crate) sign_again: BTreeSet<Digest>,
    /// Vault that this one was made from; `None` once its skills are signed again.
    pub(crate) made_from: Option<VaultId>,
    /// Whether the root versions have left this machine, in a release or an export, so that others
    /// may know them.
    pub(crate) shown: bool,
    /// Time of the last successful check of the recovery key, by this machine's clock.
    pub(crate) recovery_checked_at: Option<Timestamp>,
    /// Whether the vault only holds linked vaults: it was created without keys, and gets an
    /// identity of its own with the first skill.
    pub(crate) for_links: bool,
}

/// The content of `trust.json`.
#[derive(Deserialize, Serialize)]
struct TrustRecord<R> {
    schema: String,
    vault_id: VaultId,
    root1_sha256: Digest,
    roots: R,
    revoked: BTreeSet<RevokedKey>,
    latest_seen_at: Option<Timestamp>,
    taken_over: BTreeSet<Digest>,
    sign_again: BTreeSet<Digest>,
    made_from: Option<VaultId>,
    shown: bool,
    recovery_checked_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    for_links: bool,
}

impl VaultTrust {
    pub(crate) fn new(roots: RootState) -> Self {
        Self {
            roots,
            latest_seen_at: None,
            taken_over: BTreeSet::new(),
            sign_again: BTreeSet::new(),
            made_from: None,
            shown: false,
            recovery_checked_at: None,
            for_links: false,
        }
    }

    /// The root versions that count, and the keys that were revoked in other chains of root
    /// versions, which this machine has abandoned.
    pub const fn roots(&self) -> &RootState {
        &self.roots
    }

    /// All root versions of the vault, oldest first.
    pub const fn chain(&self) -> &RootChain {
        self.roots.chain()
    }

    /// Latest time at which this machine accepted a catalog of the vault, by its own clock.
    pub const fn latest_seen_at(&self) -> Option<Timestamp> {
        self.latest_seen_at
    }

    /// Returns the vault's fingerprint, which people compare.
    pub fn fingerprint(&self) -> VaultFingerprint {
        self.chain().fingerprint()
    }

    /// Returns the keys that were a publisher's at any time and are not revoked.
    pub(crate) fn good_keys(&self) -> Vec<PublicKey> {
        let mut keys = self.ever_released();
        keys.retain(|key| !self.roots.is_revoked(key));
        keys
    }

    /// Returns the keys that were a publisher's at any time, those of the newest root version
    /// first.
    pub(crate) fn ever_released(&self) -> Vec<PublicKey> {
        let mut keys = Vec::new();
        for version in self.chain().versions().iter().rev() {
            for key in version.document().release().keys() {
                if !keys.contains(key) {
                    keys.push(*key);
                }
            }
        }
        keys
    }

    /// Returns whether the vault was created without keys, for linked vaults only.
    pub(super) fn is_for_links(config: &Path, id: &VaultId) -> Result<bool, VaultError> {
        Ok(Self::read(config, id)?.is_some_and(|trust| trust.for_links))
    }

    pub(super) fn read(config: &Path, id: &VaultId) -> Result<Option<Self>, VaultError> {
        let folder = vault_folder(config, id);
        let Some(record) = folder.read_record::<TrustRecord<RootList>>(RECORD)? else {
            return Ok(None);
        };
        let damaged = |reason: String| VaultError::Damaged {
            path: folder.path_of(RECORD),
            reason,
        };
        if record.schema != SCHEMA {
            return Err(damaged(format!("{} is not {SCHEMA}", record.schema)));
        }
        // Verify the signatures of the whole chain, so that a damaged record is rejected before
        // anything relies on it.
        let roots = RootState::load(&record.root1_sha256, &record.roots, record.revoked)
            .map_err(|error| damaged(error.to_string()))?;
        // A record copied from another vault's folder verifies too, and would make that vault's
        // keys count for this one.
        if roots.vault_id() != *id || record.vault_id != *id {
            return Err(damaged("it belongs to another vault".to_owned()));
        }
        Ok(Some(Self {
            roots,
            latest_seen_at: record.latest_seen_at,
            taken_over: record.taken_over,
            sign_again: record.sign_again,
            made_from: record.made_from,
            shown: record.shown,
            recovery_checked_at: record.recovery_checked_at,
            for_links: record.for_links,
        }))
    }

    pub(super) fn write(&self, config: &Path) -> Result<(), VaultError> {
        let record = TrustRecord {
            schema: SCHEMA.to_owned(),
            vault_id: self.roots.vault_id(),
            root1_sha256: *self.chain().root1_sha256(),
            roots: self.chain(),
            revoked: self.roots.revoked_elsewhere().clone(),
            latest_seen_at: self.latest_seen_at,
            taken_over: self.taken_over.clone(),
            sign_again: self.sign_again.clone(),
            made_from: self.made_from,
            shown: self.shown,
            recovery_checked_at: self.recovery_checked_at,
            for_links: self.for_links,
        };
        Ok(vault_folder(config, &self.roots.vault_id()).write_record(RECORD, &record)?)
    }
}

/// Returns whether the trust folder has a record of the vault.
pub(super) fn is_recorded(config: &Path, id: &VaultId) -> Result<bool, VaultError> {
    Ok(disk::kind_at(&vault_folder(config, id).path_of(RECORD))?.is_some())
}

/// Completes this machine's trust folder for a vault from a restored copy. Changes nothing if this
/// machine has the vault's keys, because the local state may be newer. If this machine only knows
/// the vault's root versions, because it was linked, the chain that supersedes the other one is
/// stored, and no revocation is lost. Fails if the two chains contradict each other.
pub fn complete_restored(config: &Path, restored: &Path, id: &VaultId) -> Result<(), VaultError> {
    let (here, there) = (vault_folder(config, id), vault_folder(restored, id));
    let has_keys = |folder: &PrivateFolder| {
        Ok::<_, VaultError>(!folder.child("keys").file_names()?.is_empty())
    };
    if has_keys(&here)? || !has_keys(&there)? {
        return Ok(());
    }
    let vaults = PrivateFolder::new(config, "vaults");
    vaults.ensure_exists()?;
    let _lock = lock::take_lock(&vaults.path_of("lock"), DEFAULT_WAIT)?;
    let Some(mut trust) = VaultTrust::read(restored, id)? else {
        return Ok(());
    };
    if let Some(local_trust) = VaultTrust::read(config, id)? {
        let judged = root::judge_roots(Some(&local_trust.roots), &trust.chain().to_list(), None)?;
        let mut revoked = judged.state.revoked_elsewhere().clone();
        revoked.extend(trust.roots.revoked_elsewhere().iter().copied());
        trust.roots = RootState::new(judged.state.chain().clone(), revoked);
        // The later time must win. With the older one of a backup, an expired catalog would be
        // valid again once the clock is set back.
        trust.latest_seen_at = trust.latest_seen_at.max(local_trust.latest_seen_at);
    }
    trust.write(config)?;
    // Copy the keys last: a retry that finds them does nothing more.
    here.complete_from(&there, &[RECORD, "keys"])?;
    Ok(here
        .child("keys")
        .complete_from(&there.child("keys"), &[])?)
}

impl Vault {
    /// Returns the part of the trust folder that belongs to this vault.
    pub(crate) fn trust_folder(&self) -> PrivateFolder {
        vault_folder(&self.paths().config, self.id())
    }

    /// Returns the trusted state of this vault. `None` if the vault was copied here without its
    /// trust folder: its skills are then neither run nor published.
    pub fn trust(&self) -> Result<Option<VaultTrust>, VaultError> {
        let trust = self.trust_of(self.id())?;
        let has_keys = || disk::kind_at(&self.keys().folder());
        // The id comes from `vault.json`, which others can write. If it names a vault that is only
        // linked here, there are no keys for it, and its skills are not the owner's own.
        match trust {
            Some(trust) if !trust.for_links && has_keys()?.is_none() => Ok(None),
            trust => Ok(trust),
        }
    }

    /// Like [`Self::trust`], but fails if there is none.
    pub fn require_trust(&self) -> Result<VaultTrust, VaultError> {
        let trust = self.trust()?;
        trust.ok_or_else(|| VaultError::Untrusted(*self.id()))
    }

    /// Returns the trusted state of a vault, own or linked; `None` if this machine has none.
    pub fn trust_of(&self, id: &VaultId) -> Result<Option<VaultTrust>, VaultError> {
        VaultTrust::read(&self.paths().config, id)
    }

    /// Records that the root versions of this vault are about to leave the machine, so that others
    /// may know them.
    pub(crate) fn note_roots_exported(&self) -> Result<(), VaultError> {
        // The flag is never reset, so all releases after the first one return here and need no
        // lock.
        if self.trust()?.is_none_or(|trust| trust.shown) {
            return Ok(());
        }
        self.change_trust(self.id(), |before| {
            let before = before.ok_or(VaultError::Untrusted(*self.id()))?;
            Ok::<_, VaultError>(VaultTrust {
                shown: true,
                ..before
            })
        })?;
        Ok(())
    }

    /// Removes everything that the trust folder holds for a vault, its keys included.
    pub(crate) fn forget_vault(&self, id: &VaultId) -> Result<(), VaultError> {
        Ok(vault_folder(&self.paths().config, id).remove_all()?)
    }

    /// Changes the trust record of a vault, under a lock that all vaults of this user share.
    /// `change` gets the current state, and the state that it returns is stored in one step.
    pub(crate) fn change_trust<E: From<VaultError>>(
        &self,
        id: &VaultId,
        change: impl FnOnce(Option<VaultTrust>) -> Result<VaultTrust, E>,
    ) -> Result<VaultTrust, E> {
        let config = &self.paths().config;
        let vaults = PrivateFolder::new(config, "vaults");
        vaults.ensure_exists().map_err(VaultError::from)?;
        let _lock =
            lock::take_lock(&vaults.path_of("lock"), self.lock_wait()).map_err(VaultError::from)?;
        // Read under the lock, because another process may have stored a newer root version or a
        // revocation since the caller read the record.
        let before = self.trust_of(id)?;
        let after = change(before.clone())?;
        if before.as_ref() != Some(&after) {
            after.write(config)?;
        }
        Ok(after)
    }
}
