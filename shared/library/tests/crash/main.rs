//! Kills a command at every system call that changes state. Each kill leaves the old state or the
//! new one, and the command succeeds when it is run again.
//!
//! The test runs itself as the victim under strace, which kills it before the n-th such call takes
//! effect. Without strace the test reports that it was skipped; with `CI` set it fails.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod deeds;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use vault_library::{Vault, integrity, roots, shelf};
use vault_testing::SeededRandom;
use vault_testing::TestClock;

use deeds::{act, agents_are_done, agents_are_well, agents_read, open, prepare};

/// System calls that change files on disk.
const CALLS: [&str; 17] = [
    "openat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
];

/// The first deed that involves agents' folders.
const FIRST_WITH_AGENTS: Deed = Deed::Link;

/// Defines one test for each deed that a victim can be killed in.
macro_rules! deeds {
    ($($deed:ident $test:ident)*) => {
        /// What the victim does, given the path of the home.
        #[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd)]
        enum Deed { $($deed),* }

        const DEEDS: &[Deed] = &[$(Deed::$deed),*];

        $(#[test]
        fn $test() {
            sweep(Deed::$deed);
        })*
    };
}

deeds! {
    Create create_survives_a_kill_anywhere
    Add add_survives_a_kill_anywhere
    Replace replace_survives_a_kill_anywhere
    AddMany add_many_survives_a_kill_anywhere
    Remove remove_survives_a_kill_anywhere
    Rotate rotate_survives_a_kill_anywhere
    Recovery making_a_recovery_key_survives_a_kill_anywhere
    Recover recovering_survives_a_kill_anywhere
    Plan plan_survives_a_kill_anywhere
    Pull pull_survives_a_kill_anywhere
    Link linking_survives_a_kill_anywhere
    Unlink removing_what_agents_see_survives_a_kill_anywhere
    Render rendering_a_variant_survives_a_kill_anywhere
    CopyOut copying_out_survives_a_kill_anywhere
    Backup an_adoption_with_backup_survives_a_kill_anywhere
    InPlace an_adoption_in_place_survives_a_kill_anywhere
    PullForAgents a_pull_with_variants_survives_a_kill_anywhere
}

impl Deed {
    fn has_agents(self) -> bool {
        self >= FIRST_WITH_AGENTS
    }
}

/// What readers see: every name with its bundle. Fails if a listed skill is incomplete.
fn seen(home: &Path) -> BTreeSet<String> {
    let (clock, random) = (TestClock::default(), SeededRandom::new(1));
    let opened = Vault::open(support::paths(home), Arc::new(clock), Arc::new(random));
    let Ok(vault) = opened else {
        return BTreeSet::new();
    };
    let listing = shelf::list_installed(&vault).unwrap();
    // After a revocation some skills wait to be signed again.
    let waiting = roots::waiting_skills(&vault).unwrap();
    for (name, _, damage) in &listing.damaged {
        assert!(waiting.contains(name), "{name}: {damage}");
    }
    let report = integrity::verify_all_installed(&vault).unwrap();
    let is_clean = report.is_clean() || !waiting.is_empty();
    assert!(is_clean && report.strange.is_empty(), "{report:?}");
    let skills = listing.skills.iter();
    let lines = skills.map(|skill| {
        let root = match &skill.origin {
            vault_library::Origin::Local => home.join("vault"),
            vault_library::Origin::Linked(id) => home.join("vault/links").join(id.as_str()),
            vault_library::Origin::Project(path) => path.join(".vault"),
        };
        let document = root
            .join("skills")
            .join(skill.name.as_str())
            .join("SKILL.md");
        let text = std::fs::read_to_string(document).unwrap();
        let last = text.lines().last().unwrap();
        format!("{} {:?} {last}", skill.name, skill.origin)
    });
    lines.collect()
}

fn published(home: &Path) -> bool {
    let states = vault_library::publish::state::list_states(&open(home)).unwrap();
    states
        .iter()
        .any(|state| state.published.is_some() && state.pending.is_none())
}

fn copy(from: &Path, to: &Path) {
    let _absent = std::fs::remove_dir_all(to);
    support::copy_folder(from, to);
}

fn victim(deed: &str, home: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "victim_acts", "--ignored", "--nocapture"])
        .arg("--test-threads=1")
        .env("VAULT_TEST_DEED", deed)
        .env("VAULT_TEST_HOME", home)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn traced(inject: &str, log: &Path, deed: &str, home: &Path) -> Command {
    let plain = victim(deed, home);
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(log);
    command.args(["-e", &format!("trace={}", CALLS.join(","))]);
    if !inject.is_empty() {
        command.args(["-e", inject]);
    }
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Not a test itself: the sweeps below run and kill it.
#[test]
#[ignore = "run by the sweep"]
#[expect(
    clippy::disallowed_methods,
    reason = "how the sweep tells its victim what to do"
)]
fn victim_acts() {
    let Ok(wanted) = std::env::var("VAULT_TEST_DEED") else {
        return;
    };
    let home = PathBuf::from(std::env::var_os("VAULT_TEST_HOME").unwrap());
    let deed = DEEDS.iter().find(|deed| format!("{deed:?}") == wanted);
    // The tracer counts calls per thread. These calls raise the count above what the test harness's
    // main thread reaches, so that a higher number identifies this thread.
    for _ in 0..64 {
        std::fs::write("/dev/null", "x").unwrap();
    }
    act(*deed.unwrap(), &home);
}

fn sweep(deed: Deed) {
    let word = &format!("{deed:?}");
    let version = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    if version.is_err() {
        assert!(!ci(), "strace is missing");
        say("left out: strace is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let start = folder.path().join("start");
    // The agents' symlinks contain the home's path, so prepare and run it under the same path.
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    prepare(deed, &home);
    copy(&home, &start);
    let log = folder.path().join("log");
    let before = seen(&home);
    let read_before = agents_read(&home);
    let undisturbed = traced("", &log, word, &home).status().unwrap();
    assert!(undisturbed.success(), "{word}");
    let after = seen(&home);
    let read_after = agents_read(&home);
    // Earlier versions stay. A killed writer leaves no bundle that it did not link. A repeated
    // rotation signs again, which makes new bundles.
    let orphans = integrity::verify_all_installed(&open(&home))
        .unwrap()
        .unreferenced
        .len();
    let calls = points(&log, &home);
    assert!(calls.len() > 5, "{word}: {calls:?}");
    let mut outcomes = (0, 0);
    let mut unharmed = 0;
    for (call, number) in &calls {
        copy(&start, &home);
        let inject = format!("inject={call}:signal=SIGKILL:when={number}");
        let killed = traced(&inject, &log, word, &home).status().unwrap();
        let what = format!("{word} {call} {number}");
        // The number of index writes depends on the clock: if a call does not occur again, the
        // victim was not killed.
        if killed.success() {
            unharmed += 1;
            assert_eq!(seen(&home), after, "{what}");
        }
        let now = seen(&home);
        if deed.has_agents() {
            agents_are_well(&home, &what);
        }
        if deed == Deed::PullForAgents {
            agents_read_no_mix(&read_before, &read_after, &agents_read(&home), &what);
        }
        if deed == Deed::AddMany {
            // Each skill is switched separately.
            let grows = now.is_superset(&before) && now.is_subset(&after);
            assert!(grows, "{what}: {now:?}");
        } else if deed == Deed::Recover {
            // Between the new keys and the last new signature some skills count for nothing.
            assert!(now.is_subset(&after), "{what}: {now:?}");
        } else {
            assert!(now == before || now == after, "{what}: {now:?}");
        }
        if now == before {
            outcomes.0 += 1;
        } else {
            outcomes.1 += 1;
        }
        // The repeated command succeeds and cleans up. Exception: a plan whose release was
        // acknowledged is rejected, because the repeated plan is given no current catalog.
        let again = victim(word, &home).status().unwrap().success();
        let acknowledged = deed == Deed::Plan && published(&home);
        assert!(again || acknowledged, "given again after {what}");
        assert_eq!(seen(&home), after, "{what}");
        if deed == Deed::PullForAgents {
            assert_eq!(agents_read(&home), read_after, "{what}");
        }
        is_tidy(deed, &home, orphans, &what);
    }
    assert!(unharmed * 4 < calls.len(), "{word}: {unharmed} unharmed");
    say(&format!(
        "{word}: {} points, old {}, new {}, unharmed {unharmed}",
        calls.len(),
        outcomes.0,
        outcomes.1
    ));
}

/// What each agent reads after a kill: all skills that it has before and after the deed, all of them
/// old or all of them new.
fn agents_read_no_mix(
    before: &BTreeMap<&str, BTreeMap<String, String>>,
    after: &BTreeMap<&str, BTreeMap<String, String>>,
    now: &BTreeMap<&str, BTreeMap<String, String>>,
    what: &str,
) {
    for (folder, before) in before {
        let (after, now) = (&after[folder], &now[folder]);
        let both = || before.keys().filter(|name| after.contains_key(*name));
        let is = |wanted: &BTreeMap<String, String>| {
            both().all(|name| now.get(name) == wanted.get(name))
        };
        assert!(is(before) || is(after), "{what}: {folder}: {now:?}");
    }
}

/// What must hold after a killed deed was repeated: nothing of the killed run is left.
fn is_tidy(deed: Deed, home: &Path, orphans: usize, what: &str) {
    if deed.has_agents() {
        agents_are_well(home, what);
        agents_are_done(home, what);
    }
    let vault = open(home);
    let unreferenced = integrity::verify_all_installed(&vault)
        .unwrap()
        .unreferenced
        .len();
    assert!(
        unreferenced <= orphans,
        "{what}: {unreferenced} unreferenced bundles"
    );
    let key = vault.release_key().unwrap();
    assert_eq!(vault.keys().read_secret_key(&key).unwrap().public(), key);
    assert_eq!(vault.keys().list().unwrap(), [key]);
    let trust = vault.trust().unwrap().unwrap();
    match deed {
        Deed::Rotate => assert!((2..=3).contains(&trust.chain().version())),
        Deed::Recovery => assert_eq!(trust.chain().version(), 2),
        Deed::Recover => {
            assert_eq!(trust.chain().version(), 3);
            assert!(roots::waiting_skills(&vault).unwrap().is_empty());
        }
        _ => assert!(trust.chain().version() <= 2),
    }
    let left = support::file_names(&home.join("vault/tmp"));
    assert!(left.is_empty(), "{what}: {left:?}");
    let strays: Vec<_> = support::snapshot(&home.join("config"))
        .into_keys()
        .filter(|path| path.contains(".new-") || path.contains(".next"))
        .collect();
    assert!(strays.is_empty(), "{what}: {strays:?}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is left out where CI is set"
)]
fn ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// The calls that touched the home: name, and number of earlier calls of that name.
fn points(log: &Path, home: &Path) -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut counts = std::collections::HashMap::new();
    let mut points = Vec::new();
    let mut in_home = false;
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        let Some((call, arguments)) = rest.split_once('(') else {
            continue;
        };
        if !CALLS.contains(&call) {
            continue;
        }
        let count = counts
            .entry((thread.to_owned(), call.to_owned()))
            .or_insert(0_usize);
        *count += 1;
        in_home |= arguments.contains(home.to_str().unwrap());
        let reads = call == "openat" && !arguments.contains("O_CREAT");
        let own_output =
            call == "write" && (arguments.starts_with("1,") || arguments.starts_with("2,"));
        if in_home && !reads && !own_output {
            points.push((call.to_owned(), *count));
        }
    }
    points
}

#[expect(clippy::print_stderr, reason = "what a test tried or left out is said")]
fn say(line: &str) {
    eprintln!("{line}");
}
