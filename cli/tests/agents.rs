//! What each agent of this machine gets, and what the commands say about it.

use crate::support::Home;

/// A home with agents that read two folders: both read the first.
fn home() -> Home {
    let home = Home::new();
    for mark in [".codex", ".cursor", ".claude"] {
        std::fs::create_dir_all(home.path(mark)).unwrap();
    }
    home.skill("notes", "Takes notes of a meeting for whoever asks.");
    home.run(&["add", "./notes"]).ok();
    home
}

/// What a command prints for people.
fn text(home: &Home, arguments: &[&str]) -> String {
    let output = home.vault(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn forgetting_an_agent_is_reported_where_its_folder_stays_linked_for_another() {
    let home = home();
    let shared = format!("cursor={}", home.path(".agents/skills").display());
    home.run(&["sync-profiles", "--discover"]).ok();
    home.run(&["sync-profiles", "--link", &shared]).ok();
    let forgot = text(&home, &["sync-profiles", "--forget", "codex"]);
    assert!(forgot.contains("Codex is not linked any more"), "{forgot}");
    let stays = "reads ~/.agents/skills too, which stays linked for Cursor";
    assert!(forgot.contains(stays), "{forgot}");
    assert!(home.path(".agents/skills/notes/SKILL.md").is_file());
    let forgot = text(&home, &["sync-profiles", "--forget", "claude-code"]);
    assert!(
        forgot.contains("Claude Code is not linked any more"),
        "{forgot}"
    );
    assert!(!forgot.contains("stays linked"), "{forgot}");
}

#[test]
fn forgetting_an_agent_says_that_a_target_of_its_profile_stays_linked() {
    let home = home();
    let rules = "[[profile]]\nname = \"ops\"\nagent = \"codex\"\ntarget = \"~/ops\"\n";
    home.write(".vault/profiles.toml", rules);
    home.run(&["approve", "profiles.toml", "--yes"]).ok();
    home.run(&["sync-profiles", "--discover"]).ok();
    assert!(home.path("ops/notes/SKILL.md").is_file());
    // The skills are in the target alone.
    let profiles = text(&home, &["profiles", "codex"]);
    assert_eq!(profiles, "codex  1 skill  ~/ops\n");
    let forgot = text(&home, &["sync-profiles", "--forget", "codex"]);
    assert!(!forgot.contains("is not linked any more"), "{forgot}");
    let stays = "profiles.toml still links ~/ops for it";
    assert!(forgot.contains(stays), "{forgot}");
    assert!(home.path("ops/notes/SKILL.md").is_file());
    // The command that the text names ends it.
    home.write(".vault/profiles.toml", "");
    home.run(&["approve", "profiles.toml", "--yes"]).ok();
    let forgot = text(&home, &["sync-profiles", "--forget", "codex"]);
    assert!(forgot.contains("Codex is not linked any more"), "{forgot}");
    assert!(!home.path("ops/notes").exists());
}

/// `vault doctor NAME` and the wizard have it from the function of `vault profiles`.
#[test]
fn doctor_says_of_one_skill_what_profiles_says_of_all() {
    let home = home();
    home.run(&["sync-profiles", "--discover"]).ok();
    home.write("own.md", "---\nagents: [codex]\n---\nThe codex way.\n");
    home.run(&["transform", "add", "notes", "own.md"]).ok();
    home.run(&["disable", "notes", "--agent", "cursor"]).ok();
    let profiles = home.run(&["profiles"]).ok();
    let doctor = home.run(&["doctor", "notes"]).json;
    assert_eq!(doctor["data"]["agents"], profiles);
    let text = text(&home, &["doctor", "notes"]);
    for line in [
        "claude-code sees it",
        "codex sees a variant of it, made by a transform of this vault",
        "cursor does not: it is disabled for this agent",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
