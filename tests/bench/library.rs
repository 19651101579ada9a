//! A library of 10,000 skills: integrity check, doctor, sync, search, one skill more, the agents' links.

use std::fs::File;
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::available_parallelism;

use ed25519_dalek::VerifyingKey;
use serde_json::Value;
use vault_library::{Vault, VaultPaths};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;
use vault_tests::home::{Home, vault_binary};

use crate::meter::{connections_to, float, highest_while, median, timed};
use crate::table::{Row, Table, Target, say};
use crate::world::{self, Service};
use crate::{integrity, skills, tools};

const SKILLS: usize = 10_000;
const ROUNDS: usize = 7;

/// Fills a home, then measures it in every way.
pub fn measure(table: &mut Table) {
    say("library of 10,000 skills");
    let home = Home::new();
    let added = world::add(&home, &skills::write(&home.path().join("work"), SKILLS));
    table.row(Row::new(
        "add of 10,000 skills",
        float(SKILLS) / added.as_secs_f64(),
        "skills/s",
    ));
    check_integrity(table, &home);
    let service = Service::start();
    first_sync(table, &service, &home);
    unchanged(table, &home);
    search(table, &home);
    add_one(table, &home);
    idle_profiles(table, &home);
    tools::first_answer(table, &home);
    count_flushes(table, &service, &home);
}

fn check_integrity(table: &mut Table, home: &Home) {
    let vault = Vault::open(
        VaultPaths::new(home.vault(), home.config()),
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    )
    .expect("the vault just made");
    let stored = integrity::paths(&home.vault().join("store"));
    let key = vault.keys().release().expect("the release key").public();
    let key = VerifyingKey::from_bytes(key.as_bytes()).expect("a key");
    // As vault_library spreads its work.
    let threads = available_parallelism().map_or(1, NonZero::get);
    let (mut bare, mut subject, mut doctor) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms the system's cache and does not count.
    for round in 0..=ROUNDS {
        let (good, took) = timed(|| integrity::bare_loop(&stored, &key, threads));
        assert_eq!(good, SKILLS);
        let (report, checked) = timed(|| vault_library::integrity::check(&vault).expect("a vault"));
        assert!(report.is_clean() && report.skills.len() == SKILLS);
        let (said, examined) = world::run(home, &["doctor"]);
        assert_eq!(said["skills"].as_array().map(Vec::len), Some(SKILLS));
        if round > 0 {
            bare.push(float(SKILLS) / took.as_secs_f64());
            subject.push(float(SKILLS) / checked.as_secs_f64());
            doctor.push(float(SKILLS) / examined.as_secs_f64());
        }
    }
    let bare = median(bare);
    table.row(
        Row::new(
            "integrity check of 10,000 skills (20,000 files)",
            median(subject),
            "skills/s",
        )
        .beside(bare, "bare loop")
        .target(Target::Least(0.7)),
    );
    table.row(
        Row::new(
            "doctor of 10,000 skills, whole command",
            median(doctor),
            "skills/s",
        )
        .beside(bare, "bare loop")
        .target(Target::Least(0.7)),
    );
}

fn first_sync(table: &mut Table, service: &Service, home: &Home) {
    service.connect(home, "plain");
    let port = service.address.port();
    // Into a file: it names every skill, more than a pipe holds while nobody reads.
    let said = home.path().join("said.json");
    let (highest, took) = timed(|| {
        let mut child = home
            .command(&["sync", "--cloud", "--json"])
            .stdout(File::create(&said).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the built binary");
        let highest = highest_while(&mut child, || connections_to(port));
        assert!(child.wait().expect("a child").success());
        highest
    });
    let said = std::fs::read(&said).expect("a file");
    let said: Value = serde_json::from_slice(&said).expect("an envelope");
    let uploaded = said["data"]["uploaded"].as_u64().expect("a number");
    let uploaded = usize::try_from(uploaded).expect("a number");
    assert!(uploaded >= SKILLS, "{uploaded} objects went up");
    table.row(Row::new(
        "first sync of 10,000 skills",
        float(uploaded) / took.as_secs_f64(),
        "objects/s",
    ));
    table.row(Row::new(
        "  connections with uploads at once, at most",
        float(highest),
        "in flight",
    ));
}

fn unchanged(table: &mut Table, home: &Home) {
    let vault = home.vault();
    let (mut walks, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (seen, walked) = timed(|| world::stat_walk(&vault));
        assert!(seen >= 6 * SKILLS, "{seen}");
        let (said, synced) = world::run(home, &["sync", "--cloud"]);
        assert_eq!(said["changed"], false);
        if round > 0 {
            walks.push(walked.as_secs_f64() * 1e3);
            syncs.push(synced.as_secs_f64() * 1e3);
        }
    }
    table.row(
        Row::new(
            "sync --cloud with nothing changed, 10,000 skills",
            median(syncs),
            "ms",
        )
        .beside(median(walks), "one stat walk")
        .target(Target::Most(3.0)),
    );
}

const QUERY: &str = "invoice migration rollback";

fn search(table: &mut Table, home: &Home) {
    let once = || {
        let (found, took) = world::run(home, &["skill", "search", QUERY]);
        assert_eq!(found.as_array().map(Vec::len), Some(10));
        took.as_secs_f64() * 1e3
    };
    let first = once();
    let times = (0..=ROUNDS).map(|_| once()).skip(1).collect();
    table.row(
        Row::new(
            "skill search in 10,000 skills, whole command",
            median(times),
            "ms",
        )
        .target(Target::Below(50.0)),
    );
    table.row(Row::new("  the first one after a change", first, "ms"));
}

/// Adds skills one by one, and as many under strace, which tells how long each flush takes: that is the disk's time, the rest is
/// ours. What a traced command takes as a whole is not looked at: each thread that it starts waits for the tracer.
fn add_one(table: &mut Table, home: &Home) {
    if !has_strace() {
        say("strace is absent: what adding one skill costs was not measured");
        return;
    }
    let trace = home.path().join("trace-add");
    let (mut whole, mut flushes) = (Vec::new(), Vec::new());
    let folders = skills::write_more(&home.path().join("more"), SKILLS, 2 * (ROUNDS + 1));
    for pair in folders.chunks_exact(2) {
        let mut plain = Command::new(vault_binary());
        home.environment(&mut plain);
        let (added, took) = timed(|| quietly(plain.arg("add").arg(&pair[0]), home));
        assert!(added);
        whole.push(took.as_secs_f64() * 1e3);
        let mut traced = Command::new("strace");
        home.environment(&mut traced);
        traced
            .args(["-f", "--seccomp-bpf", "-qq", "-T", "-o"])
            .arg(&trace)
            .args(["-e", "trace=fsync,fdatasync,syncfs"])
            .arg(vault_binary())
            .arg("add")
            .arg(&pair[1]);
        assert!(quietly(&mut traced, home));
        flushes.push(flushing(&std::fs::read_to_string(&trace).expect("a trace")) * 1e3);
    }
    let after_first = |times: Vec<f64>| median(times.into_iter().skip(1).collect());
    let (whole, flushes) = (after_first(whole), after_first(flushes));
    table.row(
        Row::new(
            "add of one skill to 10,000, beyond its flushes",
            whole - flushes,
            "ms",
        )
        .target(Target::Below(10.0)),
    );
    table.row(Row::new("  its flushes", flushes, "ms"));
}

/// Runs a command that says nothing to anybody; whether it ended well.
fn quietly(command: &mut Command, home: &Home) -> bool {
    command
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// How long the flushes of a trace took together, in seconds.
fn flushing(trace: &str) -> f64 {
    let time = |line: &str| {
        line.rsplit_once('<')?
            .1
            .strip_suffix('>')?
            .parse::<f64>()
            .ok()
    };
    let flushes = trace.lines().filter(|line| line.contains("sync"));
    flushes.filter_map(time).sum::<f64>()
}

/// Three agents with all skills linked, and nothing to do.
fn idle_profiles(table: &mut Table, home: &Home) {
    let agents = [".claude", ".cursor", ".codex"].map(|folder| home.path().join(folder));
    for folder in &agents {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    world::run(home, &["sync-profiles", "--discover"]);
    let vault = home.vault();
    let (mut walks, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (seen, walked) = timed(|| {
            let seen = world::stat_walk(&vault);
            let linked = agents.iter().map(|folder| world::stat_walk(folder));
            seen + linked.sum::<usize>()
        });
        assert!(seen >= 8 * SKILLS, "{seen}");
        let (said, synced) = world::run(home, &["sync-profiles"]);
        assert_eq!(said["restart_required"], false);
        if round > 0 {
            walks.push(walked.as_secs_f64() * 1e3);
            syncs.push(synced.as_secs_f64() * 1e3);
        }
    }
    table.row(
        Row::new(
            "sync-profiles with nothing to do, 10,000 skills, three agents",
            median(syncs),
            "ms",
        )
        .beside(median(walks), "one stat walk")
        .target(Target::Most(3.0)),
    );
}

fn has_strace() -> bool {
    Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A first sync into another namespace under strace, which counts what it flushes.
fn count_flushes(table: &mut Table, service: &Service, home: &Home) {
    if !has_strace() {
        say("strace is absent: the flushes of a first sync were not counted");
        return;
    }
    service.connect(home, "traced");
    let trace = home.path().join("trace");
    let mut command = Command::new("strace");
    home.environment(&mut command);
    command
        .args(["-f", "--seccomp-bpf", "-qq", "-o"])
        .arg(&trace)
        .args(["-e", "trace=fsync,fdatasync,syncfs,sync,msync"])
        .arg(vault_binary())
        .args(["sync", "--cloud"]);
    assert!(quietly(&mut command, home));
    let flushes = std::fs::read_to_string(&trace)
        .expect("a trace")
        .lines()
        .filter(|line| line.contains("sync("))
        .count();
    table.row(
        Row::new("  flushes of that sync", float(flushes), "calls")
            .beside(float(SKILLS), "objects")
            .target(Target::Most(0.01)),
    );
}
