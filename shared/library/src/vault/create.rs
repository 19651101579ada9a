//! Creates a vault: its folders, its first key, and the root version that names it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use vault_skill::json;
use vault_skill::keys::SecretKey;
use vault_skill::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, VaultId};
use vault_store::clock::Clock;
use vault_store::random::Random;

use super::keys::{self, Passphrases, VaultKeys};
use super::trust::{self, VaultTrust};
use super::{DEFAULT_WAIT, Format, SCHEMA, VaultError, VaultPaths, folder, read_format};
use crate::disk;
use crate::disk::lock;
use crate::disk::scratch;

/// Name of the file that holds the id of a vault while the vault is being created.
pub(super) const CREATING: &str = "creating";

/// Creates a vault with one key in both roles.
pub(super) fn create(
    paths: &VaultPaths,
    clock: &dyn Clock,
    random: &dyn Random,
    passphrases: &Arc<dyn Passphrases>,
) -> Result<VaultId, VaultError> {
    make_folders(paths)?;
    let root = &paths.root;
    let _lock = lock::take(&root.join("lock"), DEFAULT_WAIT)?;
    if let Some(id) = read_format(root)? {
        return Ok(id); // another process was first
    }
    let tmp = root.join("tmp");
    scratch::sweep(&tmp)?;
    let id = create_trust(paths, clock, random, passphrases)?;
    write_format(root, &id)?;
    disk::remove_file(&root.join(CREATING))?;
    Ok(id)
}

/// Makes the folders of a vault. Fails if its keys would lie inside it.
pub(super) fn make_folders(paths: &VaultPaths) -> Result<(), VaultError> {
    if paths.config.starts_with(&paths.root) {
        return Err(VaultError::KeysInside(paths.config.clone()));
    }
    folder::check_top(&paths.config)?;
    for folder in ["store", "skills", "links", "tmp"] {
        disk::make_dirs(&paths.root.join(folder), 0o700)?;
    }
    Ok(())
}

/// Creates the first root version with one key in both roles. Goes on with what an interrupted
/// creation left.
fn create_trust(
    paths: &VaultPaths,
    clock: &dyn Clock,
    random: &dyn Random,
    passphrases: &Arc<dyn Passphrases>,
) -> Result<VaultId, VaultError> {
    let noted = paths.root.join(CREATING);
    let earlier = disk::read(&noted, 64)?
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.parse::<VaultId>().ok());
    if let Some(id) = earlier {
        if VaultTrust::read(&paths.config, &id)?.is_some() {
            return Ok(id);
        }
        // The root version that names these keys was not stored, so nobody has seen it.
        trust::folder(&paths.config, &id).remove_all()?;
    }
    let key = keys::generate(random);
    let chain = first_root(clock, &key)?;
    let id = chain.vault_id();
    // Record the id first, so that a retry finds the keys of an interrupted creation.
    disk::replace(
        &noted,
        id.to_string().as_bytes(),
        0o600,
        &paths.root.join("tmp"),
    )?;
    VaultKeys::new(&paths.config, &id, Arc::clone(passphrases)).store(&key)?;
    VaultTrust::new(RootState::new(chain, BTreeSet::new())).write(&paths.config)?;
    Ok(id)
}

/// The root version 1 of a new vault: one key in both roles.
pub(crate) fn first_root(clock: &dyn Clock, key: &SecretKey) -> Result<RootChain, VaultError> {
    let entry = KeyEntry {
        public_key: key.public(),
        name: KeyName::default_for(&key.public()),
    };
    let mut edit = RootEdit::first(clock.now());
    edit.add_root_key(entry.clone())?.add_publisher(entry)?;
    Ok(edit.sign(&[key])?)
}

/// Writes `vault.json`. The folder is a vault once this file exists.
pub(crate) fn write_format(root: &Path, id: &VaultId) -> Result<(), VaultError> {
    let format = Format {
        schema: SCHEMA.to_owned(),
        vault_id: *id,
    };
    Ok(disk::replace(
        &root.join("vault.json"),
        &json::to_bytes(&format),
        0o600,
        &root.join("tmp"),
    )?)
}
