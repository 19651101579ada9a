//! `vault setup` in a real terminal: its screens and its effects after confirmation.
//!
//! `script` provides the terminal. Without it, the test is skipped with a message. The snapshots
//! are in `tests/screens`.

use std::fs;

use crate::screens::terminal::{DOWN, ENTER, INTERRUPT, LEFT, RIGHT, Terminal, reads};
use crate::screens::{compare, start};
use crate::support::{Ended, Home};

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
    terminal.answer("Which starter skills", &[RIGHT, ENTER]);
    terminal.answer("You already have 1 skill.", &[DOWN, ENTER]);
    terminal.answer("Show each imported skill to agents", &["y", ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
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
fn the_last_commands_name_a_program_that_the_shell_does_not_find() {
    let home = home(&[]);
    let program = env!("CARGO_BIN_EXE_vault");
    let line = format!("env NO_COLOR=1 {program} setup --no-starters");
    let Some(mut terminal) = Terminal::start(home.root(), &line) else {
        return;
    };
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    for command in ["add <folder>", "doctor", "key recovery create <file>"] {
        assert!(reads(&screen, &format!("{program} {command}")), "{screen}");
    }
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
    terminal.answer("What should vault do with first?", &[DOWN, DOWN, ENTER]);
    terminal.answer("What should vault do with second?", &[ENTER]);
    terminal.answer("Show each imported skill to agents", &[ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("setup-review.txt", &screen, home.root());
    let root = home.path(".claude/skills");
    assert!(root.join("first").is_symlink());
    assert!(root.join("second").is_dir() && !root.join("second").is_symlink());
    assert!(!home.path(".claude/skills.bak").exists());
    // It stays with the agent that had it, for agents that are linked later too.
    assert!(!home.path(".cursor/skills/first").exists());
    assert!(!home.path(".agents/skills/first").exists());
}

#[test]
fn what_the_vault_does_not_hold_is_moved_and_named() {
    let home = home(&["mine"]);
    let folder = ".claude/skills/mine";
    for file in [".git/HEAD", "draft~", ".env", "server.key"] {
        home.write(&format!("{folder}/{file}"), file);
    }
    let Some(mut terminal) = start(home.root(), "setup --no-starters --include .env") else {
        return;
    };
    terminal.answer("You already have 1 skill.", &[DOWN, DOWN, ENTER]);
    terminal.answer("Show each imported skill to agents", &[ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    compare("setup-in-place.txt", &screen, home.root());
    for (file, is_left) in [
        (".git/HEAD", true),
        ("draft~", true),
        ("server.key", true),
        (".env", false),
        ("SKILL.md", false),
    ] {
        let path = home.path(".claude/skills.bak/mine").join(file);
        assert_eq!(path.exists(), is_left, "{file}");
    }
    assert!(home.path(folder).join(".env").is_file());
}

#[test]
fn agents_that_were_chosen_with_nothing_to_link_see_the_first_skill() {
    let home = home(&[]);
    let Some(mut terminal) = start(home.root(), "setup --no-starters") else {
        return;
    };
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    let folder = home.skill("work/first", "Does it the way I like it.");
    let Some(terminal) = start(home.root(), &format!("add {}", folder.display())) else {
        return;
    };
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    for root in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        assert!(
            home.path(root).join("first/SKILL.md").is_file(),
            "{root}: {screen}"
        );
    }
}

#[test]
fn the_first_skill_asks_once_whether_agents_are_shown_it() {
    let home = home(&[]);
    for (name, answer) in [("first", Some("n")), ("second", None)] {
        let description = format!("Does {name} the way I like it.");
        let folder = home.skill(&format!("work/{name}"), &description);
        let Some(mut terminal) = start(home.root(), &format!("add {}", folder.display())) else {
            return;
        };
        if let Some(answer) = answer {
            terminal.answer("Link the vault's skills for", &[answer, ENTER]);
        }
        let (screen, code) = terminal.finish();
        assert_eq!(code, 0, "{screen}");
        assert!(!home.path(".claude/skills").join(name).exists(), "{screen}");
    }
}

#[test]
fn who_says_no_has_changed_nothing() {
    let home = home(&["mine"]);
    let Some(mut terminal) = start(home.root(), "setup") else {
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("You already have 1 skill.", &[DOWN, ENTER]);
    terminal.answer("Show each imported skill to agents", &[ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &["n", ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("Nothing was changed."), "{screen}");
    assert!(!home.path(".vault").exists());
    assert!(home.path(".claude/skills/mine/SKILL.md").is_file());
}

#[test]
fn in_a_repository_the_wizard_asks_whom_it_is_for() {
    let home = home(&[]);
    fs::create_dir_all(home.path("repo/.git")).unwrap();
    home.skill("repo/skills/lint", "Checks what this project wants.");
    home.skill(
        "repo/.claude/skills/house",
        "A skill that an agent reads already.",
    );
    let start_setup = |flags: &str| {
        let program = env!("CARGO_BIN_EXE_vault");
        let line = format!("cd repo && env NO_COLOR=1 {program} setup {flags}");
        Terminal::start(home.root(), &format!("sh -c '{line}'"))
    };
    let Some(mut terminal) = start_setup("") else {
        return;
    };
    // Without a lock, the user is the default.
    terminal.answer("Set up vault for you, or for this project?", &[DOWN, ENTER]);
    terminal.answer("Which skills of this repository", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    let lock = fs::read_to_string(home.path("repo/vault.lock")).unwrap();
    assert!(
        lock.contains("\"./skills/lint\"") && !lock.contains("house"),
        "{lock}"
    );
    assert!(home.path("repo/.claude/skills/lint/SKILL.md").is_file());
    assert!(home.path(".claude/skills/lint").symlink_metadata().is_err());
    // With one, the project is.
    fs::remove_dir_all(home.path("repo/.vault")).unwrap();
    let mut terminal = start_setup("").unwrap();
    terminal.answer("Set up vault for you, or for this project?", &[ENTER]);
    terminal.answer("Install them?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(home.path("repo/.vault/skills/lint/SKILL.md").is_file());
    // A flag answers the question, also without a terminal.
    let mut terminal = start_setup("--personal --no-starters").unwrap();
    terminal.wait_for("Found on this machine");
    terminal.press(&[INTERRUPT]);
    terminal.finish();
    let run = |flags: &[&str]| {
        let mut command = home.vault(&[&["setup", "--json"], flags].concat());
        Ended::of(command.current_dir(home.path("repo")))
    };
    run(&["--project"]).fails(2, "no_tty");
    run(&["--project", "--yes"]).ok();
    run(&[]).fails(2, "NoTtyError");
    run(&["--project", "--personal"]).fails(2, "usage");
    fs::remove_file(home.path("repo/vault.lock")).unwrap();
    fs::remove_dir_all(home.path("repo/skills")).unwrap();
    run(&["--project", "--yes"]).fails(1, "no_lock");
}
