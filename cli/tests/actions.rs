//! Actions as real processes: signals, exit codes, environment and terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const SKILL: &str = "---
name: worker
description: Waits, tells and asks in tests. Use when a test needs an action.
requires-secrets: [{ name: WORKER_TOKEN, description: Read access. }, { name: WORKER_HINT, required: false }]
bin:
  wait: { command: bin/wait.sh }
  vanish: { command: bin/vanish.sh }
  env: { command: bin/env.sh }
  ask: { command: bin/env.sh, requires-tty: true }
---
Work.
";

const SCRIPTS: [(&str, &str); 3] = [
    (
        "wait.sh",
        "#!/bin/sh\ntrap 'echo got TERM; exit 41' TERM\ntrap 'echo got INT; exit 42' INT\ntrap 'echo got HUP; exit 43' HUP\n\
         echo ready\nwhile :; do sleep 0.05; done\n",
    ),
    ("vanish.sh", "#!/bin/sh\necho ready\nkill -KILL $$\n"),
    ("env.sh", "#!/bin/sh\nenv | sort\n"),
];

struct World {
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let skill = home.path().join("worker");
        fs::create_dir_all(skill.join("bin")).unwrap();
        fs::write(skill.join("SKILL.md"), SKILL).unwrap();
        for (name, text) in SCRIPTS {
            let path = skill.join("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let world = Self { home };
        let added = world
            .vault(&["add", skill.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(added.status.success(), "{added:?}");
        world
    }

    fn vault(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vault"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    fn left_over(&self) -> usize {
        fs::read_dir(self.home.path().join(".vault/tmp"))
            .unwrap()
            .count()
    }
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn signals_reach_the_action_and_its_exit_code_comes_back() {
    let world = World::new();
    for (signal, said, code) in [
        (Signal::TERM, "got TERM", 41),
        (Signal::INT, "got INT", 42),
        (Signal::HUP, "got HUP", 43),
    ] {
        let mut child = world
            .vault(&["skill", "wait", "worker"])
            .env("WORKER_TOKEN", "x")
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(output.next().unwrap().unwrap(), said);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(world.left_over(), 0, "the private copy is gone");
    }
}

#[test]
fn an_action_that_a_signal_ends_ends_as_shells_say() {
    let world = World::new();
    let output = world
        .vault(&["skill", "vanish", "worker"])
        .env("WORKER_TOKEN", "x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + 9));
    assert_eq!(world.left_over(), 0);
}

#[test]
fn a_declared_variable_that_is_not_set_is_named_before_anything_starts() {
    let world = World::new();
    for value in [None, Some("")] {
        let mut command = world.vault(&["skill", "env", "worker"]);
        command.envs(value.map(|value| ("WORKER_TOKEN", value)));
        let output = command.output().unwrap();
        let (stdout, stderr) = text(&output);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""));
        assert!(
            stderr.contains("env of worker needs a variable that is not set"),
            "{stderr}"
        );
        assert!(
            stderr.contains("WORKER_TOKEN  Read access.") && !stderr.contains("WORKER_HINT"),
            "{stderr}"
        );
    }
}

#[test]
fn a_clean_environment_holds_what_is_declared_and_little_else() {
    let world = World::new();
    let run = |arguments: &[&str]| {
        let output = world
            .vault(arguments)
            .env("WORKER_TOKEN", "secret-1")
            .env("AWS_SECRET_ACCESS_KEY", "secret-2")
            .env("VAULT_ADMIN_PASSWORD", "secret-3")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .current_dir(world.home.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output).0
    };
    let usual = run(&["skill", "env", "worker"]);
    assert!(
        usual.contains("AWS_SECRET_ACCESS_KEY=secret-2") && !usual.contains("secret-3"),
        "{usual}"
    );
    let clean = run(&["skill", "--clean-env", "env", "worker"]);
    let names: Vec<&str> = clean
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        // Ignore the variables that the shell itself sets.
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(
        names,
        [
            "HOME",
            "LANG",
            "PATH",
            "TERM",
            "VAULT_CALLED_FROM",
            "WORKER_TOKEN"
        ]
    );
}

#[test]
fn an_action_that_asks_is_refused_without_a_terminal() {
    let world = World::new();
    let output = world
        .vault(&["skill", "ask", "worker"])
        .env("WORKER_TOKEN", "x")
        .output()
        .unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("NoTtyError"), "{stderr}");
}

#[test]
fn clean_env_goes_with_an_action_only() {
    let world = World::new();
    let output = world
        .vault(&["skill", "--clean-env", "list"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_action_runs_the_bytes_that_were_signed() {
    let world = World::new();
    let store = world.home.path().join(".vault/store");
    let script = find(&store, "env.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&script, "#!/bin/sh\necho tampered\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o555)).unwrap();
    let output = world
        .vault(&["skill", "env", "worker"])
        .env("WORKER_TOKEN", "x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(text(&output).0, "");
}

fn find(folder: &Path, name: &str) -> std::path::PathBuf {
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().is_some_and(|found| found == name) {
                return path;
            }
        }
    }
    panic!("no {name}");
}
