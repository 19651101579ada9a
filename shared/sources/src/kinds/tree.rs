//! What repositories, archives and local folders have in common: a tree of files in which skills,
//! or a marketplace, are found.

use async_trait::async_trait;
use vault_gate::skill_folders::Found;

use crate::error::{FetchError, Result, escape_untrusted};
use crate::find::{self, SkillPaths};
use crate::opened::Opened;

/// A tree of files, from a repository, an archive or a local folder.
#[async_trait]
pub(crate) trait Tree: Send + Sync {
    /// The source as messages name it.
    fn place(&self) -> &str;

    /// The folder that the source names; empty for the root.
    fn base(&self) -> &str;

    /// Makes another folder the one that the source names. The default fails, because a
    /// repository's address and a local path name their folder themselves.
    fn set_base(&mut self, _: &str) -> Result<()> {
        Err(FetchError::Unsupported {
            message: format!("{} is no archive", escape_untrusted(self.place())),
            hint: "name the folder in the source".to_owned(),
        })
    }

    /// Returns a folder without the folder around all files of an archive, which is no part of the
    /// paths in this tree. Older records contain it.
    fn without_wrapper<'a>(&self, folder: &'a str) -> &'a str {
        folder
    }

    /// The paths that matter for a list of its skills.
    fn skill_paths(&self) -> &SkillPaths;

    /// Finds the skills at and below a folder.
    fn find_skills(&self, base: &str) -> Found {
        self.skill_paths().find_skills(base)
    }

    /// Reads a regular file. Returns `None` if there is none at the path. Fails if it has more than
    /// `max` bytes.
    async fn read_file(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>>;

    /// Lists the skills that were found. `base` is the folder whose skill is the default.
    async fn open_found(self: Box<Self>, found: Found, base: Option<String>) -> Result<Opened>;
}

/// Lists every skill at or below the folder that the source names. `when` completes the error
/// message if there is none.
pub(crate) async fn open_all(tree: Box<dyn Tree + '_>, when: &str) -> Result<Opened> {
    let base = tree.base().to_owned();
    let found = tree.find_skills(&base);
    if found.skills.is_empty() {
        let place = if base.is_empty() {
            tree.place().to_owned()
        } else {
            super::join_path(tree.place(), &base)
        };
        let place = escape_untrusted(&place);
        let Some(first) = found.left_out.first() else {
            return Err(FetchError::NoSkill(format!(
                "{place} holds no SKILL.md{when}"
            )));
        };
        let (path, reason) = (escape_untrusted(&first.path), first.reason.to_string());
        return Err(FetchError::NoneOffered {
            message: format!(
                "{place} holds no SKILL.md that can be added{when}: {path}: {}",
                escape_untrusted(&reason)
            ),
            left_out: found.left_out,
        });
    }
    find::check_number(tree.place(), found.skills.len())?;
    tree.open_found(found, Some(base)).await
}
