//! The flags that select a project: `--project` and `--root`.

use std::path::{Path, PathBuf};

use clap::Args;
use vault_library::project::{ProjectChange, ProjectFolder};

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
    /// Keeps other commands from changing the project; `None` if it is only read.
    _change: Option<ProjectChange>,
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

    /// Like [`Self::existing_project`], for a command that changes the project.
    pub fn project_to_change(&self, context: &Context) -> Result<Option<LockedProject>, Failure> {
        let read = || LockedProject::read_to_change(context, self.root.as_deref());
        self.is_project.then(read).transpose()
    }

    /// Like [`Self::project_to_change`], with an empty lock in memory if the project has none.
    pub fn project_or_new(&self, context: &Context) -> Result<Option<LockedProject>, Failure> {
        let read = || {
            let (path, _) = Lock::find_path(context, self.root.as_deref())?;
            LockedProject::open(context, path, true)
        };
        self.is_project.then(read).transpose()
    }
}

impl LockedProject {
    /// Reads the lock of the project in this folder, or of the current project. Fails if there is
    /// none.
    pub fn read_project(context: &Context, root: Option<&Path>) -> Result<Self, Failure> {
        Self::open(context, Lock::find_existing(context, root)?, false)
    }

    /// Like [`Self::read_project`], for a command that changes the project.
    pub fn read_to_change(context: &Context, root: Option<&Path>) -> Result<Self, Failure> {
        Self::open(context, Lock::find_existing(context, root)?, true)
    }

    /// Like [`Self::read_project`], with an empty lock in memory if the project has none.
    pub fn read_or_new(context: &Context, root: Option<&Path>) -> Result<Self, Failure> {
        Self::open(context, Lock::find_path(context, root)?.0, false)
    }

    fn open(context: &Context, path: PathBuf, is_change: bool) -> Result<Self, Failure> {
        let folder = Lock::project_folder(context, &path)?;
        // Take this lock before the file is read, or another command could change it in between.
        let change = is_change.then(|| folder.begin_change()).transpose()?;
        Ok(Self {
            lock: Lock::read_or_empty(context, path)?,
            folder,
            _change: change,
        })
    }
}
