//! The five starter skills that the binary contains. `vault setup` offers them, and `vault demo`
//! publishes them.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use vault_format::name::SkillName;

/// One file of a starter skill.
#[derive(Clone, Copy, Debug)]
pub struct StarterFile {
    /// The path below the common folder of all starter skills.
    pub path: &'static str,
    /// The content.
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

/// Every file of every starter skill.
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

/// The names of the starter skills, sorted.
pub fn names() -> Vec<&'static str> {
    let folders = FILES.iter().filter_map(|file| file.path.split('/').next());
    let mut names: Vec<_> = folders.collect();
    names.dedup();
    names
}

/// Lists the starter skills by name. The value is the path of a copy that the installer left in
/// `installed`, or `None` if only the binary contains the skill.
pub fn offers(installed: Option<&Path>) -> BTreeMap<String, Option<PathBuf>> {
    let built_in = names().into_iter().map(|name| (name.to_owned(), None));
    let mut offers: BTreeMap<_, _> = built_in.collect();
    let folders = installed.and_then(|folder| fs::read_dir(folder).ok());
    for entry in folders.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<SkillName>().is_ok() && entry.path().join("SKILL.md").is_file() {
            // A copy in the folder may be edited, so it takes precedence over the built-in one.
            offers.insert(name, Some(entry.path()));
        }
    }
    offers
}

/// Writes all starter skills into a folder. Files under `bin/` are executable.
pub fn unpack(folder: &Path) -> io::Result<()> {
    for file in FILES {
        let path = folder.join(file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let is_program = file.path.contains("/bin/");
        let mode = if is_program { 0o755 } else { 0o644 };
        let mut options = OpenOptions::new();
        let mut created = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        created.write_all(file.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_of_the_installer_take_precedence() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["code-review", "of-the-release"] {
            let skill = folder.path().join(name);
            fs::create_dir(&skill).unwrap();
            fs::write(skill.join("SKILL.md"), "x").unwrap();
        }
        fs::create_dir(folder.path().join("no-skill")).unwrap();
        let offers = offers(Some(folder.path()));
        assert_eq!(offers.len(), 6);
        let review = folder.path().join("code-review");
        assert_eq!(offers["code-review"].as_ref(), Some(&review));
        assert!(offers["of-the-release"].is_some() && offers["flaky-test"].is_none());
        assert_eq!(super::offers(Some(Path::new("/nowhere"))).len(), 5);
    }

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
        assert_eq!(names().len(), 5);
    }
}
