//! Repairs the two most common mistakes in a SKILL.md: a value with an unquoted `: `, and a name
//! that does not fit the grammar of skill names.
//!
//! Only faults that need no guessing are repaired: a plain value on one line is put in quotes, and
//! a name on one line is replaced by the derived name. Every other byte stays, line ends included.
//! Any other fault is reported as [`Document::parse`] reports it.

use super::{
    BYTE_ORDER_MARK, Document, DocumentError, decode_document, frontmatter, split_frontmatter,
    yaml, yaml_error,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::Range;
use vault_format::name::SkillName;
use vault_format::text::Position;

/// One repaired line.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "FixedLine")]
pub struct Change {
    /// The line in the file, from 1.
    pub line: u32,
    /// The line before the repair, without its line end.
    pub before: String,
    /// The line after the repair.
    pub after: String,
    /// The reason, in a few words.
    pub why: &'static str,
}

/// The repaired text, and the lines that were changed.
#[derive(Clone, Debug)]
pub struct RepairedDocument {
    /// The whole file.
    pub text: String,
    /// The lines that differ, in the order of the file; empty if nothing needed a repair.
    pub changes: Vec<Change>,
}

/// Maximum number of values in one file that are put in quotes.
const MOST: usize = 64;

/// Repairs a SKILL.md. Fails, like [`Document::parse`], if something is wrong that cannot be
/// repaired without guessing.
pub fn repair_document(bytes: &[u8]) -> Result<RepairedDocument, DocumentError> {
    let original = decode_document(bytes)?;
    let mut text = original.to_owned();
    let mut quoted = false;
    for _ in 0..MOST {
        let parts = split_frontmatter(&text)?;
        let Err(error) = yaml::parse_yaml(parts.yaml) else {
            break;
        };
        // The parser counts lines from the frontmatter's first, which is the second of the file.
        let range = error
            .at
            .filter(|_| error.message.starts_with("mapping values are not allowed"))
            .and_then(|at| bare_value(&text, at.line + 1));
        let Some(range) = range else {
            return Err(yaml_error(parts.yaml, &error));
        };
        let value = quote_value(&text[range.clone()]);
        text.replace_range(range, &value);
        quoted = true;
    }
    if let Some((range, name)) = better_name(&text)? {
        text.replace_range(range, name.as_str());
    }
    // No other fault can be repaired, so parsing reports whatever is still wrong.
    Document::parse(text.as_bytes())?;
    let changes = changed_lines(original, &text, quoted);
    Ok(RepairedDocument { text, changes })
}

/// Returns the range of the plain value on this line of the file. Returns `None` if the value is
/// quoted, a block, or continued on the next line.
fn bare_value(text: &str, line: u32) -> Option<Range<usize>> {
    let (start, content) = line_of(text, line)?;
    let indent = content.len() - content.trim_start_matches(' ').len();
    let (key, value) = content[indent..].split_once(": ")?;
    let is_key = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let begins = value.trim_start().chars().next()?;
    if !is_key || "\"'[]{}|>&*!%@`#,?".contains(begins) {
        return None;
    }
    let below = line_of(text, line + 1).map_or("", |(_, below)| below);
    let below_indent = below.len() - below.trim_start().len();
    if !below.trim().is_empty() && below_indent > indent && !below.trim_start().starts_with('#') {
        return None; // the value goes on below, so where it ends would be a guess
    }
    let value_at = content.len() - value.trim_start().len();
    let end = value_at + value_end(&content[value_at..]);
    Some(start + value_at..start + end)
}

/// Returns the length of a plain value: it ends before a comment, without trailing white space.
fn value_end(value: &str) -> usize {
    let end = [" #", "\t#"]
        .iter()
        .filter_map(|mark| value.find(mark))
        .min()
        .unwrap_or(value.len());
    value[..end].trim_end().len()
}

fn quote_value(value: &str) -> String {
    // YAML reads escapes inside double quotes, so each backslash of the value is doubled.
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns where a name that breaks the grammar stands, and the name derived from it. Returns
/// `None` if the name is valid, if none can be derived, or if it does not stand on one line of its
/// own.
fn better_name(text: &str) -> Result<Option<(Range<usize>, SkillName)>, DocumentError> {
    let parts = split_frontmatter(text)?;
    let Ok(root) = yaml::parse_yaml(parts.yaml) else {
        return Ok(None);
    };
    let read = frontmatter::read_fields(&root, None)?;
    let (name, at) = (read.frontmatter.name, read.places.name);
    if name.parse::<SkillName>().is_ok() {
        return Ok(None);
    }
    let derived = SkillName::derive(&name);
    Ok(derived.and_then(|derived| Some((value_range(text, at, &name)?, derived))))
}

/// Returns the range of a one-line value that begins at this position and reads `value`, with its
/// quotes.
fn value_range(text: &str, at: Position, value: &str) -> Option<Range<usize>> {
    let (start, content) = line_of(text, at.line)?;
    let (from, _) = content
        .char_indices()
        .nth(at.column.checked_sub(1)? as usize)?;
    let rest = &content[from..];
    // An escaped quote ends the search too early. The comparison below then fails, and the name
    // stays as it is.
    let length = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].find(quote)? + 2,
        _ => value_end(rest),
    };
    let inner = rest[..length].trim_matches(['"', '\'']);
    (inner == value).then(|| start + from..start + from + length)
}

/// Returns the offset of a line of the file, and its content without the line end.
fn line_of(text: &str, line: u32) -> Option<(usize, &str)> {
    let mut start = 0;
    for (number, piece) in (1..).zip(text.split_inclusive('\n')) {
        if number == line {
            let skip = if number == 1 && piece.starts_with(BYTE_ORDER_MARK) {
                BYTE_ORDER_MARK.len()
            } else {
                0
            };
            let content = piece.trim_end_matches(['\n', '\r']);
            return Some((start + skip, content.get(skip..)?));
        }
        start += piece.len();
    }
    None
}

/// Returns the lines that differ. A repair replaces a line by one line, so comparing line by line
/// finds every change.
fn changed_lines(before: &str, after: &str, quoted: bool) -> Vec<Change> {
    let pairs = before.lines().zip(after.lines()).enumerate();
    pairs
        .filter(|(_, (before, after))| before != after)
        .map(|(index, (before, after))| Change {
            line: u32::try_from(index + 1).unwrap_or(u32::MAX),
            before: before.to_owned(),
            after: after.to_owned(),
            why: if before.trim_start().starts_with("name:") && !(quoted && after.contains('"')) {
                "a name has lower-case letters, digits and single hyphens"
            } else {
                "a value that holds `: ` needs quotes"
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_mended_and_nothing_else_is_touched() {
        for (before, after) in [
            (
                "---\nname: a\ndescription: Use when: it breaks\n---\nx: y: z\n",
                "---\nname: a\ndescription: \"Use when: it breaks\"\n---\nx: y: z\n",
            ),
            (
                "---\r\nname: a\r\ndescription: Say \"hi\": it \\ helps  # why\r\n---\r\n",
                "---\r\nname: a\r\ndescription: \"Say \\\"hi\\\": it \\\\ helps\"  # why\r\n---\r\n",
            ),
            (
                "\u{feff}---\nname: My Skill!\ndescription: A b: c\nwhen_to_use: d: e\n---\n",
                "\u{feff}---\nname: my-skill\ndescription: \"A b: c\"\nwhen_to_use: \"d: e\"\n---\n",
            ),
            (
                "---\nname: \"PDF Tools\" # ours\ndescription: Reads PDF.\nmetadata:\n  note: a: b\n---",
                "---\nname: pdf-tools # ours\ndescription: Reads PDF.\nmetadata:\n  note: \"a: b\"\n---",
            ),
            (
                "---\nname: good\ndescription: Nothing wrong here.\n---\n",
                "---\nname: good\ndescription: Nothing wrong here.\n---\n",
            ),
        ] {
            let mended = repair_document(before.as_bytes()).unwrap();
            assert_eq!(mended.text, after);
            assert_eq!(mended.changes.is_empty(), before == after);
            let again = repair_document(after.as_bytes()).unwrap();
            assert!(
                again.changes.is_empty(),
                "mending twice changes nothing: {after}"
            );
        }
    }

    #[test]
    fn what_would_be_a_guess_is_refused_with_its_place() {
        for (text, rule) in [
            // A value that continues on a second line.
            (
                "---\nname: a\ndescription: Use when: it\n  breaks\n---\n",
                "frontmatter-colon",
            ),
            (
                "---\nname: a\ndescription: [a: b: c\n---\n",
                "frontmatter-yaml",
            ),
            ("---\nname: a\n---\n", "description-missing"),
            ("name: a\n", "frontmatter-missing"),
            (
                "---\nname: a\nname: b\ndescription: Twice.\n---\n",
                "frontmatter-yaml",
            ),
        ] {
            let error = repair_document(text.as_bytes()).unwrap_err();
            assert_eq!(error.findings()[0].rule, rule, "{text}");
        }
    }

    #[test]
    fn the_changes_name_their_lines() {
        let text = "---\nname: A B\ndescription: c: d\n---\n";
        let changes = repair_document(text.as_bytes()).unwrap().changes;
        let shown: Vec<_> = changes
            .iter()
            .map(|change| (change.line, change.after.as_str()))
            .collect();
        assert_eq!(shown, [(2, "name: a-b"), (3, "description: \"c: d\"")]);
        assert!(changes[0].why.starts_with("a name"));
    }
}
