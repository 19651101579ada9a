//! One library: what adding, checking, searching and doing nothing cost, each beside a baseline of
//! the same run.

use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::available_parallelism;

use ed25519_dalek::VerifyingKey;
use vault_library::{Vault, VaultPaths};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;
use vault_tests::home::{Home, vault_binary};

use crate::meter::{float, median, timed};
use crate::table::{Row, Table, Target, say};
use crate::world::{self, Service};
use crate::{integrity, skills};

const ROUNDS: usize = 7;
const QUERY: &str = "invoice migration rollback";

/// Fills a home with this many skills, then measures it in every way.
///
/// Targets are those for 1,000 skills, at which a person does not wait, and milliseconds grow with
/// the number of skills.
pub fn measure(table: &mut Table, skills: usize) {
    say(&format!("library of {skills} skills"));
    let home = Home::new();
    let added = world::add(&home, &skills::write(&home.path().join("work"), skills));
    table.row(Row::new(
        format!("add of {skills} skills"),
        float(skills) / added.as_secs_f64(),
        "skills/s",
    ));
    let scale = float(skills) / 1_000.0;
    doctor(table, &home, skills);
    search(table, &home, 100.0 * scale);
    add_one(table, &home, skills, 100.0 * scale);
    let service = Service::start();
    service.connect(&home, "plain");
    world::run(&home, &["sync", "--cloud"]);
    let limit = 500.0 * scale;
    idle(table, &home, &["sync", "--cloud"], &[], limit);
    let agents = [".claude", ".cursor", ".codex"];
    for folder in agents {
        std::fs::create_dir_all(home.path().join(folder)).expect("a folder");
    }
    world::run(&home, &["sync-profiles", "--discover"]);
    idle(table, &home, &["sync-profiles"], &agents, limit);
}

/// The whole command `vault doctor`, beside a loop that only reads, hashes and verifies.
fn doctor(table: &mut Table, home: &Home, skills: usize) {
    let paths = VaultPaths::new(home.vault(), home.config());
    let vault = Vault::open(paths, Arc::new(SystemClock), Arc::new(SystemRandom));
    let vault = vault.expect("the vault just made");
    let stored = integrity::paths(&home.vault().join("store"));
    let key = vault.release_key().expect("a publisher's key");
    let key = VerifyingKey::from_bytes(key.as_bytes()).expect("a key");
    // As vault_library spreads its work.
    let threads = available_parallelism().map_or(1, NonZero::get);
    let (mut bare, mut doctor) = (Vec::new(), Vec::new());
    // The first round warms the system's cache and does not count.
    for round in 0..=ROUNDS {
        let (good, took) = timed(|| integrity::bare_loop(&stored, &key, threads));
        assert_eq!(good, skills);
        let (report, examined) = world::run(home, &["doctor"]);
        assert_eq!(report["skills"].as_array().map(Vec::len), Some(skills));
        if round > 0 {
            bare.push(float(skills) / took.as_secs_f64());
            doctor.push(float(skills) / examined.as_secs_f64());
        }
    }
    table.row(
        Row::new("doctor, whole command", median(doctor), "skills/s")
            .beside(median(bare), "bare read, hash and verify loop")
            .target(Target::Above(3_000.0)),
    );
}

/// A search by words, beside a loop that reads every SKILL.md.
fn search(table: &mut Table, home: &Home, limit: f64) {
    let store = home.vault().join("store");
    let once = || {
        let (found, took) = world::run(home, &["skill", "search", QUERY]);
        assert_eq!(found.as_array().map(Vec::len), Some(10));
        took.as_secs_f64() * 1e3
    };
    let first = once();
    let (mut reads, mut searches) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (bytes, read) = timed(|| world::read_skills(&store));
        assert!(bytes > 0);
        let took = once();
        if round > 0 {
            reads.push(read.as_secs_f64() * 1e3);
            searches.push(took);
        }
    }
    table.row(
        Row::new("skill search, whole command", median(searches), "ms")
            .beside(median(reads), "reading every SKILL.md")
            .target(Target::Below(limit)),
    );
    table.row(Row::new("  the first one after a change", first, "ms"));
}

/// Adds skills one by one, and as many under strace, which measures the flushes: they are the
/// disk's time, the rest is ours. The total time of a traced command says nothing, since each
/// thread that it starts waits for the tracer.
fn add_one(table: &mut Table, home: &Home, skills: usize, limit: f64) {
    if !has_strace() {
        say("strace is absent: what adding one skill costs was not measured");
        return;
    }
    let trace = home.path().join("trace-add");
    let (mut whole, mut flushes) = (Vec::new(), Vec::new());
    let folders = skills::write_more(&home.path().join("more"), skills, 2 * (ROUNDS + 1));
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
            "add of one skill, beyond its flushes",
            whole - flushes,
            "ms",
        )
        .beside(flushes, "its flushes")
        .target(Target::Below(limit)),
    );
}

/// Runs a command without output; whether it succeeded.
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

/// A command that has nothing to do, beside one stat walk over the vault and these folders of the
/// home.
fn idle(table: &mut Table, home: &Home, command: &[&str], folders: &[&str], limit: f64) {
    let mut walked = vec![home.vault()];
    walked.extend(folders.iter().map(|folder| home.path().join(folder)));
    let (mut walks, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (seen, walk) = timed(|| {
            walked
                .iter()
                .map(|folder| world::stat_walk(folder))
                .sum::<usize>()
        });
        assert!(seen > 0);
        let (report, synced) = world::run(home, command);
        assert!(
            report["changed"] != true && report["restart_required"] != true,
            "{report}"
        );
        if round > 0 {
            walks.push(walk.as_secs_f64() * 1e3);
            syncs.push(synced.as_secs_f64() * 1e3);
        }
    }
    table.row(
        Row::new(
            format!("{}, nothing to do", command.join(" ")),
            median(syncs),
            "ms",
        )
        .beside(median(walks), "one stat walk")
        .target(Target::Below(limit)),
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
