//! Tests of opening and creating vaults.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use vault_testing::SeededRandom;
use vault_testing::TestClock;

use super::*;

fn open(home: &Path, seed: u64) -> Vault {
    try_open(home, seed).unwrap()
}

fn try_open(home: &Path, seed: u64) -> Result<Vault, VaultError> {
    let paths = VaultPaths::new(home.join("vault"), home.join("config/vault"));
    let clock = Arc::new(TestClock::default());
    Vault::open_or_create(paths, clock, Arc::new(SeededRandom::new(seed)))
}

#[test]
fn a_vault_is_made_once_with_its_keys_and_keeps_its_id() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path(), 1);
    let again = open(home.path(), 2);
    assert_eq!(first.id(), again.id());
    assert_eq!(first.release_key().unwrap(), again.release_key().unwrap());
    let trust = first.trust().unwrap().unwrap();
    assert_eq!(trust.chain().vault_id(), *first.id());
    let document = trust.chain().document();
    assert_eq!(document.root().keys(), document.release().keys());
    assert_eq!(document.release().keys(), [first.release_key().unwrap()]);
}

fn open_for_links(home: &Path) -> Vault {
    try_open_for_links(home).unwrap()
}

fn try_open_for_links(home: &Path) -> Result<Vault, VaultError> {
    let paths = VaultPaths::new(home.join("vault"), home.join("config/vault"));
    let clock = Arc::new(TestClock::default());
    let random = Arc::new(SeededRandom::new(9));
    let passphrases = Arc::new(NoPassphrases);
    Vault::open_or_create_for_links(paths, clock, random, passphrases)
}

/// Puts the vault into the state that a kill during its creation leaves, before the trust folder
/// has recorded which vault the folder contains.
fn interrupt_creation(vault: &Vault) {
    let root = &vault.paths().root;
    std::fs::write(root.join("creating"), vault.id().as_str()).unwrap();
    std::fs::remove_file(root.join("vault.json")).unwrap();
    std::fs::remove_dir_all(vault.paths().config.join("folders")).unwrap();
}

#[test]
fn a_vault_for_links_has_no_key_until_it_gets_skills_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let links = open_for_links(home.path());
    assert!(links.only_holds_links().unwrap());
    assert!(links.keys().list().unwrap().is_empty());
    assert!(matches!(links.release_key(), Err(VaultError::ForLinks(_))));
    assert_eq!(open_for_links(home.path()).id(), links.id());
    let own = open(home.path(), 2);
    assert_ne!(own.id(), links.id());
    assert!(!own.only_holds_links().unwrap() && own.release_key().is_ok());
    assert_eq!(links.trust_of(links.id()).unwrap(), None, "it is forgotten");
    assert_eq!(open_for_links(home.path()).id(), own.id());
}

#[test]
fn a_note_of_an_interrupted_creation_removes_no_trust() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path(), 1);
    let root = &first.paths().root;
    // An attacker who can write to the folder makes its creation look interrupted.
    for own in [false, true] {
        std::fs::write(root.join("creating"), first.id().as_str()).unwrap();
        let format = std::fs::read(root.join("vault.json")).unwrap();
        std::fs::remove_file(root.join("vault.json")).unwrap();
        let again = if own {
            try_open(home.path(), 2)
        } else {
            try_open_for_links(home.path())
        };
        assert!(matches!(again, Err(VaultError::Swapped(_))), "{own}");
        assert!(first.release_key().is_ok());
        std::fs::write(root.join("vault.json"), format).unwrap();
        assert_eq!(open(home.path(), 2).id(), first.id());
    }
}

#[test]
fn an_id_of_a_vault_without_keys_here_is_not_the_owners() {
    let home = tempfile::tempdir().unwrap();
    let (own, other) = (open(home.path(), 1), tempfile::tempdir().unwrap());
    let linked = open(other.path(), 2);
    // Give this machine what it knows of a linked vault: the root versions, but no keys.
    let known = linked.trust().unwrap().unwrap();
    own.change_trust(linked.id(), |_| Ok::<_, VaultError>(known))
        .unwrap();
    let format = own.paths().root.join("vault.json");
    let text = std::fs::read_to_string(&format).unwrap();
    let text = text.replace(own.id().as_str(), linked.id().as_str());
    std::fs::write(&format, text).unwrap();
    let noticed = try_open(home.path(), 3);
    assert!(matches!(noticed, Err(VaultError::Swapped(_))));
    // Without a record of the vault in the folder, the vault opens, but its keys are not trusted.
    std::fs::remove_dir_all(own.paths().config.join("folders")).unwrap();
    let spoofed = open(home.path(), 3);
    assert_eq!(spoofed.id(), linked.id());
    assert_eq!(spoofed.trust().unwrap(), None);
    assert!(matches!(
        spoofed.release_key(),
        Err(VaultError::Untrusted(_))
    ));
}

#[test]
fn an_interrupted_creation_goes_on_with_the_same_keys() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("vault");
    let first = open(home.path(), 1);
    interrupt_creation(&first);
    let again = open(home.path(), 2);
    assert_eq!(first.id(), again.id());
    assert_eq!(first.release_key().unwrap(), again.release_key().unwrap());
    assert!(!root.join("creating").exists());
    // Keys without a root version are replaced, because no other machine has seen them.
    interrupt_creation(&again);
    let trust = folder::vault_folder(&first.paths().config, first.id());
    std::fs::remove_file(trust.path_of("trust.json")).unwrap();
    let other = open(home.path(), 2);
    assert_ne!(first.id(), other.id());
    assert!(!trust.path().exists());
}

#[test]
fn a_copy_without_its_trust_folder_opens_but_signs_nothing() {
    let home = tempfile::tempdir().unwrap();
    let vault = open(home.path(), 1);
    std::fs::remove_dir_all(home.path().join("config/vault")).unwrap();
    assert_eq!(vault.trust().unwrap(), None);
    assert!(matches!(
        vault.release_signer(),
        Err(VaultError::Untrusted(_))
    ));
}

#[test]
fn of_many_that_start_at_once_one_makes_it() {
    let home = tempfile::tempdir().unwrap();
    let ids: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|seed| {
                let home = home.path();
                scope.spawn(move || open(home, seed).id().to_string())
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(ids.len(), 1);
}

#[test]
fn who_opens_it_during_a_change_of_id_takes_it_for_no_other_vault() {
    // A reader meets the change only by chance, so try often enough.
    for _ in 0..100 {
        let home = tempfile::tempdir().unwrap();
        let (path, done) = (home.path(), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let (clock, random) = (TestClock::default(), SeededRandom::new(1));
                        let paths = VaultPaths::new(path.join("vault"), path.join("config/vault"));
                        match Vault::open(paths, Arc::new(clock), Arc::new(random)) {
                            Ok(_) | Err(VaultError::Missing(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let made = try_open_for_links(path).and_then(|_| try_open(path, 2));
            done.store(true, Ordering::Relaxed);
            made.unwrap();
        });
    }
}

#[test]
fn a_later_or_damaged_format_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let vault = open(home.path(), 1);
    let path = vault.paths().root.join("vault.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("/2", "/1")).unwrap();
    let earlier = Vault::open(
        vault.paths().clone(),
        Arc::new(TestClock::default()),
        Arc::new(SeededRandom::new(1)),
    );
    assert!(matches!(earlier, Err(VaultError::Earlier { .. })));
    for bad in [text.replace("/2", "/3"), "[]".to_owned(), String::new()] {
        std::fs::write(&path, bad).unwrap();
        let refused = Vault::open(
            vault.paths().clone(),
            Arc::new(TestClock::default()),
            Arc::new(SeededRandom::new(1)),
        );
        assert!(matches!(refused, Err(VaultError::Format { .. })));
    }
}

#[test]
fn keys_never_lie_inside_the_vault() {
    let home = tempfile::tempdir().unwrap();
    let paths = VaultPaths::new(home.path(), home.path().join("config"));
    let refused = Vault::open_or_create(
        paths,
        Arc::new(TestClock::default()),
        Arc::new(SeededRandom::new(1)),
    );
    assert!(matches!(refused, Err(VaultError::KeysInside(_))));
}

#[test]
fn the_generation_is_odd_only_during_a_change() {
    let home = tempfile::tempdir().unwrap();
    let vault = open(home.path(), 1);
    assert_eq!(vault.generation().unwrap(), 0);
    drop(vault.begin_change().unwrap());
    assert_eq!(vault.generation().unwrap(), 0, "a lock is no change");
    let mut change = vault.begin_change().unwrap();
    change.mark_changing().unwrap();
    assert_eq!(vault.generation().unwrap(), 1);
    change.mark_changing().unwrap();
    drop(change);
    assert_eq!(vault.generation().unwrap(), 2);
    std::fs::write(vault.paths().root.join("generation"), "3").unwrap();
    drop(vault.begin_change().unwrap());
    assert_eq!(vault.generation().unwrap(), 4, "a killed change is settled");
}
