//! Tests of recovery keys: making and checking them, recovering a vault, and what follows a theft.

use crate::support::host::{BASE, Host};
use crate::support::pair::Pair;
use crate::support::{Home, name, recovery};
use vault_format::catalog::{ReleaseRef, SignedCatalog};
use vault_format::keys::SecretKey;
use vault_format::root::KeyStanding;
use vault_library::adopt;
use vault_library::publish::{self, OnDivergence, Plan, PlanRequest};
use vault_library::recovery::{NewRecovery, RecoveryError};
use vault_library::roots::{self, RootsError};
use vault_library::subscribe::{self, Selection};
use vault_library::trust::{VaultTrust, complete_restored};
use vault_library::{Vault, VaultPaths, integrity, run};
use vault_testing::SeededRandom;

fn trust(vault: &Vault) -> VaultTrust {
    vault.trust().unwrap().unwrap()
}

fn is_clean(home: &Home) -> bool {
    integrity::verify_all_installed(&home.vault)
        .unwrap()
        .is_clean()
}

#[test]
fn a_vault_is_recovered_on_an_empty_machine() {
    for destroyed in [false, true] {
        let mut pair = Pair::new(&["tool"], "good");
        let stick = recovery::create(&mut pair.owner);
        pair.publish();
        pair.pull_all();
        let lost = pair.owner.vault.release_key().unwrap();
        let id = *pair.owner.vault.id();
        let catalog = pair.host.current.clone().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let paths = VaultPaths::new(empty.path().join("vault"), empty.path().join("config"));
        let place = vault_library::recovery::RecoveredPlace {
            paths,
            ..recovery::place(&pair.owner, 55)
        };
        let (vault, report) = recovery::recover_from(&place, &stick, &catalog, destroyed).unwrap();
        assert_eq!(*vault.id(), id);
        assert_eq!(
            (report.changes.added.len(), report.changes.revoked.len()),
            (1, usize::from(!destroyed))
        );
        let standing = trust(&vault).roots().standing(&lost);
        assert_eq!(standing == KeyStanding::Revoked, !destroyed);

        // The skills come from the last good release, which the owner names.
        let stored = pair.current_link().pin().counted.clone().unwrap();
        let request = PlanRequest {
            last_good: Some(ReleaseRef {
                release: stored.release,
                payload_sha256: stored.payload_sha256,
            }),
            ..PlanRequest::new(BASE, &pair.host.slug, Some(&catalog))
        };
        let rollback = adopt::plan_rollback(&vault, &request, 2).unwrap();
        let objects = pair.host.objects.clone();
        let own = adopt::Exceptions {
            strict: true,
            allow: Vec::new(),
            reason: None,
        };
        adopt::roll_back(&vault, &rollback, &own, &|hash| objects.get(hash).cloned()).unwrap();
        let request = PlanRequest {
            on_divergence: OnDivergence::Replace,
            ..request
        };
        let Plan::Publish(plan) = publish::plan_release(&vault, &request).unwrap() else {
            panic!("nothing was planned")
        };
        pair.host.take(&vault, &plan, pair.owner.now());
        assert_eq!(plan.release, 3);
        let report = pair.pull_all();
        assert_eq!((report.updated.len(), report.removed.len()), (1, 0));
        assert!(pair.is_clean());
        // The lost laptop turns up again: it publishes nothing more.
        pair.owner.add("tool", "late");
        assert!(pair.host.plan(&pair.owner.vault).is_err());
        // The file knows the version that its key signed, and needs it.
        let again = recovery::open(&stick);
        assert_eq!(again.file().version, 3);
        let short = recovery::recover_from(&place, &stick, &catalog, destroyed);
        assert!(short.is_ok(), "the trust folder has the longer chain");
    }
}

#[test]
fn a_machine_that_only_links_becomes_the_recovered_vault() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let folder = tempfile::tempdir().unwrap();
    let place = vault_library::recovery::RecoveredPlace {
        paths: VaultPaths::new(folder.path().join("vault"), folder.path().join("config")),
        ..recovery::place(&pair.owner, 55)
    };
    let linked = Vault::open_or_create_for_links(
        place.paths.clone(),
        std::sync::Arc::clone(&place.clock),
        std::sync::Arc::clone(&place.random),
        std::sync::Arc::clone(&place.passphrases),
    )
    .unwrap();
    let link = subscribe::link_vault(&linked, BASE, &pair.host.slug).unwrap();
    pair.host
        .pull(&linked, &link, &Selection::default())
        .unwrap();
    let of_links = place.paths.config.join("vaults").join(linked.id().as_str());
    std::fs::write(of_links.join("disabled.json"), "{}").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(of_links.join("disabled.json"), mode).unwrap();

    let catalog = pair.host.current.clone().unwrap();
    let (vault, report) = recovery::recover_from(&place, &stick, &catalog, false).unwrap();
    assert_eq!(vault.id(), pair.owner.vault.id());
    assert_eq!(report.changes.revoked.len(), 1);
    assert!(!vault.only_holds_links().unwrap() && vault.release_key().is_ok());
    let own = place.paths.config.join("vaults").join(vault.id().as_str());
    assert!(own.join("disabled.json").exists() && !of_links.exists());
    // It is the vault that the next command opens, and it still holds the link.
    let again = Vault::open(
        place.paths.clone(),
        std::sync::Arc::clone(&place.clock),
        std::sync::Arc::clone(&place.random),
    )
    .unwrap();
    assert_eq!(again.id(), vault.id());
    assert_eq!(subscribe::list_links(&again).unwrap().len(), 1);
}

#[test]
fn a_recovery_file_fits_its_own_vault_at_its_own_length_alone() {
    let mut pair = Pair::new(&["tool"], "good");
    let first = pair.host.current.clone().unwrap();
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| vault_library::recovery::RecoveredPlace {
        paths: VaultPaths::new(
            folder.path().join(name).join("vault"),
            folder.path().join(name).join("config"),
        ),
        ..recovery::place(&pair.owner, 55)
    };
    // A host that withholds the version that the key signed.
    let refused = recovery::recover_from(&place("cut"), &stick, &first, false);
    let Err(RootsError::Recovery(RecoveryError::Chain { cause, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(cause.error_code(), "root_rolled_back");
    let other = Pair::new(&["tool"], "good");
    let mut stranger = Home::new(9);
    let foreign = recovery::create(&mut stranger);
    let shown = other.host.current.clone().unwrap();
    let refused = recovery::recover_from(&place("other"), &foreign, &shown, false);
    let Err(RootsError::Recovery(RecoveryError::Chain { cause, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(cause.error_code(), "vault_changed");
    // After another recovery key was made, the old one says nothing.
    let key = recovery::open(&stick);
    let next = pair.owner.path("stick/next.json");
    let input = NewRecovery {
        files: vec![next.clone()],
        ..NewRecovery::default()
    };
    vault_library::recovery::create_recovery_key(&pair.owner.vault, Some(&key), input).unwrap();
    let lost = pair.owner.vault.release_key().unwrap();
    assert!(matches!(
        recovery::revoke(&pair.owner, &stick, lost),
        Err(RootsError::Recovery(RecoveryError::NotInRole(_)))
    ));
    recovery::revoke(&pair.owner, &next, lost).unwrap();
}

/// Nobody has seen the keys of a vault that was never published, so it is made anew: the key of
/// this machine never had the root role.
#[test]
fn a_recovery_key_before_the_first_release_makes_the_vault_anew() {
    let mut home = Home::new(1);
    let added = home.add("tool", "x");
    home.add("removed", "x");
    home.remove("removed", None);
    crate::support::write(&home.path("vault/policy.toml"), "[profiles.all]\n");
    crate::support::approve_all(&home.vault).unwrap();
    let before = *home.vault.id();
    let stick = recovery::create(&mut home);
    let id = *home.vault.id();
    assert_ne!(id, before);
    assert_eq!(home.vault.trust_of(&before).unwrap(), None);
    let chain = trust(&home.vault);
    let key = home.vault.release_key().unwrap();
    assert_eq!(chain.chain().version(), 1);
    assert!(
        !chain
            .chain()
            .ever_named(&SecretKey::from_seed([3; 32]).public())
    );
    assert!(!chain.chain().document().root().contains(&key));
    assert_eq!(home.listed()["tool"], 2);
    assert_ne!(
        run::inspect_skill(&home.vault, name("tool"))
            .unwrap()
            .bundle,
        added.bundle
    );
    assert!(is_clean(&home));
    assert_eq!(*home.again().id(), id);
    // What the owner approved stays in force, and versions go on.
    assert!(vault_library::read_policy(&home.vault).unwrap().is_some());
    assert_eq!(home.add("removed", "y").version, 2);
    // Once published, the vault keeps its id.
    Host::new("acme").sync(&home.vault, home.now()).unwrap();
    let root_key = recovery::open(&stick);
    let input = NewRecovery {
        files: vec![home.path("stick/second.json")],
        ..NewRecovery::default()
    };
    let created = vault_library::recovery::create_recovery_key(&home.vault, Some(&root_key), input);
    assert_eq!(*created.unwrap().vault.id(), id);
}

/// Making the vault anew signs every skill again. What was brought back before, from the history or
/// from among the removed ones, has the owner's signature too.
#[test]
fn a_vault_that_is_made_anew_signs_nothing_that_was_brought_back() {
    let home = Home::new(1);
    home.add("tool", "x");
    let old = home.add("greet", "leaks");
    home.add("greet", "mended");
    let link = home.path("vault/skills/greet");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(format!("../store/{}/files", old.bundle), &link).unwrap();
    std::fs::create_dir(home.path("stick")).unwrap();
    let input = NewRecovery {
        files: vec![home.path("stick/recovery.json")],
        ..NewRecovery::default()
    };
    let created = vault_library::recovery::create_recovery_key(&home.vault, None, input).unwrap();
    let resigned = created.resigned.unwrap();
    assert_eq!(resigned.signed, [name("tool")]);
    assert_eq!(resigned.damaged, [name("greet")]);
    assert!(run::locate_skill(&created.vault, name("greet")).is_err());
    assert!(
        !integrity::verify_all_installed(&created.vault)
            .unwrap()
            .is_clean()
    );
}

#[test]
fn a_recovery_file_lies_nowhere_near_the_keys_and_replaces_nothing() {
    let home = Home::new(1);
    std::fs::create_dir_all(home.path("stick")).unwrap();
    let create = |file: &str| {
        let input = NewRecovery {
            files: vec![home.path("stick/first.json"), home.path(file)],
            ..NewRecovery::default()
        };
        vault_library::recovery::create_recovery_key(&home.vault, None, input).map(|_| ())
    };
    for file in ["vault/key.json", "config/key.json"] {
        assert!(matches!(
            create(file),
            Err(RootsError::Recovery(RecoveryError::Inside(_)))
        ));
    }
    std::fs::write(home.path("stick/taken.json"), "mine").unwrap();
    assert!(matches!(
        create("stick/taken.json"),
        Err(RootsError::Recovery(RecoveryError::Exists(_)))
    ));
    assert!(!home.path("stick/first.json").exists());
    assert_eq!(trust(&home.vault).chain().version(), 1);
}

/// What `recovery::create` is given for these files on the home's stick.
fn files(home: &Home, names: &[&str]) -> NewRecovery {
    std::fs::create_dir_all(home.path("stick")).unwrap();
    NewRecovery {
        files: names
            .iter()
            .map(|name| home.path("stick").join(name))
            .collect(),
        ..NewRecovery::default()
    }
}

/// A run that was killed after it wrote its first file: it was made by a copy of the vault, which
/// is then forgotten.
fn cut_short(home: &Home, file: &str) {
    let copy = home.copy();
    let random = std::sync::Arc::new(SeededRandom::new(4711));
    let clock = std::sync::Arc::clone(&home.clock);
    let vault = Vault::open(copy.vault.paths().clone(), clock, random).unwrap();
    vault_library::recovery::create_recovery_key(&vault, None, files(home, &[file])).unwrap();
}

#[test]
fn a_recovery_key_whose_making_was_cut_short_is_made_with_the_same_files() {
    for is_published in [false, true] {
        let home = Home::new(1);
        home.add("tool", "x");
        if is_published {
            Host::new("acme").sync(&home.vault, home.now()).unwrap();
        }
        cut_short(&home, "one");
        let left = recovery::open(&home.path("stick/one")).file().key.public();
        let both = files(&home, &["one", "two"]);
        let created =
            vault_library::recovery::create_recovery_key(&home.vault, None, both).unwrap();
        let chain = trust(&created.vault).chain().clone();
        assert_eq!(chain.document().root().keys(), [left]);
        assert_eq!(chain.version(), if is_published { 2 } else { 1 });
        for file in ["stick/one", "stick/two"] {
            let key = recovery::open(&home.path(file));
            key.check_role(&chain, None).unwrap();
            assert_eq!(key.file().version, chain.version());
        }
        // Given once more, nothing changes; a third file becomes another copy.
        let all = files(&home, &["one", "two", "three"]);
        let again =
            vault_library::recovery::create_recovery_key(&created.vault, None, all).unwrap();
        assert_eq!(trust(&again.vault).chain(), &chain);
        assert_eq!(
            (again.report.changes.from, again.report.changes.to),
            (chain.version(), chain.version())
        );
        recovery::open(&home.path("stick/three"))
            .check_role(&chain, None)
            .unwrap();
        assert!(
            integrity::verify_all_installed(&again.vault)
                .unwrap()
                .is_clean()
        );
    }
}

#[test]
fn a_file_of_another_vault_or_of_the_present_key_is_never_taken_for_a_new_one() {
    let mut other = Home::new(9);
    let theirs = recovery::create(&mut other);
    for is_published in [false, true] {
        let home = Home::new(1);
        if is_published {
            home.add("tool", "x");
            Host::new("acme").sync(&home.vault, home.now()).unwrap();
        }
        let input = files(&home, &["one"]);
        std::fs::copy(&theirs, home.path("stick/one")).unwrap();
        let before = std::fs::read(&theirs).unwrap();
        let refused = vault_library::recovery::create_recovery_key(&home.vault, None, input);
        assert!(
            matches!(refused, Err(RootsError::Recovery(RecoveryError::Exists(_)))),
            "{refused:?}"
        );
        assert_eq!(std::fs::read(home.path("stick/one")).unwrap(), before);
    }
    let present = recovery::open(&theirs);
    let input = NewRecovery {
        files: vec![theirs],
        ..NewRecovery::default()
    };
    let refused = vault_library::recovery::create_recovery_key(&other.vault, Some(&present), input);
    assert!(matches!(
        refused,
        Err(RootsError::Recovery(RecoveryError::Exists(_)))
    ));
}

/// A machine that recovers is killed when the new version is stored and its key is not yet in use:
/// the next run puts the key into use, and revokes nothing but the lost one.
#[test]
fn a_recovery_that_was_cut_short_goes_on_with_its_own_key() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let catalog = pair.host.current.clone().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let paths = VaultPaths::new(empty.path().join("vault"), empty.path().join("config"));
    let place = vault_library::recovery::RecoveredPlace {
        paths,
        ..recovery::place(&pair.owner, 55)
    };
    let (vault, _) = recovery::recover_from(&place, &stick, &catalog, false).unwrap();
    let new = vault.release_key().unwrap();
    let path = vault.keys().path(&new);
    std::fs::rename(&path, path.with_extension("next")).unwrap();
    std::fs::remove_file(empty.path().join("vault/vault.json")).unwrap();
    let (vault, _) = recovery::recover_from(&place, &stick, &catalog, false).unwrap();
    assert_eq!(vault.release_key().unwrap(), new);
    assert_eq!(trust(&vault).chain().version(), 3);
}

#[test]
fn a_recovery_key_is_to_be_checked_once_a_year() {
    const DAY: i64 = 86_400;
    let due = |vault: &Vault| vault_library::recovery::check_due(vault).unwrap();
    let mut home = Home::new(1);
    home.clock.advance(400 * DAY);
    assert_eq!(due(&home.vault), None, "there is no recovery key");
    let stick = recovery::create(&mut home);
    let made_at = home.now();
    home.clock.advance(364 * DAY);
    assert_eq!(due(&home.vault), None);
    home.clock.advance(DAY);
    assert_eq!(due(&home.vault), Some(made_at));
    // A check without the right file changes nothing.
    let mut other = Home::new(9);
    let theirs = recovery::open(&recovery::create(&mut other));
    assert!(vault_library::recovery::check_recovery_key(&home.vault, &theirs, None).is_err());
    assert_eq!(due(&home.vault), Some(made_at));
    vault_library::recovery::check_recovery_key(&home.vault, &recovery::open(&stick), None)
        .unwrap();
    assert_eq!(due(&home.vault), None);
    home.clock.advance(365 * DAY);
    assert!(due(&home.vault).is_some());
    // A machine that can't publish is not asked.
    for key in home.vault.keys().list().unwrap() {
        std::fs::remove_file(home.vault.keys().path(&key)).unwrap();
    }
    assert_eq!(due(&home.vault), None);
}

/// The recovery file knows a version that a restored copy of the vault lacks.
#[test]
fn an_older_copy_of_the_vault_signs_no_rival_version() {
    let mut home = Home::new(1);
    let stick = recovery::create(&mut home);
    let older = home.copy();
    roots::rotate_key(&home.vault, Some(&mut recovery::open(&stick)), None).unwrap();
    let refused = roots::rotate_key(&older.vault, Some(&mut recovery::open(&stick)), None);
    let Err(RootsError::Recovery(RecoveryError::Chain { cause, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(cause.error_code(), "root_rolled_back");
    assert_eq!(trust(&older.vault).chain().version(), 1);
}

/// A host that shows an older list of keys, and a copy of the recovery file from before its change.
#[test]
fn what_a_link_has_seen_is_not_replaced_by_a_recovery() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let (older, second) = (
        pair.host.current.clone().unwrap(),
        stick.with_extension("2"),
    );
    std::fs::copy(&stick, &second).unwrap();
    let mut key = recovery::open(&stick);
    roots::rotate_key(&pair.owner.vault, Some(&mut key), None).unwrap();
    pair.publish();
    pair.pull_all();
    let id = *pair.owner.vault.id();
    let known = pair.device.vault.trust_of(&id).unwrap().unwrap();
    let place = vault_library::recovery::RecoveredPlace {
        paths: VaultPaths::new(
            pair.device.path("another"),
            pair.device.vault.paths().config.clone(),
        ),
        ..recovery::place(&pair.device, 55)
    };
    let (vault, _) = recovery::recover_from(&place, &second, &older, false).unwrap();
    let version = trust(&vault).chain().version();
    assert_eq!(version, known.chain().version() + 1, "no rival of it");
}

/// A device that never installed the skill has no manifest that says who raised its version.
#[test]
fn a_device_without_a_thief_s_skill_takes_the_owner_s_lower_version() {
    let mut pair = Pair::new(&["tool", "other"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let selection = Selection {
        skills: vec![name("other")],
        ..Selection::default()
    };
    pair.pull(&selection).unwrap();
    let thief = pair.owner.copy();
    let stolen = thief.vault.release_key().unwrap();
    for number in 0..4 {
        thief.add("tool", &format!("evil {number}"));
        pair.host.sync(&thief.vault, thief.now()).unwrap();
    }
    pair.pull(&selection).unwrap();
    recovery::revoke(&pair.owner, &stick, stolen).unwrap();
    roots::sign_again(&pair.owner.vault).unwrap();
    pair.host
        .sync_as(&pair.owner.vault, pair.owner.now(), OnDivergence::Replace)
        .unwrap();
    let report = pair.pull(&selection).unwrap();
    assert_eq!(report.release, 3);
    assert!(pair.is_clean());
}

#[test]
fn what_a_revoked_key_published_since_the_last_good_release_is_listed() {
    let mut pair = Pair::new(&["tool", "other"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    let good = stored(&pair.host, 2);
    let thief = pair.owner.copy();
    let stolen = thief.vault.release_key().unwrap();
    thief.add("tool", "evil");
    pair.host.sync(&thief.vault, thief.now()).unwrap();
    thief.add("backdoor", "evil");
    thief.remove("other", Some("gone"));
    pair.host.sync(&thief.vault, thief.now()).unwrap();
    recovery::revoke(&pair.owner, &stick, stolen).unwrap();
    let mut catalogs: Vec<_> = pair.host.releases.values().cloned().collect();
    catalogs.push(b"{}".to_vec());
    let request = PlanRequest::new(BASE, &pair.host.slug, None);
    let shown = publish::review_catalogs(&pair.owner.vault, &request, &catalogs).unwrap();
    let of = |review: &publish::Review| -> Vec<(String, Option<u64>, u64)> {
        let suspects = review.suspects.iter();
        suspects
            .map(|one| (one.name.to_string(), one.version, one.release))
            .collect()
    };
    let expected = [
        ("backdoor".to_owned(), Some(1), 4),
        ("other".to_owned(), None, 4),
        ("tool".to_owned(), Some(2), 3),
    ];
    // This machine knows its own releases; elsewhere the owner names the last good one.
    assert_eq!((of(&shown), shown.last_good), (expected.to_vec(), Some(2)));
    assert_eq!(shown.releases.len(), 4);
    assert_eq!(shown.refused.len(), 1);
    let known: Vec<_> = shown
        .releases
        .iter()
        .map(|one| (one.known, one.by_revoked))
        .collect();
    assert_eq!(known[2..], [(false, true), (false, true)]);
    let elsewhere = PlanRequest {
        last_good: Some(good),
        ..request.clone()
    };
    let shown = publish::review_catalogs(&pair.owner.vault, &elsewhere, &catalogs).unwrap();
    assert_eq!((of(&shown), shown.contradicts), (expected.to_vec(), false));
    // A service that shows another payload under that number is found out.
    let other = ReleaseRef { release: 3, ..good };
    let contradicted = PlanRequest {
        last_good: Some(other),
        ..request
    };
    let shown = publish::review_catalogs(&pair.owner.vault, &contradicted, &catalogs).unwrap();
    assert!(shown.contradicts && shown.suspects.is_empty());
}

/// The number and payload of a release of the host.
fn stored(host: &Host, release: u64) -> ReleaseRef {
    let file = SignedCatalog::parse(&host.releases[&release]).unwrap();
    ReleaseRef {
        release,
        payload_sha256: file.payload_sha256(),
    }
}

#[test]
fn a_linked_machine_gets_the_keys_of_a_backup_and_no_older_root_version() {
    for has_newer in [false, true] {
        let mut pair = Pair::new(&["tool"], "good");
        let backup = pair.owner.copy();
        if has_newer {
            roots::rotate_key(&pair.owner.vault, None, None).unwrap();
            pair.publish();
        }
        pair.pull_all();
        let id = *pair.owner.vault.id();
        let (config, restored) = (pair.device.path("config"), backup.path("config"));
        complete_restored(&config, &restored, &id).unwrap();
        // Again changes nothing.
        complete_restored(&config, &restored, &id).unwrap();
        let of = |path: &std::path::Path| path.join("vaults").join(id.as_str());
        for name in ["own-skills.json", "releases", "keys"] {
            assert!(of(&config).join(name).exists(), "{name}");
        }
        let known = pair.device.vault.trust_of(&id).unwrap().unwrap();
        assert_eq!(known.chain().version(), 1 + u64::from(has_newer));
        let paths = VaultPaths::new(backup.path("vault"), config);
        let place = recovery::place(&backup, 55);
        let vault = Vault::open(paths, place.clock, place.random).unwrap();
        assert_eq!(trust(&vault), known);
        assert_eq!(vault.release_key().is_ok(), !has_newer);
    }
}
