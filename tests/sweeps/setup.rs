//! `kill -9` of `vault setup`, driven in a terminal, in each of its three modes.

use std::fs;

use vault_tests::home::{Home, Ran};
use vault_tests::sweep::{self, Fault, Point};
use vault_tests::terminal::{DOWN, ENTER, Terminal};

use crate::agents::{Deed, sweep, three_agents};

/// The first starter skill that is offered.
const STARTER: &str = "code-review";

/// Answers the questions of the wizard as far as they come: one starter skill, this mode, and yes.
fn drive(home: &Home, words: &[String], mode: &[&str]) -> (String, i32) {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!(
        "env TMPDIR={} {}",
        home.path().join("tmp").display(),
        quoted.join(" ")
    );
    let mut terminal = Terminal::start(home.path(), &line).expect("a terminal");
    let chosen = [mode, &[ENTER]].concat();
    let mut questions: &[(&str, &[&str])] = &[
        // What is shown last: all offers are there then.
        ("space: select, right: all", &[" ", ENTER]),
        ("What should vault do with it?", &chosen),
        ("Show each imported skill to agents", &["y", ENTER]),
        ("What happens when an agent", &[ENTER]),
        ("Go ahead?", &[ENTER]),
    ];
    loop {
        let texts: Vec<&str> = questions.iter().map(|(text, _)| *text).collect();
        if texts.is_empty() {
            break;
        }
        let Some(at) = terminal.wait_for_any(&texts) else {
            break;
        };
        // One starter skill, always the same one.
        let is_done = questions[at].0.starts_with("space") && !terminal.shown().contains(STARTER);
        let keys = if is_done { &[ENTER] } else { questions[at].1 };
        terminal.press(keys);
        questions = &questions[at + 1..];
    }
    terminal.finish()
}

/// Kills the wizard at a sample of its points.
fn strike_down(label: &str, mode: &[&str], most: usize) {
    if !sweep::is_ready() || Terminal::start(std::path::Path::new("/"), "true").is_none() {
        return;
    }
    let home = three_agents();
    let own = home.path().join(".claude/skills/mine");
    fs::create_dir_all(own.join("bin")).unwrap();
    for (path, text) in [
        (
            "SKILL.md",
            "---\nname: mine\ndescription: Does it the way I like it, when it is to be done.\n---\nMine.\n",
        ),
        ("bin/run.sh", "#!/bin/sh\n"),
        ("notes.md", "Notes.\n"),
    ] {
        fs::write(own.join(path), text).unwrap();
    }
    let ran = |(screen, code): (String, i32)| Ran {
        code,
        stdout: screen,
        stderr: String::new(),
    };
    let deed = Deed {
        label,
        points: &|home| {
            let trace = tempfile::NamedTempFile::new().unwrap();
            let file = trace.path().to_string_lossy().into_owned();
            let options = sweep::trace_options(&file);
            let words = sweep::words(&options.each_ref().map(String::as_str), &["setup"]);
            ran(drive(home, &words, mode)).ok();
            // What is drawn on the terminal varies with the keys' times; what is done to files does
            // not.
            sweep::read_points(trace.path(), "/.vault/lock")
                .into_iter()
                .filter(|point| point.on_disk && !point.call.contains("write"))
                .collect()
        },
        act: &|home, point: Option<&Point>| {
            let words = match point {
                Some(point) => {
                    let [trace, inject] = sweep::fault_options(point, Fault::Kill);
                    let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
                    sweep::words(&options, &["setup"])
                }
                None => sweep::words(&[], &["setup"]).split_off(4),
            };
            let (screen, code) = drive(home, &words, mode);
            // The shell's way to say that a signal ended it.
            (code != 128 + 9).then(|| ran((screen, code)))
        },
        gap: (!mode.is_empty()).then_some(".claude/skills/mine"),
        after: &|home| {
            for root in crate::agents::ROOTS {
                assert!(home.path().join(root).join("witness/SKILL.md").is_file());
            }
        },
    };
    sweep(&deed, home, most);
}

#[test]
fn a_setup_that_links_beside_leaves_own_skills_alone() {
    strike_down("setup, augment", &[], 7);
}

#[test]
fn a_setup_with_backup_has_the_own_skill_in_one_place_at_least() {
    strike_down("setup, backup", &[DOWN], 9);
}

#[test]
fn a_setup_in_place_has_the_own_skill_in_one_place_at_least() {
    strike_down("setup, in place", &[DOWN, DOWN], 9);
}
