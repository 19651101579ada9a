//! Keeps the links in a project's agents' folders out of its repository: a `.gitignore` beside the
//! links names them, and nothing else.
//!
//! ```text
//! # BEGIN vault: links to the skills of vault.lock
//! /.gitignore
//! /pdf
//! # END vault
//! ```
//! A file that vault made ignores itself. A file of the project keeps its own lines and gets such a
//! block, without the line for itself. Without links, the block goes, and a file of vault with it.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use crate::disk::FileError;
use crate::disk::beneath::{HeldFile, HeldFolder, READABLE};

/// Name of the file.
pub(super) const NAME: &str = ".gitignore";
/// First line of vault's block.
const BEGIN: &str = "# BEGIN vault: links to the skills of vault.lock";
/// Last line of vault's block.
const END: &str = "# END vault";
/// Maximum size in bytes of a file that is extended.
const MAX_BYTES: u64 = 1 << 20;

/// Line of a block after a file whose last line had no end, so that it can be left as it was.
const NO_END: &str = "# the line above had no end";

/// Makes the `.gitignore` of a folder name exactly these entries. Returns false, and changes nothing,
/// if the file is a symbolic link, a folder or too large, or if vault's block in it is broken.
pub(super) fn ignore_links(folder: &HeldFolder, links: &BTreeSet<&str>) -> Result<bool, FileError> {
    let name = OsStr::new(NAME);
    let (before, mode) = match folder.read_file(name, MAX_BYTES)? {
        HeldFile::Missing if links.is_empty() => return Ok(true),
        HeldFile::Missing => (None, READABLE),
        HeldFile::Bytes { bytes, mode } => (Some(bytes), mode),
        // Without links there is nothing to ignore.
        HeldFile::Refused => return Ok(links.is_empty()),
    };
    let Some(own) = OwnLines::read_lines(before.as_deref()) else {
        return Ok(links.is_empty());
    };
    let after = own.with_block(links);
    if after == before {
        return Ok(true);
    }
    match after {
        Some(after) => folder.put_file(name, &after, mode)?,
        None => folder.remove_file(name)?,
    }
    Ok(true)
}

/// A `.gitignore` without vault's block.
#[derive(Debug, Eq, PartialEq)]
struct OwnLines {
    /// The lines of the project.
    lines: Vec<u8>,
    /// Whether vault made the file, so that it has no lines of the project.
    is_vaults: bool,
}

impl OwnLines {
    /// Splits vault's blocks off; `None` is a file that does not exist yet. Returns `None` if a
    /// block has no end or no begin.
    fn read_lines(text: Option<&[u8]>) -> Option<Self> {
        let Some(text) = text else {
            let lines = Vec::new();
            let is_vaults = true;
            return Some(Self { lines, is_vaults });
        };
        let itself = format!("/{NAME}");
        let (mut own, mut is_inside) = (Vec::new(), false);
        let mut names_itself = false;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            // Git may have changed the ends of the lines.
            let words = line.trim_ascii_end();
            if words == BEGIN.as_bytes() {
                if std::mem::replace(&mut is_inside, true) {
                    return None;
                }
            } else if words == END.as_bytes() {
                if !std::mem::replace(&mut is_inside, false) {
                    return None;
                }
            } else if !is_inside {
                own.extend_from_slice(line);
            } else if words == NO_END.as_bytes() && own.ends_with(b"\n") {
                own.pop();
            } else if words == itself.as_bytes() {
                names_itself = true;
            }
        }
        // An empty file without such a block is one that the project keeps for git.
        let is_vaults = own.is_empty() && names_itself;
        let lines = own;
        (!is_inside).then_some(Self { lines, is_vaults })
    }

    /// Returns the file with the block for these entries; `None` if there should be none.
    fn with_block(self, links: &BTreeSet<&str>) -> Option<Vec<u8>> {
        let Self {
            lines: mut file,
            is_vaults,
        } = self;
        if links.is_empty() {
            return (!is_vaults).then_some(file);
        }
        let mut block = vec![BEGIN.to_owned()];
        if is_vaults {
            block.push(format!("/{NAME}"));
        } else if !file.is_empty() && !file.ends_with(b"\n") {
            file.push(b'\n');
            block.push(NO_END.to_owned());
        }
        // Names of skills contain nothing that has a meaning in a pattern.
        block.extend(links.iter().map(|link| format!("/{link}")));
        block.push(END.to_owned());
        file.extend_from_slice(block.join("\n").as_bytes());
        file.push(b'\n');
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str) -> String {
        format!("{BEGIN}\n{lines}{END}\n")
    }

    /// The file after the links changed to these; `None` is no file.
    fn changed(before: Option<&str>, links: &[&str]) -> Option<String> {
        let own = OwnLines::read_lines(before.map(str::as_bytes)).unwrap();
        let after = own.with_block(&links.iter().copied().collect());
        after.map(|after| String::from_utf8(after).unwrap())
    }

    #[test]
    fn only_the_block_of_vault_changes() {
        let ours = block("/.gitignore\n/csv\n/pdf\n");
        let cut = format!("*.log\n{}", block(&format!("{NO_END}\n/pdf\n")));
        let some = |text: &str| Some(text.to_owned());
        for (before, links, after) in [
            (None, &["csv", "pdf"][..], some(&ours)),
            (Some(&*ours), &["pdf"], some(&block("/.gitignore\n/pdf\n"))),
            (Some(&ours), &[], None),
            (Some(&ours.replace('\n', "\r\n")), &[], None),
            (
                Some("*.log\n"),
                &["pdf"],
                some(&format!("*.log\n{}", block("/pdf\n"))),
            ),
            (Some("*.log"), &["pdf"], some(&cut)),
            (Some(&cut), &["pdf"], some(&cut)),
            (Some(&cut), &[], some("*.log")),
            // A file that the project keeps, although it is empty.
            (Some(""), &["pdf"], some(&block("/pdf\n"))),
            (Some(&block("/pdf\n")), &[], some("")),
            (
                Some(&format!("a\n{}b\n", block("/x\n"))),
                &[],
                some("a\nb\n"),
            ),
            (Some(&format!("{ours}{ours}")), &["csv", "pdf"], some(&ours)),
        ] {
            assert_eq!(changed(before, links), after, "{before:?} {links:?}");
        }
        for broken in [
            format!("{BEGIN}\n/pdf\n"),
            format!("{END}\n"),
            format!("{BEGIN}\n{BEGIN}\n{END}\n"),
        ] {
            assert_eq!(
                OwnLines::read_lines(Some(broken.as_bytes())),
                None,
                "{broken}"
            );
        }
    }
}
