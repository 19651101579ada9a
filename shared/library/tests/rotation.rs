//! Tests of key rotation: which rotations devices accept and reject, and what an interrupted
//! rotation leaves.

use crate::support::host::{BASE, Host};
use crate::support::pair::Pair;
use crate::support::{self, Home, name};
use vault_library::adopt::{self, AdoptError};
use vault_library::keys::{self, KeyKind};
use vault_library::publish::{self, OnDivergence, PlanError, PlanRequest};
use vault_library::rotate::{self, RotateError};
use vault_library::subscribe::{self, LinkError, Selection};
use vault_library::{VaultError, integrity, run};
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::rotation::Reason;

fn signers(home: &Home) -> Vec<PublicKey> {
    let mut known = vec![home.vault.keys().public().unwrap()];
    known.extend(
        home.vault
            .rotations()
            .unwrap()
            .iter()
            .rev()
            .map(|statement| statement.from),
    );
    let listing = vault_library::shelf::list(&home.vault).unwrap();
    assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
    listing
        .skills
        .iter()
        .map(|skill| {
            let examined = run::inspect(&home.vault, &skill.name).unwrap().examined;
            *examined.signed.signer(&known).unwrap()
        })
        .collect()
}

fn recovery(home: &Home) -> SecretKey {
    keys::read_file(
        &home.vault.keys().path(KeyKind::Recovery),
        KeyKind::Recovery,
    )
    .unwrap()
}

#[test]
fn a_device_follows_a_rotation_and_manifests_of_the_former_key_stay_good() {
    let mut pair = Pair::new(&["old"], "x");
    pair.pull_all();

    let before = pair.owner.vault.keys().public().unwrap();
    let report = rotate::rotate(&pair.owner.vault).unwrap();
    let after = pair.owner.vault.keys().public().unwrap();
    assert_eq!(
        (report.statement.from, report.statement.to),
        (before, after)
    );
    assert_eq!(
        (
            report.statement.sequence,
            report.statement.effective_release
        ),
        (1, 2)
    );
    assert!(report.signed_again.is_empty());
    pair.owner.add("new", "x");
    assert_eq!(signers(&pair.owner), [after, before]);

    let plan = pair.host.sync(&pair.owner.vault, pair.owner.now()).unwrap();
    assert_eq!(
        (plan.release, plan.added.len(), plan.changed.len()),
        (2, 1, 0)
    );
    let report = pair.pull_all();
    assert_eq!((report.installed.len(), report.unchanged), (1, 1));
    let link = pair.current_link();
    assert_eq!(
        (link.pin().public_key, link.pin().rotation_sequence),
        (Some(after), 1)
    );
    assert!(pair.is_clean());
    // A device that links later trusts the same keys.
    let late = Home::new(3);
    let link = subscribe::create(&late.vault, BASE, &pair.host.slug).unwrap();
    pair.host
        .pull(&late.vault, &link, &Selection::default())
        .unwrap();
    assert!(integrity::check(&late.vault).unwrap().is_clean());
    // A rotation causes a release even if nothing else changed.
    rotate::rotate(&pair.owner.vault).unwrap();
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
    assert!(integrity::check(&late.vault).unwrap().is_clean());
}

#[test]
fn the_chain_is_cut_at_thirty_two_and_what_falls_off_is_signed_again() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("first", "x");
    host.sync(&home.vault, home.now()).unwrap();
    for _ in 0..31 {
        rotate::rotate(&home.vault).unwrap();
    }
    home.add("late", "x");
    assert!(rotate::rotate(&home.vault).unwrap().signed_again.is_empty());
    assert_eq!(home.vault.rotations().unwrap().len(), 32);
    let report = rotate::rotate(&home.vault).unwrap();
    assert_eq!(report.signed_again, [name("first")]);
    assert_eq!(home.vault.rotations().unwrap().len(), 32);
    assert_eq!(
        home.listed().into_iter().collect::<Vec<_>>(),
        [("first".into(), 2), ("late".into(), 1)]
    );
    assert_eq!(signers(&home)[0], home.vault.keys().public().unwrap());
    // A new device can pull from a new namespace. A device that pinned the first key could not
    // follow the shortened chain.
    let mut fresh = Host::new("fresh");
    fresh.sync(&home.vault, home.now()).unwrap();
    let device = Home::new(2);
    let link = subscribe::create(&device.vault, BASE, &fresh.slug).unwrap();
    fresh
        .pull(&device.vault, &link, &Selection::default())
        .unwrap();
    assert!(integrity::check(&device.vault).unwrap().is_clean());
}

#[test]
fn after_a_theft_the_recovery_key_speaks_and_the_thief_is_not_believed() {
    let mut pair = Pair::new(&["tool", "other"], "good");
    pair.pull_all();
    // The thief has the vault and its key and publishes, and the device accepts it: no scheme can
    // prevent this before the rotation.
    let thief = pair.owner.copy();
    let stolen = thief.vault.keys().public().unwrap();
    for number in 0..3 {
        thief.add("tool", &format!("evil {number}"));
        thief.add("backdoor", &format!("evil {number}"));
        pair.host.sync(&thief.vault, thief.now()).unwrap();
    }
    pair.pull_all();
    assert_eq!(pair.host.catalog().release, 4);

    assert!(matches!(
        rotate::recover(&pair.owner.vault, &SecretKey::from_seed([9; 32]), true),
        Err(RotateError::OtherRecoveryKey)
    ));
    let report = rotate::recover(&pair.owner.vault, &recovery(&pair.owner), true).unwrap();
    assert_eq!(
        (report.statement.reason, report.statement.effective_release),
        (Reason::Compromise, 2)
    );
    assert_eq!(report.signed_again, [name("other"), name("tool")]);
    let current = pair.owner.vault.keys().public().unwrap();
    assert_eq!(signers(&pair.owner), [current, current]);

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
    let refused = publish::plan(&pair.owner.vault, &taking);
    assert!(matches!(refused, Err(PlanError::NotOurs(_))), "{refused:?}");
    let theirs = pair.host.current.clone().unwrap();
    let refused = adopt::plan_rollback(&pair.owner.vault, BASE, &pair.host.slug, 4, &theirs);
    assert!(
        matches!(refused, Err(AdoptError::NotOurs(_))),
        "{refused:?}"
    );
    let own = &pair.host.releases[&1];
    adopt::plan_rollback(&pair.owner.vault, BASE, &pair.host.slug, 1, own).unwrap();
    let plan = pair
        .host
        .sync_as(&pair.owner.vault, pair.owner.now(), OnDivergence::Replace)
        .unwrap();
    assert_eq!(plan.release, 2, "the count goes on from before the theft");
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
    let before = support::durable(&pair.device.vault);
    let refused = theirs.pull(&pair.device.vault, &pair.link, &Selection::default());
    assert!(matches!(refused, Err(LinkError::Catalog(_))), "{refused:?}");
    assert_eq!(support::durable(&pair.device.vault), before);
    assert_ne!(stolen, current);
}

/// A device that is not approved only pins. Skills that the stolen key signed and the new catalog
/// does not list are flagged.
#[test]
fn skills_of_a_stolen_key_that_the_new_catalog_does_not_name_are_flagged() {
    let mut pair = Pair::new(&["tool"], "good");
    pair.pull_all();
    rotate::recover(&pair.owner.vault, &recovery(&pair.owner), true).unwrap();
    pair.publish();
    let offer = pair.accept();
    subscribe::pin_only(&pair.device.vault, &offer).unwrap();
    let report = integrity::check(&pair.device.vault).unwrap();
    assert!(!report.is_clean());
    assert!(run::which(&pair.device.vault, &name("tool")).is_err());
    pair.pull_all();
    assert!(pair.is_clean());
}

#[test]
fn a_lost_key_is_replaced_with_the_recovery_key_alone() {
    let mut pair = Pair::new(&["tool"], "x");
    pair.pull_all();
    let seed = recovery(&pair.owner);
    // The configuration folder is lost; only the vault and the recovery key on a USB stick are
    // left.
    std::fs::remove_dir_all(pair.owner.path("config")).unwrap();
    assert!(matches!(
        rotate::rotate(&pair.owner.vault),
        Err(RotateError::Vault(VaultError::Key(_)))
    ));
    let report = rotate::recover(&pair.owner.vault, &seed, false).unwrap();
    assert_eq!(
        (report.statement.reason, report.signed_again.len()),
        (Reason::Loss, 1)
    );
    pair.publish();
    pair.pull_all();
    assert!(pair.is_clean());
    assert!(integrity::check(&pair.owner.vault).unwrap().is_clean());
}

#[test]
fn a_new_recovery_key_is_vouched_for_by_the_old_one() {
    let mut pair = Pair::new(&["tool"], "x");
    pair.pull_all();
    let old = recovery(&pair.owner);
    rotate::replace_recovery(&pair.owner.vault, &old).unwrap();
    let new = recovery(&pair.owner);
    assert_ne!(old.public(), new.public());
    assert_eq!(
        pair.owner.vault.keys().recovery_public().unwrap(),
        Some(new.public())
    );
    pair.publish();
    pair.pull_all();
    let link = pair.current_link();
    assert_eq!(link.pin().recovery_key_sha256, Some(new.public().key_id()));
    assert!(matches!(
        rotate::recover(&pair.owner.vault, &old, true),
        Err(RotateError::OtherRecoveryKey)
    ));
    rotate::recover(&pair.owner.vault, &new, true).unwrap();
    pair.publish();
    pair.pull_all();
    assert!(pair.is_clean());
}

/// Interrupts a rotation at every point, by recreating the intermediate files.
#[test]
fn a_rotation_cut_short_is_completed_or_undone() {
    let home = Home::new(1);
    home.add("tool", "x");
    let keys = home.path("config/keys");
    let id = home.vault.id().to_string();
    let saved = |file: &str| std::fs::read(keys.join(file)).unwrap();
    let (old_secret, old_public) = (saved(&id), saved(&format!("{id}.pub")));
    let before = home.vault.keys().public().unwrap();
    // The new secret is staged but the statement is not written: the rotation is undone.
    std::fs::write(keys.join(format!("{id}.next")), &old_secret).unwrap();
    support::set_mode(&keys.join(format!("{id}.next")), 0o600);
    home.add("tool", "y");
    assert!(!keys.join(format!("{id}.next")).exists());
    assert_eq!(home.vault.keys().public().unwrap(), before);
    // The statement is written but the secret is not in place: the rotation is completed.
    rotate::rotate(&home.vault).unwrap();
    let after = home.vault.keys().public().unwrap();
    let (new_secret, _) = (saved(&id), saved(&format!("{id}.pub")));
    for step in 0..2 {
        if step == 0 {
            std::fs::write(keys.join(format!("{id}.next")), &new_secret).unwrap();
            support::set_mode(&keys.join(format!("{id}.next")), 0o600);
            std::fs::write(keys.join(&id), &old_secret).unwrap();
        }
        // Or the secret is in place but the public key is not.
        std::fs::write(keys.join(format!("{id}.pub")), &old_public).unwrap();
        assert_eq!(home.listed().len(), 1, "readers go on meanwhile");
        home.add("tool", &format!("z{step}"));
        assert_eq!(home.vault.keys().public().unwrap(), after);
        assert_eq!(home.vault.keys().release().unwrap().public(), after);
        assert_eq!(signers(&home), [after]);
    }
}
