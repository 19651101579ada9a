//! Chains of rotations: long, broken, forked, or stated by keys that may not state them.

use vault_skill::dsse::Envelope;
use vault_skill::rotation::{Reason, Rotation};
use vault_tests::home::Home;
use vault_tests::host::{
    Namespace, RECOVERY, chain, entry, key, sign, sign_anything, skill_by, stated, statement,
};

use crate::support::{FIRST, INTEGRITY, Scene};

const NEXT: u64 = FIRST + 1;

impl Scene {
    /// The next release by this key with these statements, `alpha` signed by that key too.
    fn rotated(&self, statements: &[Envelope], signer: u8, release: u64) -> Namespace {
        let bundle = skill_by(signer, "alpha", 3, &[]);
        let entries = [entry("alpha", 3, &bundle)];
        let catalog = self.owner.catalog(release, signer, &entries);
        // By hand: an owner's own tool refuses to sign with too many statements.
        let bytes = sign_anything(&vault_skill::json::to_bytes(&catalog), statements, signer);
        let mut namespace = self.with_catalog(bytes);
        namespace.put(&bundle);
        namespace
    }

    #[track_caller]
    fn followed(&self, name: &str, namespace: Namespace) {
        self.host.serve(namespace);
        let ran = self.machine.run(&["cloud", "pull", "--json"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stdout);
    }
}

#[test]
fn chains_of_up_to_thirty_two_steps_are_followed() {
    for steps in [1, 5, 32] {
        let scene = Scene::new();
        scene.followed(
            &format!("{steps} steps"),
            scene.rotated(&chain(steps, NEXT), steps, NEXT),
        );
        let pin = scene.machine.run(&["status", "--cloud", "--json"]).ok();
        assert!(
            pin.stdout.contains(&key(steps).public().fingerprint()),
            "{}",
            pin.stdout
        );
        // A machine that links only now pins the last key at once.
        let late = Home::new();
        late.run(&[
            "link",
            &scene.host.address(),
            "--expect-key",
            &key(steps).public().fingerprint(),
        ])
        .ok();
        // And the old key is over: with and without the statements.
        let back = scene.rotated(&[], 0, NEXT + 1);
        scene.refused("back without statements", back, INTEGRITY, "catalog_key");
        let back = scene.rotated(&chain(steps, NEXT), 0, NEXT + 1);
        scene.refused("back with the statements", back, INTEGRITY, "catalog_key");
        if steps > 1 {
            let half = scene.rotated(&chain(steps - 1, NEXT), steps - 1, NEXT + 1);
            scene.refused("back by one step", half, INTEGRITY, "catalog_key");
        }
    }
}

#[test]
fn the_thirty_third_step_is_refused() {
    let scene = Scene::new();
    let namespace = scene.rotated(&chain(33, NEXT), 33, NEXT);
    scene.refused("33 steps", namespace.clone(), INTEGRITY, "catalog_rotation");
    // With the oldest left out it is short enough, but does not begin at the pin.
    let namespace = scene.rotated(&chain(33, NEXT)[1..], 33, NEXT);
    scene.refused("the last 32", namespace, INTEGRITY, "catalog_rotation");
    scene.arrives();
}

/// A change to a statement before it is signed.
type Change = fn(&mut Rotation);

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn statements_that_do_not_hold_are_refused() {
    use Reason::{Compromise, Loss, Recovery, Rotation as Plain};
    let scene = Scene::new();
    let good = chain(5, NEXT);
    let plain: Change = |_| {};
    let one = |sequence, from, to, reason, change: Change, signers: &[u8]| {
        let mut statement = statement(sequence, from, to, reason, NEXT);
        change(&mut statement);
        stated(&statement, signers)
    };
    let cases: Vec<(&str, Vec<Envelope>, u8)> = vec![
        (
            "a step missing in the middle",
            [&good[..2], &good[3..]].concat(),
            5,
        ),
        ("the first step missing", good[1..].to_vec(), 5),
        ("newest first", good.iter().rev().cloned().collect(), 5),
        ("one step twice", [&good[..1], &good[..]].concat(), 5),
        (
            "another sequence",
            vec![one(2, 0, 1, Plain, plain, &[0, 1])],
            1,
        ),
        (
            "from another key",
            vec![one(1, 8, 1, Plain, plain, &[8, 1])],
            1,
        ),
        (
            "signed by the old key alone",
            vec![one(1, 0, 1, Plain, plain, &[0])],
            1,
        ),
        (
            "signed by the new key alone",
            vec![one(1, 0, 1, Plain, plain, &[1])],
            1,
        ),
        (
            "signed by a stranger and the new key",
            vec![one(1, 0, 1, Plain, plain, &[9, 1])],
            1,
        ),
        (
            "signed by nobody who must",
            vec![one(1, 0, 1, Plain, plain, &[7, 8, 9])],
            1,
        ),
        (
            "of another vault",
            vec![one(
                1,
                0,
                1,
                Plain,
                |s| s.vault_id = vault_skill::name::VaultId::from_parts(1, 1),
                &[0, 1],
            )],
            1,
        ),
        (
            "not in force yet",
            vec![one(
                1,
                0,
                1,
                Plain,
                |s| s.effective_release = NEXT + 1,
                &[0, 1],
            )],
            1,
        ),
        (
            "in force from release 0",
            vec![one(1, 0, 1, Plain, |s| s.effective_release = 0, &[0, 1])],
            1,
        ),
        ("sequence 0", vec![one(0, 0, 1, Plain, plain, &[0, 1])], 1),
        ("to itself", vec![one(1, 0, 0, Plain, plain, &[0])], 0),
        (
            "a fork",
            vec![
                one(1, 0, 2, Plain, plain, &[0, 2]),
                one(1, 0, 1, Plain, plain, &[0, 1]),
            ],
            1,
        ),
        (
            "a fork, the other way",
            vec![
                one(1, 0, 1, Plain, plain, &[0, 1]),
                one(1, 0, 2, Plain, plain, &[0, 2]),
            ],
            1,
        ),
        (
            "a compromise stated by the old key",
            vec![one(1, 0, 1, Compromise, plain, &[0, 1])],
            1,
        ),
        (
            "a compromise stated by the new key alone",
            vec![one(1, 0, 1, Compromise, plain, &[1])],
            1,
        ),
        (
            "a compromise by another recovery key",
            vec![one(
                1,
                0,
                1,
                Compromise,
                |s| s.recovery_key = Some(key(9).public()),
                &[9, 1],
            )],
            1,
        ),
        (
            "a loss by another recovery key",
            vec![one(
                1,
                0,
                1,
                Loss,
                |s| s.recovery_key = Some(key(9).public()),
                &[9, 1],
            )],
            1,
        ),
        (
            "a new recovery key stated by the release key",
            vec![one(1, 0, 0, Recovery, plain, &[0])],
            0,
        ),
        (
            "a new recovery key by a stranger",
            vec![one(
                1,
                0,
                0,
                Recovery,
                |s| s.recovery_key = Some(key(9).public()),
                &[9, 0],
            )],
            0,
        ),
        (
            "a plain rotation that names a recovery key",
            vec![one(
                1,
                0,
                1,
                Plain,
                |s| s.recovery_key = Some(key(RECOVERY).public()),
                &[0, 1],
            )],
            1,
        ),
        (
            "two recovery-signed statements",
            vec![
                one(1, 0, 1, Loss, plain, &[RECOVERY, 1]),
                one(1, 0, 2, Compromise, plain, &[RECOVERY, 2]),
            ],
            2,
        ),
        (
            "a catalog in place of a statement",
            vec![Envelope::sign(
                "application/vnd.vault.catalog.v1+json",
                b"{}",
                &[&key(0), &key(1)],
            )],
            1,
        ),
        (
            "an empty statement",
            vec![Envelope::sign(
                vault_skill::rotation::PAYLOAD_TYPE,
                b"{}",
                &[&key(0), &key(1)],
            )],
            1,
        ),
    ];
    for (name, statements, signer) in cases {
        let namespace = scene.rotated(&statements, signer, NEXT);
        scene.refused(name, namespace, INTEGRITY, "catalog_rotation");
    }
    // The chain is good, but its end is not the catalog's key.
    let namespace = scene.rotated(&good, 9, NEXT);
    scene.refused("another end", namespace, INTEGRITY, "catalog_key");
    let namespace = scene.rotated(&good, 3, NEXT);
    scene.refused("a key on the way", namespace, INTEGRITY, "catalog_key");
    scene.arrives();
}

#[test]
fn a_changed_bit_in_a_statement_is_refused() {
    let scene = Scene::new();
    let namespace = scene.rotated(&chain(2, NEXT), 2, NEXT);
    let good = namespace.catalog.clone().unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let start = text.find("\"rotations\":").unwrap() + 12;
    let end = text
        .find("],\"payloadType\":\"application/vnd.vault.catalog")
        .unwrap();
    let mut dice = crate::support::Dice::new(3);
    let hints: Vec<_> = text
        .match_indices("\"keyid\":\"")
        .map(|(at, _)| at + 9..at + 73)
        .collect();
    for _ in 0..80 {
        let at = start + dice.below(end - start);
        if hints.iter().any(|hint| hint.contains(&at)) {
            continue;
        }
        let mut bytes = good.clone();
        bytes[at] ^= 1 << dice.below(8);
        scene.host.serve(Namespace {
            catalog: Some(bytes),
            ..namespace.clone()
        });
        let name = format!("byte {at}");
        let before = vault_tests::tree::snapshot(scene.machine.path(), &[]);
        let ran = scene.machine.run(&["cloud", "pull", "--json"]);
        assert_eq!(ran.code, INTEGRITY, "{name}: {}", ran.stdout);
        crate::support::unchanged(&scene.machine, &name, &before);
    }
    scene.followed("the good one", namespace);
}

#[test]
fn a_stolen_key_ends_with_a_word_of_the_recovery_key() {
    for reason in [Reason::Compromise, Reason::Loss] {
        let scene = Scene::new();
        // The thief publishes far ahead, and rotates to a key of its own.
        scene.followed("the thief", scene.rotated(&[], 0, 900));
        let theirs = stated(&statement(1, 0, 9, Reason::Rotation, 901), &[0, 9]);
        scene.followed(
            "the thief's own key",
            scene.rotated(std::slice::from_ref(&theirs), 9, 901),
        );
        // The owner speaks with the recovery key, and goes on where the theft began.
        let word = stated(&statement(1, 0, 1, reason, NEXT), &[RECOVERY, 1]);
        scene.followed(
            "the owner",
            scene.rotated(std::slice::from_ref(&word), 1, NEXT),
        );
        // Nothing of the thief's comes back.
        for (name, statements, signer, code) in [
            ("the stolen key", vec![], 0, "catalog_key"),
            ("its chain", vec![theirs.clone()], 9, "catalog_rotation"),
            ("both", vec![theirs, word.clone()], 9, "catalog_key"),
            (
                "the owner's word, the stolen key",
                vec![word.clone()],
                0,
                "catalog_key",
            ),
        ] {
            let namespace = scene.rotated(&statements, signer, 902);
            scene.refused(name, namespace, INTEGRITY, code);
        }
        // The word again does not reset anything a second time.
        scene.followed(
            "the next",
            scene.rotated(std::slice::from_ref(&word), 1, NEXT + 1),
        );
        let again = scene.rotated(std::slice::from_ref(&word), 1, NEXT);
        scene.refused("the word again", again, INTEGRITY, "catalog_release");
    }
}

#[test]
fn a_replaced_recovery_key_is_the_only_one_that_counts() {
    let scene = Scene::new();
    let replace = stated(&statement(1, 0, 0, Reason::Recovery, NEXT), &[RECOVERY, 0]);
    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.recovery_key_sha256 = Some(key(RECOVERY + 1).public().key_id());
    let bytes = sign(&catalog, std::slice::from_ref(&replace), 0);
    scene.followed("a new recovery key", scene.with_catalog(bytes));

    let old = stated(&statement(2, 0, 1, Reason::Loss, NEXT + 1), &[RECOVERY, 1]);
    let namespace = scene.rotated(&[replace.clone(), old], 1, NEXT + 1);
    scene.refused(
        "the old recovery key",
        namespace,
        INTEGRITY,
        "catalog_rotation",
    );

    let mut word = statement(2, 0, 1, Reason::Loss, NEXT + 1);
    word.recovery_key = Some(key(RECOVERY + 1).public());
    let word = stated(&word, &[RECOVERY + 1, 1]);
    let mut catalog = scene
        .owner
        .catalog(NEXT + 1, 1, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.recovery_key_sha256 = Some(key(RECOVERY + 1).public().key_id());
    let bytes = sign(&catalog, &[replace, word], 1);
    scene.followed("the new recovery key", scene.with_catalog(bytes));
}
