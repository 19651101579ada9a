//! A full disk, a limit on file sizes, a read-only folder: `vault add` and `vault cloud pull` say
//! so in one sentence with exit 1, lose nothing, and succeed once there is room.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vault_tests::home::{Home, Ran, vault_binary};
use vault_tests::skills::skill_md;
use vault_tests::sweep::{self, Fault, Point};
use vault_tests::team::Team;

use crate::remote::{change, machine, pull, team};
use crate::state::{self, Seen};

/// What the system says when this call finds no room, or a broken disk.
pub fn error_of(point: &Point) -> &'static str {
    let makes = ["open", "write", "mkdir", "rename", "link", "creat"];
    let is_removal = point.call.starts_with("unlink");
    if !is_removal && makes.iter().any(|part| point.call.contains(part)) {
        "ENOSPC"
    } else {
        "EIO"
    }
}

/// A failure that a person understands: exit 1, one sentence with the system's reason, and nothing
/// like a crash.
#[track_caller]
fn says_why(ran: &Ran, reasons: &[&str]) {
    let said = ran.json();
    assert_eq!(ran.code, 1, "{said}\n{}", ran.stderr);
    assert_eq!(said["ok"], false);
    assert_eq!(said["error"]["code"], "io", "{said}");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(
        reasons.iter().any(|reason| message.contains(reason)),
        "{message}"
    );
    if message.contains("No space left") {
        let hint = said["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.starts_with("free some space"), "{said}");
    }
    assert!(
        !message.contains('\n') && message.contains('/'),
        "{message}"
    );
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

/// Lets every call of `arguments` fail once, each in a copy of `start`.
fn sweep(label: &str, start: &Home, arguments: &[&str], most: usize) {
    let before = state::seen(start);
    let model = sweep::copy_home(start);
    let all: Vec<Point> = sweep::points(&model, arguments)
        .into_iter()
        .filter(|point| point.on_disk)
        .collect();
    let end = state::seen(&model);
    let step = all.len().div_ceil(most).max(1);
    let (mut failed, mut went_on) = (0, 0);
    for point in all.iter().step_by(step) {
        let home = sweep::copy_home(start);
        let fault = Fault::Error(error_of(point));
        let ran = sweep::strike(&home, arguments, point, fault).expect("no signal was sent");
        let now = state::seen(&home);
        if ran.code == 0 {
            // What only saves work may fail: the index, the name in the lock.
            assert_eq!(now, end, "{label}: {point:?} said done");
            let matters = point.call.contains("sync") || point.call.contains("rename");
            assert!(!matters, "{label}: {point:?} failed and nobody said so");
            went_on += 1;
        } else {
            says_why(&ran, &["No space left on device", "Input/output error"]);
            failed += 1;
        }
        assert!(now == before || now == end, "{label}: {point:?}: {now:#?}");
        state::whole(&home);
        state::private(&home);
        home.run(arguments).ok();
        assert_eq!(state::seen(&home), end, "{label}: {point:?}");
        state::whole(&home);
        state::swept(&home);
    }
    eprintln!(
        "{label} with failing calls: {} of {} points; failed {failed}, went on {went_on}",
        failed + went_on,
        all.len()
    );
    assert!(failed > went_on);
}

fn owner() -> Home {
    let home = Home::new();
    home.add("witness", "stays").ok();
    let large = vec![7; 90_000];
    home.skill(
        "subject",
        &[
            ("SKILL.md", &skill_md("subject", "new")),
            ("assets/large.bin", &large),
        ],
    );
    home
}

const ADD: [&str; 3] = ["--json", "add", "work/subject"];
const PULL: [&str; 3] = ["--json", "cloud", "pull"];

/// A machine that has release 1 of a team whose release 2 has a larger skill.
fn behind() -> (Team, Home) {
    let team = team();
    let home = machine(&team, "laptop");
    assert_eq!(pull(&home), 1);
    change(&team, 2);
    team.sync();
    (team, home)
}

#[test]
fn an_add_whose_calls_fail_loses_nothing() {
    if sweep::is_ready() {
        sweep("add", &owner(), &ADD, 20);
    }
}

#[test]
fn a_pull_whose_calls_fail_loses_nothing() {
    if sweep::is_ready() {
        let (_team, home) = behind();
        sweep("pull", &home, &PULL, 20);
    }
}

/// Runs `vault` where no file may grow over this many KiB, as a quota would have it.
fn run_limited(home: &Home, kib: u32, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    home.environment(&mut command);
    // POSIX counts in units of 512 bytes. The signal would end the process before it can say
    // anything.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kib * 2);
    command
        .args(["-c", &script, "sh"])
        .arg(vault_binary())
        .args(arguments)
        .current_dir(home.path())
        .stdin(Stdio::null());
    command.output().expect("sh").into()
}

#[test]
fn a_limit_on_file_sizes_is_said_and_the_next_try_succeeds() {
    let (_team, machine) = behind();
    for (home, arguments) in [(owner(), &ADD), (machine, &PULL)] {
        let before = state::seen(&home);
        for kib in [0, 1, 16, 64] {
            let ran = run_limited(&home, kib, arguments);
            says_why(&ran, &["File too large"]);
            assert_eq!(state::seen(&home), before, "{kib} KiB");
            state::whole(&home);
        }
        run_limited(&home, 4096, arguments).ok();
        assert_ne!(state::seen(&home), before);
        state::whole(&home);
        state::swept(&home);
    }
}

/// A user who is bound by mode bits: root is not.
pub struct Ordinary<'h> {
    home: &'h Home,
    drops: bool,
}

/// `nobody` on most systems; any number that is not root will do.
const SOMEBODY: u32 = 65534;

impl<'h> Ordinary<'h> {
    /// Hands the home to an ordinary user where the tests run as root. `None`, said aloud, where
    /// that cannot be done.
    pub fn of(home: &'h Home) -> Option<Self> {
        let drops = fs::metadata(home.path()).unwrap().uid() == 0;
        if !drops {
            return Some(Self { home, drops });
        }
        // Where root builds, the binary may lie in a folder that nobody else may enter.
        fs::copy(vault_binary(), home.path().join("vault-binary")).unwrap();
        give(home.path());
        let user = Self { home, drops };
        let tried = user.command(Path::new("true")).output();
        if tried.is_ok_and(|tried| tried.status.success()) {
            Some(user)
        } else {
            eprintln!(
                "left out: read-only folders (root is not bound by modes, and setpriv is missing)"
            );
            None
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = if self.drops {
            let mut command = Command::new("setpriv");
            let user = SOMEBODY.to_string();
            command
                .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        self.home.environment(&mut command);
        command.current_dir(self.home.path()).stdin(Stdio::null());
        command
    }

    /// The program that this user runs: root's build may lie where nobody else may enter.
    fn program(&self) -> PathBuf {
        if self.drops {
            self.home.path().join("vault-binary")
        } else {
            vault_binary()
        }
    }

    /// The words of a shell that run `vault` as this user.
    pub fn line(&self, arguments: &str) -> String {
        let program = self.program().display().to_string();
        if self.drops {
            format!(
                "setpriv --reuid {SOMEBODY} --regid {SOMEBODY} --clear-groups -- {program} {arguments}"
            )
        } else {
            format!("{program} {arguments}")
        }
    }

    /// Runs `vault` as this user.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let program = self.program();
        let mut command = self.command(&program);
        command.args(arguments).output().expect("a run").into()
    }

    /// What is listed, read as this user.
    #[track_caller]
    fn list(&self) -> String {
        let listed = self.run(&["skill", "list"]).ok();
        assert_eq!(listed.stderr, "");
        listed.stdout
    }
}

fn give(folder: &Path) {
    let status = Command::new("chown")
        .args(["-R", &format!("{SOMEBODY}:{SOMEBODY}")])
        .arg(folder)
        .status()
        .unwrap();
    assert!(status.success());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_read_only_folder_is_said_and_readers_go_on() {
    let (_team, machine) = behind();
    for (home, arguments) in [(owner(), &ADD), (machine, &PULL)] {
        let Some(user) = Ordinary::of(&home) else {
            return;
        };
        let before = user.list();
        for folder in ["", "tmp", "store", "skills", "links"] {
            if (folder == "skills" && arguments == &PULL)
                || (folder == "links" && arguments == &ADD)
            {
                continue; // nothing is written there
            }
            let mut closed = home.vault().join(folder);
            if folder == "links" {
                let link = fs::read_dir(&closed).unwrap().next().unwrap().unwrap();
                closed = link.path();
            }
            // The lock is a file that is there: a closed root stops what would be made new in it.
            if folder.is_empty() {
                set_mode(&home.vault().join("lock"), 0o400);
            }
            set_mode(&closed, 0o500);
            let ran = user.run(arguments);
            says_why(&ran, &["Permission denied"]);
            assert_eq!(user.list(), before, "{folder} is read-only");
            state::whole(&home);
            set_mode(&closed, 0o700);
            set_mode(&home.vault().join("lock"), 0o600);
        }
        user.run(arguments).ok();
        assert_ne!(user.list(), before);
        state::whole(&home);
        let seen: Seen = state::seen(&home);
        assert!(seen.contains_key("subject") || seen.contains_key("changes"));
        state::swept(&home);
    }
}
