//! Kill sweeps: runs a command again and again, each time with a fault at another system call that
//! changes state. strace injects the fault: `kill -9`, or an error of the call.
//!
//! The fault comes before the call takes effect, so each run leaves the state just before that
//! call. A first traced run yields the points at which to inject faults. A point names a call by
//! its number among the calls of the same name in its thread, because strace counts in this way. If
//! a thread makes its calls in another order in a later run, the fault may never occur; the run
//! then ends normally.

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

/// A system call at which a fault is injected: the `when`-th call named `call` of a thread.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Point {
    /// Name of the system call, as strace prints it.
    pub call: String,
    /// Number of the call among the calls of that name in one thread, from 1.
    pub when: usize,
    /// Whether the call is about a file, not about a socket or a signal between threads.
    pub on_disk: bool,
}

/// The fault that strace injects in place of a system call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The process ends at once, as by `kill -9`.
    Kill,
    /// The call fails with this error, such as `ENOSPC`; the process goes on.
    Error(&'static str),
}

impl Point {
    /// Whether the call is a rename, a flush, a link or a removal. Atomic changes of files depend
    /// on these calls, so [`spread`] keeps all of them.
    fn is_essential(&self) -> bool {
        ["rename", "sync", "unlink", "rmdir", "link"]
            .iter()
            .any(|part| self.call.contains(part))
    }
}

/// Returns whether strace is installed and may trace. If not, prints which tests are left out, or
/// panics if `CI=true` is set.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing is left out where CI is set"
)]
#[expect(clippy::print_stderr, reason = "says what a test leaves out")]
pub fn is_ready() -> bool {
    match available() {
        Ok(()) => true,
        Err(reason) if std::env::var("CI").is_ok_and(|value| value == "true") => {
            panic!("kill sweeps need strace: {reason}")
        }
        Err(reason) => {
            eprintln!("left out: kill sweeps ({reason})");
            false
        }
    }
}

fn available() -> Result<(), String> {
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

/// Runs `vault` with `arguments` once in `home` under strace, which must succeed, and returns the
/// points at which it changed state, in order.
#[track_caller]
pub fn points(home: &Home, arguments: &[&str]) -> Vec<Point> {
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let file = trace.path().to_string_lossy().into_owned();
    let options = trace_options(&file);
    strace(home, &options.each_ref().map(String::as_str), arguments).ok();
    read_points(trace.path(), "")
}

/// Returns the options with which strace writes every state-changing call to `file`, for
/// [`read_points`].
pub fn trace_options(file: &str) -> [String; 9] {
    let set = format!("trace={}", known(CHANGING).join(","));
    ["-f", "-y", "-qq", "-s", "0", "-e", &set, "-o", file].map(str::to_owned)
}

/// Returns the points of a trace in order, each once. Points before the first line that contains
/// `from` are left out, but their calls are counted.
pub fn read_points(trace: &Path, from: &str) -> Vec<Point> {
    let text = std::fs::read_to_string(trace).expect("a trace");
    let mut ordinals: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut points = Vec::new();
    let mut begun = false;
    for line in text.lines() {
        begun |= line.contains(from);
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
        let point = Point {
            call: call.to_owned(),
            when: *count,
            // With -y a descriptor shows what it is: `5</a/path>`, `6<socket:[1]>`,
            // `7<anon_inode:[eventfd]>`.
            on_disk: !["<socket:", "<anon_inode:", "<pipe:", "<TCP:"]
                .iter()
                .any(|other| tail.split(',').next().unwrap_or(tail).contains(other)),
        };
        if begun && changes_something(call, tail) && seen.insert(point.clone()) {
            points.push(point);
        }
    }
    points
}

/// Runs `vault` in `home` with a fault at `point`. Returns `None` if the fault killed it, else its
/// result.
pub fn strike(home: &Home, arguments: &[&str], point: &Point, fault: Fault) -> Option<Ran> {
    let [trace, inject] = fault_options(point, fault);
    let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let ran = strace(home, &options, arguments);
    // strace ends by the same signal as the traced program, and then there is no exit code.
    (ran.code != -1).then_some(ran)
}

/// Returns the two strace options that inject the fault at a point.
pub fn fault_options(point: &Point, fault: Fault) -> [String; 2] {
    let what = match fault {
        Fault::Kill => "signal=SIGKILL".to_owned(),
        Fault::Error(name) => format!("error={name}"),
    };
    [
        format!("trace={}", point.call),
        format!("inject={}:{what}:when={}", point.call, point.when),
    ]
}

/// Selects points: the first, the last, and every rename, flush, link and removal. Of the others,
/// as many as fit into `most`, spread evenly.
pub fn spread(points: Vec<Point>, most: usize) -> Vec<Point> {
    let total = points.len();
    let kept = |at: usize, point: &Point| point.is_essential() || at == 0 || at + 1 == total;
    let essential = points
        .iter()
        .enumerate()
        .filter(|(at, point)| kept(*at, point))
        .count();
    let others = total - essential;
    let room = most.saturating_sub(essential).min(others);
    let mut other = 0;
    points
        .into_iter()
        .enumerate()
        .filter(|(at, point)| {
            if kept(*at, point) {
                return true;
            }
            other += 1;
            (other - 1) * room / others != other * room / others
        })
        .map(|(_, point)| point)
        .collect()
}

/// Selects at most `most` points, if possible two thirds of them renames, flushes, links and
/// removals. Both groups are spread evenly.
pub fn sample(points: Vec<Point>, most: usize) -> Vec<Point> {
    let essential = points.iter().filter(|point| point.is_essential()).count();
    let others = points.len() - essential;
    let of_others = others.min((most / 3).max(most.saturating_sub(essential)));
    let of_essential = essential.min(most - of_others.min(most));
    let (mut seen, mut seen_others) = (0, 0);
    points
        .into_iter()
        .filter(|point| {
            let (count, room, all) = if point.is_essential() {
                (&mut seen, of_essential, essential)
            } else {
                (&mut seen_others, of_others, others)
            };
            *count += 1;
            (*count - 1) * room / all != *count * room / all
        })
        .collect()
}

/// Returns, for each system call that renames, flushes, links or removes, its last point.
pub fn last_of_each(points: &[Point]) -> Vec<Point> {
    let mut last = BTreeMap::new();
    for point in points.iter().filter(|point| point.is_essential()) {
        let known = last.entry(&point.call).or_insert(point);
        if point.when > known.when {
            *known = point;
        }
    }
    last.into_values().cloned().collect()
}

/// Copies a prepared home with its symbolic links and modes.
pub fn copy_home(from: &Home) -> Home {
    let to = Home::new();
    let status = Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", from.path().display()))
        .arg(to.path())
        .status()
        .expect("cp");
    assert!(status.success(), "cp failed");
    move_sources(from.path(), to.path());
    to
}

/// Replaces the path of the original home by that of the copy in the records of own skills, which
/// name the folders that skills were added from.
fn move_sources(from: &Path, to: &Path) {
    let Ok(vaults) = std::fs::read_dir(to.join(".config/vault/vaults")) else {
        return;
    };
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    for vault in vaults.flatten() {
        let record = vault.path().join("own-skills.json");
        if let Ok(text) = std::fs::read_to_string(&record) {
            std::fs::write(&record, text.replace(&*from, &to)).expect("a record of the copy");
        }
    }
}

/// A prepared home that can be restored at its own path, which links and records of agents' folders
/// contain.
pub struct Kept {
    home: Home,
    aside: Home,
}

impl Kept {
    /// Copies a home, so that [`Self::restored`] can bring it back to this state.
    pub fn new(home: Home) -> Self {
        let aside = copy_home(&home);
        Self { home, aside }
    }

    /// The home in its present state, which commands may have changed since the copy.
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Brings the home back to the copied state and returns it.
    pub fn restored(&self) -> &Home {
        // A program that a killed command has started may still write files, so ignore files that
        // cannot be removed now; the next call removes them.
        let script = "chmod -R u+w . ; rm -rf ./* ./.[!.]*; exec cp -a \"$1/.\" .";
        let status = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(self.aside.path())
            .current_dir(self.home.path())
            .stderr(Stdio::null())
            .status()
            .expect("sh");
        assert!(status.success(), "the home was not restored");
        &self.home
    }
}

fn changes_something(call: &str, tail: &str) -> bool {
    match call {
        "open" | "openat" => tail.contains("O_CREAT") || tail.contains("O_TRUNC"),
        "write" | "writev" => !tail.starts_with("1<") && !tail.starts_with("2<"),
        _ => true,
    }
}

/// Leaves out system calls that this architecture does not have: aarch64 has no `open`, `rename`,
/// `mkdir` and so on.
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

/// Returns the words of a command that runs `vault` with `arguments` under strace. Programs that
/// `vault` starts, such as git, are not traced.
pub fn words(options: &[&str], arguments: &[&str]) -> Vec<String> {
    let program = vault_binary().to_string_lossy().into_owned();
    let options = options.iter().copied();
    ["strace", "-b", "execve"]
        .into_iter()
        .chain(options)
        .chain(["--", &program])
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect()
}

fn strace(home: &Home, options: &[&str], arguments: &[&str]) -> Ran {
    let mut command = Command::new("strace");
    home.environment(&mut command);
    command
        .args(["-b", "execve"])
        .args(options)
        .arg("--")
        .arg(vault_binary())
        .args(arguments)
        .current_dir(home.path())
        .stdin(Stdio::null());
    command.output().expect("strace").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_what_matters_and_is_spread_evenly() {
        let point = |call: &str, when| Point {
            call: call.into(),
            when,
            on_disk: true,
        };
        let mut all: Vec<Point> = (1..=40).map(|when| point("write", when)).collect();
        all.insert(20, point("rename", 1));
        all.insert(30, point("fsync", 1));
        let sample = spread(all.clone(), 14);
        assert_eq!(sample.len(), 14);
        assert!(sample.contains(&all[0]) && sample.contains(&all[41]));
        assert!(sample.contains(&point("rename", 1)) && sample.contains(&point("fsync", 1)));
        let writes: Vec<usize> = sample
            .iter()
            .filter(|point| point.call == "write")
            .map(|point| point.when)
            .collect();
        assert!(
            writes.windows(2).all(|pair| pair[1] - pair[0] <= 5),
            "{writes:?}"
        );
        assert_eq!(spread(all.clone(), 100), all);
        // The essential points are kept even if they exceed the number.
        assert_eq!(spread(all.clone(), 1).len(), 4);
        assert_eq!(super::sample(all.clone(), 9).len(), 9);
        let few = super::sample(all.clone(), 3);
        assert_eq!(few.iter().filter(|point| point.is_essential()).count(), 2);
        assert_eq!(few.len(), 3);
        assert_eq!(super::sample(all.clone(), 100), all);
    }

    #[test]
    fn points_count_by_thread_and_name_and_come_once_each() {
        let trace = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            trace.path(),
            "7 openat(AT_FDCWD, \"\", O_RDONLY) = 3\n\
             7 openat(AT_FDCWD, \"\"..., O_WRONLY|O_CREAT, 0600) = 3\n\
             7 write(2</dev/null>, \"\"..., 9) = 9\n\
             7 write(3</a>, \"\"..., 9 <unfinished ...>\n\
             8 write(4<anon_inode:[eventfd]>, \"\"..., 9) = 9\n\
             7 <... write resumed>) = 9\n\
             8 write(3</a>, \"\"..., 9) = 9\n\
             7 rename(\"\"..., \"\"...) = 0\n\
             7 +++ exited with 0 +++\n",
        )
        .unwrap();
        let found: Vec<String> = read_points(trace.path(), "")
            .into_iter()
            .map(|point| format!("{} {} {}", point.call, point.when, point.on_disk))
            .collect();
        assert_eq!(
            found,
            [
                "openat 2 true",
                "write 2 true",
                "write 1 false",
                "rename 1 true"
            ]
        );
        assert_eq!(read_points(trace.path(), "rename").len(), 1);
    }
}
