//! `vault setup` in a real terminal: what its screens show, and what it does when it is agreed to.
//!
//! `script` makes the terminal; where there is none the test says so. The screens stand in `tests/screens`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves, and say what they leave out"
)]

#[path = "../../tests/src/terminal.rs"]
mod terminal;

use std::fs;
use std::path::Path;

use terminal::{DOWN, ENTER, LEFT, Terminal};

/// `vault` with these arguments in a terminal; `None` where there is none.
fn start(home: &Path, arguments: &str) -> Option<Terminal> {
    Terminal::start(
        home,
        &format!("{} {arguments}", env!("CARGO_BIN_EXE_vault")),
    )
}

fn home() -> tempfile::TempDir {
    // A short path of one length, so that tables look the same every time.
    let home = tempfile::Builder::new()
        .prefix("setup-")
        .rand_bytes(6)
        .tempdir_in("/tmp")
        .unwrap();
    for mark in [".claude/skills", ".codex", ".cursor"] {
        fs::create_dir_all(home.path().join(mark)).unwrap();
    }
    home
}

fn own_skill(home: &Path, name: &str, body: &str) {
    let folder = home.join(".claude/skills").join(name);
    fs::create_dir_all(&folder).unwrap();
    let text =
        format!("---\nname: {name}\ndescription: Does {name} the way I like it.\n---\n{body}\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

/// Compares a screen with the one that is kept. `SCREENS=overwrite` keeps what is shown now: look at it first.
#[expect(clippy::disallowed_methods, reason = "a switch of the test run")]
fn compare(name: &str, screen: &str, home: &Path) {
    // The name of a vault's key file is the vault's id.
    let screen = match screen.split_once("/keys/") {
        Some((before, after)) => format!("{before}/keys/[ID]{}", &after[26..]),
        None => screen.to_owned(),
    };
    let shown = screen
        .replace(&home.display().to_string(), "[HOME]")
        .replace(env!("CARGO_BIN_EXE_vault"), "vault");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/screens")
        .join(name);
    if std::env::var_os("SCREENS").is_some_and(|value| value == "overwrite") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &shown).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(shown, kept, "{}", file.display());
}

#[test]
fn a_new_user_goes_through_with_backup_and_every_agent_sees_all() {
    let home = home();
    own_skill(home.path(), "my-notes", "Take notes.");
    let Some(mut terminal) = start(home.path(), "setup") else {
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("setup.txt", &screen, home.path());
    for root in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        for skill in ["my-notes", "code-review"] {
            let file = home.path().join(root).join(skill).join("SKILL.md");
            assert!(file.is_file(), "{}", file.display());
        }
    }
    assert!(
        home.path()
            .join(".claude/skills.bak/my-notes/SKILL.md")
            .is_file()
    );
}

#[test]
fn a_review_asks_about_each_and_advanced_about_the_rest() {
    let home = home();
    own_skill(home.path(), "first", "One.");
    own_skill(home.path(), "second", "Two.");
    let Some(mut terminal) = start(home.path(), "setup --review --advanced") else {
        return;
    };
    terminal.answer("Which agents should see", &[ENTER]);
    terminal.answer("Another folder of skills", &[ENTER]);
    terminal.answer("Only skills with one of these tags", &[ENTER]);
    terminal.answer("Refuse skills that the gate flags?", &[ENTER]);
    terminal.answer("Which starter skills", &[LEFT, ENTER]);
    terminal.answer("What should become of first?", &[DOWN, DOWN, ENTER]);
    terminal.answer("What should become of second?", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("setup-review.txt", &screen, home.path());
    let root = home.path().join(".claude/skills");
    assert!(
        fs::symlink_metadata(root.join("first"))
            .unwrap()
            .is_symlink()
    );
    assert!(fs::symlink_metadata(root.join("second")).unwrap().is_dir());
    assert!(!home.path().join(".claude/skills.bak").exists());
}

#[test]
fn who_says_no_has_changed_nothing() {
    let home = home();
    own_skill(home.path(), "mine", "One.");
    let Some(mut terminal) = start(home.path(), "setup") else {
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &["n", ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("Nothing was changed."), "{screen}");
    assert!(!home.path().join(".vault").exists());
    assert!(home.path().join(".claude/skills/mine/SKILL.md").is_file());
}
