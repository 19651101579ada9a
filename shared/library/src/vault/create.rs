//! Creates a vault: its folders, its first key, and its first root version (the signed list of its
//! keys).

use std::collections::BTreeSet;
use std::sync::Arc;

use vault_format::json;
use vault_format::keys::SecretKey;
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, VaultId};
use vault_store::clock::Clock;
use vault_store::random::Random;

use super::folder::{PrivateFolder, vault_folder};
use super::keys::{self, Passphrases, VaultKeys};
use super::trust::{self, VaultTrust};
use super::{
    DEFAULT_WAIT, FormatFile, SCHEMA, VaultError, VaultPaths, folder, occupant, read_format,
};
use crate::disk;
use crate::disk::lock;
use crate::disk::scratch;

/// File that holds the id of a vault while the vault is being created.
pub(super) const CREATING: &str = "creating";

/// The parameters of a new vault.
pub(super) struct NewVault<'a> {
    pub(super) paths: &'a VaultPaths,
    pub(super) clock: &'a dyn Clock,
    pub(super) random: &'a dyn Random,
    pub(super) passphrases: &'a Arc<dyn Passphrases>,
    /// Whether the vault only holds linked vaults and therefore gets no keys of its own.
    pub(super) for_links: bool,
}

impl NewVault<'_> {
    /// Creates a vault with one key, which is both its root key and its publisher's key.
    pub(super) fn create_vault(&self) -> Result<VaultId, VaultError> {
        make_folders(self.paths)?;
        let root = self.paths.folder();
        let _lock = lock::take_lock(&root.join("lock"), DEFAULT_WAIT)?;
        if let Some(id) = read_format(&root)? {
            return Ok(id); // another process was first
        }
        // No other writer is alive under the lock, so the entries are leftovers.
        scratch::sweep_unlocked(&root.join("tmp"))?;
        self.finish_creation(None)
    }

    /// Gives a vault that only held linked vaults an identity with keys. Returns the new id.
    pub(super) fn replace_placeholder(&self, id: VaultId) -> Result<VaultId, VaultError> {
        let root = self.paths.folder();
        folder::check_vault(&root)?;
        let _lock = lock::take_lock(&root.join("lock"), DEFAULT_WAIT)?;
        match read_format(&root)? {
            Some(now) if now == id => {}
            // Another process has given the vault an identity by now.
            now => return Ok(now.unwrap_or(id)),
        }
        let before = vault_folder(&self.paths.config, &id);
        let new = self.finish_creation(Some(&before))?;
        // Nothing refers to the old identity any more. If it has keys all the same, they stay,
        // because a lost key can't be made again.
        if disk::kind_at(&before.child("keys").path())?.is_none() {
            before.remove_all()?;
        }
        Ok(new)
    }

    /// Completes the creation of a vault. If it replaces the vault `before`, copies its trust
    /// folder, except what belongs to the old identity.
    fn finish_creation(&self, before: Option<&PrivateFolder>) -> Result<VaultId, VaultError> {
        let id = self.create_trust()?;
        if let Some(before) = before {
            let folder = vault_folder(&self.paths.config, &id);
            folder.copy_from(before, &trust::IDENTITY_ENTRIES)?;
        }
        // Write this file last: once it exists, the folder is opened as a vault, so its trust must
        // be complete.
        write_format(self.paths, &id)?;
        disk::remove_file(&self.paths.folder().join(CREATING))?;
        Ok(id)
    }

    /// Creates the first root version, with one key in both roles. Continues an interrupted
    /// creation.
    fn create_trust(&self) -> Result<VaultId, VaultError> {
        let Self {
            paths,
            clock,
            random,
            ..
        } = self;
        let note_path = paths.folder().join(CREATING);
        let noted_id = disk::read(&note_path, 64)?
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .and_then(|text| text.parse::<VaultId>().ok());
        if let Some(id) = noted_id {
            match VaultTrust::read(&paths.config, &id)? {
                Some(noted_trust) if noted_trust.for_links == self.for_links => return Ok(id),
                // The id comes from the vault's folder, where others may have written it, so it
                // must not replace trust that exists.
                Some(_) => {}
                // No root version was stored for the noted keys, so no other machine has seen them.
                None => vault_folder(&paths.config, &id).remove_all()?,
            }
        }
        let key = keys::generate_key(*random);
        let chain = first_root(*clock, &key)?;
        let id = chain.vault_id();
        // Note the id first, so that a retry finds the keys of an interrupted creation.
        disk::replace(
            &note_path,
            id.to_string().as_bytes(),
            0o600,
            &paths.folder().join("tmp"),
        )?;
        // The key of a vault for links signs this one root version and is never stored.
        if !self.for_links {
            VaultKeys::new(paths, &id, Arc::clone(self.passphrases)).store_key(&key)?;
        }
        VaultTrust {
            for_links: self.for_links,
            ..VaultTrust::new(RootState::new(chain, BTreeSet::new()))
        }
        .write(&paths.config)?;
        Ok(id)
    }
}

/// Creates the folders of a vault. Fails if its keys would lie inside it.
pub(super) fn make_folders(paths: &VaultPaths) -> Result<(), VaultError> {
    if paths.config.starts_with(&paths.root) {
        return Err(VaultError::KeysInside(paths.config.clone()));
    }
    folder::check_top(&paths.config)?;
    let root = paths.folder();
    folder::check_vault(&root)?;
    for folder in folder::FOLDERS {
        disk::make_dirs(&root.join(folder), 0o700)?;
    }
    Ok(())
}

/// Signs the root version 1 of a new vault, with one key in both roles.
pub(crate) fn first_root(clock: &dyn Clock, key: &SecretKey) -> Result<RootChain, VaultError> {
    let entry = KeyEntry {
        public_key: key.public(),
        name: KeyName::default_for(&key.public()),
    };
    let mut edit = RootEdit::begin_first(clock.now());
    edit.add_root_key(entry.clone())?.add_publisher(entry)?;
    Ok(edit.sign(&[key])?)
}

/// Writes `vault.json`, which makes the folder a vault. While a vault gets another id, the trust
/// folder accepts both ids.
pub(crate) fn write_format(paths: &VaultPaths, id: &VaultId) -> Result<(), VaultError> {
    let root = paths.folder();
    let before = read_format(&root)?;
    if let Some(before) = before.filter(|before| before != id) {
        occupant::record_vault(paths, &before, Some(id))?;
    }
    let format = FormatFile {
        schema: SCHEMA.to_owned(),
        vault_id: *id,
    };
    disk::replace(
        &root.join("vault.json"),
        &json::to_bytes(&format),
        0o600,
        &root.join("tmp"),
    )?;
    occupant::record_vault(paths, id, None)
}
