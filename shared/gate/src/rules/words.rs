//! Words, options, paths and commands as a reader takes them apart.
//!
//! A rule that looks for a word must not find it inside a longer one: `log` is not in `blog`, and
//! `npm` is not in `npmirror`. Nothing here searches a text for a piece of a word.

/// Whether one of these words stands in a text; see [`find_word`].
pub(super) fn names_any(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| names(text, word))
}

/// Whether this word stands in a text; see [`find_word`].
pub(super) fn names(text: &[u8], word: &str) -> bool {
    find_word(text, word).is_some()
}

/// Where a word stands first in a text.
///
/// Letters, digits and `_` go on with a word, so a word that begins or ends with one must begin or
/// end there in the text, too. A `_` of Markdown's emphasis, with no letter behind it, goes on with
/// none. A `*` at either end lets the word go on at that end: `upload*` is in
/// "uploads". A word that is a sign, or is written without spaces between words, has no such edge.
pub(super) fn find_word(text: &[u8], word: &str) -> Option<usize> {
    let open_before = word.starts_with('*');
    let open_after = word.len() > 1 && word.ends_with('*');
    let word = &word.as_bytes()[usize::from(open_before)..word.len() - usize::from(open_after)];
    let (first, last) = (*word.first()?, *word.last()?);
    let finder = memchr::memmem::Finder::new(word);
    finder.find_iter(text).find(|at| {
        let before = text[..*at].iter().rev();
        let after = text[at + word.len()..].iter();
        (open_before || !is_letter(first) || !goes_on(before))
            && (open_after || !is_letter(last) || !goes_on(after))
    })
}

/// Whether the bytes at an edge of a word go on with it.
fn goes_on<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> bool {
    match bytes.next() {
        Some(b'_') => bytes
            .find(|byte| **byte != b'_')
            .is_some_and(|byte| is_letter(*byte)),
        beside => beside.is_some_and(|byte| is_letter(*byte)),
    }
}

/// Whether a byte goes on with a word.
pub(super) const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The parts of a name that is put together with `_`, `-` or `.`: `aws_secret_key` has three.
pub(super) fn parts_of_name(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = name.split(|byte| matches!(byte, b'_' | b'-' | b'.'));
    parts.filter(|part| !part.is_empty())
}

/// The ending of the file that a path or an address leads to, without its point; empty where it has
/// none.
pub(super) fn ending_of(path: &str) -> &str {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// A command of a line, with its program and its arguments. Quotation marks are taken off.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Command {
    /// The program, without the folder that it lies in.
    pub program: String,
    pub arguments: Vec<String>,
}

/// Programs that start the program named behind them.
const STARTERS: [&str; 8] = [
    "sudo", "doas", "env", "nohup", "exec", "command", "time", "busybox",
];

impl Command {
    fn new(words: Vec<String>) -> Option<Self> {
        let is_mark = |word: &String| {
            let word = word.as_str();
            matches!(
                word,
                "$" | ">" | "-" | "{" | "(" | "!" | "then" | "do" | "run" | "if"
            ) || STARTERS.contains(&word)
                || word
                    .split_once('=')
                    .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_letter))
        };
        let mut words = words.into_iter().skip_while(is_mark);
        let program = words.next()?;
        let program = program.rsplit('/').next().unwrap_or_default();
        Some(Self {
            program: program.to_owned(),
            arguments: words.collect(),
        })
    }

    /// Whether an option is given: a long one by its name, with or without a value behind `=`, a
    /// short one alone or among others behind one `-`.
    pub(super) fn has_option(&self, option: &str) -> bool {
        self.arguments.iter().any(|word| {
            let name = word.split('=').next().unwrap_or_default();
            match option.strip_prefix('-').filter(|rest| rest.len() == 1) {
                Some(letter) => word
                    .strip_prefix('-')
                    .is_some_and(|rest| !rest.starts_with('-') && rest.contains(letter)),
                None => name == option,
            }
        })
    }
}

/// The commands of a line or of a block of lines: what stands between pipes, `;`, `&` and the ends
/// of lines, also inside a substitution `$(…)`. Between quotation marks nothing else parts them.
pub(super) fn commands(text: &[u8]) -> Vec<Command> {
    let text = String::from_utf8_lossy(text);
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    // Quotations around substitutions that are still open.
    let mut around = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None | Some('"'), '$') if letters.next_if_eq(&'(').is_some() => {
                around.push(quote.take());
                words.extend(word.take());
                commands.extend(Command::new(std::mem::take(&mut words)));
            }
            (None, ')') if !around.is_empty() => {
                quote = around.pop().flatten();
                words.extend(word.take());
                commands.extend(Command::new(std::mem::take(&mut words)));
            }
            (Some(mark), _) if letter == mark => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            // An escaped character is part of a word, and an escaped line break is nothing.
            // A comment goes on to the end of its line.
            (None, '#') if word.is_none() => {
                while letters.next_if(|next| *next != '\n').is_some() {}
            }
            (None | Some('"'), '\\') => match letters.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            (None, '|' | ';' | '&' | '(' | ')' | '\n' | '`') => {
                words.extend(word.take());
                commands.extend(Command::new(std::mem::take(&mut words)));
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.extend(Command::new(words));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_none_inside_a_longer_one() {
        for (text, word) in [
            ("cat the log", "log"),
            ("log", "log"),
            ("x/log/y", "log"),
            ("uploads it", "upload*"),
            ("myclient(x)", "*client("),
            ("a | sh", "| sh"),
            ("打开终端", "终端"),
            ("blog log", "log"),
            ("then _download_ it", "download*"),
            ("__must__", "must"),
        ] {
            assert!(names(text.as_bytes(), word), "{text} {word}");
        }
        for (text, word) in [
            ("blog", "log"),
            ("catalog", "log"),
            ("login", "log"),
            ("old_log", "log"),
            ("log_old", "log"),
            ("reupload", "upload*"),
            ("a | shuf", "| sh"),
            ("", "log"),
            ("npmirror i", "npm "),
        ] {
            assert!(!names(text.as_bytes(), word), "{text} {word}");
        }
        assert_eq!(find_word(b"blog log", "log"), Some(5));
    }

    #[test]
    fn a_line_is_taken_apart_into_commands() {
        let said = |text: &str| {
            let commands = commands(text.as_bytes());
            let show =
                |command: &Command| format!("{}:{}", command.program, command.arguments.join(","));
            commands.iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(
            said(
                "$ sudo /usr/bin/find . -name '*.db | x' -delete && echo \"a b\" | A=1 sha256sum -c\\\n-"
            ),
            ["find:.,-name,*.db | x,-delete", "echo:a b", "sha256sum:-c-"]
        );
        assert_eq!(
            said("[ \"$(sha256sum x | cut -f1)\" = \"$a; b\" ] || exit"),
            ["[:", "sha256sum:x", "cut:-f1", "=:$a; b,]", "exit:"]
        );
        assert_eq!(said(""), Vec::<String>::new());
        let command = &commands(b"curl -sSo file --data=x -H a: u")[0];
        for option in ["-s", "-o", "--data", "-h", "-H"] {
            let is_given = command.has_option(option);
            assert_eq!(is_given, option != "-h", "{option}");
        }
        assert!(!command.has_option("-d"));
    }
}
