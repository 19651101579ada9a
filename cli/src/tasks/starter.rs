//! Starter skills, which a new user may add to the vault: those that the binary contains, and
//! copies of them that the installer left in a folder.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use vault_format::name::SkillName;

pub use vault_service::starter::{FILES, skill_names};

/// Lists the starter skills by name. The value is the path of a copy that the installer left in
/// `installed`, or `None` if only the binary contains the skill.
pub fn list_offers(installed: Option<&Path>) -> BTreeMap<String, Option<PathBuf>> {
    let built_in = skill_names()
        .into_iter()
        .map(|name| (name.to_owned(), None));
    let mut offers: BTreeMap<_, _> = built_in.collect();
    let folders = installed.and_then(|folder| fs::read_dir(folder).ok());
    for entry in folders.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // The folder is the user's, so it may contain other things as well.
        if name.parse::<SkillName>().is_ok() && entry.path().join("SKILL.md").is_file() {
            // A copy in the folder may be edited, so it takes precedence over the built-in one.
            offers.insert(name, Some(entry.path()));
        }
    }
    offers
}

/// Writes all built-in starter skills into a folder. Files under `bin/` are executable. Fails at
/// the first file that already exists.
pub fn unpack_all(folder: &Path) -> io::Result<()> {
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
            // Never overwrite a file: the folder may contain edited copies.
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
        let offers = list_offers(Some(folder.path()));
        assert_eq!(offers.len(), 6);
        let review = folder.path().join("code-review");
        assert_eq!(offers["code-review"].as_ref(), Some(&review));
        assert!(offers["of-the-release"].is_some() && offers["flaky-test"].is_none());
        assert_eq!(super::list_offers(Some(Path::new("/nowhere"))).len(), 5);
    }
}
