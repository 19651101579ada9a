//! Finds the skills in a repository, archive or folder: every folder that contains a SKILL.md,
//! within limits.

use std::collections::BTreeSet;
use std::path::Path;

use vault_format::manifest::SKILL_MD;

/// Maximum depth of a folder that is searched for a SKILL.md.
pub const MAX_DEPTH: usize = 6;
/// Maximum number of local folders that one search visits.
pub const MAX_FOLDERS: usize = 2_000;
/// Maximum number of skills listed for one source.
pub const MAX_SKILLS: usize = 2_000;

/// Returns the folders at and below `base` that contain a SKILL.md, shallow ones first. An empty
/// `base` is the root. A folder inside a skill belongs to that skill and is not listed, unless the
/// outer skill is the root or `base`: a repository that is itself a skill may contain more skills.
pub(crate) fn skill_folders<'a>(paths: impl Iterator<Item = &'a str>, base: &str) -> Vec<String> {
    let mut found: BTreeSet<(usize, String)> = BTreeSet::new();
    for path in paths {
        let Some(folder) = folder_of(path) else {
            continue;
        };
        let inside = if base.is_empty() {
            folder
        } else if folder == base {
            ""
        } else {
            match folder
                .strip_prefix(base)
                .and_then(|rest| rest.strip_prefix('/'))
            {
                Some(rest) => rest,
                None => continue,
            }
        };
        let depth = if inside.is_empty() {
            0
        } else {
            inside.split('/').count()
        };
        // Folders of dependencies and of build results contain skills of other authors.
        if depth <= MAX_DEPTH && !inside.split('/').any(is_skipped) {
            found.insert((depth, folder.to_owned()));
        }
    }
    let mut folders: Vec<String> = Vec::new();
    for (_, folder) in found {
        // Folders come in order of depth, so the list already contains any outer skill.
        let nested = folders.iter().any(|outer| {
            outer != base
                && !outer.is_empty()
                && folder
                    .strip_prefix(outer.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        });
        if !nested && folders.len() < MAX_SKILLS {
            folders.push(folder);
        }
    }
    folders
}

fn folder_of(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((folder, SKILL_MD)) => Some(folder),
        None if path == SKILL_MD => Some(""),
        _ => None,
    }
}

fn is_skipped(part: &str) -> bool {
    matches!(
        part,
        ".git" | "node_modules" | "__MACOSX" | "target" | ".venv"
    )
}

/// Returns the local folders that contain a SKILL.md, as paths relative to `folder`, shallow ones
/// first. Does not follow symbolic links.
pub fn local_skills(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut waiting = vec![(String::new(), 0)];
    let mut visited = 0;
    while let Some((inside, depth)) = waiting.pop() {
        visited += 1;
        if visited > MAX_FOLDERS {
            break;
        }
        let Ok(entries) = std::fs::read_dir(folder.join(&inside)) else {
            continue;
        };
        // A folder with very many entries must not stall the search.
        for entry in entries.filter_map(Result::ok).take(20_000) {
            // `file_type` does not follow links, so the search neither leaves the folder nor loops.
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            let path = if inside.is_empty() {
                name.clone()
            } else {
                format!("{inside}/{name}")
            };
            if kind.is_file() && name == SKILL_MD {
                paths.push(path);
            } else if kind.is_dir() && depth < MAX_DEPTH && !is_skipped(&name) {
                waiting.push((path, depth + 1));
            }
        }
    }
    skill_folders(paths.iter().map(String::as_str), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_are_outermost_folders_with_a_skill_md() {
        let paths = [
            "README.md",
            "skills/pdf/SKILL.md",
            "skills/pdf/examples/inner/SKILL.md",
            "skills/pdf-tools/SKILL.md",
            "node_modules/x/SKILL.md",
            "a/b/c/d/e/f/g/SKILL.md",
            "other/skill.md",
        ];
        let found = |base| skill_folders(paths.iter().copied(), base);
        assert_eq!(found(""), ["skills/pdf", "skills/pdf-tools"]);
        assert_eq!(
            found("skills/pdf"),
            ["skills/pdf", "skills/pdf/examples/inner"]
        );
        assert_eq!(found("skills/p"), Vec::<String>::new());
        let with_root = ["SKILL.md", "skills/a/SKILL.md"];
        assert_eq!(skill_folders(with_root.into_iter(), ""), ["", "skills/a"]);
    }
}
