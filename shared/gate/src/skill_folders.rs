//! The folders of a tree that are skills: every folder that contains a SKILL.md, in any case of
//! letters, and is neither generated nor part of another skill.
//!
//! `vault add` and `vault audit-repo` list a source by this one rule, so that an audit judges
//! exactly the skills that can be added. What is found and is no skill of the source is left out
//! with a reason.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use vault_format::manifest::SKILL_MD;
use vault_format::text::is_deceptive;

use crate::{UNSEARCHED_FOLDERS, is_document_name};

/// Maximum length of a path in a source, in bytes. Tools cannot open longer paths on any file
/// system, and the work on the folders of a path grows with the square of its length.
pub const MAX_PATH_BYTES: usize = 1024;
/// Maximum number of parts of a path in a source.
const MAX_PATH_PARTS: usize = 64;

/// A skill that is not fetched, with the reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeftOut {
    /// The folder in the source, or the name in the site's index; `.` for the root.
    pub path: String,
    /// The reason.
    pub reason: LeftOutReason,
}

/// The reason why a skill of a source is not fetched.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeftOutReason {
    /// The user chose other skills.
    #[error("it was not chosen")]
    NotChosen,
    /// The SKILL.md lies inside of another skill. Holds the folder of that skill.
    #[error("it is part of the skill in {0}")]
    InsideSkill(String),
    /// The folder lies below one of generated files or dependencies. Holds the name of that one.
    #[error("it is below {0}, which holds generated files")]
    Generated(String),
    /// A submodule: its files are in another repository.
    #[error("it is a submodule; add it from its own repository")]
    Submodule,
    /// The folder is a symbolic link.
    #[error("it is a symbolic link; add the folder that it leads to")]
    Link,
    /// The folder cannot be searched. Holds the cause.
    #[error("it cannot be searched: {0}")]
    Unreadable(String),
    /// The entry of an index cannot be used. Holds the cause.
    #[error("{0}")]
    BadEntry(String),
    /// No skill is taken from a folder with this path, in any form of a source. Holds the fault, as
    /// [`path_fault`] states it.
    #[error("it {0}")]
    BadPath(&'static str),
}

impl LeftOutReason {
    /// Tells whether the reason is a fault of the source, so that even a user who takes all skills
    /// misses this one.
    pub const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Unreadable(_) | Self::BadEntry(_) | Self::BadPath(_)
        )
    }

    /// The machine-readable code of the reason, which never changes.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NotChosen => "not_chosen",
            Self::InsideSkill(_) => "inside_skill",
            Self::Generated(_) => "generated",
            Self::Submodule => "submodule",
            Self::Link => "link",
            Self::Unreadable(_) => "unreadable",
            Self::BadEntry(_) => "bad_entry",
            Self::BadPath(_) => "bad_path",
        }
    }
}

impl LeftOut {
    /// Creates the entry of a folder; an empty path is the root.
    pub fn new(path: impl Into<String>, reason: LeftOutReason) -> Self {
        let path = Self::shown_path(&path.into());
        Self { path, reason }
    }

    /// Returns the path of a folder as messages show it.
    pub fn shown_path(folder: &str) -> String {
        let shown = if folder.is_empty() { "." } else { folder };
        shown.to_owned()
    }
}

/// The skills that a search of a tree of files found, and what the search left out.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Found {
    /// Each folder with the path of its SKILL.md, shallow ones first.
    pub skills: Vec<(String, String)>,
    /// The folders that are no skills of the tree, with the reasons.
    pub left_out: Vec<LeftOut>,
}

impl Found {
    /// Adds the left-out entries (such as submodules) at and below `base`. An entry inside a skill
    /// is not added: it is a fault of that skill.
    pub fn add_left_out(&mut self, left_out: impl Iterator<Item = LeftOut>, base: &str) {
        let folders = self.skills.iter().map(|(folder, _)| folder.as_str());
        // The root is no outer skill.
        let folders: HashSet<&str> = folders.filter(|folder| !folder.is_empty()).collect();
        let is_outside = |left: &LeftOut| {
            let path = if left.path == "." {
                ""
            } else {
                left.path.as_str()
            };
            let mut around = std::iter::once(path).chain(ancestors(path));
            below_base(path, base).is_some() && !around.any(|folder| folders.contains(folder))
        };
        let left_out: Vec<LeftOut> = left_out.filter(is_outside).collect();
        self.left_out.extend(left_out);
    }

    /// Keeps only the skills and left-out entries in this folder itself or one level below it.
    pub fn keep_level(&mut self, base: &str) {
        let is_near =
            |folder: &str| below_base(folder, base).is_some_and(|below| !below.contains('/'));
        self.skills.retain(|(folder, _)| is_near(folder));
        self.left_out.retain(|left| is_near(&left.path));
    }

    /// Keeps only the skill in this folder, if the folder is one. The skills below it then belong
    /// to it, and are left out.
    #[must_use]
    pub fn of_named_folder(mut self, folder: &str) -> Self {
        if self
            .skills
            .first()
            .is_some_and(|(first, _)| first == folder)
        {
            let reason = LeftOutReason::InsideSkill(LeftOut::shown_path(folder));
            let inner = self.skills.drain(1..);
            self.left_out
                .extend(inner.map(|(inner, _)| LeftOut::new(inner, reason.clone())));
        }
        self
    }
}

/// Finds the folders at and below `base` that contain a SKILL.md. An empty `base` is the root. A
/// folder inside a skill belongs to that skill and is left out, unless the outer skill is the root
/// or `base`: a repository that is itself a skill may contain more skills.
pub fn find_skills<'a>(paths: impl Iterator<Item = &'a str>, base: &str) -> Found {
    let mut documents: BTreeMap<(usize, &str), &str> = BTreeMap::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(inside) = below_base(folder, base) else {
            continue;
        };
        let is_searched = |part: &str| !UNSEARCHED_FOLDERS.contains(&part);
        if !is_document_name(name) || !inside.split('/').all(is_searched) {
            continue;
        }
        let depth = inside.split('/').filter(|part| !part.is_empty()).count();
        let slot = documents.entry((depth, folder)).or_insert(path);
        // Of several names, the exact one counts, and otherwise the same one in any order of paths.
        if name == SKILL_MD || (!slot.ends_with(SKILL_MD) && path < *slot) {
            *slot = path;
        }
    }
    let mut found = Found::default();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    // Folders come in order of depth, so the set already contains any outer skill.
    for ((_, folder), document) in documents {
        let inside = below_base(folder, base).unwrap_or_default();
        // Folders of dependencies and of build results contain copies, often by other authors.
        if let Some(part) = inside.split('/').find(|part| is_generated(part)) {
            let reason = LeftOutReason::Generated(part.to_owned());
            found.left_out.push(LeftOut::new(folder, reason));
            continue;
        }
        let outer = ancestors(folder).find(|outer| *outer != base && taken.contains(outer));
        if let Some(outer) = outer {
            let reason = LeftOutReason::InsideSkill(outer.to_owned());
            found.left_out.push(LeftOut::new(folder, reason));
            continue;
        }
        if let Some(reason) = folder_fault(folder, document) {
            found.left_out.push(LeftOut::new(folder, reason));
            continue;
        }
        // The root is never an outer skill, even if `base` is another folder.
        if !folder.is_empty() {
            taken.insert(folder);
        }
        found.skills.push((folder.to_owned(), document.to_owned()));
    }
    found
}

/// Returns the fault of a path in a source, as the end of a sentence; `None` for a good one. An
/// archive with such a path is refused, because tools differ in how they unpack it. A folder or
/// repository may contain it anywhere but on the way to a SKILL.md.
pub fn path_fault(path: &str) -> Option<&'static str> {
    // `C:/x` is absolute on Windows.
    let has_drive = matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    // Check the size first: other checks look at every part of the path.
    if path.len() > MAX_PATH_BYTES || path.matches('/').count() >= MAX_PATH_PARTS {
        Some("has a path that is too long")
    } else if path.contains('\\') {
        Some("has a backslash in its name")
    } else if has_drive {
        Some("begins with the letter of a drive")
    } else {
        None
    }
}

/// Returns the reason why no skill is taken from a folder because of its path.
fn folder_fault(folder: &str, document: &str) -> Option<LeftOutReason> {
    if let Some(fault) = path_fault(document) {
        return Some(LeftOutReason::BadPath(fault));
    }
    // The path is recorded with the skill, and people read it there.
    if folder.contains(is_deceptive) {
        let fault = "has control or invisible characters in its name";
        return Some(LeftOutReason::BadPath(fault));
    }
    // A search of a local folder does not enter a folder of another encoding, which this character
    // stands for in the paths of a repository.
    let is_lossy = folder.contains(char::REPLACEMENT_CHARACTER);
    is_lossy.then(|| LeftOutReason::Unreadable("its name is not UTF-8".to_owned()))
}

/// Returns the path of a folder relative to `base`; `None` if it lies outside of `base`.
fn below_base<'a>(folder: &'a str, base: &str) -> Option<&'a str> {
    if base.is_empty() {
        return Some(folder);
    }
    if folder == base {
        return Some("");
    }
    folder.strip_prefix(base)?.strip_prefix('/')
}

/// Returns the folders above a folder, the nearest first, without the root.
fn ancestors(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(folder.rsplit_once('/').map(|(above, _)| above), |above| {
        above.rsplit_once('/').map(|(above, _)| above)
    })
}

/// Tells whether a folder of this name contains only generated files or dependencies.
pub fn is_generated(part: &str) -> bool {
    matches!(part, "__MACOSX" | "target" | ".venv")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(found: &Found) -> Vec<&str> {
        let folders = found.skills.iter().map(|(folder, _)| folder.as_str());
        folders.collect()
    }

    #[test]
    fn a_skill_is_not_taken_from_a_folder_whose_path_cannot_be_recorded() {
        let below = |levels: usize| format!("{}SKILL.md", "a/".repeat(levels));
        let too_long = LeftOutReason::BadPath("has a path that is too long");
        let invisible = LeftOutReason::BadPath("has control or invisible characters in its name");
        let backslash = LeftOutReason::BadPath("has a backslash in its name");
        let drive = LeftOutReason::BadPath("begins with the letter of a drive");
        let not_utf8 = LeftOutReason::Unreadable("its name is not UTF-8".to_owned());
        for (document, reason) in [
            (below(63), None),
            (below(64), Some(&too_long)),
            (format!("{}/SKILL.md", "a".repeat(1015)), None),
            (format!("{}/SKILL.md", "a".repeat(1016)), Some(&too_long)),
            ("a\\b/SKILL.md".to_owned(), Some(&backslash)),
            ("x/a\\b/c/SKILL.md".to_owned(), Some(&backslash)),
            ("a:b/SKILL.md".to_owned(), Some(&drive)),
            ("ab:c/SKILL.md".to_owned(), None),
            ("x/a:b/SKILL.md".to_owned(), None),
            ("a\nb/SKILL.md".to_owned(), Some(&invisible)),
            ("a\u{202e}b/SKILL.md".to_owned(), Some(&invisible)),
            ("a\u{fffd}b/SKILL.md".to_owned(), Some(&not_utf8)),
            ("a b@c:d?e#f%20/SKILL.md".to_owned(), None),
        ] {
            let found = find_skills(std::iter::once(document.as_str()), "");
            let left: Vec<_> = found.left_out.iter().map(|left| &left.reason).collect();
            assert_eq!(left, reason.into_iter().collect::<Vec<_>>(), "{document:?}");
            assert_eq!(found.skills.is_empty(), reason.is_some(), "{document:?}");
        }
    }

    #[test]
    fn skills_are_outermost_folders_with_a_skill_md() {
        let paths = [
            "README.md",
            "skills/pdf/SKILL.md",
            "skills/pdf/examples/inner/SKILL.md",
            "skills/pdf-tools/SKILL.md",
            "node_modules/x/SKILL.md",
            "a/b/c/d/e/f/g/h/SKILL.md",
            "other/skill.md",
            "both/skill.md",
            "both/SKILL.md",
            "target/copy/SKILL.md",
        ];
        let found = find_skills(paths.iter().copied(), "");
        assert_eq!(
            folders(&found),
            [
                "both",
                "other",
                "skills/pdf",
                "skills/pdf-tools",
                "a/b/c/d/e/f/g/h"
            ]
        );
        assert_eq!(found.skills[0].1, "both/SKILL.md");
        assert_eq!(found.skills[1].1, "other/skill.md");
        let left_out = [
            LeftOut::new("target/copy", LeftOutReason::Generated("target".to_owned())),
            LeftOut::new(
                "skills/pdf/examples/inner",
                LeftOutReason::InsideSkill("skills/pdf".to_owned()),
            ),
        ];
        assert_eq!(found.left_out, left_out);
        let base = |base| find_skills(paths.iter().copied(), base);
        assert_eq!(
            folders(&base("skills/pdf")),
            ["skills/pdf", "skills/pdf/examples/inner"]
        );
        // The folder that the source names may itself have the name of a folder that is not
        // searched.
        assert_eq!(folders(&base("target")), ["target/copy"]);
        assert_eq!(base("skills/p"), Found::default());
        let with_root = ["SKILL.md", "skills/a/SKILL.md"];
        assert_eq!(
            folders(&find_skills(with_root.into_iter(), "")),
            ["", "skills/a"]
        );
    }
}
