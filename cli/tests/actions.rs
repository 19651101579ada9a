//! Actions as real processes: signals, exit codes, environment and terminal.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Home;

const SKILL: &str = "---
name: worker
description: Waits, tells and asks in tests. Use when a test needs an action.
requires-secrets: [{ name: WORKER_TOKEN, description: Read access. }, { name: WORKER_HINT, required: false }]
bin:
  wait: { command: bin/wait.sh }
  vanish: { command: bin/vanish.sh }
  env: { command: bin/env.sh }
  ask: { command: bin/env.sh, requires-tty: true }
  make: { command: bin/make.sh }
---
Work.
";

const SCRIPTS: [(&str, &str); 4] = [
    (
        "wait.sh",
        "#!/bin/sh\ntrap 'echo got TERM; exit 41' TERM\ntrap 'echo got INT; exit 42' INT\ntrap 'echo got HUP; exit 43' HUP\n\
         echo ready\nwhile :; do sleep 0.05; done\n",
    ),
    ("vanish.sh", "#!/bin/sh\necho ready\nkill -KILL $$\n"),
    ("env.sh", "#!/bin/sh\nenv | sort\n"),
    (
        "make.sh",
        "#!/bin/sh\npwd\necho lost >lost.txt\necho made >\"$VAULT_OUTPUT/made.txt\"\n",
    ),
];

/// A home with the skill `worker` in its vault.
fn world() -> Home {
    let home = Home::new();
    home.write("worker/SKILL.md", SKILL);
    for (name, text) in SCRIPTS {
        home.write_executable(&format!("worker/bin/{name}"), text);
    }
    home.run(&["add", "worker"]).ok();
    home
}

/// Runs an action of `worker` with the variable that it needs.
fn act(home: &Home, action: &str) -> Command {
    let mut command = home.vault(&["skill", action, "worker"]);
    command.env("WORKER_TOKEN", "x");
    command
}

fn left_over(home: &Home) -> usize {
    home.path(".vault/tmp").read_dir().unwrap().count()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn signals_reach_the_action_and_its_exit_code_comes_back() {
    let world = world();
    for (signal, said, code) in [
        (Signal::TERM, "got TERM", 41),
        (Signal::INT, "got INT", 42),
        (Signal::HUP, "got HUP", 43),
    ] {
        let mut command = act(&world, "wait");
        command.stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(output.next().unwrap().unwrap(), said);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(left_over(&world), 0, "the private copy is gone");
    }
}

#[test]
fn an_action_that_a_signal_ends_ends_as_shells_say() {
    let world = world();
    let output = act(&world, "vanish").output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 9));
    assert_eq!(left_over(&world), 0);
}

#[test]
fn a_declared_variable_that_is_not_set_is_named_before_anything_starts() {
    let world = world();
    for value in [None, Some("")] {
        let mut command = world.vault(&["skill", "env", "worker"]);
        command.envs(value.map(|value| ("WORKER_TOKEN", value)));
        let output = command.output().unwrap();
        let (stdout, stderr) = text(&output);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""));
        for part in [
            "env of worker needs a variable that is not set",
            "WORKER_TOKEN  Read access.",
        ] {
            assert!(stderr.contains(part), "{stderr}");
        }
        assert!(!stderr.contains("WORKER_HINT"), "{stderr}");
    }
}

/// Runs the action `env` of a skill with flags before it, and returns its variables but those that
/// the shell itself sets.
fn variables(home: &Home, flags: &[&str], skill: &str) -> Vec<String> {
    let output = home
        .vault(&[&["skill"], flags, &["env", skill]].concat())
        .env("WORKER_TOKEN", "secret-1")
        .env("AWS_SECRET_ACCESS_KEY", "secret-2")
        .env("VAULT_ADMIN_PASSWORD", "secret-3")
        .env("VAULT_SOURCE_TOKENS", "git.example=secret-4")
        .env("VAULT_LOG_LEVEL", "warn")
        .env("vault_token", "secret-5")
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let names = text(&output).0;
    names
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .map(str::to_owned)
        .collect()
}

const DECLARED: &str = "HOME LANG PATH TERM VAULT_CALLED_FROM VAULT_OUTPUT WORKER_TOKEN";

#[test]
fn settings_of_vault_reach_no_action() {
    let world = world();
    for flags in [&[][..], &["--inherit-env"], &["--clean-env"]] {
        let names = variables(&world, flags, "worker");
        let of_vault = names
            .iter()
            .filter(|name| name.to_lowercase().starts_with("vault_"));
        assert_eq!(
            of_vault.collect::<Vec<_>>(),
            ["VAULT_CALLED_FROM", "VAULT_OUTPUT"]
        );
        let has_all = names.iter().any(|name| name == "AWS_SECRET_ACCESS_KEY");
        assert_eq!(has_all, flags != ["--clean-env"], "{flags:?} {names:?}");
        if !has_all {
            assert_eq!(names.join(" "), DECLARED);
        }
    }
}

#[test]
fn a_skill_from_elsewhere_gets_what_it_declares_unless_told_otherwise() {
    let world = world();
    let elsewhere = "github:acme/skills/worker";
    world
        .run(&["add", "worker", "--replace", "--provenance", elsewhere])
        .ok();
    for flags in [&[][..], &["--clean-env"]] {
        assert_eq!(variables(&world, flags, "worker").join(" "), DECLARED);
    }
    let all = variables(&world, &["--inherit-env"], "worker");
    assert!(all.iter().any(|name| name == "AWS_SECRET_ACCESS_KEY"));
}

#[test]
fn the_output_of_an_action_stays_in_the_folder_that_which_names() {
    let world = world();
    let located = world.run(&["skill", "which", "worker", "make"]).ok();
    assert_eq!(
        located["output"],
        world.path("").display().to_string().trim_end_matches('/')
    );
    let output = act(&world, "make").output().unwrap();
    let ran_in = text(&output).0;
    let copies = located["copies"].as_str().unwrap();
    assert!(ran_in.starts_with(copies), "{ran_in} is not below {copies}");
    assert!(!std::path::Path::new(ran_in.trim()).exists(), "{ran_in}");
    assert!(world.path("made.txt").is_file());
    assert!(!world.path("lost.txt").exists());

    std::fs::create_dir(world.path("results")).unwrap();
    let mut command = act(&world, "make");
    assert!(
        command
            .env("VAULT_OUTPUT", "results")
            .status()
            .unwrap()
            .success()
    );
    assert!(world.path("results/made.txt").is_file());

    let output = act(&world, "make")
        .env("VAULT_OUTPUT", "nowhere")
        .output()
        .unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("VAULT_OUTPUT is not a folder"), "{stderr}");
}

#[test]
fn an_action_that_asks_is_refused_without_a_terminal() {
    let world = world();
    let output = act(&world, "ask").output().unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("NoTtyError"), "{stderr}");
}

#[test]
fn which_prints_the_paths_of_arguments_that_are_files_of_the_skill() {
    let home = Home::new();
    home.write(
        "tools/SKILL.md",
        "---
name: tools
description: Counts words. Use when words are to be counted.
bin:
  count: { command: sh, args: [scripts/count.sh, words, ./scripts/count.sh] }
  inside: { command: sh, cwd: scripts, args: [count.sh, ../SKILL.md, ../../count.sh] }
---
Count.
",
    );
    home.write("tools/scripts/count.sh", "echo counted $#\n");
    home.run(&["add", "tools"]).ok();
    let found = home.run(&["skill", "which", "tools"]).ok();
    let files = found["files"].as_str().unwrap().to_owned();
    let file = |path: &str| format!("{files}/{path}");
    let actions = &found["actions"];
    let script = file("scripts/count.sh");
    assert_eq!(
        actions[0]["args"],
        serde_json::json!([script, "words", script])
    );
    assert_eq!(
        actions[1]["args"],
        serde_json::json!([script, file("SKILL.md"), "../../count.sh"])
    );
    // An action runs in a copy of the skill. The text and the JSON must name the same folder.
    let copies = found["copies"].as_str().unwrap();
    let folder = format!("{copies}/<run>/files");
    assert_eq!(actions[0]["cwd"], folder);
    assert_eq!(actions[1]["cwd"], format!("{folder}/scripts"));
    let one = home.run(&["skill", "which", "tools", "inside"]).ok();
    assert_eq!(one["cwd"], actions[1]["cwd"]);
    let text = text(&home.vault(&["skill", "which", "tools"]).output().unwrap()).0;
    let script = format!("  arg      {script}\n");
    assert_eq!(text.matches(&script).count(), 3, "{text}");
    let copy = format!("  cwd      {folder}/scripts  (deleted after the run)\n");
    assert!(text.contains(&copy), "{text}");
}
