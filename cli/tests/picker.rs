//! The picker of `vault add` in a real terminal: choosing some skills or none, and leaving with
//! Escape or Ctrl-C.

use crate::screens::terminal::{DOWN, ENTER, ESCAPE, INTERRUPT};
use crate::screens::{compare, start};
use crate::support::Home;

const HELP: &str = "Enter: add";

/// Creates a home with a folder of three skills.
fn home() -> Home {
    let home = Home::for_screens("pick-");
    home.skill(
        "skills/csv",
        "Reads tables of any size. Use when a table is to be read.",
    );
    home.skill("skills/pdf", "Fills forms.");
    home.skill(
        "skills/slides",
        "Makes slides out of notes, one for each heading, with the pictures that are named there, in the colours of the house.",
    );
    home
}

fn is_installed(home: &Home, name: &str) -> bool {
    home.path(".vault/skills").join(name).exists()
}

#[test]
fn two_of_three_are_chosen_and_added() {
    let home = home();
    let Some(mut terminal) = start(home.root(), "add skills") else {
        return;
    };
    terminal.wait_for(HELP);
    terminal.press(&[" ", DOWN, DOWN, " "]);
    terminal.wait_for("[x] slides");
    compare("picker.txt", &terminal.shown(), home.root());
    terminal.press(&[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("picked.txt", &screen, home.root());
    assert!(is_installed(&home, "csv") && is_installed(&home, "slides"));
    assert!(!is_installed(&home, "pdf"));
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
        let Some(mut terminal) = start(home.root(), "add skills") else {
            return;
        };
        terminal.wait_for(HELP);
        terminal.press(keys);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 130, "{what}: {screen}");
        for made in [".vault", ".config"] {
            assert!(!home.path(made).exists(), "{what} made {made}");
        }
        if what == "Escape" {
            compare("picker-escape.txt", &screen, home.root());
        }
    }
}

#[test]
fn hidden_characters_of_a_skill_are_escapes_before_and_after_it_is_added() {
    // A tag character, the Arabic letter mark and an escape sequence.
    const HIDDEN: &str = "Reads\u{e0041}\u{61c} tables.";
    const SHOWN: &str = r"Reads\u{e0041}\u{61c} tables.";
    let home = home();
    home.skill("skills/tags", HIDDEN);
    let listed = home.vault(&["add", "skills"]).output().unwrap();
    let shown = String::from_utf8(listed.stderr).unwrap();
    assert!(
        shown.contains(SHOWN) && !shown.contains('\u{61c}'),
        "{shown}"
    );

    let mut add = home.vault(&["add", "skills/tags", "--allow", "tag-characters"]);
    add.args(["--allow", "hidden-text", "--reason", "a test"]);
    let added = add.output().unwrap();
    assert!(added.status.success(), "{added:?}");
    for arguments in [&["list"][..], &["search", "tables"], &["show", "tags"]] {
        let output = home.vault(arguments).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains(SHOWN), "{arguments:?}: {shown}");
        assert!(!shown.contains(['\u{61c}', '\u{e0041}']), "{arguments:?}");
    }

    if let Some(mut terminal) = start(home.root(), "add skills") {
        terminal.wait_for(HELP);
        assert!(terminal.shown().contains(SHOWN), "{}", terminal.shown());
        terminal.press(&[ESCAPE]);
        terminal.finish();
    }
}

#[test]
fn ctrl_c_at_a_question_about_a_replacement_ends_the_whole_command() {
    let home = home();
    home.run(&["add", "skills/csv"]).ok();
    home.skill(
        "other/csv",
        "Reads other tables. Use when a table is to be read.",
    );
    let Some(mut terminal) = start(home.root(), "add other/csv skills/pdf") else {
        return;
    };
    terminal.wait_for("Replace the installed one? (y/N)");
    terminal.press(&[INTERRUPT]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 130, "{screen}");
    assert!(home.run(&["verify"]).code == 0);
    let csv = home.read(".vault/skills/csv/SKILL.md");
    assert!(csv.contains("tables of any size"), "{csv}");
}

#[test]
fn a_skill_that_changes_while_the_question_waits_is_not_added() {
    let home = home();
    for folder in ["two", "two/inner"] {
        home.skill(folder, "Reads tables.");
    }
    let renamed = |folder: &str| {
        let path = format!("{folder}/SKILL.md");
        let text = home.read(&path).replace("name: inner", "name: two");
        home.write(&path, &text);
    };
    renamed("two/inner");
    let Some(mut terminal) = start(home.root(), "add two --skill two") else {
        return;
    };
    terminal.wait_for(HELP);
    let swapped = home
        .read("two/SKILL.md")
        .replace("name: two", "name: swapped");
    home.write("two/SKILL.md", swapped);
    terminal.press(&[" ", ENTER]);
    let (screen, code) = terminal.finish();
    assert_ne!(code, 0, "{screen}");
    assert!(screen.contains("changed while"), "{screen}");
    assert!(!is_installed(&home, "swapped") && !is_installed(&home, "two"));
}
