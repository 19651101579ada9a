//! Finds the folders below the audited folder that contain a SKILL.md, within limits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vault_format::manifest::SKILL_MD;
use vault_gate::report::{Bound, Skipped};
use vault_gate::{UNSEARCHED_FOLDERS, is_document_name};

use super::Bounds;
use crate::disk::{self, Kind};

/// A folder of an audit that contains a SKILL.md.
pub(super) struct SkillFolder {
    pub(super) folder: PathBuf,
    /// Path relative to the audited folder.
    pub(super) path: PathBuf,
    /// File name of the SKILL.md, which may differ in case.
    pub(super) document: String,
}

/// The folders that [`walk`] found, and what it did not reach.
#[derive(Default)]
pub(super) struct FolderWalk {
    pub(super) skills: Vec<SkillFolder>,
    /// Symbolic links to folders of skills.
    pub(super) links: Vec<String>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) bounds: Vec<Bound>,
    /// Number of folders that were listed.
    pub(super) folders: usize,
}

/// Returns whether a file of this name is a SKILL.md, in any letter case.
pub(super) fn is_document(name: &OsStr) -> bool {
    name.to_str().is_some_and(is_document_name)
}

/// Returns the name of the file that makes a folder a skill: `SKILL.md` if it exists, or else a
/// name that differs only in case.
pub(super) fn document_of(kept: &[(OsString, Kind)]) -> Option<String> {
    let is_kept = |(name, kind): &&(OsString, Kind)| *kind != Kind::Dir && is_document(name);
    let names = || kept.iter().filter(is_kept);
    // Some file systems tell letter cases apart, so a folder may contain several.
    names()
        .find(|(name, _)| name == SKILL_MD)
        .or_else(|| names().next())
        .map(|(name, _)| name.to_string_lossy().into_owned())
}

/// Limit on the folders beyond the limits of the audit that a report names.
const MAX_REPORTED_FOLDERS: usize = 100;

/// Lists folders breadth-first, so that a limit cuts off the deepest ones. Does not follow symlinks
/// and ignores `.gitignore`.
pub(super) fn walk(root: &Path, bounds: Bounds) -> FolderWalk {
    let mut walked = FolderWalk::default();
    let mut open = VecDeque::from([(PathBuf::new(), 0)]);
    let (mut too_deep, mut too_many) = (false, false);
    // Folders that were seen but not listed, because they lie beyond the limits.
    let mut beyond = Vec::new();
    let mut links = Vec::new();
    while let Some((path, depth)) = open.pop_front() {
        if walked.folders >= bounds.folders {
            too_many = true;
            beyond.push(path);
            continue;
        }
        walked.folders += 1;
        let folder = root.join(&path);
        let wanted = |name: &OsStr, kind| match kind {
            Kind::Dir => !UNSEARCHED_FOLDERS.iter().any(|skipped| name == *skipped),
            Kind::Link => true,
            _ => is_document(name),
        };
        let listed = match disk::list_kept(&folder, bounds.folders, &wanted) {
            Ok(listed) => listed,
            // One unreadable folder must not end the audit. The report names it.
            Err(error) => {
                walked.skipped.push(Skipped {
                    path: display_path(&path),
                    reason: error.cause.to_string(),
                });
                continue;
            }
        };
        too_many |= listed.cut;
        if let Some(document) = document_of(&listed.kept) {
            walked.skills.push(SkillFolder {
                folder,
                path: path.clone(),
                document,
            });
        }
        let linked = listed.kept.iter().filter(|(_, kind)| *kind == Kind::Link);
        links.extend(linked.map(|(name, _)| path.join(name)));
        let below = listed.kept.iter().filter(|(_, kind)| *kind == Kind::Dir);
        for (name, _) in below {
            if depth < bounds.depth {
                open.push_back((path.join(name), depth + 1));
            } else {
                too_deep = true;
                beyond.push(path.join(name));
            }
        }
    }
    let reached = |unit, limit| Bound { unit, limit };
    if too_many {
        walked.bounds.push(reached("folders", bounds.folders));
    }
    if too_deep {
        walked.bounds.push(reached("levels", bounds.depth));
    }
    let skipped = beyond
        .iter()
        .take(MAX_REPORTED_FOLDERS)
        .map(|path| Skipped {
            path: display_path(path),
            reason: "it is beyond the limits of this audit".to_owned(),
        });
    walked.skipped.extend(skipped);
    walked.links = skill_links(root, &walked.skills, links);
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_owned();
    walked.skills.sort_by_cached_key(|place| bytes(&place.path));
    walked.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    walked
}

/// Returns the links that lead to a folder of a skill and lie in no skill: a link in a skill is a
/// finding about that skill. Nothing behind a link is read but the names in its folder.
fn skill_links(root: &Path, skills: &[SkillFolder], links: Vec<PathBuf>) -> Vec<String> {
    let folders: HashSet<&Path> = skills.iter().map(|place| place.path.as_path()).collect();
    // A repository that is itself a skill may contain more skills, and links to them.
    let in_skill = |link: &PathBuf| {
        let mut around = link.ancestors().filter(|path| !path.as_os_str().is_empty());
        around.any(|path| folders.contains(path))
    };
    // Many links may lead to one large folder.
    let mut targets = HashMap::new();
    let mut leads_to_skill = |link: &PathBuf| {
        let Ok(target) = disk::resolve(&root.join(link)) else {
            return false;
        };
        let holds = |target: &Path| {
            let keep = |name: &OsStr, kind| kind == Kind::File && is_document(name);
            disk::list_kept(target, usize::MAX, &keep).is_ok_and(|listed| !listed.kept.is_empty())
        };
        *targets
            .entry(target)
            .or_insert_with_key(|target| holds(target))
    };
    let mut links: Vec<PathBuf> = links.into_iter().filter(|link| !in_skill(link)).collect();
    links.retain(|link| leads_to_skill(link));
    links.sort();
    links.iter().map(|link| display_path(link)).collect()
}

/// Returns a path for the report: `.` for the audited folder itself.
pub(super) fn display_path(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        path.to_string_lossy().into_owned()
    }
}
