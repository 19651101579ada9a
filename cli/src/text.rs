//! Text for people: cleaning, counts, sizes and spelling suggestions.

use std::{borrow::Cow, fmt};

pub use vault_format::count::{count, format_thousands};
use vault_format::text::{is_invisible, printable};
use vault_library::{subscribe::FlaggedSkill, trust::NamedKey};

/// Prepares untrusted text for one line of output: line breaks and tabs become spaces,
/// [`printable`] escapes control and invisible characters, and the text is cut after `most`
/// characters.
pub fn clean(text: &str, most: usize) -> String {
    // Cut first, because escapes make the text longer and a cut must not split one.
    let start: String = text.chars().take(most).collect();
    let mut cleaned = printable(&start.replace("\r\n", " ").replace(['\n', '\r', '\t'], " "));
    if text.chars().nth(most).is_some() {
        cleaned.push('…');
    }
    cleaned
}

/// Escapes control and invisible characters like [`printable`], but keeps newlines and escape codes
/// of styles. It is the last step before each write, so that untrusted text cannot control the
/// terminal or hide words even if a call of [`clean`] was forgotten.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    // Avoid a copy, because nearly every text needs no change.
    if !text.chars().any(|c| c != '\n' && is_invisible(c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| c == '\n' || is_invisible(c)) {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let first = from.chars().next().map_or(0, char::len_utf8);
        // Keep only the escape sequences of styles: others could move the cursor or hide text.
        let kept = if from.starts_with('\n') {
            first
        } else {
            style_length(from)
        };
        if kept == 0 {
            escaped.push_str(&printable(&from[..first]));
        } else {
            escaped.push_str(&from[..kept]);
        }
        rest = &from[kept.max(first)..];
    }
    escaped.push_str(rest);
    Cow::Owned(escaped)
}

/// Returns the length in bytes of the escape code of a style (`ESC [ digits and semicolons m`) at
/// the start of the text, or 0.
fn style_length(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let length = parameters
        .find(|c: char| !c.is_ascii_digit() && c != ';')
        .unwrap_or(parameters.len());
    if parameters[length..].starts_with('m') {
        "\u{1b}[".len() + length + 1
    } else {
        0
    }
}

/// Quotes a path, if necessary, as one word of a shell command. `~/` at its start stays outside the
/// quotes, so that a shell expands it.
pub fn shell_path(path: impl fmt::Display) -> String {
    let path = path.to_string();
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path.as_str()),
    };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !rest.is_empty() && rest.chars().all(is_plain) {
        return path;
    }
    // Single quotes allow no escapes inside, so close them around each quote in the text.
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

/// Formats a byte count: `812 B`, `1.4 KiB`, `3.0 MiB`.
pub fn format_size(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = bytes.saturating_mul(10);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Returns `yes` if the condition holds, else `no`. It is shorter than `if` inside larger
/// expressions.
pub const fn either<T: Copy>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

/// Formats items and joins them with a comma and a space.
pub fn join<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(", ")
}

/// Returns the candidate closest to `written`, if it is close enough to be a misspelling.
pub fn nearest_name<'a>(
    written: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(written, candidate), candidate))
        // One error is likely in a short word, and one more for every six letters.
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(written.len()) / 6)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the number of the line that contains this byte, counted from 1.
pub fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.bytes().take(offset);
    let line = before.filter(|byte| *byte == b'\n').count() + 1;
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// Formats a key with its name and fingerprint. The owner chose the name, and only the fingerprint
/// identifies the key.
pub fn format_key(key: &NamedKey) -> String {
    let name = clean(&key.name, 64);
    match &key.fingerprint {
        Some(fingerprint) => format!("{name} ({fingerprint})"),
        None => name,
    }
}

/// Formats a skill of a linked vault that this machine's gate rejects: its name and the rules of
/// its findings, on one line.
pub fn format_flagged(skill: &FlaggedSkill) -> String {
    let mut rules: Vec<_> = skill.findings.iter().map(|finding| finding.rule).collect();
    rules.dedup();
    format!("{}: {}", skill.name, rules.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_move_the_cursor_or_hide() {
        for (text, shown) in [
            ("plain — text", "plain — text"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202e}b\u{200b}c\r\nd", "a\\u{202e}b\\u{200b}c d"),
            ("a\u{61c}\u{e0041}b", "a\\u{61c}\\u{e0041}b"),
            ("1234567890123456", "123456789012345…"),
        ] {
            assert_eq!(clean(text, 15), shown);
        }
    }

    #[test]
    fn a_terminal_gets_the_styles_of_this_program_alone() {
        let styled = "\u{1b}[1;32mgreen\u{1b}[0m\nnext";
        assert_eq!(for_terminal(styled), styled);
        for (text, shown) in [
            ("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u{1b}[2J\\u{1b}]0;x\\u{7}"),
            ("\u{1b}[1mé\u{e0041}\r", "\u{1b}[1mé\\u{e0041}\\u{d}"),
            ("\u{1b}[31", "\\u{1b}[31"),
        ] {
            assert_eq!(for_terminal(text), shown);
        }
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        for (path, word) in [
            ("/home/ann/skills-1/a_b.md", "/home/ann/skills-1/a_b.md"),
            ("~/skills", "~/skills"),
            ("/a b/$c", "'/a b/$c'"),
            ("~/My Skills/it's", r"~/'My Skills/it'\''s'"),
            ("~ann/x", "'~ann/x'"),
            ("~/", "~/''"),
            ("", "''"),
        ] {
            assert_eq!(shell_path(path), word);
        }
    }

    #[test]
    fn sizes_and_counts_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_500_000, "1.4 MiB"),
            (u64::MAX, "1677721.5 TiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
