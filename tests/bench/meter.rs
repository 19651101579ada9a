//! Wall time, CPU time and memory, as Linux counts them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Now, for measuring.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the time that really passes"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// What the work gives, and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = now();
    let done = work();
    (done, begun.elapsed())
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A count as a number to divide by.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark stay far below 2^52"
)]
pub fn float(count: usize) -> f64 {
    count as f64
}

/// CPU time of a running process so far, all its threads, in seconds (to the nanosecond, as the
/// scheduler counts).
pub fn cpu_seconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| on_cpu(&thread.path().join("schedstat").to_string_lossy()))
        .sum()
}

/// The first number of a `schedstat` file, in seconds.
fn on_cpu(path: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// CPU time of a command with one thread, from its start to its end, in seconds.
pub fn cpu_of(command: &mut Command) -> f64 {
    let mut child = command
        .stdout(Stdio::null())
        .spawn()
        .expect("a command that starts");
    // Ended, but not collected yet: its accounts can still be read.
    let pid = Pid::from_child(&child);
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )
    .expect("a child");
    let seconds =
        on_cpu(&format!("/proc/{}/schedstat", child.id())).expect("accounts of the scheduler");
    assert!(child.wait().expect("a child").success());
    seconds
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .expect("VmRSS")
        * 1024.0
}
