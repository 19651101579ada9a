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

/// Makes the `.gitignore` of a folder name exactly these links. Returns false, and changes nothing,
/// if the file is a symbolic link, a folder or too large, or if vault's block in it is broken.
pub(super) fn ignore_links(folder: &HeldFolder, links: &BTreeSet<&str>) -> Result<bool, FileError> {
    let name = OsStr::new(NAME);
    let (before, mode) = match folder.read_file(name, MAX_BYTES)? {
        HeldFile::Missing => (Vec::new(), READABLE),
        HeldFile::Bytes { bytes, mode } => (bytes, mode),
        HeldFile::Refused => return Ok(false),
    };
    let Some(own) = lines_outside(&before) else {
        return Ok(false);
    };
    let after = with_block(own, links);
    if after == before {
        return Ok(true);
    }
    if after.is_empty() {
        folder.remove_file(name)?;
    } else {
        folder.put_file(name, &after, mode)?;
    }
    Ok(true)
}

/// Returns the lines outside of vault's blocks. `None` if a block has no end or no begin.
fn lines_outside(text: &[u8]) -> Option<Vec<u8>> {
    let (mut own, mut is_inside) = (Vec::new(), false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        // Git may have changed the ends of the lines.
        let words = line.trim_ascii_end();
        match (words == BEGIN.as_bytes(), words == END.as_bytes()) {
            (true, _) if is_inside => return None,
            (_, true) if !is_inside => return None,
            (true, _) => is_inside = true,
            (_, true) => is_inside = false,
            _ if is_inside => {}
            _ => own.extend_from_slice(line),
        }
    }
    (!is_inside).then_some(own)
}

/// Returns the file with the block for these links; without links, only the own lines.
fn with_block(mut own: Vec<u8>, links: &BTreeSet<&str>) -> Vec<u8> {
    if links.is_empty() {
        return own;
    }
    let is_vaults = own.is_empty();
    if !is_vaults && !own.ends_with(b"\n") {
        own.push(b'\n');
    }
    let mut block = vec![BEGIN.to_owned()];
    if is_vaults {
        block.push(format!("/{NAME}"));
    }
    // Names of skills contain nothing that has a meaning in a pattern.
    block.extend(links.iter().map(|link| format!("/{link}")));
    block.push(END.to_owned());
    own.extend_from_slice(block.join("\n").as_bytes());
    own.push(b'\n');
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str) -> String {
        format!("{BEGIN}\n{lines}{END}\n")
    }

    #[test]
    fn only_the_block_of_vault_changes() {
        let both = BTreeSet::from(["csv", "pdf"]);
        let one = BTreeSet::from(["pdf"]);
        let none = BTreeSet::new();
        let ours = block("/.gitignore\n/csv\n/pdf\n");
        for (before, links, after) in [
            ("", &both, ours.clone()),
            (&ours, &one, block("/.gitignore\n/pdf\n")),
            (&ours, &none, String::new()),
            (&ours.replace('\n', "\r\n"), &none, String::new()),
            ("*.log\n", &one, format!("*.log\n{}", block("/pdf\n"))),
            ("*.log", &one, format!("*.log\n{}", block("/pdf\n"))),
            (
                &format!("a\n{}b\n", block("/x\n")),
                &one,
                format!("a\nb\n{}", block("/pdf\n")),
            ),
            (
                &format!("a\n{}b\n", block("/x\n")),
                &none,
                "a\nb\n".to_owned(),
            ),
            (&format!("{ours}{ours}"), &both, ours.clone()),
        ] {
            let own = lines_outside(before.as_bytes()).unwrap();
            let text = String::from_utf8(with_block(own, links)).unwrap();
            assert_eq!(text, after, "{before}");
        }
        for broken in [
            format!("{BEGIN}\n/pdf\n"),
            format!("{END}\n"),
            format!("{BEGIN}\n{BEGIN}\n{END}\n"),
        ] {
            assert_eq!(lines_outside(broken.as_bytes()), None, "{broken}");
        }
    }
}
