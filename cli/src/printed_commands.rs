//! Checks that commands in messages work as printed. Extracts each `vault …` from the message texts
//! in [`TEXTS`], and parses it as the command line would.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use clap::{Command, error::ErrorKind};
use regex::Regex;

use crate::cli;

/// The checked source files and folders: commands that change keys, members, machines and releases.
const TEXTS: [&str; 13] = [
    "commands/administer",
    "commands/share",
    "commands/trust/key",
    "commands/trust/publishers",
    "tasks/draft_review.rs",
    "errors/codes.rs",
    "errors/library.rs",
    "errors/publishing.rs",
    "tasks/key_changes.rs",
    "output/doctor.rs",
    "tasks/publishing",
    "service",
    "tasks/subscription.rs",
];

/// Values to try in place of a placeholder. For each placeholder, one of them must fit.
const VALUES: [&str; 8] = [
    "some-name",
    "",
    "2",
    "https://vault.example/v/team",
    "pub:aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa",
    "vlt:aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa/1",
    "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3",
    "2:a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3",
];

/// Matches a command in a text, up to the punctuation that ends it.
static COMMAND: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"\bvault ([a-z][^"`;,()\n:]*(?::[^"`;,()\n ][^"`;,()\n:]*)*)"#).unwrap()
});
/// Matches a placeholder: `<name>` for the reader, or `{name}` of the format string.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[^>]*>|\{[^}]*\}").unwrap());

/// Returns whether a text begins with a valid command, with or without prose after it. A bare name,
/// as in "see vault key", is valid even if the command needs more arguments.
fn is_command(command: &mut Command, text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut parse = |words: &[&str]| {
        let line = ["vault"].iter().chain(words);
        command.try_get_matches_from_mut(line).map(|_| ())
    };
    // Prose may follow a command in a sentence; a flag that follows must belong to it.
    let is_prose = |rest: &[&str]| rest.first().is_none_or(|word| !word.starts_with("--"));
    let mut ends = (1..=words.len()).rev();
    if ends.any(|end| parse(&words[..end]).is_ok() && is_prose(&words[end..])) {
        return true;
    }
    let lacks_value = parse(&words).is_err_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        )
    });
    let is_name = words.iter().all(|word| is_subcommand_word(word));
    let is_flag = words.last().is_some_and(|word| word.starts_with("--"));
    (lacks_value && is_name) || is_flag
}

fn is_subcommand_word(word: &str) -> bool {
    word.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// Returns whether the command is valid with one of [`VALUES`] in place of each placeholder.
fn works(command: &mut Command, text: &str) -> bool {
    let Some(place) = PLACEHOLDER.find(text) else {
        return is_command(command, text);
    };
    let (before, after) = (&text[..place.start()], &text[place.end()..]);
    VALUES
        .iter()
        .any(|value| works(command, &format!("{before}{value}{after}")))
}

fn files(path: &Path, into: &mut Vec<PathBuf>) {
    if path.is_file() {
        into.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).unwrap() {
        files(&entry.unwrap().path(), into);
    }
}

/// Returns the text of a source file without comments, attributes and tests, and with string
/// literals over several lines joined.
fn messages(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        !line.starts_with("//") && !line.starts_with("#[")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Regex::new(r"\\\n\s*")
        .unwrap()
        .replace_all(&text, "")
        .replace("\\n", "\n")
}

#[test]
fn every_printed_command_is_one() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    for text in TEXTS {
        files(&source.join(text), &mut paths);
    }
    let mut command = cli::full_command();
    let commands = command.clone();
    let names: BTreeSet<_> = commands.get_subcommands().map(Command::get_name).collect();
    let mut printed = BTreeMap::new();
    for path in paths {
        for found in COMMAND.captures_iter(&messages(&path)) {
            let text = found[1].split(". ").next().unwrap_or_default();
            let text = text.trim_end_matches(['.', '?', '\\']).to_owned();
            let name = text.split_whitespace().next().unwrap_or_default();
            // `vault skill <action> <name>` runs whatever the skill declares.
            let is_typed = names.contains(name) && name != "skill" && !text.contains('…');
            if is_typed {
                printed.insert(text, path.clone());
            }
        }
    }
    let wrong = printed
        .iter()
        .filter(|(text, _)| !works(&mut command, text));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(printed.len() > 100, "{}", printed.len());
}
