//! Conflict markers of git in a `vault.lock`: two branches changed the same lines of it.

use super::{LockEntry, parse_entries};
use crate::{errors::Failure, text::clean};

/// The two sides of an unfinished merge.
#[derive(Debug)]
pub struct Sides {
    pub ours: Side,
    pub theirs: Side,
}

/// One side of an unfinished merge.
#[derive(Debug)]
pub struct Side {
    /// Name that git gave to it: a branch, or `HEAD`.
    pub label: String,
    /// The file as this side has it.
    text: String,
}

/// Part of a conflict that a line belongs to.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Part {
    Common,
    Ours,
    /// The version that both sides changed, which git shows in the styles `diff3` and `zdiff3`.
    Base,
    Theirs,
}

/// Splits a file into the two sides of an unfinished merge. `None` if it has no complete conflict.
pub fn split_conflict(text: &str) -> Option<Sides> {
    let side = || Side {
        label: String::new(),
        text: String::new(),
    };
    let (mut ours, mut theirs) = (side(), side());
    let mut part = Part::Common;
    let mut is_conflict = false;
    for line in text.split_inclusive('\n') {
        let words = line.trim_end();
        let marker = |mark: &str| {
            let rest = words.strip_prefix(mark)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim())
        };
        if let Some(label) = marker("<<<<<<<").filter(|_| part == Part::Common) {
            part = Part::Ours;
            label.clone_into(&mut ours.label);
        } else if marker("|||||||").is_some() && part == Part::Ours {
            part = Part::Base;
        } else if marker("=======").is_some() && matches!(part, Part::Ours | Part::Base) {
            part = Part::Theirs;
        } else if let Some(label) = marker(">>>>>>>").filter(|_| part == Part::Theirs) {
            part = Part::Common;
            label.clone_into(&mut theirs.label);
            is_conflict = true;
        } else {
            if matches!(part, Part::Common | Part::Ours) {
                ours.text.push_str(line);
            }
            if matches!(part, Part::Common | Part::Theirs) {
                theirs.text.push_str(line);
            }
        }
    }
    (is_conflict && part == Part::Common).then_some(Sides { ours, theirs })
}

impl Side {
    /// Returns the label for messages.
    pub fn shown(&self) -> String {
        match clean(&self.label, 80) {
            label if label.is_empty() => "the other side".to_owned(),
            label => label,
        }
    }

    /// Reads the entries of this side.
    pub fn read_entries(&self) -> Result<Vec<LockEntry>, Failure> {
        parse_entries(&self.text).map_err(|(_, failure)| {
            let shown = self.shown();
            fail!(
                LockInvalid,
                "vault.lock of {shown} cannot be read: {}",
                failure.message
            )
            .hint("take a side as it is: git checkout --ours vault.lock, or --theirs")
        })
    }
}

/// A skill that both sides have, with different entries.
#[derive(Debug)]
pub struct Clash {
    pub ours: LockEntry,
    pub theirs: LockEntry,
}

impl Clash {
    /// Returns whether the sides differ only in the content of one folder of the project.
    pub fn is_same_folder(&self) -> bool {
        let theirs = LockEntry {
            digest: self.ours.digest,
            ..self.theirs.clone()
        };
        self.ours.is_folder() && self.ours == theirs
    }
}

/// The entries of both sides.
#[derive(Debug, Default)]
pub struct Merged {
    /// Entries that are equal on both sides, or that only one side has.
    pub entries: Vec<LockEntry>,
    /// Entries that only one side has. The other side may have removed them.
    pub single: Vec<LockEntry>,
    /// Skills that need a decision.
    pub clashes: Vec<Clash>,
}

/// Puts the entries of both sides together.
pub fn merge_entries(ours: Vec<LockEntry>, mut theirs: Vec<LockEntry>) -> Merged {
    let mut merged = Merged::default();
    for entry in ours {
        match theirs.iter().position(|other| other.name == entry.name) {
            Some(at) => {
                let other = theirs.swap_remove(at);
                if other == entry {
                    merged.entries.push(entry);
                } else {
                    let (ours, theirs) = (entry, other);
                    merged.clashes.push(Clash { ours, theirs });
                }
            }
            None => merged.single.push(entry),
        }
    }
    merged.single.extend(theirs);
    merged.entries.extend(merged.single.iter().cloned());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, revision: &str) -> String {
        format!(
            "[[skill]]\nname = \"{name}\"\nsource = \"github:a/{name}\"\nrevision = \"{revision}\"\ndigest = \"{}\"\n\n",
            "0".repeat(64)
        )
    }

    #[test]
    fn both_sides_of_a_conflict_are_read_and_put_together() {
        let head = "schema = 1\n\n";
        let (a, b, c) = (entry("a", "1"), entry("b", "1"), entry("c", "1"));
        // Git puts only the lines that differ between the markers.
        let newer = c.replace("\"1\"", "\"2\"");
        let line = "revision = \"1\"\n";
        let common = c.split(line).collect::<Vec<_>>();
        let text = format!(
            "{head}<<<<<<< HEAD\n{a}||||||| 123\n=======\n{b}>>>>>>> feature/x\n{}<<<<<<< HEAD\n{line}=======\nrevision = \"2\"\n>>>>>>> feature/x\n{}",
            common[0], common[1]
        );
        let sides = split_conflict(&text).unwrap();
        assert_eq!(
            (sides.ours.shown(), sides.theirs.shown()),
            ("HEAD".into(), "feature/x".into())
        );
        assert_eq!(sides.ours.text, format!("{head}{a}{c}"));
        assert_eq!(sides.theirs.text, format!("{head}{b}{newer}"));
        let merged = merge_entries(
            sides.ours.read_entries().unwrap(),
            sides.theirs.read_entries().unwrap(),
        );
        let names = |entries: &[LockEntry]| {
            entries
                .iter()
                .map(|entry| entry.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&merged.entries), ["a", "b"]);
        assert_eq!(names(&merged.single), ["a", "b"]);
        assert_eq!(merged.clashes.len(), 1);
        assert_eq!(merged.clashes[0].theirs.revision.as_deref(), Some("2"));
        for broken in [
            "<<<<<<< HEAD\n",
            "<<<<<<< a\n=======\n",
            "schema = 1\n",
            "=======\n>>>>>>> x\n",
        ] {
            assert!(split_conflict(broken).is_none(), "{broken}");
        }
    }
}
