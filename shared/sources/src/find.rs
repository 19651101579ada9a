//! Finds the skills in a repository, archive or folder.
//!
//! This module collects the paths. [`find_skills`] decides for `vault add` and for `vault
//! audit-repo` which folders are skills, and why the others are left out.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use vault_gate::links::SkillLink;
use vault_gate::skill_folders::{
    Found, LeftOut, LeftOutReason, MAX_PATH_BYTES, find_skills, path_fault,
};
use vault_gate::{UNSEARCHED_FOLDERS, is_document_name};

use crate::error::{FetchError, Result};
use crate::listing::MAX_LISTED;

/// Maximum number of local folders that one search visits.
const MAX_FOLDERS: usize = 100_000;
/// Maximum number of entries in one local folder.
const MAX_ENTRIES: usize = 100_000;
/// Maximum number of symbolic links that are followed for one path, as on Linux.
const MAX_FOLLOWED: usize = 40;
/// Maximum length of the target of a symbolic link, in bytes, as on Linux.
pub(crate) const MAX_TARGET_BYTES: usize = 4096;
/// Maximum number of parts of paths and targets that are read for one path.
const MAX_PARTS: usize = 256;
/// Maximum number of parts of paths and targets that are read for all links of a source together.
/// No collection has as many; the links beyond them lead nowhere.
const MAX_ALL_PARTS: usize = 500_000;

/// The skills that several searches of one tree found, each one once.
#[derive(Debug, Default)]
pub(crate) struct MergedSearches {
    /// The folders with their SKILL.md.
    skills: BTreeMap<String, String>,
    left_out: BTreeMap<String, LeftOut>,
}

impl MergedSearches {
    pub(crate) fn add(&mut self, found: Found) {
        self.skills.extend(found.skills);
        for left in found.left_out {
            self.left_out.entry(left.path.clone()).or_insert(left);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.skills.len()
    }

    pub(crate) fn into_found(self) -> Found {
        let mut left_out = self.left_out;
        // A folder that was left out of one search may be a skill of another.
        left_out.retain(|path, _| !self.skills.contains_key(path));
        Found {
            skills: self.skills.into_iter().collect(),
            left_out: left_out.into_values().collect(),
        }
    }
}

/// Fails if a source has more skills than one list may hold.
pub(crate) fn check_number(place: &str, number: usize) -> Result<()> {
    check_limit(place, number, MAX_LISTED, "skills")
}

/// Fails if a source has more of something than `limit`. `unit` names it in the message.
pub(crate) fn check_limit(
    place: &str,
    number: usize,
    limit: usize,
    unit: &'static str,
) -> Result<()> {
    if number <= limit {
        return Ok(());
    }
    Err(FetchError::too_large(place, limit as u64, unit))
}

/// The paths of a tree of files that matter for a list of skills. They are collected once, because a
/// plugin may name many folders, each of which is searched.
#[derive(Debug, Default)]
pub(crate) struct SkillPaths {
    /// The paths of files and links named SKILL.md in any case, relative to the root.
    pub(crate) skill_md_paths: Vec<String>,
    /// The folders that could not be searched, the submodules, and the links to folders of skills.
    pub(crate) left_out: Vec<LeftOut>,
}

impl SkillPaths {
    /// Selects these paths from those of all files and links of a repository or archive. The
    /// targets of `links` tell which links lead to folders of skills.
    pub(crate) fn of_files<'a>(
        files: impl Iterator<Item = &'a str> + Clone,
        links: &'a [SkillLink],
    ) -> Self {
        let is_document = |path: &&str| {
            let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
            is_document_name(name)
        };
        // A link named SKILL.md makes its folder a skill, which is then rejected with a reason.
        let linked = links.iter().map(|link| link.path.as_str());
        let skill_md_paths = files.clone().chain(linked).filter(is_document);
        Self {
            skill_md_paths: skill_md_paths.map(str::to_owned).collect(),
            left_out: left_out_links(links, files.filter(is_document)),
        }
    }

    /// Finds the skills at and below a folder.
    pub(crate) fn find_skills(&self, base: &str) -> Found {
        let mut found = find_skills(self.skill_md_paths.iter().map(String::as_str), base);
        found.add_left_out(self.left_out.iter().cloned(), base);
        found
    }
}

/// Reads the names in a local folder.
type ReadFolder<'a> = &'a dyn Fn(&Path) -> std::io::Result<std::fs::ReadDir>;

/// Searches a local folder. Does not follow symbolic links. Fails if the folder is too large to be
/// searched to its end.
pub(crate) fn search_folder(folder: &Path) -> Result<SkillPaths> {
    search_by_reading(folder, &|path| std::fs::read_dir(path))
}

fn search_by_reading(folder: &Path, read_folder: ReadFolder<'_>) -> Result<SkillPaths> {
    let place = folder.display().to_string();
    let mut found = SkillPaths::default();
    let mut waiting = VecDeque::from([String::new()]);
    let mut visited = 0;
    let mut targets = LinkTargets::default();
    while let Some(inside) = waiting.pop_front() {
        visited += 1;
        if visited > MAX_FOLDERS {
            return Err(FetchError::too_large(place, MAX_FOLDERS as u64, "folders"));
        }
        let entries = match read_folder(&folder.join(&inside)) {
            Ok(entries) => entries,
            Err(error) => {
                let reason = LeftOutReason::Unreadable(error.to_string());
                found.left_out.push(LeftOut::new(inside, reason));
                continue;
            }
        };
        for (number, entry) in entries.enumerate() {
            // A folder with very many entries must not stall the search.
            if number >= MAX_ENTRIES {
                let place = folder.join(&inside).display().to_string();
                return Err(FetchError::too_large(place, MAX_ENTRIES as u64, "entries"));
            }
            // `file_type` does not follow links, so the search neither leaves the folder nor loops.
            let read = entry.and_then(|entry| Ok((entry.file_type()?, entry.file_name())));
            let (kind, name) = match read {
                Ok(read) => read,
                // What could not be read may be a folder of skills.
                Err(error) => {
                    let reason = LeftOutReason::Unreadable(error.to_string());
                    found.left_out.push(LeftOut::new(inside.as_str(), reason));
                    continue;
                }
            };
            let path = match inside.as_str() {
                "" => name.to_string_lossy().into_owned(),
                inside => format!("{inside}/{}", name.to_string_lossy()),
            };
            let Some(name) = name.to_str() else {
                if kind.is_dir() {
                    let reason = LeftOutReason::Unreadable("its name is not UTF-8".to_owned());
                    found.left_out.push(LeftOut::new(path, reason));
                }
                continue;
            };
            // A link of this name counts too: it makes its folder a skill, which is then refused.
            if !kind.is_dir() && is_document_name(name) {
                found.skill_md_paths.push(path);
            // Only look up whether the link leads to a skill. The search does not enter it.
            } else if kind.is_symlink() && targets.hold_document(&folder.join(&path), read_folder) {
                found.left_out.push(LeftOut::new(path, LeftOutReason::Link));
            } else if kind.is_dir() && !UNSEARCHED_FOLDERS.contains(&name) {
                // A skill may lie below many folders that are none. It is left out by its own path.
                match path_fault(&path).filter(|_| path.len() > MAX_PATH_BYTES) {
                    None => waiting.push_back(path),
                    Some(fault) => {
                        let reason = LeftOutReason::BadPath(fault);
                        found.left_out.push(LeftOut::new(path, reason));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Returns the symbolic links of a repository or archive that lead to the folder of a skill in it,
/// as left out. A search of a local folder leaves out the same ones. `skill_md_paths` are the paths
/// of the files named SKILL.md.
fn left_out_links<'a>(
    links: &'a [SkillLink],
    skill_md_paths: impl Iterator<Item = &'a str>,
) -> Vec<LeftOut> {
    let targets: HashMap<&str, &str> = links
        .iter()
        .map(|link| (link.path.as_str(), link.target.as_str()))
        .collect();
    let folders: HashSet<&str> = skill_md_paths
        .map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder))
        .collect();
    let is_searched = |link: &&SkillLink| {
        let (folder, _) = link.path.rsplit_once('/').unwrap_or_default();
        !folder
            .split('/')
            .any(|part| UNSEARCHED_FOLDERS.contains(&part))
    };
    let mut all_parts = MAX_ALL_PARTS;
    let leads_to_skill = |link: &&SkillLink| {
        let folder = follow_links(&targets, &link.path, &mut all_parts);
        folder.is_some_and(|folder| folders.contains(folder.as_str()))
    };
    links
        .iter()
        .filter(is_searched)
        .filter(leads_to_skill)
        .map(|link| LeftOut::new(link.path.as_str(), LeftOutReason::Link))
        .collect()
}

/// Reads the target of a link. A target that is too long for any file system is cut, so that it
/// leads nowhere: an archive or a repository may contain a long one many times in few bytes.
pub(crate) fn read_target(target: &[u8]) -> String {
    let length = target.len().min(MAX_TARGET_BYTES + 1);
    String::from_utf8_lossy(&target[..length]).into_owned()
}

/// Follows the links on a path inside of a repository or archive. Returns `None` if they lead out
/// of it, or if there are too many, for example because they form a circle.
fn follow_links<'a>(
    targets: &HashMap<&'a str, &'a str>,
    path: &'a str,
    all_parts: &mut usize,
) -> Option<String> {
    let mut left: Vec<&str> = path.rsplit('/').collect();
    let (mut done, mut followed, mut parts) = (Vec::new(), 0, 0);
    while let Some(part) = left.pop() {
        parts += 1;
        *all_parts = all_parts.checked_sub(1)?;
        if parts > MAX_PARTS {
            return None;
        }
        match part {
            "" | "." => continue,
            ".." => {
                done.pop()?;
                continue;
            }
            _ => done.push(part),
        }
        if let Some(target) = targets.get(done.join("/").as_str()) {
            followed += 1;
            if followed > MAX_FOLLOWED || target.starts_with('/') || target.len() > MAX_TARGET_BYTES
            {
                return None;
            }
            done.pop();
            left.extend(target.rsplit('/'));
        }
    }
    Some(done.join("/"))
}

/// The folders that links lead to, and whether each contains a SKILL.md. Many links may lead to one
/// large folder, which is read once.
#[derive(Default)]
struct LinkTargets(HashMap<PathBuf, bool>);

impl LinkTargets {
    fn hold_document(&mut self, link: &Path, read_folder: ReadFolder<'_>) -> bool {
        let Ok(target) = link.canonicalize() else {
            return false;
        };
        let holds = |target: &PathBuf| holds_document(target, read_folder);
        *self.0.entry(target).or_insert_with_key(holds)
    }
}

/// Tells whether a folder contains a SKILL.md, in any case of letters. As in a repository and in an
/// audit, a link of that name is none.
fn holds_document(folder: &Path, read_folder: ReadFolder<'_>) -> bool {
    let Ok(entries) = read_folder(folder) else {
        return false;
    };
    let mut entries = entries.filter_map(Result::ok);
    entries.any(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(is_document_name)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_folder_of_a_skill_is_left_out() {
        let files = [
            "skills/a/SKILL.md",
            "b/skill.md",
            "skills/a/doc/x.md",
            "SKILL.md",
        ];
        let link = |(path, target): &(&str, &str)| SkillLink {
            path: (*path).to_owned(),
            target: (*target).to_owned(),
        };
        for (links, expected) in [
            (&[("x", "skills/a")][..], &["x"][..]),
            (&[("y/x", "../b/")], &["y/x"]),
            (&[("y/x", "./../skills/../skills/a")], &["y/x"]),
            // A link on the way to the folder, and a link to a link.
            (&[("all", "skills"), ("x", "all/a")], &["x"]),
            (&[("x", "y"), ("y", "b")], &["x", "y"]),
            (&[("y/root", "..")], &["y/root"]),
            (&[("x", "skills/a/doc")], &[]),
            (&[("x", "skills/a/SKILL.md")], &[]),
            (&[("x", "../skills/a")], &[]),
            (&[("x", "/skills/a")], &[]),
            (&[("x", "gone")], &[]),
            (&[("x", "x"), ("y", "z"), ("z", "y")], &[]),
            (&[("node_modules/x", "../skills/a")], &[]),
        ] {
            let links: Vec<SkillLink> = links.iter().map(link).collect();
            let found = SkillPaths::of_files(files.into_iter(), &links);
            let found: Vec<&str> = found
                .left_out
                .iter()
                .map(|left| left.path.as_str())
                .collect();
            assert_eq!(found, expected, "{links:?}");
        }
    }

    #[test]
    fn many_links_to_one_folder_read_it_once_and_a_linked_document_is_none() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("skill")).unwrap();
        std::fs::create_dir_all(at("linked")).unwrap();
        std::fs::write(at("skill/SKILL.md"), "text").unwrap();
        symlink("../skill/SKILL.md", at("linked/SKILL.md")).unwrap();
        let mut targets = LinkTargets::default();
        for (target, expected) in [("skill", true), ("./skill/", true), ("linked", false)] {
            symlink(target, at("link")).unwrap();
            let held = targets.hold_document(&at("link"), &|path| std::fs::read_dir(path));
            assert_eq!(held, expected, "{target}");
            std::fs::remove_file(at("link")).unwrap();
        }
        assert!(!targets.hold_document(&at("gone"), &|path| std::fs::read_dir(path)));
        assert_eq!(targets.0.len(), 2);
    }

    #[test]
    fn a_search_reads_each_of_ten_thousand_folders_once() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().canonicalize().unwrap();
        for number in 0..100 {
            for inner in 0..99 {
                let path = folder.join(format!("a{number}/b{inner}"));
                std::fs::create_dir_all(path).unwrap();
            }
            let document = folder.join(format!("a{number}/b0/SKILL.md"));
            std::fs::write(document, "text").unwrap();
            let link = folder.join(format!("a{number}/link"));
            std::os::unix::fs::symlink("../a0/b0", link).unwrap();
        }
        let read = std::cell::RefCell::new(HashMap::<PathBuf, usize>::new());
        let found = search_by_reading(&folder, &|path| {
            *read.borrow_mut().entry(path.to_owned()).or_default() += 1;
            std::fs::read_dir(path)
        });
        let found = found.unwrap();
        assert_eq!(
            (found.skill_md_paths.len(), found.left_out.len()),
            (100, 100)
        );
        let read = read.into_inner();
        assert_eq!(read.len(), 10_001);
        // The folder to which all links lead is read a second time for them together.
        assert_eq!(read.values().sum::<usize>(), 10_002);
    }

    #[test]
    fn links_that_no_file_system_has_cost_little_and_lead_nowhere() {
        let slashes = read_target(format!("b{}", "/".repeat(25 << 20)).as_bytes());
        assert_eq!(slashes.len(), MAX_TARGET_BYTES + 1);
        let dots = format!("{}b", "./".repeat(MAX_PARTS));
        let around = format!("x{}", "/".repeat(MAX_TARGET_BYTES - 1));
        for target in [&slashes, &dots, &around] {
            let links = [SkillLink {
                path: "x".to_owned(),
                target: target.clone(),
            }];
            assert_eq!(left_out_links(&links, ["b/SKILL.md"].into_iter()).len(), 0);
        }
        // Exactly as many parts as are followed.
        let target = format!("b{}", "/".repeat(MAX_PARTS - 4));
        let many = (0..20_000).map(|at| SkillLink {
            path: format!("x{at}"),
            target: target.clone(),
        });
        let many: Vec<SkillLink> = many.collect();
        // Many links to one long target are followed up to a bound for all of them.
        let found = left_out_links(&many, ["b/SKILL.md"].into_iter()).len();
        assert!(
            found > 0 && found * target.len() <= MAX_ALL_PARTS,
            "{found}"
        );
        let longest = format!("b{}", "/".repeat(MAX_PARTS - 3));
        let links = [SkillLink {
            path: "x".to_owned(),
            target: longest,
        }];
        assert_eq!(left_out_links(&links, ["b/SKILL.md"].into_iter()).len(), 1);
    }
}
