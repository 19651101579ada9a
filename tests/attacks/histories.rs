//! Versions, releases and histories that do not fit together: skills that go back, a thief's high
//! numbers, two payloads under one number, and one vault that two hosts show differently.

use vault_format::bundle::EncodedBundle;
use vault_format::catalog::ReleaseRef;
use vault_format::hash::Digest;
use vault_format::json::to_bytes;
use vault_format::root::RootChain;
use vault_tests::home::{Home, Ran};
use vault_tests::host::{Host, Namespace};
use vault_tests::signed::{
    Owner, RECOVERY, entry, envelopes, first_root, named, next_root, revoked, rotated,
    sign_anything, skill_by,
};

use crate::support::{DIFFERENCES, FIRST, INTEGRITY, Scene};

const NEXT: u64 = FIRST + 1;
/// The highest number that there is.
const HIGHEST: u64 = (1 << 53) - 1;

/// A release of skills, each with its version and the key that signed it, under a chain and by a
/// key.
fn release(
    owner: &Owner,
    chain: &RootChain,
    (signer, number): (u8, u64),
    skills: &[(&str, u64, u8)],
) -> Namespace {
    let bundles: Vec<_> = skills
        .iter()
        .map(|(name, version, by)| (name, *version, skill_by(*by, name, *version, &[])))
        .collect();
    let entries: Vec<_> = bundles
        .iter()
        .map(|(name, version, bundle)| entry(name, *version, bundle))
        .collect();
    let catalog = owner.under(chain).catalog(number, signer, &entries);
    let file = sign_anything(&to_bytes(&catalog), &envelopes(chain), signer);
    let bundles: Vec<_> = bundles.iter().map(|(.., bundle)| bundle).collect();
    Namespace::new(file, &bundles)
}

#[track_caller]
fn pulls(machine: &Home, host: &Host, namespace: Namespace, more: &[&str]) -> Ran {
    host.serve(namespace);
    let ran = machine.run(&[&["cloud", "pull", "--json"], more].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    ran
}

/// A pull that ends so and installs nothing; root versions that count are taken all the same.
#[track_caller]
fn refuses(machine: &Home, host: &Host, namespace: Namespace, code: &str, more: &[&str]) {
    host.serve(namespace);
    let before = installed(machine);
    machine
        .run(&[&["cloud", "pull", "--json"], more].concat())
        .fails(INTEGRITY, code);
    assert_eq!(installed(machine), before);
}

/// What a machine has installed, by its links.
fn installed(machine: &Home) -> Vec<String> {
    let all = vault_tests::tree::snapshot(&machine.vault().join("links"), &[]);
    let links = all.into_iter().filter_map(|(path, entry)| match entry {
        vault_tests::tree::Entry::Link(target) => Some(format!("{path} {target}")),
        _ => None,
    });
    links.collect()
}

#[test]
fn a_skill_goes_back_only_where_the_key_that_signed_the_higher_version_counts_no_more() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let first = first_root();
    let offer = |chain: &RootChain, by: (u8, u64), version: u64, signer: u8| {
        release(owner, chain, by, &[("alpha", version, signer)])
    };
    pulls(machine, host, offer(&first, (0, NEXT), 7, 0), &[]);
    let back = offer(&first, (0, NEXT + 1), 6, 0);
    refuses(machine, host, back, "skill_rolled_back", &[]);
    // A key that is retired signed what it signed.
    let retired = rotated(&first, 0, 1);
    let back = offer(&retired, (1, NEXT + 1), 6, 1);
    refuses(machine, host, back, "skill_rolled_back", &[]);
    pulls(machine, host, offer(&retired, (1, NEXT + 1), 8, 1), &[]);
    // A thief with the new key counts up; once the key is revoked, its numbers bind nobody.
    let high = offer(&retired, (1, NEXT + 2), 900_000, 1);
    pulls(machine, host, high, &[]);
    let ended = revoked(&retired, 1, 2);
    let owners = offer(&ended, (2, NEXT + 2), 9, 2);
    pulls(machine, host, owners, &[]);
    let back = offer(&ended, (2, NEXT + 3), 8, 2);
    refuses(machine, host, back, "skill_rolled_back", &[]);
}

#[test]
fn no_version_of_a_skill_has_two_contents() {
    let scene = Scene::new();
    let (machine, host) = (&scene.machine, &scene.host);
    let with = |number: u64, version: u64, more: &[(&str, &[u8])]| {
        let alpha = skill_by(0, "alpha", version, more);
        let file = scene
            .owner
            .signed(number, 0, &[entry("alpha", version, &alpha)]);
        Namespace::new(file, &[&alpha])
    };
    pulls(machine, host, with(NEXT, 7, &[]), &[]);
    let twice = with(NEXT + 1, 7, &[("more.md", b"More.\n")]);
    refuses(machine, host, twice, "skill_rolled_back", &[]);
    let next = with(NEXT + 1, 8, &[("more.md", b"More.\n")]);
    pulls(machine, host, next, &[]);
}

/// A release that removes a skill, a selection without it and a vault folder that is lost do not
/// make the machine forget which version it had.
#[test]
fn a_skill_that_the_machine_no_longer_has_comes_back_above_the_version_that_it_had() {
    type Leave = fn(&Scene, Namespace);
    let (two, three) = (skill_by(0, "alpha", 2, &[]), skill_by(0, "alpha", 3, &[]));
    let beta = skill_by(0, "beta", 1, &[]);
    let offer = |scene: &Scene, number: u64, alpha: Option<(u64, &EncodedBundle)>| {
        let alpha = alpha.map(|(version, bundle)| ("alpha", version, bundle));
        let skills = alpha.into_iter().chain([("beta", 1, &beta)]);
        let (entries, bundles): (Vec<_>, Vec<_>) = skills
            .map(|(name, version, bundle)| (entry(name, version, bundle), bundle))
            .unzip();
        Namespace::new(scene.owner.signed(number, 0, &entries), &bundles)
    };
    let removed: Leave = |scene, without| {
        pulls(&scene.machine, &scene.host, without, &[]);
    };
    let not_selected: Leave = |scene, _| {
        scene.machine.run("cloud pull --skill beta --yes").ok();
    };
    let folder_lost: Leave = |scene, _| {
        std::fs::remove_dir_all(scene.machine.vault().join("links")).unwrap();
        let linked = scene
            .machine
            .run(&["link", &scene.host.address(), "--json"]);
        assert_eq!(linked.code, 0, "{linked:?}");
    };
    for leave in [removed, not_selected, folder_lost] {
        let scene = Scene::new();
        let (machine, host) = (&scene.machine, &scene.host);
        pulls(machine, host, offer(&scene, NEXT, Some((3, &three))), &[]);
        leave(&scene, offer(&scene, NEXT + 1, None));
        let lower = offer(&scene, NEXT + 2, Some((2, &two)));
        refuses(machine, host, lower, "skill_rolled_back", &[]);
        let same = offer(&scene, NEXT + 2, Some((3, &three)));
        pulls(machine, host, same, &["--all"]);
        assert!(
            installed(machine)
                .iter()
                .any(|it| it.contains("skills/alpha "))
        );
        let lower = offer(&scene, NEXT + 3, Some((2, &two)));
        refuses(machine, host, lower, "skill_rolled_back", &[]);
    }
}

/// What a machine never installed cannot go back: it holds no manifest of the higher version.
#[test]
fn a_thief_s_version_of_a_skill_that_was_not_selected_binds_nobody() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let selected = ["--skill", "alpha"];
    let skills = [("alpha", 2, 0), ("beta", HIGHEST, 0)];
    let thief = release(owner, &first_root(), (0, NEXT), &skills);
    pulls(machine, host, thief, &selected);
    let chain = revoked(&first_root(), 0, 1);
    let skills = [("alpha", 3, 1), ("beta", 2, 1)];
    let owners = release(owner, &chain, (1, NEXT), &skills);
    pulls(machine, host, owners, &selected);
    // Nor does it bind where the other publisher signed the release, and took the thief's skill
    // into it.
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let two = next_root(&first_root(), &[RECOVERY], |edit| {
        edit.add_publisher(named(3)).unwrap();
    });
    let skills = [("alpha", 2, 3), ("beta", HIGHEST, 0)];
    pulls(
        machine,
        host,
        release(owner, &two, (3, NEXT), &skills),
        &selected,
    );
    let chain = revoked(&two, 0, 1);
    let skills = [("alpha", 3, 3), ("beta", 2, 3)];
    let owners = release(owner, &chain, (3, NEXT + 1), &skills);
    pulls(machine, host, owners, &selected);
}

#[test]
fn what_a_history_that_was_given_up_published_is_not_compared() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let mine = rotated(&first_root(), 0, 1);
    let skills = [("alpha", 50, 1)];
    pulls(
        machine,
        host,
        release(owner, &mine, (1, NEXT + 9), &skills),
        &[],
    );
    let other = rotated(&first_root(), 0, 2);
    let skills = [("alpha", 3, 2)];
    let rival = release(owner, &other, (2, NEXT + 10), &skills);
    refuses(machine, host, rival, "root_forked", &[]);
    // The owner heals the other one. Key 1 is unknown in it.
    let healed = next_root(&other, &[RECOVERY], |_| {});
    let ran = pulls(
        machine,
        host,
        release(owner, &healed, (2, NEXT), &skills),
        &[],
    );
    let warnings = ran.json()["warnings"].to_string();
    assert!(warnings.contains("root_history_differs"), "{warnings}");
    // The history that was given up is a fork from then on.
    let skills = [("alpha", 51, 1)];
    let back = release(owner, &mine, (1, NEXT + 11), &skills);
    refuses(machine, host, back, "root_forked", &[]);
}

#[test]
fn a_release_that_follows_another_payload_of_the_one_here_proves_two_histories() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let bundle = skill_by(0, "alpha", 2, &[]);
    let following = |number: u64, previous: Option<ReleaseRef>| {
        let mut catalog = owner.catalog(number, 0, &[entry("alpha", 2, &bundle)]);
        catalog.previous = previous;
        Namespace::new(owner.sign(&catalog, 0), &[&bundle])
    };
    let other = |release: u64| {
        Some(ReleaseRef {
            release,
            payload_sha256: Digest::of(b"another"),
        })
    };
    for previous in [other(FIRST), None] {
        for number in [NEXT, NEXT + 1] {
            let forked = following(number, previous);
            refuses(machine, host, forked, "catalog_previous", &[]);
        }
    }
    // One release more, and it follows a number that this machine has never seen: the way out of a
    // healed fork.
    pulls(machine, host, following(NEXT + 1, other(NEXT)), &[]);
}

#[test]
fn one_vault_at_two_addresses_is_judged_by_one_chain() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let mirror = Host::start();
    let theirs = Owner::at(&mirror);
    let first = first_root();
    mirror.serve(release(&theirs, &first, (0, 1), &[("gamma", 1, 0)]));
    let linked = machine
        .run(&format!("link {} --json", mirror.address()))
        .ok();
    let link = linked.json()["data"]["link"].as_str().unwrap().to_owned();
    let from = ["--from", &link[..]];
    machine
        .run(&format!("cloud pull {} {}", from[0], from[1]))
        .ok();

    // One host shows the revocation, the other one goes on with the thief.
    let chain = revoked(&first, 0, 1);
    let others = machine.run("status --cloud --json").ok().json();
    let links = others["data"]["links"].as_array().unwrap();
    let of_host = links
        .iter()
        .map(|linked| linked["link"].as_str().unwrap())
        .find(|id| *id != link)
        .unwrap();
    let owners = release(owner, &chain, (1, NEXT), &[("alpha", 2, 1)]);
    pulls(machine, host, owners, &["--from", of_host]);
    let list = machine.run("skill list").expect_code(DIFFERENCES);
    assert!(list.stderr.contains("is revoked"), "{}", list.stderr);
    let thief = release(&theirs, &first, (0, 2), &[("gamma", 2, 0)]);
    refuses(machine, &mirror, thief, "signatures_missing", &from);
    let rival = rotated(&first, 0, 9);
    let rival = release(&theirs, &rival, (9, 2), &[("gamma", 2, 9)]);
    refuses(machine, &mirror, rival, "root_forked", &from);
    let owners = release(&theirs, &chain, (1, 2), &[("gamma", 2, 1)]);
    pulls(machine, &mirror, owners, &from);
    machine.run("skill list").ok();
}

#[test]
fn pinning_the_same_vault_anew_forgets_no_revocation() {
    let scene = Scene::new();
    let (machine, host, owner) = (&scene.machine, &scene.host, &scene.owner);
    let first = first_root();
    let chain = revoked(&first, 0, 1);
    let skills = [("alpha", 2, 1)];
    // Built once: it carries the time of its signing, and another one of the same number is a fork.
    let known = release(owner, &chain, (1, NEXT), &skills);
    pulls(machine, host, known.clone(), &[]);
    let (address, fingerprint) = (host.address(), first.fingerprint().to_string());
    let repin = [
        "link",
        &address,
        "--repin",
        "--expect-key",
        &fingerprint,
        "--json",
    ];
    let rival = rotated(&first, 0, 9);
    for (roots, signer, code) in [
        (&first, 0, "signatures_missing"),
        (&rival, 9, "root_forked"),
    ] {
        let theirs = release(owner, roots, (signer, NEXT + 1), &[("alpha", 9, signer)]);
        host.serve(theirs.clone());
        machine.run(&repin).fails(INTEGRITY, code);
        refuses(machine, host, theirs, code, &[]);
    }
    let before = release(owner, &chain, (1, FIRST), &[("alpha", 1, 1)]);
    host.serve(known);
    machine.run(&repin).ok();
    refuses(machine, host, before, "catalog_release", &[]);
}
