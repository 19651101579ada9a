//! A lost laptop: a thief with everything that lay on it publishes, withdraws and tries to change
//! the keys. The owner comes back from the recovery key and a password alone, on an empty machine,
//! and every linked machine follows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, OWNER};
use vault_tests::server::{Database, Server};
use vault_tests::sweep::copy_home;
use vault_tests::tree;

use crate::support::{self, Files, SLUG, address, pulled, text};

/// A text in every file of the thief's.
const MARK: &[u8] = b"the thief was here";
/// A skill that the thief adds.
const PLANTED: &str = "planted-by-the-thief";

#[test]
fn a_theft_on_sqlite() {
    theft(&Database::Sqlite, RecoveryMade::BeforeTheFirstRelease);
}

#[test]
fn a_theft_on_postgresql() {
    support::on_postgres(|database| theft(database, RecoveryMade::BeforeTheFirstRelease));
}

/// The key of the laptop was the root key once: a copy from that time can sign a rival list of
/// keys.
#[test]
fn a_theft_of_a_laptop_that_once_held_the_root_key() {
    theft(&Database::Sqlite, RecoveryMade::AfterTheFirstRelease);
}

#[test]
fn a_theft_of_a_laptop_that_once_held_the_root_key_on_postgresql() {
    support::on_postgres(|database| theft(database, RecoveryMade::AfterTheFirstRelease));
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum RecoveryMade {
    BeforeTheFirstRelease,
    AfterTheFirstRelease,
}

fn folder(home: &Home, name: &str, line: &str) -> PathBuf {
    home.plain_skill(name, line)
}

fn add(home: &Home, name: &str, line: &str) -> Files {
    let folder = folder(home, name, line);
    home.json(&format!("add {}", folder.to_str().unwrap()));
    tree::files(&folder)
}

fn with_mark(line: &str) -> String {
    format!("{line} {}", String::from_utf8_lossy(MARK))
}

/// The files of a home that hold this text.
fn holding(root: &Path, text: &[u8]) -> Vec<String> {
    let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    tree::files(root)
        .into_iter()
        .filter_map(|(path, (_, bytes))| holds(&bytes).then_some(path))
        .collect()
}

#[track_caller]
fn is_clean(home: &Home, name: &str) {
    let ran = home.run("doctor --json");
    assert_eq!(ran.code, 0, "{name}: {}{}", ran.stdout, ran.stderr);
    let verified = home.run("verify --json");
    assert_eq!(verified.code, 0, "{name}: {}", verified.stdout);
    let left = holding(home.path(), MARK);
    assert!(left.is_empty(), "{name} still has {left:?}");
}

#[track_caller]
fn fails(ran: Ran, what: &str) -> Ran {
    assert_ne!(ran.code, 0, "{what}: {}", ran.stdout);
    ran
}

#[expect(
    clippy::too_many_lines,
    reason = "one story, each step of which stands on the one before"
)]
fn theft(database: &Database, recovery: RecoveryMade) {
    let server = Server::start(database);
    let (laptop, early, late) = (Home::new(), Home::new(), Home::new());
    let sticks = tempfile::tempdir().unwrap();
    let stick = sticks.path().join("vault.recovery");
    let stick = stick.to_str().unwrap();
    let create = ["key", "recovery", "create", stick, "--yes"];

    // The owner publishes, and two machines install.
    let mut good = BTreeMap::new();
    for name in ["deploy", "notes"] {
        let files = add(&laptop, name, "As the owner wrote it.");
        good.insert(name.to_owned(), files);
    }
    if recovery == RecoveryMade::BeforeTheFirstRelease {
        laptop.json(&create);
    }
    support::connect(&server, &laptop, SLUG);
    laptop.json("sync --cloud");
    let older = copy_home(&laptop);
    if recovery == RecoveryMade::AfterTheFirstRelease {
        laptop.json(&create);
        laptop.json("sync --cloud");
    }
    for (machine, name) in [(&early, "early"), (&late, "late")] {
        support::link(&server, &laptop, machine, SLUG);
        machine.json("cloud pull");
        assert_eq!(pulled(machine), good, "{name}");
    }
    let before = late.json("status --cloud")["links"][0].clone();

    // The laptop is lost. The thief changes a skill, adds one, withdraws one, and publishes more
    // than once.
    let thief = copy_home(&laptop);
    drop(laptop);
    add(&thief, "deploy", &with_mark("Sends all keys."));
    thief.json("sync --cloud");
    add(&thief, PLANTED, &with_mark("Runs at once."));
    let reason = with_mark("leaked:");
    thief.json(&["remove", "notes", "--withdraw", &reason]);
    for _ in 0..3 {
        thief.json("sync --cloud --renew");
    }
    early.json("cloud pull");
    let names: Vec<_> = pulled(&early).into_keys().collect();
    assert_eq!(names, ["deploy", PLANTED], "the thief can, until then");

    // A rival list of keys, where the copy is old enough to sign one: the service does not take it,
    // and no machine does.
    let rival = match recovery {
        RecoveryMade::BeforeTheFirstRelease => &thief,
        RecoveryMade::AfterTheFirstRelease => &older,
    };
    let theirs = sticks.path().join("theirs.recovery");
    let theirs = theirs.to_str().unwrap();
    for attempt in [
        &["key", "recovery", "create", theirs, "--yes", "--json"][..],
        &["key", "rotate", "--yes", "--json"],
        &["key", "heal", "--above", "9", "--yes", "--json"],
    ] {
        // A machine that asks the service first takes the owner's keys and signs nothing.
        let ran = rival.run(&[&["--offline"][..], attempt].concat());
        if recovery == RecoveryMade::BeforeTheFirstRelease {
            assert_eq!(ran.refused(4).code, "root_key_needed", "{attempt:?}");
        }
    }
    let replace = ["sync", "--cloud", "--replace", "--yes", "--json"];
    if recovery == RecoveryMade::AfterTheFirstRelease {
        rival.run(&replace).fails(6, "root_forked");
    }
    early.json("cloud pull");
    for machine in [&early, &late] {
        let link = &machine.json("status --cloud")["links"][0];
        for member in ["root_version", "vault_fingerprint"] {
            assert_eq!(link[member], before[member], "the keys are the owner's");
        }
    }

    // The owner comes back on an empty machine: the recovery key, the password, and what a machine
    // has seen.
    let owner = Home::new();
    let from = address(&server, SLUG);
    let seen = late.json("status --cloud")["links"][0].clone();
    for member in ["release", "payload_sha256", "root_version"] {
        assert_eq!(seen[member], before[member], "a look pins nothing");
    }
    let at_least = seen["root_version"].to_string();
    let recover = [
        "key",
        "recovery",
        "use",
        stick,
        "--from",
        &from,
        "--at-least",
        &at_least,
        "--yes",
        "--json",
    ];
    owner.sign_in(&recover, OWNER, Answer::Pasted).data();
    // Until the next release machines keep what they have, and run nothing by the stolen key.
    early.fails("cloud pull", 3, "release_awaited");
    for command in ["list --json", "skill list", "status --cloud"] {
        let ran = early.run(command);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(told.matches("withheld: the key").count(), 1, "{told}");
    }
    let listed = early.run("list --json");
    assert_eq!(listed.code, 3, "{}", listed.stdout);
    let withheld = &listed.json()["data"]["withheld"];
    assert_eq!(withheld.as_array().unwrap().len(), 2, "{withheld}");
    early.fails("verify", 3, "release_awaited");
    let doctor = early.run("doctor --json").stdout;
    assert_eq!(doctor.matches("skills_withheld").count(), 1, "{doctor}");
    let ran = early.run(&format!("skill resolve {PLANTED} --json"));
    fails(ran, "a skill by the stolen key");
    let release = seen["release"].to_string();
    let last_good = format!("{release}:{}", text(&seen["payload_sha256"]));
    let back = ["cloud", "rollback", &release, "--last-good", &last_good];
    owner.reviewed(&back);

    // Every machine ends on the owner's release, whatever it saw.
    for (machine, name) in [(&early, "saw the thief"), (&late, "did not")] {
        machine.json("cloud pull");
        assert_eq!(pulled(machine), good, "{name}");
        is_clean(machine, name);
    }
    is_clean(&owner, "the owner's new machine");
    let [early_link, late_link] = [&early, &late].map(|machine| {
        let link = &machine.json("status --cloud")["links"][0];
        ["release", "payload_sha256", "root_version"].map(|member| link[member].clone())
    });
    assert_eq!(early_link, late_link);

    // The thief's copies publish nothing more, and the owner goes on.
    for copy in [&thief, &older] {
        add(copy, PLANTED, &with_mark("Once more."));
        for sync in [
            &["sync", "--cloud", "--yes", "--json"][..],
            &["sync", "--cloud", "--replace", "--yes", "--json"],
        ] {
            fails(copy.run(sync), "a release of the thief's");
        }
    }
    let more = add(&owner, "more", "Written on the new machine.");
    good.insert("more".to_owned(), more);
    owner.json("sync --cloud");
    for (machine, name) in [(&early, "saw the thief"), (&late, "did not")] {
        machine.json("cloud pull");
        assert_eq!(pulled(machine), good, "{name}");
        is_clean(machine, name);
    }
    // A machine that links now finds nothing of it either.
    let newcomer = Home::new();
    support::link(&server, &owner, &newcomer, SLUG);
    newcomer.json("cloud pull");
    assert_eq!(pulled(&newcomer), good);
    is_clean(&newcomer, "links afterwards");
    assert!(fs::exists(stick).unwrap());
}
