//! `kill -9` at every state-changing system call of a command, one after the other, by strace.
//!
//! strace delivers the signal before the chosen call takes effect, so each run leaves the state of just before it. The
//! points come from a first traced run: the ordinal of each call among the calls of its name in its thread, since that is
//! how strace counts. A thread may do its calls in another order next time; then the run ends unharmed, which is a
//! point like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::home::{Home, Ran, vault_binary};

/// Calls that change what is on disk, or what another process sees.
const CHANGING: &[&str] = &[
    "open",
    "openat",
    "creat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "fsync",
    "fdatasync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "ftruncate",
    "chmod",
    "fchmod",
    "fchmodat",
    "sendto",
    "sendmsg",
    "copy_file_range",
];

/// A place to kill at: the `when`-th call named `call` of a thread.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Point {
    /// The system call.
    pub call: String,
    /// Its ordinal, from 1.
    pub when: usize,
}

/// Whether strace is here and may trace; the reason when not.
pub fn available() -> Result<(), String> {
    let probe = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("strace does not start: {error}"))?;
    if probe.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&probe.stderr).into_owned())
    }
}

/// Runs `vault` with `arguments` once in `home` under strace and returns the points at which it changed something.
#[track_caller]
pub fn points(home: &Home, arguments: &[&str]) -> Vec<Point> {
    let trace = home.path().join("strace.out");
    let set = format!("trace={}", known(CHANGING).join(","));
    let ran = strace(
        home,
        &[
            "-f",
            "-qq",
            "-s",
            "0",
            "-e",
            &set,
            "-o",
            &trace.to_string_lossy(),
        ],
        arguments,
    );
    assert_eq!(
        ran.code, 0,
        "the traced run failed: {}\n{}",
        ran.stdout, ran.stderr
    );
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let mut ordinals: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut points = BTreeSet::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        if rest.starts_with('<') {
            continue; // the second half of a call that another thread interrupted
        }
        let Some((call, tail)) = rest.split_once('(') else {
            continue;
        };
        let count = ordinals
            .entry((thread.to_owned(), call.to_owned()))
            .or_default();
        *count += 1;
        if changes_something(call, tail) {
            points.insert(Point {
                call: call.to_owned(),
                when: *count,
            });
        }
    }
    points.into_iter().collect()
}

/// Runs `vault` in `home` and kills it at `point`. True when it was killed, false when it ended by itself.
pub fn kill_at(home: &Home, arguments: &[&str], point: &Point) -> bool {
    let inject = format!("inject={}:signal=SIGKILL:when={}", point.call, point.when);
    let ran = strace(
        home,
        &["-f", "-qq", "-o", "/dev/null", "-e", &inject],
        arguments,
    );
    ran.code != 0
}

/// At most `most` points, spread evenly; all of them where there are no more.
pub fn spread(points: Vec<Point>, most: usize) -> Vec<Point> {
    if points.len() <= most {
        return points;
    }
    let total = points.len();
    points
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at * most / total != (at + 1) * most / total)
        .map(|(_, point)| point)
        .collect()
}

/// Copies a prepared home, links, modes and all.
pub fn copy_home(from: &Home) -> Home {
    let to = Home::new();
    let status = Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", from.path().display()))
        .arg(to.path())
        .status()
        .expect("cp");
    assert!(status.success(), "cp failed");
    to
}

fn changes_something(call: &str, tail: &str) -> bool {
    match call {
        "open" | "openat" => tail.contains("O_CREAT") || tail.contains("O_TRUNC"),
        "write" | "writev" => !tail.starts_with("1,") && !tail.starts_with("2,"),
        _ => true,
    }
}

/// Calls that this architecture has: aarch64 has no `open`, `rename`, `mkdir` and so on.
fn known(calls: &'static [&'static str]) -> Vec<&'static str> {
    if cfg!(target_arch = "x86_64") {
        return calls.to_vec();
    }
    let old = [
        "open", "creat", "rename", "unlink", "rmdir", "symlink", "link", "mkdir", "chmod",
    ];
    calls
        .iter()
        .copied()
        .filter(|call| !old.contains(call))
        .collect()
}

fn strace(home: &Home, options: &[&str], arguments: &[&str]) -> Ran {
    let mut command = Command::new("strace");
    home.environment(&mut command);
    command
        .args(options)
        .arg("--")
        .arg(vault_binary())
        .args(arguments)
        .current_dir(home.path())
        .stdin(Stdio::null());
    command.output().expect("strace").into()
}

/// Whether `path` is there, links not followed.
pub fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
