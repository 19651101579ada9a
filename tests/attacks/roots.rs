//! Lists of root versions: long, cut, reordered, forked, or signed by keys that may not sign them;
//! and a thief of a publisher's key before, while and after the owner recovers.

use vault_format::dsse::Envelope;
use vault_format::json::to_bytes;
use vault_format::root::{PAYLOAD_TYPE, RootChain};
use vault_tests::home::Home;
use vault_tests::host::Namespace;
use vault_tests::signed::{
    Owner, RECOVERY, entry, envelopes, first_root, key, named, next_root, revoked, roots_range,
    rotated, sign_anything, skill_by, vault_of,
};

use crate::support::{DIFFERENCES, Dice, FAILED, FIRST, INTEGRITY, Scene, refused, word};

const NEXT: u64 = FIRST + 1;
/// A release far above those of the owner, as a thief makes it.
const FAR: u64 = 900;

impl Scene {
    /// A release by this key under a chain, with `alpha` signed by that key too.
    fn release(&self, chain: &RootChain, signer: u8, release: u64) -> Namespace {
        self.beside(&envelopes(chain), &self.owner.under(chain), signer, release)
    }

    /// A release beside any list of root versions, whatever its owner signs under.
    fn beside(&self, roots: &[Envelope], owner: &Owner, signer: u8, release: u64) -> Namespace {
        // Each is signed now, so a later release has a later version.
        let version = 3 + release.saturating_sub(NEXT);
        let bundle = skill_by(signer, "alpha", version, &[]);
        let catalog = owner.catalog(release, signer, &[entry("alpha", version, &bundle)]);
        let mut namespace = self.with_catalog(sign_anything(&to_bytes(&catalog), roots, signer));
        namespace.put(&bundle);
        namespace
    }

    #[track_caller]
    fn followed(&self, name: &str, namespace: Namespace) {
        followed(self, &self.machine, name, namespace);
    }

    /// A pull that takes root versions and waits for a release under them.
    #[track_caller]
    fn awaited(&self, machine: &Home, name: &str, namespace: Namespace) {
        self.host.serve(namespace);
        let ran = machine.run("cloud pull --json");
        let told = (ran.code, word(&ran));
        assert_eq!(told, (DIFFERENCES, "release_awaited".to_owned()), "{name}");
    }
}

#[track_caller]
fn followed(scene: &Scene, machine: &Home, name: &str, namespace: Namespace) {
    scene.host.serve(namespace);
    let ran = machine.run("cloud pull --json");
    assert_eq!(ran.code, 0, "{name}: {}{}", ran.stdout, ran.stderr);
}

/// The chain after this many rotations, from key 0 to the key of that number.
fn rotations(steps: u8) -> RootChain {
    (0..steps).fold(first_root(), |chain, from| rotated(&chain, from, from + 1))
}

#[test]
fn rotations_are_followed_however_many_were_missed() {
    let fingerprint = first_root().fingerprint().to_string();
    for steps in [1, 5, 40] {
        let scene = Scene::new();
        let chain = rotations(steps);
        scene.followed(
            &format!("{steps} steps"),
            scene.release(&chain, steps, NEXT),
        );
        // A machine that links only now is shown every version, and the root role is still the
        // first.
        let late = Home::new();
        let link = ["link", &scene.host.address(), "--expect-key", &fingerprint];
        late.run(&link).ok();
        // The old key is over: beside the old versions, beside all of them, and under its own root.
        let owner = scene.owner.under(&chain);
        let cut = scene.beside(&envelopes(&first_root()), &owner, 0, NEXT + 1);
        scene.rejects("cut off", cut, "signatures_missing");
        let all = scene.release(&chain, 0, NEXT + 1);
        scene.rejects("beside all", all, "signatures_missing");
        let old = scene.beside(&envelopes(&chain), &scene.owner, 0, NEXT + 1);
        scene.refused("under the old root", old, DIFFERENCES, "release_awaited");
        let rolled_back = scene.release(&first_root(), 0, NEXT + 1);
        scene.rejects(
            "as if nothing had changed",
            rolled_back,
            "signatures_missing",
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn lists_that_do_not_count_are_refused() {
    let scene = Scene::new();
    let chain = rotations(3);
    let good = envelopes(&chain);
    let document = |chain: &RootChain| chain.newest().envelope().payload().to_vec();
    let signed_by = |payload: &[u8], signers: &[u8]| {
        let keys: Vec<_> = signers.iter().map(|number| key(*number)).collect();
        Envelope::sign(PAYLOAD_TYPE, payload, &keys.iter().collect::<Vec<_>>())
    };
    let second = document(&rotations(1));
    let two = |envelope: Envelope| vec![good[0].clone(), envelope];
    let text = |payload: &[u8], from: &str, to: &str| {
        let text = String::from_utf8(payload.to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1).into_bytes()
    };
    let other = envelopes(&vault_of(9, 9));
    let cases = [
        (
            INTEGRITY,
            "root_invalid",
            vec![
                ("no versions", Vec::new()),
                ("the first missing", good[1..].to_vec()),
                (
                    "one missing in the middle",
                    [&good[..1], &good[2..]].concat(),
                ),
                ("newest first", good.iter().rev().cloned().collect()),
                (
                    "two in the other order",
                    vec![
                        good[0].clone(),
                        good[2].clone(),
                        good[1].clone(),
                        good[3].clone(),
                    ],
                ),
                ("the first twice", [&good[..1], &good[..]].concat()),
                ("the last twice", [&good[..], &good[3..]].concat()),
                (
                    "another vault's first version before ours",
                    [&other[..], &good[1..]].concat(),
                ),
                ("signed by a stranger", two(signed_by(&second, &[9]))),
                (
                    "signed by the publishers, old and new",
                    two(signed_by(&second, &[0, 1])),
                ),
                (
                    "of another type",
                    two(Envelope::sign(
                        vault_format::catalog::PAYLOAD_TYPE,
                        &second,
                        &[&key(RECOVERY)],
                    )),
                ),
                (
                    "another number",
                    two(signed_by(
                        &text(&second, "\"version\":2", "\"version\":3"),
                        &[RECOVERY],
                    )),
                ),
                (
                    "of another vault",
                    two(signed_by(
                        &text(
                            &second,
                            first_root().vault_id().as_str(),
                            vault_of(9, 9).vault_id().as_str(),
                        ),
                        &[RECOVERY],
                    )),
                ),
                (
                    "a root role of a stranger that only the stranger signs",
                    two(signed_by(
                        &text(
                            &second,
                            &key(RECOVERY).public().to_string(),
                            &key(9).public().to_string(),
                        ),
                        &[9],
                    )),
                ),
                (
                    "a format to come, signed by a stranger",
                    two(signed_by(
                        &text(&second, "vault.root/1", "vault.root/2"),
                        &[9],
                    )),
                ),
            ],
        ),
        (
            INTEGRITY,
            "vault_changed",
            vec![("another vault's first version", other.clone())],
        ),
        (
            FAILED,
            "newer_vault",
            vec![(
                "a format to come, signed by the root role",
                two(signed_by(
                    &text(&second, "vault.root/1", "vault.root/2"),
                    &[RECOVERY],
                )),
            )],
        ),
    ];
    let owner = scene.owner.under(&chain);
    for (exit, code, cases) in cases {
        for (name, roots) in cases {
            let namespace = scene.beside(&roots, &owner, 3, NEXT);
            scene.refused(name, namespace, exit, code);
        }
    }
    scene.arrives();
}

#[test]
fn a_changed_bit_in_a_new_root_version_is_refused() {
    let scene = Scene::new();
    let namespace = scene.release(&rotations(2), 2, NEXT);
    let good = namespace.catalog.clone().unwrap();
    let known = first_root().newest().envelope().to_bytes().len() + 2;
    let range = roots_range(&good);
    let mut dice = Dice::new(3);
    for _ in 0..80 {
        let at = range.start + known + dice.below(range.len() - known - 1);
        let mut bytes = good.clone();
        bytes[at] ^= 1 << dice.below(8);
        let attack = Namespace {
            catalog: Some(bytes),
            ..namespace.clone()
        };
        scene.host.serve(attack);
        let name = format!("byte {at}");
        let before = vault_tests::tree::snapshot(scene.machine.path(), &[]);
        let ran = scene.machine.run("cloud pull --json");
        assert_eq!(ran.code, INTEGRITY, "{name}: {}", ran.stdout);
        crate::support::unchanged(&scene.machine, &name, &before);
    }
    scene.followed("the good one", namespace);
}

#[test]
fn signatures_that_a_host_takes_from_a_known_version_mean_nothing() {
    let scene = Scene::new();
    let mut roots = envelopes(&rotations(1));
    roots[0] = Envelope::sign(PAYLOAD_TYPE, roots[0].payload(), &[&key(9)]);
    let owner = scene.owner.under(&rotations(1));
    scene.followed("without them", scene.beside(&roots, &owner, 1, NEXT));
    // Who links now has nothing to recognise that version by.
    let late = Home::new();
    late.fails(
        &format!("link {}", scene.host.address()),
        INTEGRITY,
        "root_invalid",
    );
}

#[test]
fn a_stolen_key_ends_with_its_revocation_for_machines_that_saw_either_first() {
    let scene = Scene::new();
    let honest = Home::new();
    honest.run(&format!("link {}", scene.host.address())).ok();
    honest.run("cloud pull").ok();
    // Before: the thief publishes far ahead. One machine follows, the other one is off.
    scene.followed("the thief", scene.release(&first_root(), 0, FAR));
    let chain = revoked(&first_root(), 0, 1);
    // The owner recovers and goes on where the theft began.
    let recovered = scene.release(&chain, 1, NEXT);
    for (name, machine) in [("saw the thief", &scene.machine), ("did not", &honest)] {
        followed(&scene, machine, name, recovered.clone());
        let list = machine.run("skill list").ok();
        assert_eq!(list.json()[0]["version"], 3, "{name}");
    }
    // After: nothing of the thief's comes back, to nobody.
    let owner = scene.owner.under(&chain);
    for machine in [&scene.machine, &honest] {
        for (name, roots, owner, exit, code) in [
            (
                "the old chain",
                &first_root(),
                &scene.owner,
                INTEGRITY,
                "signatures_missing",
            ),
            (
                "the new chain, the old root",
                &chain,
                &scene.owner,
                DIFFERENCES,
                "release_awaited",
            ),
            (
                "the new chain, the new root",
                &chain,
                &owner,
                INTEGRITY,
                "signatures_missing",
            ),
        ] {
            let theirs = scene.beside(&envelopes(roots), owner, 0, FAR + 1);
            scene.host.serve(theirs);
            refused(machine, name, "cloud pull --json", exit, code);
        }
        // The numbers that the thief has used are free again, and go up from the owner's.
        scene.host.serve(recovered.clone());
        machine.run("cloud pull").ok();
    }
    scene.followed("the next", scene.release(&chain, 1, NEXT + 1));
    let again = scene.release(&chain, 1, NEXT);
    scene.rejects("the one before", again, "catalog_release");
}

#[test]
fn a_revocation_counts_before_the_next_release() {
    let scene = Scene::new();
    let chain = revoked(&first_root(), 0, 1);
    // While: the current release beside longer roots. They are taken at once, and what is installed
    // stays.
    let current = scene.beside(&envelopes(&chain), &scene.owner, 0, FIRST);
    scene.awaited(&scene.machine, "roots alone", current);
    let list = scene.machine.run("skill list").expect_code(DIFFERENCES);
    assert!(list.stderr.contains("is revoked"), "{}", list.stderr);
    // From now on the thief's releases are no good, although no other one came.
    let theirs = scene.release(&first_root(), 0, FAR);
    scene.rejects("the thief", theirs, "signatures_missing");
    let theirs = scene.release(&rotated(&first_root(), 0, 9), 9, FAR);
    scene.rejects("a fork", theirs, "root_forked");
    scene.followed("the owner", scene.release(&chain, 1, NEXT));
    // A machine that links while the release is awaited learns of the revocation too.
    let late = Home::new();
    let current = scene.beside(&envelopes(&chain), &scene.owner, 0, FIRST);
    scene.host.serve(current);
    late.run(&format!("link {} --json", scene.host.address()));
    scene.host.serve(scene.release(&first_root(), 0, FAR));
    late.fails("cloud pull", INTEGRITY, "signatures_missing");
}

#[test]
fn a_replaced_recovery_key_is_the_only_one_that_counts() {
    const SECOND: u8 = RECOVERY + 1;
    let scene = Scene::new();
    let replaced = next_root(&first_root(), &[RECOVERY, SECOND], |edit| {
        edit.add_root_key(named(SECOND)).unwrap();
        edit.remove_root_key(&key(RECOVERY).public()).unwrap();
    });
    scene.followed("a new recovery key", scene.release(&replaced, 0, NEXT));
    let payload = {
        let next = next_root(&replaced, &[SECOND], |edit| {
            edit.replace(&key(0).public(), named(1)).unwrap();
        });
        next.newest().envelope().payload().to_vec()
    };
    let mut roots = envelopes(&replaced);
    roots.push(Envelope::sign(PAYLOAD_TYPE, &payload, &[&key(RECOVERY)]));
    let owner = scene.owner.under(&replaced);
    scene.rejects(
        "the old recovery key",
        scene.beside(&roots, &owner, 1, NEXT + 1),
        "root_invalid",
    );
    // On its own fork the old one can still sign, for readers who hold nothing newer.
    let fork = rotated(&rotated(&first_root(), 0, 9), 9, 8);
    scene.rejects(
        "the old recovery key on a fork",
        scene.release(&fork, 8, NEXT + 1),
        "root_forked",
    );
    let next = next_root(&replaced, &[SECOND], |edit| {
        edit.replace(&key(0).public(), named(1)).unwrap();
    });
    scene.followed("the new recovery key", scene.release(&next, 1, NEXT + 1));
}

#[test]
fn a_fork_is_settled_by_a_longer_chain_and_what_was_revoked_stays_revoked() {
    let scene = Scene::new();
    let mine = rotated(&first_root(), 0, 1);
    scene.followed("one version 2", scene.release(&mine, 1, NEXT));
    let other = rotated(&first_root(), 0, 2);
    scene.rejects(
        "the other version 2",
        scene.release(&other, 2, NEXT + 1),
        "root_forked",
    );
    let healed = next_root(&other, &[RECOVERY], |_| {});
    scene.host.serve(scene.release(&healed, 2, NEXT + 1));
    let ran = scene.machine.run("cloud pull --json").ok();
    let warnings = ran.json()["warnings"].to_string();
    assert!(warnings.contains("root_history_differs"), "{warnings}");
    // No longer chain brings back a key that this machine saw revoked.
    let revoking = revoked(&healed, 2, 3);
    scene.followed("a revocation", scene.release(&revoking, 3, NEXT + 2));
    let mut longer = next_root(&healed, &[RECOVERY], |edit| {
        edit.add_publisher(named(4)).unwrap();
    });
    for _ in 0..2 {
        longer = next_root(&longer, &[RECOVERY], |_| {});
    }
    scene.rejects(
        "a longer chain with the revoked key",
        scene.release(&longer, 2, NEXT + 3),
        "root_forked",
    );
}

#[test]
fn a_first_link_is_held_to_the_expected_vault_whatever_else_is_shown() {
    let scene = Scene::new();
    let fingerprint = first_root().fingerprint().to_string();
    let link = [
        "link",
        &scene.host.address(),
        "--expect-key",
        &fingerprint,
        "--json",
    ];
    let theirs = vault_of(9, 9);
    let machine = Home::new();
    for (name, roots, owner, code) in [
        (
            "another vault",
            envelopes(&theirs),
            scene.owner.under(&theirs),
            "vault_changed",
        ),
        (
            "ours behind another's first version",
            [envelopes(&theirs), envelopes(&rotations(1))].concat(),
            scene.owner.under(&rotations(1)),
            "root_invalid",
        ),
        (
            "ours without its first version",
            envelopes(&rotations(1))[1..].to_vec(),
            scene.owner.under(&rotations(1)),
            "root_invalid",
        ),
    ] {
        scene.host.serve(scene.beside(&roots, &owner, 9, FIRST));
        assert_eq!(machine.run(&link).refused(INTEGRITY).code, code, "{name}");
    }
    scene.host.serve(scene.first.clone());
    machine.run(&link).ok();
}
