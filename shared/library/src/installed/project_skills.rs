//! The skills of a project: those that its `vault.lock` installs, apart from the user's own skills.
//!
//! ```text
//! <config>/projects/<hash>/project.json   the record: which bundle each name stands for
//! <config>/projects/<hash>/project.key    the key that signs these bundles, and nothing else
//! <vault>/store/<bundle>/                 the bytes
//! <project>/.vault/skills/<name>          links into the store, made from the record
//! ```
//! Only the record in the trust folder decides what is installed, not the content of a repository's
//! `.vault`. Each project has a key and a root version (the signed list of its keys) of its own, so
//! its bundles carry another vault id than the user's. Wherever such a bundle is put, it never
//! passes as an own skill and fits into no release.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::name::SkillName;
use vault_format::root::{RootList, RootState, VaultId};

use super::installations::{Installation, Origin, OriginGroup};
use crate::disk::beneath::{BeneathError, HeldEntry, HeldFolder};
use crate::disk::lock::{self, LockError};
use crate::disk::{self, FileError};
use crate::store::{self, Damage, Examined, Trusted};
use crate::vault::folder::PrivateFolder;
use crate::vault::keys::{self, KeyKind, NoPassphrases};
use crate::vault::{Vault, VaultError, first_root};

const SCHEMA: &str = "vault.project/1";
const RECORD: &str = "project.json";
const KEY: &str = "project.key";
/// Time that a command waits for another one that changes the same project.
const CHANGE_WAIT: Duration = Duration::from_mins(1);
/// Folder in a project for vault's own files.
pub(crate) const STATE: &str = ".vault";
/// Folder in a project that contains the links to its skills.
pub(crate) const SKILLS: &str = ".vault/skills";

/// Error of using a folder as a project, or of installing skills for it.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The folder is the home folder, whose agents' folders and `.vault` are the user's own.
    #[error("{} is the home folder, which cannot be a project", .0.display())]
    Home(PathBuf),
    /// The folder contains the vault as its `.vault`, or lies inside the vault.
    #[error("{} is a folder of the vault itself, which cannot be a project", .0.display())]
    Vault(PathBuf),
    /// Something that vault did not make stands where a link to a skill should be.
    #[error("{} is in the place of a link to a skill, and vault did not make it", .0.display())]
    InTheWay(PathBuf),
    /// Another command changed the project as long as this one was willing to wait.
    #[error("another command is changing the project {}", .0.display())]
    Busy(PathBuf),
    /// A folder below the project can't be opened without following symbolic links.
    #[error(transparent)]
    Folder(#[from] BeneathError),
    /// The vault can't be read or written.
    #[error(transparent)]
    Other(#[from] VaultError),
}

impl From<FileError> for ProjectError {
    fn from(failed: FileError) -> Self {
        Self::Other(failed.into())
    }
}

/// A folder that may be a project: its real path, checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProjectFolder {
    path: PathBuf,
}

impl ProjectFolder {
    /// Checks that a folder may be a project of the user. `vault` is the vault's folder, which may
    /// not exist yet; `home` is the user's home folder.
    pub fn new(folder: &Path, vault: &Path, home: Option<&Path>) -> Result<Self, ProjectError> {
        let path = disk::resolve(folder)?;
        let resolved = |other: &Path| disk::resolve(other).unwrap_or_else(|_| other.to_owned());
        // In the home folder, `.vault` is the vault itself and the agents' folders apply to all
        // projects.
        if home.is_some_and(|home| resolved(home) == path) {
            return Err(ProjectError::Home(path));
        }
        let (vault, state) = (resolved(vault), path.join(STATE));
        if vault.starts_with(resolved(&state)) || path.starts_with(&vault) {
            return Err(ProjectError::Vault(state));
        }
        // A repository may contain a symbolic link here, and nothing may be written through it.
        match HeldFolder::open(&path)?.descend(Path::new(SKILLS), false) {
            Ok(_) | Err(BeneathError::Missing(_)) => Ok(Self { path }),
            Err(error) => Err(error.into()),
        }
    }

    /// Absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other command changes the project, for a minute at most, and keeps others from
    /// doing so. A command that reads `vault.lock` and writes it later must hold this in between.
    pub fn begin_change(&self) -> Result<ProjectChange, ProjectError> {
        match lock::lock_folder(&self.path, CHANGE_WAIT) {
            Ok(folder) => Ok(ProjectChange { _folder: folder }),
            Err(LockError::Busy { vault, .. }) => Err(ProjectError::Busy(vault)),
            Err(LockError::File(error)) => Err(error.into()),
        }
    }

    /// Fails if something that vault did not make is in the place of the link to a skill.
    pub fn check_place(&self, name: &SkillName) -> Result<(), ProjectError> {
        let skills = match HeldFolder::open(&self.path)?.descend(Path::new(SKILLS), false) {
            Err(BeneathError::Missing(_)) => return Ok(()),
            skills => skills?,
        };
        let name = OsStr::new(name.as_str());
        match skills.read_entry(name)? {
            Some(HeldEntry::Other) => Err(ProjectError::InTheWay(skills.path().join(name))),
            Some(HeldEntry::Link(_)) | None => Ok(()),
        }
    }
}

/// A project while one command changes it. Dropping it lets the next one go on.
#[derive(Debug)]
pub struct ProjectChange {
    /// The open and locked folder; `None` if its file system has no such locks.
    _folder: Option<File>,
}

/// The content of `project.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct ProjectRecord {
    schema: String,
    path: PathBuf,
    /// Path of the vault whose store contains the bytes.
    vault: PathBuf,
    root1_sha256: Digest,
    roots: RootList,
    skills: BTreeMap<SkillName, Digest>,
    /// Bundles that were replaced, but to which links may still lead.
    replaced: BTreeSet<Digest>,
    /// Agents' folders that show the skills, relative to the project.
    folders: BTreeSet<PathBuf>,
}

/// A project for which skills are installed.
#[derive(Clone, Debug)]
pub struct Project {
    folder: PrivateFolder,
    record: ProjectRecord,
    roots: Arc<RootState>,
}

/// Returns the part of the trust folder that belongs to a project of this vault.
fn trust_folder(vault: &Vault, project: &Path) -> PrivateFolder {
    let paths = vault.paths();
    // Two vaults of one user may install skills for the same project. A path contains no NUL byte.
    let both = [project, &paths.root].map(|path| path.as_os_str().as_encoded_bytes());
    let name = Digest::of(&both.join(&b'\0')).to_string();
    PrivateFolder::new(&paths.config, Path::new("projects").join(name))
}

/// Finds the project in a folder; `None` if nothing was installed for it.
pub fn find_project(vault: &Vault, folder: &ProjectFolder) -> Result<Option<Project>, VaultError> {
    let read_project = Project::read(trust_folder(vault, &folder.path))?;
    // The folder of the record is named after a hash of the path, so the path in the record must be
    // the same one.
    Ok(read_project.filter(|project| project.record.path == folder.path))
}

/// Finds the innermost project that contains a folder, given by its absolute path without symbolic
/// links.
pub fn find_containing_project(
    vault: &Vault,
    folder: &Path,
) -> Result<Option<Project>, VaultError> {
    let mut projects = list_projects(vault)?;
    projects.retain(|project| folder.starts_with(&project.record.path));
    Ok(projects
        .into_iter()
        // Projects may be nested; the longest path is the innermost.
        .max_by_key(|project| project.record.path.components().count()))
}

/// Lists all projects for which this vault stores skills, sorted by path.
pub fn list_projects(vault: &Vault) -> Result<Vec<Project>, VaultError> {
    let projects = PrivateFolder::new(&vault.paths().config, "projects");
    let mut projects_found = Vec::new();
    for name in projects.folder_names()? {
        projects_found.extend(Project::read(projects.child(&name))?);
    }
    // Compare places, because the same vault may have been opened by another path.
    projects_found
        .retain(|project| disk::is_same_place(&project.record.vault, &vault.paths().root));
    projects_found.sort_by(|a, b| a.record.path.cmp(&b.record.path));
    Ok(projects_found)
}

/// Returns the bundles that projects use. Garbage collection must keep them.
pub(crate) fn project_bundles(vault: &Vault) -> Result<Vec<Digest>, VaultError> {
    let projects = list_projects(vault)?;
    let used = projects.iter().flat_map(|project| {
        let record = &project.record;
        record.skills.values().chain(&record.replaced)
    });
    Ok(used.copied().collect())
}

/// Returns the skills of all projects, for verification.
pub(crate) fn project_groups(vault: &Vault) -> Result<Vec<OriginGroup>, VaultError> {
    Ok(list_projects(vault)?
        .iter()
        .map(Project::to_group)
        .collect())
}

impl Project {
    fn read(folder: PrivateFolder) -> Result<Option<Self>, VaultError> {
        let Some(record) = folder.read_record::<ProjectRecord>(RECORD)? else {
            return Ok(None);
        };
        let damaged = |reason: String| VaultError::Damaged {
            path: folder.path_of(RECORD),
            reason,
        };
        if record.schema != SCHEMA {
            return Err(damaged(format!("{} is not {SCHEMA}", record.schema)));
        }
        let roots = RootState::load(&record.root1_sha256, &record.roots, BTreeSet::new())
            .map_err(|error| damaged(error.to_string()))?;
        Ok(Some(Self {
            folder,
            record,
            roots: Arc::new(roots),
        }))
    }

    /// Finds the project, or creates one with a new key. The key needs no passphrase: its signature
    /// is accepted only on the bundles in the record, and whoever can read the key can also change
    /// the record.
    pub(crate) fn find_or_new(vault: &Vault, folder: &ProjectFolder) -> Result<Self, VaultError> {
        if let Some(project) = find_project(vault, folder)? {
            return Ok(project);
        }
        let key = keys::generate_key(vault.random());
        let chain = first_root(vault.clock(), &key)?;
        let trust = trust_folder(vault, &folder.path);
        // A killed command may have left a key without a record. Nothing that it signed is
        // accepted, so replace it.
        trust.remove_file(KEY)?;
        keys::create_key(&trust, KEY, KeyKind::Publisher, &key, &NoPassphrases)?;
        let project = Self {
            folder: trust,
            record: ProjectRecord {
                schema: SCHEMA.to_owned(),
                path: folder.path.clone(),
                vault: vault.paths().root.clone(),
                root1_sha256: *chain.root1_sha256(),
                roots: chain.to_list(),
                skills: BTreeMap::new(),
                replaced: BTreeSet::new(),
                folders: BTreeSet::new(),
            },
            roots: Arc::new(RootState::new(chain, BTreeSet::new())),
        };
        project.store_record()?;
        Ok(project)
    }

    /// Writes the record to the trust folder.
    pub(crate) fn store_record(&self) -> Result<(), VaultError> {
        Ok(self.folder.write_record(RECORD, &self.record)?)
    }

    /// Removes the record and the key of the project. The next garbage collection removes its
    /// bundles from the store.
    pub(crate) fn remove_record(&self) -> Result<(), VaultError> {
        Ok(self.folder.remove_all()?)
    }

    /// Absolute path of the project's folder, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.record.path
    }

    /// Names of the skills, sorted.
    pub fn skill_names(&self) -> impl Iterator<Item = &SkillName> {
        self.record.skills.keys()
    }

    /// Agents' folders that show the skills, relative to the project.
    pub fn agent_folders(&self) -> &BTreeSet<PathBuf> {
        &self.record.folders
    }

    pub(crate) fn skill_bundles(&self) -> &BTreeMap<SkillName, Digest> {
        &self.record.skills
    }

    /// The vault id that the project's bundles carry, which is not that of the user's vault.
    pub(crate) fn vault_id(&self) -> VaultId {
        self.roots.vault_id()
    }

    /// Reads the key that signs the project's bundles.
    pub(crate) fn signing_key(&self) -> Result<SecretKey, VaultError> {
        let key = keys::read_key(&self.folder, KEY, KeyKind::Publisher, &NoPassphrases)?;
        Ok(key.ok_or_else(|| keys::KeyError::Missing(self.folder.path_of(KEY)))?)
    }

    /// Returns the trust for the project's skills: signatures by its key, on exactly the bundles of
    /// the record.
    pub(crate) fn trust_in_skills(&self) -> Trusted {
        self.trust_in_bundles(self.record.skills.values().copied())
    }

    /// Like [`Self::trust_in_skills`], for bundles that are about to be recorded.
    pub(crate) fn trust_in_bundles(&self, bundles: impl IntoIterator<Item = Digest>) -> Trusted {
        Trusted::for_listed(Arc::clone(&self.roots), bundles.into_iter().collect())
    }

    /// Returns the skills as installations, with the trust for verifying them.
    pub(crate) fn to_group(&self) -> OriginGroup {
        let places = self
            .record
            .skills
            .iter()
            .map(|(name, bundle)| Installation {
                name: name.clone(),
                signed_name: name.clone(),
                origin: Origin::Project(self.record.path.clone()),
                bundle: *bundle,
                vault: None,
                bare: false,
            });
        OriginGroup {
            trusted: self.trust_in_skills(),
            places: places.collect(),
        }
    }

    /// Reads and verifies a skill of the project; `None` if the record has no skill of this name.
    pub fn read_skill(&self, vault: &Vault, name: &SkillName) -> Option<Result<Examined, Damage>> {
        let bundle = self.record.skills.get(name)?;
        let store = vault.store_folder();
        Some(store::examine_stored(
            &store,
            bundle,
            Some(name),
            &self.trust_in_skills(),
        ))
    }

    /// Records the bundle that is installed under a name from now on.
    pub(crate) fn put_skill(&mut self, name: SkillName, bundle: Digest) {
        // The bundle is in use again, so it must not be removed with the replaced ones.
        self.record.replaced.remove(&bundle);
        if let Some(before) = self
            .record
            .skills
            .insert(name, bundle)
            .filter(|old| *old != bundle)
        {
            self.record.replaced.insert(before);
        }
    }

    /// Removes from the record the skills that `keep` does not name.
    pub(crate) fn retain_skills(&mut self, keep: &BTreeSet<SkillName>) {
        let gone = self
            .record
            .skills
            .iter()
            .filter(|(name, _)| !keep.contains(*name));
        let gone: Vec<Digest> = gone.map(|(_, bundle)| *bundle).collect();
        self.record.replaced.extend(gone);
        self.record.skills.retain(|name, _| keep.contains(name));
    }

    pub(crate) fn set_folders(&mut self, folders: BTreeSet<PathBuf>) {
        self.record.folders = folders;
    }

    /// Returns the replaced bundles and clears the list. The caller removes them from the store.
    pub(crate) fn take_replaced(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.record.replaced)
            .into_iter()
            .collect()
    }
}
