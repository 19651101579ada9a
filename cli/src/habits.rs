//! Suggestions for users of npm, gh, uv and similar tools, who type the commands of those tools out
//! of habit: each such *habit* is mapped to vault's command.

/// Pairs of a habit and vault's command for it. `*` in a habit stands for one word that is not an
/// option; the word replaces the placeholder at the end of the command, such as `<name>`.
const HABITS: &[(&str, &str)] = &[
    // Adding and removing.
    ("i *", "vault add <source>"),
    ("install *", "vault add <source>"),
    ("tool install *", "vault add <source>"),
    ("pip install *", "vault add <source>"),
    ("extension install *", "vault add <source>"),
    ("skill install *", "vault add <source>"),
    ("skill add *", "vault add <source>"),
    ("import *", "vault add <source>"),
    ("import --from-machine", "vault setup"),
    ("rm *", "vault remove <name>"),
    ("un *", "vault remove <name>"),
    ("uninstall *", "vault remove <name>"),
    ("delete *", "vault remove <name>"),
    ("tool uninstall *", "vault remove <name>"),
    ("pip uninstall *", "vault remove <name>"),
    ("skill remove *", "vault remove <name>"),
    ("skill uninstall *", "vault remove <name>"),
    // Looking around.
    ("ls", "vault list"),
    ("ll", "vault list"),
    ("tree", "vault list"),
    ("tool list", "vault list"),
    ("pip list", "vault list"),
    ("s", "vault search <words>"),
    ("skill find *", "vault find <words>"),
    ("info *", "vault show <name>"),
    ("view *", "vault show <name>"),
    ("inspect *", "vault show <name>"),
    ("cat *", "vault show <name>"),
    ("use *", "vault try <source>"),
    ("skill info *", "vault show <name>"),
    ("skill show *", "vault show <name>"),
    ("skill view *", "vault show <name>"),
    ("skill preview *", "vault show <name>"),
    ("log *", "vault history <name>"),
    ("whoami", "vault status"),
    ("auth status", "vault status"),
    // Keeping current.
    ("ci", "vault install --frozen"),
    ("lock", "vault install"),
    ("up", "vault update"),
    ("upgrade", "vault update"),
    ("tool upgrade", "vault update"),
    ("skill update *", "vault update <name>"),
    ("skill upgrade *", "vault update <name>"),
    ("check", "vault outdated"),
    ("self update", "./install.sh"),
    ("prune", "vault doctor --fix"),
    ("fix", "vault doctor --fix"),
    ("repair", "vault doctor --fix"),
    ("cache clean", "vault doctor --clean"),
    // Writing.
    ("init *", "vault new <name>"),
    ("create *", "vault new <name>"),
    ("skill init *", "vault new <name>"),
    ("skill new *", "vault new <name>"),
    ("format *", "vault fmt <path>"),
    ("test *", "vault lint <path>"),
    ("scan *", "vault audit <path>"),
    ("pack *", "vault export zip <name>"),
    ("zip *", "vault export zip <name>"),
    ("export mcpb", "vault export zip <name>"),
    // Running.
    ("run *", "vault skill <action> <name>"),
    ("exec *", "vault skill <action> <name>"),
    ("x *", "vault skill <action> <name>"),
    ("tool run *", "vault skill <action> <name>"),
    // Sharing.
    ("login", "vault cloud connect <url>"),
    ("auth login", "vault cloud connect <url>"),
    ("connect", "vault cloud connect <url>"),
    ("push", "vault sync"),
    ("publish", "vault sync"),
    ("cloud sync", "vault sync"),
    ("cloud push", "vault sync"),
    ("skill publish *", "vault sync"),
    ("cloud status", "vault status"),
    ("pull", "vault cloud pull"),
    ("fetch", "vault cloud pull"),
    ("clone", "vault link <url>"),
    ("cloud link", "vault link <url>"),
    // Trust and settings.
    ("trust list", "vault publishers list"),
    ("trust add", "vault link <url>"),
    ("policy edit", "vault approve policy.toml"),
    ("policy show", "vault policy check"),
    ("config get *", "vault config list"),
    ("settings", "vault config list"),
];

/// Returns the command to suggest for the arguments after `vault`, if they are a known habit.
pub fn command_for(words: &[&str]) -> Option<String> {
    let words: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !GLOBAL.contains(word))
        .collect();
    let fits = |habit: &str| {
        let mut parts = habit.split(' ').enumerate();
        parts.all(|(at, part)| match (part, words.get(at)) {
            (_, None) => part == "*",
            ("*", Some(word)) => !word.starts_with('-'),
            (part, Some(word)) => part == *word,
        })
    };
    // Several habits may match. The longest one is the most specific.
    let longest = HABITS
        .iter()
        .filter(|(habit, _)| fits(habit))
        .max_by_key(|(habit, _)| habit.len())?;
    let (habit, command) = longest;
    let given = habit
        .strip_suffix(" *")
        .map(|before| before.split(' ').count());
    let word = given.and_then(|at| words.get(at));
    Some(match word {
        // The typed word replaces the last placeholder. A command with an action is shown as it is,
        // because the action is unknown.
        Some(word) if is_plain(word) && command.ends_with('>') && !command.contains("<action>") => {
            let (start, _) = command.split_once('<').unwrap_or((command, ""));
            format!("{start}{word}")
        }
        _ => (*command).to_owned(),
    })
}

/// The global flags without a value, which may be anywhere on the command line.
const GLOBAL: &[&str] = &[
    "--json",
    "--quiet",
    "-q",
    "--verbose",
    "-v",
    "--no-input",
    "--yes",
    "-y",
    "--offline",
    "--color=never",
];

/// Returns whether a typed word is safe to repeat in a suggestion, which the user may paste into a
/// shell.
fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:@#".contains(c))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli;

    fn parses(line: &str) -> bool {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        cli::parse_arguments(&words).is_ok()
    }

    #[test]
    fn each_habit_is_no_command_here_and_leads_to_one() {
        for (habit, command) in HABITS {
            let typed = habit.replace('*', "code-review");
            // `vault skill <word> <name>` parses: any word may be an action of the skill.
            assert!(
                habit.starts_with("skill ") || !parses(&format!("vault {typed}")),
                "`vault {typed}` is a command of its own"
            );
            let words: Vec<&str> = typed.split(' ').collect();
            let hint = command_for(&words).unwrap_or_else(|| panic!("{habit}: no hint"));
            let name = command.split('<').next().unwrap_or_default();
            assert!(hint.starts_with(name), "{habit}: {hint}");
            if habit.ends_with('*') && command.ends_with("<name>") && !command.contains("<action>")
            {
                assert!(hint.ends_with(" code-review"), "{habit}: {hint}");
            }
            let runnable = hint
                .replace("<url>", "https://vault.example.com/v/acme")
                .replace(['<', '>'], "");
            assert!(
                *command == "./install.sh" || parses(&runnable),
                "{habit}: `{runnable}` is no command"
            );
        }
    }

    #[test]
    fn only_the_whole_habit_counts() {
        let hint = |line: &str| command_for(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(
            hint("uninstall pdf --json").as_deref(),
            Some("vault remove pdf")
        );
        assert_eq!(hint("rm").as_deref(), Some("vault remove <name>"));
        assert_eq!(hint("rm $(x)").as_deref(), Some("vault remove <name>"));
        assert_eq!(hint("ls -la").as_deref(), Some("vault list"));
        for line in ["install --frozn", "policy ls", "nothing", "skill"] {
            assert_eq!(hint(line), None, "{line}");
        }
    }
}
