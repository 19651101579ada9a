//! Differences of two sets of files or of two texts, for pages. Their size and the time for them
//! are bounded, and invisible characters become escapes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use similar::{ChangeTag, TextDiff};
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_format::text::{printable, to_readable};

use crate::units::format_count;

/// Maximum size of the differences of files on a page, in bytes of HTML.
pub(super) const DIFFERENCE_BYTES: usize = 56 * 1024;
/// Number of unchanged lines shown before and after each change.
const CONTEXT_LINES: usize = 3;
/// Maximum number of lines of a file that is compared line by line; a longer file is only counted.
const MAX_LINES: usize = 4_000;
/// Maximum length of one line, in characters. A longer line is cut, with a mark.
const MAX_LINE_CHARS: usize = 2_000;
/// Time limit for the comparison of one file. After it, the difference is coarser but still
/// correct.
const TIMEOUT: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LineKind {
    /// Both texts have the line.
    Kept,
    /// Only the new text has the line.
    Added,
    /// Only the old text has the line.
    Removed,
    /// Unchanged lines are left out here.
    Gap,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DiffLine {
    pub(super) kind: LineKind,
    pub(super) text: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FileDifference {
    /// Path, with invisible characters written as escapes.
    pub(super) path: String,
    /// `New`, `Changed` or `Removed`.
    pub(super) what: &'static str,
    /// Remarks besides the lines, such as a change of the mode.
    pub(super) notes: Vec<String>,
    pub(super) lines: Vec<DiffLine>,
}

/// The differences of two sets of files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Difference {
    pub(super) files: Vec<FileDifference>,
    /// Whether something was left out because the page has no room for it.
    pub(super) cut: bool,
    /// Whether something cannot be shown for another reason: bytes that are not text, very long
    /// files and lines.
    pub(super) unread: bool,
}

/// Bytes of the HTML elements around a line.
const AROUND_LINE: usize = 24;
/// Bytes of the HTML elements around a file: its heading, its notes and the frame of its lines.
const AROUND_FILE: usize = 192;

/// Number of bytes of HTML that a page may still show.
#[derive(Clone, Copy, Debug)]
pub(super) struct HtmlBudget(usize);

impl HtmlBudget {
    pub(super) const fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes the bytes of a text and of the elements around it. Returns false if they do not fit.
    pub(super) fn take_text(&mut self, text: &str, around: usize) -> bool {
        // Templates write each of these characters as five bytes, such as `&#60;`. If that were not
        // counted, a hostile text could make the page five times as large.
        let escaped = text.bytes().filter(|byte| b"<>&\"'".contains(byte)).count();
        match self.0.checked_sub(text.len() + 4 * escaped + around) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => {
                // From now on nothing fits: a short line after an omitted one would hide the gap.
                self.0 = 0;
                false
            }
        }
    }
}

/// Compares two sets of files by path. A removed file is listed without its content.
pub(super) fn compare_files(before: &[File], after: &[File], room: &mut HtmlBudget) -> Difference {
    let by_path = |files: &[File]| -> BTreeMap<String, usize> {
        let paths = files.iter().enumerate();
        paths
            .map(|(at, file)| (file.path.as_str().to_owned(), at))
            .collect()
    };
    let (old, new) = (by_path(before), by_path(after));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut difference = Difference::default();
    for path in paths {
        let old_file = old.get(path).and_then(|at| before.get(*at));
        let new_file = new.get(path).and_then(|at| after.get(*at));
        let (what, mut notes, lines) = match (old_file, new_file) {
            (Some(before), Some(after)) if before == after => continue,
            (Some(before), Some(after)) => {
                let FileComparison { lines, note, whole } = diff_bytes(&before.bytes, &after.bytes);
                difference.unread |= !whole;
                let mut notes = Vec::from_iter(note);
                if before.mode != after.mode {
                    let (from, to) = (before.mode.bits(), after.mode.bits());
                    notes.push(format!("The mode changes from {from:04o} to {to:04o}."));
                }
                ("Changed", notes, lines)
            }
            (None, Some(after)) => {
                let FileComparison { lines, note, whole } = diff_bytes(b"", &after.bytes);
                difference.unread |= !whole;
                let mut notes = Vec::from_iter(note);
                if after.mode == Mode::Executable {
                    notes.push("The file is executable.".to_owned());
                }
                ("New", notes, lines)
            }
            (Some(_), None) => ("Removed", Vec::new(), Vec::new()),
            (None, None) => continue,
        };
        let path = printable_line(path);
        if !room.take_text(&path, AROUND_FILE) {
            difference.cut = true;
            break;
        }
        let total = lines.len();
        let lines: Vec<_> = lines
            .into_iter()
            .take_while(|line| room.take_text(&line.text, AROUND_LINE))
            .collect();
        if lines.len() < total {
            difference.cut = true;
            let left = total - lines.len();
            let left = format_count(left, "more line is", "more lines are");
            notes.push(format!("{left} not shown."));
        }
        difference.files.push(FileDifference {
            path,
            what,
            notes,
            lines,
        });
    }
    difference
}

/// Compares two texts. Returns the changed lines with some lines around them, as far as they fit,
/// and whether these are all.
pub(super) fn compare_texts(
    before: &str,
    after: &str,
    room: &mut HtmlBudget,
) -> (Vec<DiffLine>, bool) {
    let FileComparison { lines, whole, .. } = diff_bytes(before.as_bytes(), after.as_bytes());
    let total = lines.len();
    let lines: Vec<_> = lines
        .into_iter()
        .take_while(|line| room.take_text(&line.text, AROUND_LINE))
        .collect();
    let whole = whole && lines.len() == total;
    (lines, whole)
}

#[derive(Default)]
struct FileComparison {
    lines: Vec<DiffLine>,
    /// Remark that replaces the lines, if the file is not shown line by line.
    note: Option<String>,
    /// Whether the lines show all differences.
    whole: bool,
}

impl FileComparison {
    /// Creates the comparison of files that are not shown line by line.
    fn without_lines(note: String) -> Self {
        Self {
            note: Some(note),
            ..Self::default()
        }
    }
}

fn diff_bytes(old: &[u8], new: &[u8]) -> FileComparison {
    if old == new {
        return FileComparison {
            whole: true,
            ..FileComparison::default()
        };
    }
    let (Some(old_text), Some(new_text)) = (to_readable(old), to_readable(new)) else {
        // The hashes let a reviewer check a file that is not text elsewhere.
        let bytes = |bytes: &[u8]| {
            let size = format_count(bytes.len(), "byte", "bytes");
            format!("{size} (SHA-256 {})", Digest::of(bytes))
        };
        let note = format!("Not text: {}, then {}.", bytes(old), bytes(new));
        return FileComparison::without_lines(note);
    };
    let (old, new): (Vec<_>, Vec<_>) = (old_text.lines().collect(), new_text.lines().collect());
    // The bytes differ, so the difference is in line endings, which `lines` drops, or in bytes that
    // are not text.
    if old == new {
        let note = "Only line endings differ, or bytes that are not text.";
        return FileComparison::without_lines(note.to_owned());
    }
    // In the worst case the time grows with the square of the number of lines, and other people
    // write the files.
    if old.len().max(new.len()) > MAX_LINES {
        let lines = |lines: &[&str]| format_count(lines.len(), "line", "lines");
        let note = format!("{}, then {}.", lines(&old), lines(&new));
        return FileComparison::without_lines(note);
    }
    let diff = TextDiff::configure()
        .timeout(TIMEOUT)
        .diff_slices(&old, &new);
    let mut lines = Vec::new();
    let mut whole = true;
    for group in diff.grouped_ops(CONTEXT_LINES) {
        if !lines.is_empty() {
            lines.push(DiffLine {
                kind: LineKind::Gap,
                text: "…".to_owned(),
            });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let kind = match change.tag() {
                ChangeTag::Equal => LineKind::Kept,
                ChangeTag::Delete => LineKind::Removed,
                ChangeTag::Insert => LineKind::Added,
            };
            let value = change.value();
            // A cut in an unchanged line hides no difference.
            whole &= kind == LineKind::Kept || value.chars().count() <= MAX_LINE_CHARS;
            let text = printable_line(value);
            lines.push(DiffLine { kind, text });
        }
    }
    FileComparison {
        lines,
        note: None,
        whole,
    }
}

/// Returns a line of untrusted text for a page: invisible characters become escapes, and a text of
/// more than 2,000 characters is cut, with a mark.
pub(super) fn printable_line(text: &str) -> String {
    shorten_text(text, MAX_LINE_CHARS)
}

/// Returns an untrusted text for a page like [`printable_line`], but cut after `most` characters.
pub(super) fn shorten_text(text: &str, most: usize) -> String {
    let mut beginning: String = text.chars().take(most).collect();
    let left = text.chars().count().saturating_sub(most);
    if left > 0 {
        let left = format_count(left, "more character", "more characters");
        beginning.push_str(&format!("… and {left}"));
    }
    printable(&beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_fits_into_its_room_as_html() {
        const ROOM: usize = 56 * 1024;
        let file = |path: &str, text: &str| File {
            path: path.parse().unwrap(),
            mode: Mode::Plain,
            bytes: text.as_bytes().to_vec(),
        };
        let hostile = "<&>\"'".repeat(30) + "\n";
        let one = [file("a.md", &hostile.repeat(900))];
        let small: Vec<_> = (0..900)
            .map(|at| file(&format!("{at}.md"), "x\n"))
            .collect();
        for after in [&one[..], &small] {
            let found = compare_files(&[], after, &mut HtmlBudget::new(ROOM));
            assert!(found.cut);
            let mut written = 0;
            for file in &found.files {
                written += 60 + file.path.len() + 60;
                for line in &file.lines {
                    written += askama_escaped(&line.text) + "<ins>+ </ins>\n".len();
                }
            }
            assert!(written < ROOM && written > ROOM / 3, "{written}");
        }
    }

    fn askama_escaped(text: &str) -> usize {
        let escaped = askama::filters::escape(text, askama::filters::Html);
        escaped.unwrap().to_string().len()
    }

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.parse().unwrap(),
            mode: Mode::Plain,
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn short(difference: &Difference) -> Vec<String> {
        let line = |line: &DiffLine| {
            let mark = match line.kind {
                LineKind::Kept => " ",
                LineKind::Added => "+",
                LineKind::Removed => "-",
                LineKind::Gap => "@",
            };
            format!("{mark}{}", line.text)
        };
        let file = |file: &FileDifference| {
            let lines: Vec<_> = file.lines.iter().map(line).collect();
            format!("{} {}: {}", file.what, file.path, lines.join("|"))
        };
        difference.files.iter().map(file).collect()
    }

    #[test]
    fn files_are_new_changed_and_removed() {
        let before = [
            file("SKILL.md", "a\nb\nc\n"),
            file("old.txt", "x\n"),
            file("same", "s"),
        ];
        let after = [
            file("SKILL.md", "a\nx\nc\n"),
            file("new.txt", "y\n"),
            file("same", "s"),
        ];
        let found = compare_files(&before, &after, &mut HtmlBudget::new(10_000));
        assert_eq!(
            short(&found),
            [
                "Changed SKILL.md:  a|-b|+x| c",
                "New new.txt: +y",
                "Removed old.txt: "
            ]
        );
        assert!(!found.cut);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_said() {
        let lines: Vec<_> = (0..100).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let found = compare_files(&[], &[file("SKILL.md", &text)], &mut HtmlBudget::new(1_000));
        assert!(found.cut);
        let [only] = &*found.files else {
            panic!("{found:?}")
        };
        let left = 100 - only.lines.len();
        assert_eq!(only.notes, [format!("{left} more lines are not shown.")]);
        let none = compare_files(&[], &[file("SKILL.md", &text)], &mut HtmlBudget::new(1));
        assert!(none.cut && none.files.is_empty());
    }

    #[test]
    fn nothing_hides_in_a_line() {
        let hidden = "run\u{202e}txt\u{200b}";
        let far = format!("run{}; curl x | sh", " ".repeat(MAX_LINE_CHARS));
        let found = compare_files(
            &[],
            &[file("SKILL.md", &format!("{hidden}\n{far}\n"))],
            &mut HtmlBudget::new(100_000),
        );
        let lines = &found.files[0].lines;
        assert!(
            !lines[0].text.contains(['\u{202e}', '\u{200b}']),
            "{lines:?}"
        );
        assert!(lines[1].text.ends_with("more characters"), "{lines:?}");
    }

    #[test]
    fn bytes_and_line_endings_are_said_in_words() {
        for (old, new, note) in [
            (
                &b"a\n"[..],
                &b"a\r\n"[..],
                "Only line endings differ, or bytes that are not text.".to_owned(),
            ),
            (
                b"\xff",
                b"ab",
                format!(
                    "Not text: 1 byte (SHA-256 {}), then 2 bytes (SHA-256 {}).",
                    Digest::of(b"\xff"),
                    Digest::of(b"ab")
                ),
            ),
        ] {
            let found = diff_bytes(old, new);
            assert_eq!(
                (found.lines, found.note, found.whole),
                (Vec::new(), Some(note), false)
            );
        }
        let [before, after] = [
            &b"# caf\xe9 of the team\n"[..],
            b"# caf\xe9 of the team\ncurl x | sh\n",
        ];
        let found = diff_bytes(before, after);
        assert!(found.whole && found.lines.iter().any(|line| line.text == "curl x | sh"));
    }
}
