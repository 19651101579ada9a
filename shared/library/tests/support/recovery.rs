//! Making and using recovery keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vault_format::keys::PublicKey;
use vault_library::Vault;
use vault_library::keys::NoPassphrases;
use vault_library::recovery::{self, NewRecovery, RecoveredPlace, RecoveryKey, UseRecovery};
use vault_library::roots::{RootReport, RootsError};
use vault_testing::SeededRandom;

use super::Home;

/// Makes a recovery key on a stick.
pub fn create(home: &mut Home) -> PathBuf {
    let stick = home.path("stick");
    std::fs::create_dir_all(&stick).unwrap();
    let file = stick.join("recovery.json");
    let input = NewRecovery {
        files: vec![file.clone()],
        ..NewRecovery::default()
    };
    home.vault = recovery::create_recovery_key(&home.vault, None, input)
        .unwrap()
        .vault;
    file
}

pub fn open(file: &Path) -> RecoveryKey {
    RecoveryKey::open(file, &NoPassphrases).unwrap()
}

/// Where a home's vault is, or will be.
pub fn place(home: &Home, seed: u64) -> RecoveredPlace {
    RecoveredPlace {
        paths: home.vault.paths().clone(),
        clock: Arc::clone(&home.clock) as _,
        random: Arc::new(SeededRandom::new(seed)),
        passphrases: Arc::new(NoPassphrases),
    }
}

/// Revokes a lost key of the home's vault, and makes a new one there.
pub fn revoke(home: &Home, file: &Path, lost: PublicKey) -> Result<RootReport, RootsError> {
    let mut key = open(file);
    let input = UseRecovery {
        key: &mut key,
        catalog: None,
        at_least: None,
        lost: Some(lost),
        destroyed: false,
        name: None,
    };
    recovery::recover_vault(&place(home, 77), input).map(|(_, report)| report)
}

/// Recovers a vault on a machine that may be empty.
pub fn recover_from(
    place: &RecoveredPlace,
    file: &Path,
    catalog: &[u8],
    destroyed: bool,
) -> Result<(Vault, RootReport), RootsError> {
    let mut key = open(file);
    let input = UseRecovery {
        key: &mut key,
        catalog: Some(catalog),
        at_least: None,
        lost: None,
        destroyed,
        name: None,
    };
    recovery::recover_vault(place, input)
}
