//! Tests that the library's messages name no commands: callers decide which command to suggest.

use std::fs;
use std::path::Path;

/// Command names that follow `vault ` in a command line.
const COMMANDS: [&str; 28] = [
    "add",
    "agents",
    "audit",
    "cloud",
    "config",
    "devices",
    "disable",
    "doctor",
    "enable",
    "export",
    "history",
    "install",
    "key",
    "link",
    "lint",
    "list",
    "outdated",
    "policy",
    "remove",
    "rollback",
    "serve",
    "setup",
    "show",
    "skill",
    "status",
    "sync",
    "transform",
    "update",
];

#[test]
fn no_message_of_the_library_names_a_command() {
    let mut found = Vec::new();
    search(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut found,
    );
    assert!(found.is_empty(), "{found:#?}");
}

fn search(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().enumerate();
            found.extend(
                lines
                    .filter(|(_, line)| names_a_command(line))
                    .map(|(number, line)| format!("{}:{}: {line}", path.display(), number + 1)),
            );
        }
    }
}

/// Whether a line has a string literal that contains `vault ` and a command name, at the start or
/// after a word that is not an article.
fn names_a_command(line: &str) -> bool {
    if line.trim_start().starts_with("//") || !line.contains('"') {
        return false;
    }
    line.match_indices("vault ").any(|(at, found)| {
        let article = ["the ", "a ", "this ", "that ", "linked ", "no "];
        let before = &line[..at];
        let next = line[at + found.len()..]
            .split(|character: char| !character.is_ascii_alphanumeric())
            .next()
            .unwrap_or_default();
        !article.iter().any(|article| before.ends_with(article)) && COMMANDS.contains(&next)
    })
}
