//! Checks the files of a skill: which are never stored, and the number, sizes and paths of the
//! others.

use crate::finding::{Finding, Level};
use vault_format::bundle::File;
use vault_format::manifest::{MAX_FILE_BYTES, MAX_FILES, MAX_SKILL_BYTES, Mode, SKILL_MD};
use vault_format::path::{FilePath, check_paths};
use vault_format::text::quoted;

/// Number of files above which some MCP hosts reject a skill: a warning.
pub const MANY_FILES: usize = 512;
/// Maximum number of findings of one kind that are listed, so that a folder of a million bad names
/// does not fill the screen.
const MOST_LISTED: usize = 20;

const IGNORED: [&str; 8] = [
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    ".Spotlight-V100",
    ".Trashes",
    ".git",
    ".idea",
    ".vscode",
];

/// A file as it was found in a folder, archive or request; nothing of it is checked.
#[derive(Clone, Debug)]
pub struct RawFile {
    /// Path below the skill's folder, segments joined by `/`.
    pub path: String,
    /// Whether the file is executable for its owner.
    pub mode: Mode,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// Turns a verified file of a bundle back into unchecked input of a scan.
impl From<File> for RawFile {
    fn from(file: File) -> Self {
        Self {
            path: file.path.to_string(),
            mode: file.mode,
            bytes: file.bytes,
        }
    }
}

/// Tells whether a file is metadata that an operating system adds to folders by itself. A
/// comparison with signed files ignores such a file, but reports a folder with such a name.
pub fn is_system_metadata(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    [".DS_Store", "Thumbs.db", "desktop.ini"].contains(&name) || name.starts_with("._")
}

/// Tells whether a path is, or lies below, metadata of an operating system or editor, which is
/// never stored.
pub fn is_ignored(path: &str) -> bool {
    path.split('/').any(|segment| {
        IGNORED.contains(&segment)
            || segment.starts_with("._")
            || segment.ends_with('~')
            || [".swp", ".swo"]
                .iter()
                .any(|ending| segment.ends_with(ending))
    })
}

/// Drops the ignored files and returns the others that have a valid path, sorted by path bytes.
pub(super) fn check_files(files: Vec<RawFile>, findings: &mut Vec<Finding>) -> Vec<File> {
    let files_to_store: Vec<RawFile> = files
        .into_iter()
        .filter(|file| !is_ignored(&file.path))
        .collect();
    // Ignored files are never stored, so they count towards no limit.
    check_count(files_to_store.len(), findings);
    check_sizes(&files_to_store, findings);
    check_pointers(&files_to_store, findings);
    let kept = with_document_name(files_to_store, findings);
    check_document(&kept, findings);
    let mut files = with_paths(kept, findings);
    files.sort_by(|a, b| a.path.as_str().cmp(b.path.as_str()));
    if let Err(clash) = check_paths(files.iter().map(|file| &file.path)) {
        let hint = "rename one of them; some file systems cannot hold both";
        findings.push(Finding::new("path-clash", Level::Error, clash.to_string()).hint(hint));
    }
    files
        .iter()
        .filter(|file| is_native(&file.bytes))
        .for_each(|file| {
            let message = "this is a compiled program, which nobody can read before it runs";
            let finding =
                Finding::new("native-executable", Level::Warning, message).at(file.path.as_str());
            findings.push(finding.hint("ship its source, or say in SKILL.md where it comes from"));
        });
    files
}

fn check_count(count: usize, findings: &mut Vec<Finding>) {
    if count > MAX_FILES {
        let message = format!("the skill has {count} files; {MAX_FILES} are allowed");
        let hint = "leave out what is built or installed, or pack data into one file";
        findings.push(Finding::new("file-count", Level::Error, message).hint(hint));
    } else if count > MANY_FILES {
        let message =
            format!("the skill has {count} files; MCP hosts must accept only {MANY_FILES}");
        findings.push(
            Finding::new("file-count-high", Level::Warning, message)
                .hint("remove what is not needed"),
        );
    }
}

fn check_sizes(files: &[RawFile], findings: &mut Vec<Finding>) {
    for file in files
        .iter()
        .filter(|file| file.bytes.len() as u64 > MAX_FILE_BYTES)
        .take(MOST_LISTED)
    {
        let message = format!(
            "the file has {} bytes; {MAX_FILE_BYTES} are allowed",
            file.bytes.len()
        );
        let hint = "split it, or fetch it when it is needed";
        findings.push(
            Finding::new("file-size", Level::Error, message)
                .at(&file.path)
                .hint(hint),
        );
    }
    let total: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    if total > MAX_SKILL_BYTES {
        let message =
            format!("the files have {total} bytes together; {MAX_SKILL_BYTES} are allowed");
        findings.push(
            Finding::new("total-size", Level::Error, message).hint("remove what is not needed"),
        );
    }
}

/// Names of folders that a search for skills does not enter.
pub const UNSEARCHED_FOLDERS: [&str; 2] = [".git", "node_modules"];

/// Reports files whose content Git LFS stores elsewhere: a checkout without git-lfs, or an archive
/// from a code host, has only pointers to them.
fn check_pointers(files: &[RawFile], findings: &mut Vec<Finding>) {
    let pointers = files.iter().filter(|file| is_lfs_pointer(&file.bytes));
    let pointers = pointers.take(MOST_LISTED).map(|file| {
        let message = format!(
            "{} is a pointer of Git LFS, not the file",
            quoted(&file.path)
        );
        Finding::new("lfs-pointer", Level::Error, message)
            .at(&file.path)
            .hint("fetch it with `git lfs pull`, then add the folder")
    });
    findings.extend(pointers);
}

/// Tells whether a file is only a pointer to a file in Git LFS.
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    // Older pointers name the host from before the project was called Git LFS.
    ["git-lfs.github.com", "hawser.github.com"]
        .iter()
        .any(|host| bytes.starts_with(format!("version https://{host}/spec/").as_bytes()))
}

/// Tells whether a file of this name makes its folder a skill: SKILL.md, in any case of letters.
pub fn is_document_name(name: &str) -> bool {
    name.eq_ignore_ascii_case(SKILL_MD)
}

/// Renames `skill.md` to SKILL.md, the name that agents look for; its bytes stay as they are.
fn with_document_name(mut files: Vec<RawFile>, findings: &mut Vec<Finding>) -> Vec<RawFile> {
    let named: Vec<usize> = (0..files.len())
        .filter(|at| is_document_name(&files[*at].path))
        .collect();
    // If one folder has several spellings, choosing one would be a guess. They stay as they are,
    // and the rule `path-clash` rejects the skill.
    if let [only] = named[..]
        && files[only].path != SKILL_MD
    {
        let message = format!("{} is kept as {SKILL_MD}", quoted(&files[only].path));
        let hint = format!("rename it to {SKILL_MD}; agents look for exactly that name");
        findings.push(
            Finding::new("skill-md-name", Level::Warning, message)
                .at(SKILL_MD)
                .hint(hint),
        );
        SKILL_MD.clone_into(&mut files[only].path);
    }
    files
}

fn check_document(files: &[RawFile], findings: &mut Vec<Finding>) {
    if files.iter().any(|file| file.path == SKILL_MD) {
        return;
    }
    let inner = files
        .iter()
        .map(|file| file.path.as_str())
        // Authors often give a folder one level too high, so look for a SKILL.md below it. `min`
        // makes the hint independent of the order of the files.
        .filter(|path| path.ends_with("/SKILL.md"))
        .min();
    let hint = match inner {
        Some(path) => format!(
            "the skill seems to be in {}",
            quoted(path.trim_end_matches("/SKILL.md"))
        ),
        None => format!("a skill is a folder with a file {SKILL_MD}"),
    };
    findings.push(
        Finding::new(
            "skill-md-missing",
            Level::Error,
            format!("there is no {SKILL_MD}"),
        )
        .hint(hint),
    );
}

fn with_paths(files: Vec<RawFile>, findings: &mut Vec<Finding>) -> Vec<File> {
    let mut good = Vec::with_capacity(files.len());
    let mut bad = Vec::new();
    for file in files {
        match file.path.parse::<FilePath>() {
            Ok(path) => good.push(File {
                path,
                mode: file.mode,
                bytes: file.bytes,
            }),
            Err(error) => {
                let hint = "rename the file; paths are never corrected";
                bad.push(
                    Finding::new("path", Level::Error, error.to_string())
                        .at(file.path)
                        .hint(hint),
                );
            }
        }
    }
    // Sort before the list is cut, so that it has the same paths in whatever order the files come.
    bad.sort_by(|a, b| a.path.cmp(&b.path));
    let left_out = bad.len().saturating_sub(MOST_LISTED);
    bad.truncate(MOST_LISTED);
    findings.append(&mut bad);
    if left_out > 0 {
        findings.push(Finding::new(
            "path",
            Level::Error,
            format!("{left_out} more files have a bad path"),
        ));
    }
    good
}

/// Whether bytes are a program of an operating system (ELF, PE or Mach-O), judged by the fields
/// that loaders check.
pub(super) fn is_native(bytes: &[u8]) -> bool {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|word| <[u8; 4]>::try_from(word).ok())
    };
    match word(0) {
        Some(
            [0x7F, b'E', b'L', b'F']
            | [0xFE, 0xED, 0xFA, 0xCE | 0xCF]
            | [0xCE | 0xCF, 0xFA, 0xED, 0xFE],
        ) => true,
        // A Mach-O file for several architectures begins like a Java class. The next number tells
        // them apart: the count of architectures is small, the version of a class file is not.
        Some([0xCA, 0xFE, 0xBA, 0xBE]) => {
            word(4).is_some_and(|count| u32::from_be_bytes(count) < 30)
        }
        // Any text may begin with these two letters, so look for the PE header that such a program
        // points to.
        Some([b'M', b'Z', ..]) => {
            let header =
                word(0x3C).and_then(|offset| usize::try_from(u32::from_le_bytes(offset)).ok());
            header.and_then(|at| bytes.get(at..)?.get(..4)) == Some(b"PE\0\0")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_ignored_anywhere_in_a_path() {
        for path in [
            ".DS_Store",
            "a/.DS_Store",
            "Thumbs.db",
            "x/desktop.ini",
            "._SKILL.md",
            ".Spotlight-V100/x",
            ".Trashes/1/2",
            ".git/config",
            "a/.git/HEAD",
            ".SKILL.md.swp",
            "b.swo",
            "notes~",
            ".idea/x.xml",
            ".vscode/settings.json",
        ] {
            assert!(is_ignored(path), "{path}");
        }
        for path in [
            "SKILL.md",
            ".gitignore",
            "git/x",
            "a.swpx",
            "~x",
            ".github/x",
            "thumbs.db",
            ".vault/x",
        ] {
            assert!(!is_ignored(path), "{path}");
        }
    }

    #[test]
    fn what_systems_add_by_themselves_is_told_from_what_editors_leave() {
        for path in [".DS_Store", "a/Thumbs.db", "a/b/desktop.ini", "._SKILL.md"] {
            assert!(is_ignored(path) && is_system_metadata(path), "{path}");
        }
        for path in [
            ".git/config",
            ".vscode/tasks.json",
            "SKILL.md~",
            ".x.swp",
            ".DS_Store/x",
            "._a/SKILL.md",
        ] {
            assert!(is_ignored(path) && !is_system_metadata(path), "{path}");
        }
    }

    #[test]
    fn compiled_programs_are_known_by_their_heads() {
        let mut pe = vec![0; 0x80];
        pe[..2].copy_from_slice(b"MZ");
        pe[0x3C] = 0x40;
        pe[0x40..0x44].copy_from_slice(b"PE\0\0");
        for bytes in [
            b"\x7fELF\x02".as_slice(),
            b"\xcf\xfa\xed\xfe..",
            b"\xca\xfe\xba\xbe\0\0\0\x02",
            &pe,
        ] {
            assert!(is_native(bytes), "{bytes:?}");
        }
        let far = [b"MZ".as_slice(), &[0xFF; 0x60]].concat();
        for bytes in [
            b"".as_slice(),
            b"MZ",
            b"\x7fEL",
            b"#!/bin/sh",
            b"\xca\xfe\xba\xbe\0\0\0\x34",
            b"MZ is a text",
            &far,
        ] {
            assert!(!is_native(bytes), "{bytes:?}");
        }
    }
}
