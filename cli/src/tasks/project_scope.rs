//! The flags that select a project: `--project` and `--root`.

use std::path::{Path, PathBuf};

use clap::Args;
use vault_library::project::ProjectFolder;

use crate::{context::Context, errors::Failure, tasks::project_lock::Lock};

/// The flags of a command that works on the user's own skills, or with `--project` on those of a
/// project.
#[derive(Args, Clone, Debug, Default)]
pub struct ProjectScope {
    /// Work on the skills of this project, which its vault.lock lists, not on your own
    #[arg(long = "project")]
    is_project: bool,
    /// The project's folder [default: the nearest with a vault.lock, else with .git]
    #[arg(long, value_name = "FOLDER", requires = "is_project")]
    root: Option<PathBuf>,
}

/// A project's lock with the project's folder, which was checked.
#[derive(Debug)]
pub struct LockedProject {
    /// The lock as it was read. It is empty if the project has none yet.
    pub lock: Lock,
    /// The folder that contains the lock.
    pub folder: ProjectFolder,
}

impl ProjectScope {
    /// Returns the flags that select the project in this folder.
    pub const fn of_root(root: PathBuf) -> Self {
        let root = Some(root);
        Self {
            is_project: true,
            root,
        }
    }

    /// Reads the project's lock, which must exist. Returns `None` without `--project`.
    pub fn existing_project(&self, context: &Context) -> Result<Option<LockedProject>, Failure> {
        let read = || LockedProject::read_project(context, self.root.as_deref());
        self.is_project.then(read).transpose()
    }

    /// Like [`Self::existing_project`], with an empty lock in memory if the project has none.
    pub fn project_or_new(&self, context: &Context) -> Result<Option<LockedProject>, Failure> {
        let read = || LockedProject::read_or_new(context, self.root.as_deref());
        self.is_project.then(read).transpose()
    }
}

impl LockedProject {
    /// Reads the lock of the project in this folder, or of the current project.
    pub fn read_project(context: &Context, root: Option<&Path>) -> Result<Self, Failure> {
        Self::check_folder(context, Lock::of_project(context, root)?)
    }

    /// Like [`Self::read_project`], with an empty lock in memory if the project has none.
    pub fn read_or_new(context: &Context, root: Option<&Path>) -> Result<Self, Failure> {
        Self::check_folder(context, Lock::find_or_new(context, root)?)
    }

    fn check_folder(context: &Context, lock: Lock) -> Result<Self, Failure> {
        let folder = lock.project_folder(context)?;
        Ok(Self { lock, folder })
    }
}
