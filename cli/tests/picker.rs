//! The picker of `vault add` in a real terminal: choosing some skills or none, and leaving with
//! Escape or Ctrl-C.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

#[path = "screens/mod.rs"]
mod screens;

use std::fs;
use std::path::Path;

use screens::terminal::{DOWN, ENTER, ESCAPE, INTERRUPT};
use screens::{compare, start};
use tempfile::TempDir;

const HELP: &str = "Enter adds";

/// Creates a home with a folder of three skills.
fn home() -> TempDir {
    let home = tempfile::Builder::new()
        .prefix("pick-")
        .rand_bytes(6)
        .tempdir_in("/tmp")
        .unwrap();
    for (name, description) in [
        (
            "csv",
            "Reads tables of any size. Use when a table is to be read.",
        ),
        ("pdf", "Fills forms."),
        (
            "slides",
            "Makes slides out of notes, one for each heading, with the pictures that are named there, in the colours of the house.",
        ),
    ] {
        let folder = home.path().join("skills").join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n");
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }
    home
}

fn is_installed(home: &Path, name: &str) -> bool {
    home.join(".vault/skills").join(name).exists()
}

#[test]
fn two_of_three_are_chosen_and_added() {
    let home = home();
    let Some(mut terminal) = start(home.path(), "add skills") else {
        return;
    };
    terminal.wait_for(HELP);
    terminal.press(&[" ", DOWN, DOWN, " "]);
    terminal.wait_for("[x] slides");
    compare("picker.txt", &terminal.shown(), home.path());
    terminal.press(&[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("picked.txt", &screen, home.path());
    assert!(is_installed(home.path(), "csv") && is_installed(home.path(), "slides"));
    assert!(!is_installed(home.path(), "pdf"));
}

#[test]
fn who_goes_away_or_takes_nothing_has_changed_nothing() {
    for (what, keys) in [
        ("Escape", &[ESCAPE][..]),
        ("Ctrl-C", &[INTERRUPT]),
        ("after a tick", &[" ", INTERRUPT]),
        ("nothing ticked", &[ENTER]),
    ] {
        let home = home();
        let Some(mut terminal) = start(home.path(), "add skills") else {
            return;
        };
        terminal.wait_for(HELP);
        terminal.press(keys);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 130, "{what}: {screen}");
        for made in [".vault", ".config"] {
            assert!(!home.path().join(made).exists(), "{what} made {made}");
        }
        if what == "Escape" {
            compare("picker-escape.txt", &screen, home.path());
        }
    }
}
