//! `vault serve --recovery`: creates the server's own vault with a recovery key from its first
//! version on.
//!
//! Only the recovery key can change the list of the vault's keys. A stolen copy of the server's key
//! can therefore be revoked for good.

use std::{path::Path, sync::Arc};

use vault_library::{
    Vault, VaultError, VaultPaths,
    keys::Passphrases,
    recovery::{self, NewRecovery, RecoveryError},
};
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::errors::Failure;

/// Checks that there is no vault yet, and that `file`, for the recovery key, does not exist in an
/// existing folder. An existing vault already has a first version of its keys without a recovery
/// key. Writes nothing.
pub(super) fn check_absent(paths: &VaultPaths, file: &Path) -> Result<(), Failure> {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    match Vault::open(paths.clone(), clock, random) {
        Err(VaultError::Missing(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let root = paths.root.display();
            return Err(fail!(FolderExists, "cannot make a vault with --recovery: {root} is one already").hint(format!(
                "start without --recovery; vault key recovery create {} --vault {root} gives this vault a recovery key",
                file.display()
            )));
        }
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // Report a wrong path now, before the vault is created.
    if let Some(folder) = folder
        && let Err(error) = folder.read_dir()
    {
        return Err(Failure::io("opening", folder, &error));
    }
    // An existing file may hold the recovery key of another vault.
    if file.symlink_metadata().is_ok() {
        return Err(RecoveryError::Exists(file.to_owned()).into());
    }
    Ok(())
}

/// Creates the server's vault and writes its recovery key to `file`. Call [`check_absent`] first.
/// `address` is the address of the vault, which is written beside the key.
pub(super) fn create_vault(
    paths: &VaultPaths,
    passphrases: Arc<dyn Passphrases>,
    file: &Path,
    address: String,
) -> Result<(), Failure> {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let vault = Vault::open_or_create_with(paths.clone(), clock, random, passphrases)?;
    // Nobody has seen the keys of this new vault yet, so their first version can be replaced by one
    // with the recovery key.
    recovery::create_recovery_key(
        &vault,
        None,
        NewRecovery {
            files: vec![file.to_owned()],
            passphrase: None,
            addresses: vec![address],
        },
    )?;
    tracing::info!(
        file = %file.display(),
        "made the vault with a recovery key: keep its file away from this machine"
    );
    Ok(())
}
