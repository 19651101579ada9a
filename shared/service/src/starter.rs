//! The five starter skills. `vault setup` offers them, `vault demo` publishes them, and people who
//! sign up for a hosted vault can start with them.

use vault_format::manifest::Mode;
use vault_gate::RawFile;

/// A file of a starter skill, compiled into the program.
#[derive(Clone, Copy, Debug)]
pub struct StarterFile {
    /// Path below the common folder of all starter skills.
    pub path: &'static str,
    /// Content of the file, compiled into the program.
    pub bytes: &'static [u8],
}

macro_rules! starter {
    ($($path:literal),+ $(,)?) => {
        &[$(StarterFile {
            path: $path,
            bytes: include_bytes!(concat!("../starter/", $path)),
        }),+]
    };
}

/// All files of all starter skills.
pub const FILES: &[StarterFile] = starter![
    "code-review/SKILL.md",
    "code-review/scripts/changes.sh",
    "commit-message/SKILL.md",
    "commit-message/scripts/staged.sh",
    "flaky-test/SKILL.md",
    "flaky-test/scripts/repeat.sh",
    "release-notes/SKILL.md",
    "release-notes/scripts/since.sh",
    "safe-migration/SKILL.md",
    "safe-migration/scripts/scan.sh",
];

/// Returns the names of the starter skills, sorted.
pub fn skill_names() -> Vec<&'static str> {
    let folders = FILES.iter().filter_map(|file| file.path.split('/').next());
    let mut names: Vec<_> = folders.collect();
    // The list of files is sorted, so equal folders are neighbours.
    names.dedup();
    names
}

/// Returns the purpose of the starter skill of this name, which is the first sentence of its
/// description; `None` if there is no such skill.
pub fn skill_purpose(name: &str) -> Option<&'static str> {
    let is_text = |path: &str| path.strip_prefix(name) == Some("/SKILL.md");
    let file = FILES.iter().find(|file| is_text(file.path))?;
    let mut lines = std::str::from_utf8(file.bytes).ok()?.lines();
    let description = lines.find_map(|line| line.strip_prefix("description: "))?;
    Some(match description.find(". ") {
        Some(end) => &description[..=end],
        None => description,
    })
}

/// Returns the files of the starter skill of this name, with paths below its folder, in the form of
/// a draft; empty if there is no such skill.
pub fn skill_files(name: &str) -> Vec<RawFile> {
    let below = |file: &StarterFile| {
        let path = file.path.strip_prefix(name)?.strip_prefix('/')?;
        Some(RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: file.bytes.to_owned(),
        })
    };
    FILES.iter().filter_map(below).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use vault_gate::{self as gate, GateOptions};

    use super::*;

    #[test]
    fn the_list_names_every_file_of_the_folder() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/starter"));
        let mut found = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let below = path.strip_prefix(root).unwrap();
                    found.push(below.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        let listed: Vec<_> = FILES.iter().map(|file| file.path).collect();
        assert_eq!(found, listed);
        assert_eq!(skill_names().len(), 5);
    }

    #[test]
    fn every_starter_skill_passes_the_gate() {
        for name in skill_names() {
            let verdict = gate::check(skill_files(name), &GateOptions::default());
            let package = verdict.package.unwrap();
            assert_eq!(package.name.as_str(), name);
            assert!(
                verdict.findings.is_empty(),
                "{name}: {:?}",
                verdict.findings
            );
        }
        assert!(skill_files("code").is_empty() && skill_files("").is_empty());
    }

    #[test]
    fn every_starter_skill_says_in_a_sentence_what_it_is_for() {
        for name in skill_names() {
            let text = skill_purpose(name).unwrap();
            assert!(text.ends_with('.') && text.len() < 120, "{name}: {text}");
            assert_eq!(text.matches(". ").count(), 0, "{name}: {text}");
        }
        let text = skill_purpose("code-review");
        assert_eq!(text, Some("Reviews a change before it is merged."));
        assert_eq!(skill_purpose("code"), None);
    }
}
