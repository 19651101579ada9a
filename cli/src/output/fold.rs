//! Folding: breaks lines that are wider than the terminal between words.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use super::width::text_width;

/// Columns by which a broken line is indented deeper than its first part.
const HANGING_INDENT: usize = 2;
/// Punctuation that ends a command in a sentence.
const COMMAND_ENDS: [char; 5] = [';', ',', '.', ')', ':'];

/// Returns the names of all commands. The main program sets it, because this module must not depend
/// on the commands.
static LIST_COMMANDS: OnceLock<fn() -> Vec<String>> = OnceLock::new();
/// Sets the function that returns the names of all commands. Folding needs them to recognise a
/// command in a text and keep it on one line.
pub fn set_command_list(list: fn() -> Vec<String>) {
    // Only tests call this twice, with the same function, so the error does not matter.
    let _ = LIST_COMMANDS.set(list);
}

/// Breaks each line that is wider than `columns` between words, and indents its further parts. A
/// line with gaps of two spaces, such as a table's row, breaks at the gaps. Addresses, fingerprints
/// and other words are never broken, nor are commands of vault, so that people can copy them.
/// Without `columns`, the output is not a terminal, and the text stays as it is.
pub fn fold_lines(text: Cow<'_, str>, columns: Option<usize>) -> Cow<'_, str> {
    match columns {
        Some(columns) if text.lines().any(|line| text_width(line) > columns) => {
            let lines: Vec<_> = text
                .split('\n')
                .map(|line| fold_line(line, columns))
                .collect();
            Cow::Owned(lines.join("\n"))
        }
        _ => text,
    }
}

fn fold_line(line: &str, columns: usize) -> String {
    if text_width(line) <= columns {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start_matches(' ').len() + HANGING_INDENT;
    let mut folded = String::with_capacity(line.len() + indent);
    let mut column = 0;
    let mut is_broken = false;
    for part in split_cells(line, columns - indent.min(columns)) {
        let word = text_width(part.trim_end_matches(' '));
        // Do not break before a word that is too wide for any line: it would stick out there as
        // well.
        if column + word > columns && column > indent && indent + word <= columns {
            folded.truncate(folded.trim_end_matches(' ').len());
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            column = indent;
            is_broken = true;
        }
        // Skip the gap of a table at the start of a further part, where it would look like a deeper
        // indentation.
        if is_broken && word == 0 {
            continue;
        }
        is_broken = false;
        folded.push_str(part);
        column += text_width(part);
    }
    folded
}

/// Splits a line into the parts between which it may break: the cells of a table row with the gaps
/// after them, and in place of a cell that is wider than `room` its words.
fn split_cells(line: &str, room: usize) -> Vec<&str> {
    let start = line.len() - line.trim_start_matches(' ').len();
    let words = split_words(line);
    // Only tables have two spaces in a row between words.
    if !line[start..].trim_end().contains("  ") {
        return words;
    }
    let mut cells = Vec::new();
    let (mut cell, mut end, mut first) = (0, 0, 0);
    for (place, word) in words.iter().enumerate() {
        end += word.len();
        // A wide gap is several spaces, of which the last one ends the cell.
        let is_gap = line[start..end.max(start)].ends_with("  ") && !line[end..].starts_with(' ');
        if !is_gap && place + 1 < words.len() {
            continue;
        }
        if text_width(line[cell..end].trim_end_matches(' ')) <= room {
            cells.push(&line[cell..end]);
        } else {
            cells.extend(&words[first..=place]);
        }
        (cell, first) = (end, place + 1);
    }
    cells
}

/// Splits a line into words with the spaces after them. A command counts as one word, from `vault`
/// to the next punctuation mark.
fn split_words(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut end, mut in_command) = (0, 0, false);
    let mut words = line.split_inclusive(' ').peekable();
    while let Some(word) = words.next() {
        end += word.len();
        // A command may be painted, and escape codes would hide its words from the comparison.
        let plain_word = strip_styles(word);
        // The program may be named by its path.
        in_command |= (plain_word == "vault" || plain_word.ends_with("/vault"))
            && words
                .peek()
                .is_some_and(|next| begins_command(&strip_styles(next)));
        in_command &= !plain_word.ends_with(COMMAND_ENDS);
        if !in_command {
            parts.push(&line[start..end]);
            start = end;
        }
    }
    parts.extend((start < line.len()).then(|| &line[start..]));
    parts
}

fn strip_styles(word: &str) -> String {
    anstream::adapter::strip_str(word.trim_end_matches(' ')).to_string()
}

/// Returns whether this word after `vault` makes a command of it. In prose, `vault` is an ordinary
/// word.
fn begins_command(word: &str) -> bool {
    let name = word.trim_end_matches(COMMAND_ENDS);
    // Global options and placeholders such as `<command>` may follow `vault` too.
    name.starts_with(['-', '<']) || is_command(name)
}

fn is_command(name: &str) -> bool {
    // Listed once, because clap builds the whole tree of commands for the names.
    static NAMES: OnceLock<BTreeSet<String>> = OnceLock::new();
    let list = LIST_COMMANDS.get();
    list.is_some_and(|list| {
        let names = NAMES.get_or_init(|| list().into_iter().collect());
        names.contains(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{BOLD, paint};

    fn at(columns: usize, text: &str) -> String {
        set_command_list(crate::cli::command_names);
        fold_lines(Cow::Borrowed(text), Some(columns)).into_owned()
    }

    #[test]
    fn lines_wider_than_the_terminal_break_between_words() {
        for (text, shown) in [
            ("short enough for it", "short enough for it"),
            (
                "hint: a hint that is longer than the terminal",
                "hint: a hint that is\n  longer than the\n  terminal",
            ),
            (
                "  key  the first and the last",
                "  key  the first and\n    the last",
            ),
            (
                "one\ntwo two two two two two",
                "one\ntwo two two two two\n  two",
            ),
            // A gap of a table that falls on the edge.
            ("a column of 20 chars    b", "a column of 20 chars\n  b"),
            // A cell of a table stays whole where a line has room for it.
            ("bob     publish, this one", "bob\n  publish, this one"),
            ("SINCE   LAST SEEN    LAST", "SINCE   LAST SEEN\n  LAST"),
        ] {
            assert_eq!(at(20, text), shown);
        }
    }

    #[test]
    fn a_word_is_never_broken() {
        let address = format!("http://127.0.0.1/{}", "a".repeat(20));
        assert_eq!(at(20, &format!("  {address}")), format!("  {address}"));
        assert_eq!(
            at(20, &format!("open {address} in a browser")),
            format!("open {address}\n  in a browser")
        );
    }

    #[test]
    fn a_command_stays_on_one_line() {
        for (text, shown) in [
            (
                "hint: to end it, vault unlink team, or nothing",
                "hint: to end it,\n  vault unlink team,\n  or nothing",
            ),
            (
                "then run vault link http://127.0.0.1:8080/v/team",
                "then run vault link http://127.0.0.1:8080/v/team",
            ),
            (
                "it brings the vault back if a disk is lost",
                "it brings the vault\n  back if a disk is\n  lost",
            ),
        ] {
            assert_eq!(at(20, text), shown);
        }
    }

    #[test]
    fn styles_take_no_columns_and_text_for_programs_stays_as_it_is() {
        let styled = format!("{} has twenty", paint(BOLD, "this one"));
        assert_eq!(at(20, &styled), styled);
        let long = "a line that is longer than the terminal";
        assert_eq!(fold_lines(Cow::Borrowed(long), None), long);
    }
}
