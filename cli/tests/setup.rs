//! `vault setup` in a real terminal: its screens and its effects after confirmation.
//!
//! `script` provides the terminal. Without it, the test is skipped with a message. The snapshots
//! are in `tests/screens`.

use std::fs;

use crate::screens::terminal::{DOWN, ENTER, LEFT};
use crate::screens::{compare, start};
use crate::support::Home;

/// A home with three agents and these skills of the user's own.
fn home(skills: &[&str]) -> Home {
    let home = Home::for_screens("setup-");
    for mark in [".claude/skills", ".codex", ".cursor"] {
        fs::create_dir_all(home.path(mark)).unwrap();
    }
    for name in skills {
        let description = format!("Does {name} the way I like it.");
        home.skill(&format!(".claude/skills/{name}"), &description);
    }
    home
}

#[test]
fn a_new_user_goes_through_with_backup_and_every_agent_sees_all() {
    let home = home(&["my-notes"]);
    let Some(mut terminal) = start(home.root(), "setup") else {
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("setup.txt", &screen, home.root());
    for root in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        for skill in ["my-notes", "code-review"] {
            let file = home.path(root).join(skill).join("SKILL.md");
            assert!(file.is_file(), "{}", file.display());
        }
    }
    assert!(home.path(".claude/skills.bak/my-notes/SKILL.md").is_file());
}

#[test]
fn a_review_asks_about_each_and_advanced_about_the_rest() {
    let home = home(&["first", "second"]);
    let Some(mut terminal) = start(home.root(), "setup --review --advanced") else {
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
    compare("setup-review.txt", &screen, home.root());
    let root = home.path(".claude/skills");
    assert!(root.join("first").is_symlink());
    assert!(root.join("second").is_dir() && !root.join("second").is_symlink());
    assert!(!home.path(".claude/skills.bak").exists());
}

#[test]
fn who_says_no_has_changed_nothing() {
    let home = home(&["mine"]);
    let Some(mut terminal) = start(home.root(), "setup") else {
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &["n", ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("Nothing was changed."), "{screen}");
    assert!(!home.path(".vault").exists());
    assert!(home.path(".claude/skills/mine/SKILL.md").is_file());
}
