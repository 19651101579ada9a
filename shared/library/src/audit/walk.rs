//! Finds the folders below the audited folder that contain a SKILL.md, within limits.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vault_format::manifest::SKILL_MD;
use vault_gate::report::{Bound, LeftOutFolder, Skipped};
use vault_gate::skill_folders::{
    LeftOut, LeftOutReason, MAX_PATH_BYTES, find_skills, is_generated, path_fault,
};
use vault_gate::{UNSEARCHED_FOLDERS, is_document_name, is_ignored};

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

impl SkillFolder {
    /// Returns the path of its SKILL.md, relative to the audited folder.
    fn document_path(&self) -> String {
        let path = self.path.join(&self.document);
        path.to_string_lossy().into_owned()
    }
}

/// The folders that [`walk`] found, and what it did not reach.
#[derive(Default)]
pub(super) struct FolderWalk {
    pub(super) skills: Vec<SkillFolder>,
    /// Folders with a SKILL.md that are no skills of their own, and links to folders of skills.
    pub(super) left_out: Vec<LeftOutFolder>,
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
        // Without it, the same one as in a search of `vault add`.
        .or_else(|| names().min_by_key(|(name, _)| name))
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
        links.extend(linked.map(|(name, _)| path.join(name).to_string_lossy().into_owned()));
        let below = listed.kept.iter().filter(|(_, kind)| *kind == Kind::Dir);
        for (name, _) in below {
            // No skill can hold such a path, so `vault add` does not search the folder either.
            if name.to_str().is_none() {
                walked.skipped.push(Skipped {
                    path: display_path(&path.join(name)),
                    reason: "its name is not UTF-8".to_owned(),
                });
            } else if let Some(reason) = too_long(&path.join(name)) {
                walked.skipped.push(reason);
            } else if depth < bounds.depth {
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
    leave_out(root, &mut walked, links);
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_owned();
    walked.skills.sort_by_cached_key(|place| bytes(&place.path));
    walked.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    walked
}

/// Keeps the folders that `vault add --all` takes from the tree, and leaves out the others with its
/// reasons, among them the links that lead to the folder of a skill. A link in a skill is a finding
/// about that skill.
fn leave_out(root: &Path, walked: &mut FolderWalk, links: Vec<String>) {
    let documents = walked.skills.iter().map(SkillFolder::document_path);
    let documents: Vec<String> = documents.collect();
    let mut found = find_skills(documents.iter().map(String::as_str), "");
    let links = links.into_iter();
    found.add_left_out(
        links.map(|link| LeftOut::new(link, LeftOutReason::Link)),
        "",
    );
    // Many links may lead to one large folder.
    let mut targets = HashMap::new();
    found.left_out.retain(|left| {
        left.reason != LeftOutReason::Link || leads_to_skill(&root.join(&left.path), &mut targets)
    });
    let judged: HashMap<String, String> = found.skills.into_iter().collect();
    walked.skills.retain(|skill| {
        let document = judged.get(&*skill.path.to_string_lossy());
        document.is_some_and(|document| *document == skill.document_path())
    });
    // A skill that nobody can take has no verdict, and the audit is not complete without it.
    let is_fault = |left: &LeftOut| left.reason.is_fault();
    let (faults, left_out): (Vec<_>, Vec<_>) = found.left_out.into_iter().partition(is_fault);
    walked
        .skipped
        .extend(faults.into_iter().map(|left| Skipped {
            path: left.path,
            reason: left.reason.to_string(),
        }));
    walked.left_out = left_out.into_iter().map(LeftOutFolder::from).collect();
    walked.left_out.sort_by(|a, b| a.path.cmp(&b.path));
}

/// Returns the entry of a folder whose path is too long for `vault add` to search it; `None` for
/// any other.
fn too_long(path: &Path) -> Option<Skipped> {
    let path = display_path(path);
    let fault = path_fault(&path).filter(|_| path.len() > MAX_PATH_BYTES)?;
    let reason = LeftOutReason::BadPath(fault).to_string();
    Some(Skipped { path, reason })
}

/// Returns whether a link leads to the folder of a skill. Nothing behind a link is read but the
/// names in its folder.
fn leads_to_skill(link: &Path, targets: &mut HashMap<PathBuf, bool>) -> bool {
    let Ok(target) = disk::resolve(link) else {
        return false;
    };
    let holds = |target: &PathBuf| {
        let keep = |name: &OsStr, kind| kind == Kind::File && is_document(name);
        disk::list_kept(target, usize::MAX, &keep).is_ok_and(|listed| !listed.kept.is_empty())
    };
    *targets.entry(target).or_insert_with_key(holds)
}

/// Returns whether a folder below `root` is part of a skill that the audit reads: it or a folder
/// above it contains a SKILL.md, and no part of its path is skipped.
pub(super) fn belongs_to_a_skill(folder: &Path, root: &Path) -> bool {
    let is_left_out = |part: std::path::Component<'_>| {
        part.as_os_str()
            .to_str()
            .is_none_or(|name| UNSEARCHED_FOLDERS.contains(&name) || is_ignored(name))
    };
    if folder.components().any(is_left_out) {
        return false;
    }
    // The skills below a folder of generated files are left out, unless they belong to another one.
    let is_judged = |part: &&Path| {
        let mut names = part
            .components()
            .filter_map(|name| name.as_os_str().to_str());
        !names.any(is_generated)
    };
    let mut judged = folder.ancestors().filter(is_judged);
    judged.any(|part| root.join(part).join(SKILL_MD).is_file())
}

/// Returns a path for the report: `.` for the audited folder itself.
pub(super) fn display_path(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        path.to_string_lossy().into_owned()
    }
}
