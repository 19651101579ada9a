//! `vault setup` in a real terminal: its screens and its effects after confirmation.
//!
//! `script` provides the terminal. Without it, the test is skipped with a message. The snapshots
//! are in `tests/screens`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves, and say what they leave out"
)]

#[path = "screens/mod.rs"]
mod screens;

use std::fs;
use std::path::Path;

use screens::terminal::{DOWN, ENTER, LEFT};
use screens::{compare, start};

fn home() -> tempfile::TempDir {
    // A short path of constant length keeps the tables of the snapshots identical.
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
