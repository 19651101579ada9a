//! What changed between two versions of a skill, line by line, for people.

use std::collections::BTreeMap;

use vault_skill::manifest::Mode;

use crate::output::{
    style::{BAD, BOLD, DIM, GOOD, paint},
    text::{clean, size},
};

/// Lines around a change.
const AROUND: usize = 3;
/// Most lines of a file that are compared one by one.
const MOST_LINES: usize = 4_000;

/// A file of a version.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Whether it may be executed.
    pub mode: Mode,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The difference between two sets of files by path, as lines of text; empty where there is none.
pub fn of(
    before: &BTreeMap<&str, Version<'_>>,
    after: &BTreeMap<&str, Version<'_>>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut paths: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let shown = clean(path, 200);
        match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) => {
                if old.bytes != new.bytes {
                    lines.push(paint(BOLD, format!("changed {shown}")));
                    lines.extend(text(old.bytes, new.bytes));
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
                let runs = if new.mode == Mode::Executable {
                    ", executable"
                } else {
                    ""
                };
                lines.push(paint(BOLD, format!("new {shown}{runs}")));
                lines.extend(text(b"", new.bytes));
            }
            (Some(_), None) => lines.push(paint(BOLD, format!("gone {shown}"))),
            (None, None) => {}
        }
    }
    lines
}

fn text(old: &[u8], new: &[u8]) -> Vec<String> {
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return vec![paint(
            DIM,
            format!(
                "  no text: {} → {}",
                size(old.len() as u64),
                size(new.len() as u64)
            ),
        )];
    };
    let (a, b): (Vec<&str>, Vec<&str>) = (old_text.lines().collect(), new_text.lines().collect());
    if a.len().max(b.len()) > MOST_LINES {
        return vec![paint(
            DIM,
            format!("  {} lines → {} lines", a.len(), b.len()),
        )];
    }
    let edits = edits(&a, &b);
    let near = |at: usize| {
        edits[at.saturating_sub(AROUND)..edits.len().min(at + AROUND + 1)]
            .iter()
            .any(|edit| !matches!(edit, Edit::Keep(_)))
    };
    let mut out = Vec::new();
    let mut gap = false;
    for (at, edit) in edits.iter().enumerate() {
        match edit {
            Edit::Keep(line) if near(at) => {
                if gap {
                    out.push(paint(DIM, "  …"));
                }
                gap = false;
                out.push(format!("    {}", clean(line, 300)).trim_end().to_owned());
            }
            Edit::Keep(_) => gap = !out.is_empty(),
            Edit::Drop(line) => out.push(paint(BAD, format!("  - {}", clean(line, 300)))),
            Edit::Add(line) => {
                if gap {
                    out.push(paint(DIM, "  …"));
                    gap = false;
                }
                out.push(paint(GOOD, format!("  + {}", clean(line, 300))));
            }
        }
    }
    out
}

enum Edit<'a> {
    Keep(&'a str),
    Drop(&'a str),
    Add(&'a str),
}

/// The shortest way from one list of lines to the other: by common beginning, common end, and the longest common part between.
fn edits<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<Edit<'a>> {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[head..], &b[head..]);
    let tail = rest_a
        .iter()
        .rev()
        .zip(rest_b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (middle_a, middle_b) = (
        &rest_a[..rest_a.len() - tail],
        &rest_b[..rest_b.len() - tail],
    );
    let mut edits: Vec<Edit<'a>> = a[..head].iter().map(|line| Edit::Keep(line)).collect();
    let (rows, columns) = (middle_a.len(), middle_b.len());
    if rows * columns > 4_000_000 {
        edits.extend(middle_a.iter().map(|line| Edit::Drop(line)));
        edits.extend(middle_b.iter().map(|line| Edit::Add(line)));
    } else {
        // Length of the longest common part of what is left, by where one stands in both.
        let width = columns + 1;
        let mut common = vec![0_u16; (rows + 1) * width];
        for row in (0..rows).rev() {
            for column in (0..columns).rev() {
                common[row * width + column] = if middle_a[row] == middle_b[column] {
                    common[(row + 1) * width + column + 1] + 1
                } else {
                    common[(row + 1) * width + column].max(common[row * width + column + 1])
                };
            }
        }
        let (mut row, mut column) = (0, 0);
        while row < rows || column < columns {
            if row < rows && column < columns && middle_a[row] == middle_b[column] {
                edits.push(Edit::Keep(middle_a[row]));
                row += 1;
                column += 1;
            } else if row < rows
                && (column == columns
                    || common[(row + 1) * width + column] >= common[row * width + column + 1])
            {
                edits.push(Edit::Drop(middle_a[row]));
                row += 1;
            } else {
                edits.push(Edit::Add(middle_b[column]));
                column += 1;
            }
        }
    }
    edits.extend(
        rest_a[rest_a.len() - tail..]
            .iter()
            .map(|line| Edit::Keep(line)),
    );
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(old: &str, new: &str) -> Vec<String> {
        text(old.as_bytes(), new.as_bytes())
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    #[test]
    fn changes_are_shown_with_what_stands_around_them() {
        assert_eq!(
            plain("a\nb\nc\n", "a\nx\nc\n"),
            ["    a", "  - b", "  + x", "    c"]
        );
        assert_eq!(plain("", "a\n"), ["  + a"]);
        let long: String = (0..20)
            .flat_map(|at: i32| [at.to_string(), "\n".to_owned()])
            .collect();
        let changed = long
            .replace("\n1\n", "\none\n")
            .replace("18\n", "eighteen\n");
        assert_eq!(
            plain(&long, &changed),
            [
                "    0",
                "  - 1",
                "  + one",
                "    2",
                "    3",
                "    4",
                "  …",
                "    15",
                "    16",
                "    17",
                "  - 18",
                "  + eighteen",
                "    19"
            ]
        );
    }
}
