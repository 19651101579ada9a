//! `vault.lock`: the skills of a project with their exact commit, tree and content, so that another
//! machine installs the same.
//!
//! The file is TOML and is committed with the project. It holds no signatures. Each machine passes
//! the skills through its own gate and signs them with its own vault's key. The content digest
//! ensures that the installed files are the locked ones. `docs/sources.md` describes the format.

use std::{
    collections::BTreeSet,
    fs::Permissions,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vault_format::{
    hash::Digest,
    name::{AgentId, SkillName},
    root::VaultFingerprint,
};
use vault_gate::secrets;
use vault_library::{
    Examined, Vault,
    admit::{Candidate, history},
    project::ProjectFolder,
};
use vault_shelf::fetch::Upstream;
use vault_sources::{ParseOptions, check_address, site::digest_of};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, Place, message_chain},
    lookup::folder_of,
    output::Warning,
    tasks::fetch,
    text::{clean, line_of},
};

/// The file name of a project's lock file.
pub const FILE: &str = "vault.lock";
/// Maximum size of a lock file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
const HEAD: &str = "# The skills of this project, as `vault install` restores them. Written by vault: commit it, and change it by\n# `vault add --lock` and `vault update`.\n\n";

/// The parsed lock file of a project.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The path of the lock file.
    pub path: PathBuf,
    /// The locked skills, sorted by name.
    pub skills: Vec<LockEntry>,
}

/// The lock file's entry of one skill. An entry without a digest is not resolved: a person wrote it
/// by hand, and the next `vault install` fetches the skill and completes the entry.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
// An unknown member may come from a newer version and change what is to be installed.
#[serde(deny_unknown_fields)]
pub struct LockEntry {
    /// The name under which the skill is installed in the vault.
    pub name: SkillName,
    /// The source: an identifier, any source that `vault add` accepts, or `./path` within the
    /// project.
    pub source: String,
    /// The address that is fetched, if the source does not determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The skill's folder inside the repository or archive. Absent is the root of a repository, or
    /// the only skill of an archive; `.` is the root of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The branch, tag, commit or version to follow.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ref")]
    pub reference: Option<String>,
    /// The exact revision: a commit, a version or a digest, depending on the kind of source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The id of the git tree object of the skill's folder; absent for sources that are no git
    /// repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Fingerprint of the vault that signed the skill at its source, if the source has signed
    /// skills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<VaultFingerprint>,
    /// The newest root version (version of the key list) of that vault that the source showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_version: Option<u64>,
    /// The skill's version in the manifest that was signed at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_version: Option<u64>,
    /// SHA-256 over the skill's files ([`digest_of_installed`]); absent if the entry is not
    /// resolved yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Target agents in addition to those that the skill declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentId>,
    /// Files that look like secrets and are part of the skill. All others are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Symbolic links of the source that are installed as copies of their targets. If the list is
    /// not empty, every link of the skill is copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied_links: Vec<String>,
}

impl LockEntry {
    /// Fails unless `source` and `address` agree: reviewers read the source, but vault fetches the
    /// address.
    fn check_address(&self, options: &ParseOptions) -> Result<(), String> {
        let Some(address) = &self.address else {
            return Ok(());
        };
        let Some(upstream) = self.upstream() else {
            return Err(format!("an unresolved entry has no address: {address}"));
        };
        check_address(&upstream, options).map_err(|bad| bad.to_string())
    }

    /// Returns whether this is the entry of a folder of the project. `folder` is absolute and
    /// resolved.
    pub fn names_folder(&self, project: &Path, folder: &Path) -> bool {
        // Compare resolved paths, because the project may be reached through a link.
        let named = || project.join(&self.source).canonicalize();
        self.source.starts_with("./") && named().is_ok_and(|named| named == folder)
    }

    /// Returns the upstream that provides exactly this content. Returns `None` for a folder of the
    /// project and for an entry that is not resolved yet.
    pub fn upstream(&self) -> Option<Upstream> {
        // The source of an unresolved entry may be any text that `vault add` accepts.
        self.digest?;
        Some(Upstream {
            identifier: self.source.parse().ok()?,
            address: self.address.clone(),
            // In a lock, `.` is the root of an archive.
            path: match self.path.as_deref() {
                Some(".") => Some(String::new()),
                path => path.map(str::to_owned),
            },
            reference: self.reference.clone(),
            revision: self.revision.clone(),
            tree: self.tree.clone(),
            signer: self.signer,
            root_version: self.root_version,
            signed_version: self.signed_version,
            copied_links: self.copied_links.clone(),
        })
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    schema: u32,
    #[serde(default, rename = "skill", skip_serializing_if = "Vec::is_empty")]
    skills: Vec<LockEntry>,
}

impl Lock {
    /// Reads the lock of the project that contains the current folder; `None` if it has none.
    pub fn find_lock(context: &Context) -> Result<Option<Self>, Failure> {
        let (path, exists) = lock_place(context)?;
        exists.then(|| Self::read_lock(path)).transpose()
    }

    /// Reads the lock of the project at this path, or of the current project. Fails if there is
    /// none.
    pub fn of_project(context: &Context, project: Option<&Path>) -> Result<Self, Failure> {
        let Some(folder) = project else {
            return Self::find_lock(context)?.ok_or_else(|| {
                fail!(NoLock, "found no vault.lock in this folder or above it")
                    .hint("vault add <source> --lock creates one")
            });
        };
        let path = folder.join(FILE);
        if path.symlink_metadata().is_err() {
            return Err(fail!(NoLock, "{} does not exist", path.display())
                .hint("vault add <source> --lock creates one in the current project"));
        }
        Self::read_lock(path)
    }

    /// Reads the lock of the current project, or creates an empty one in memory for the project's
    /// root.
    pub fn find_or_new(context: &Context) -> Result<Self, Failure> {
        let (path, exists) = lock_place(context)?;
        let skills = Vec::new();
        if exists {
            Self::read_lock(path)
        } else {
            Ok(Self { path, skills })
        }
    }

    /// Reads a lock file. Errors name the wrong line.
    pub fn read_lock(path: PathBuf) -> Result<Self, Failure> {
        let failed = |error| Failure::io("reading", &path, &error);
        let shown = path.display();
        // A repository may bring along a link or a FIFO under this name.
        let metadata = std::fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(fail!(LockInvalid, "{shown} is not a regular file"));
        }
        if metadata.len() > MAX_BYTES {
            return Err(fail!(LockTooLarge, "{shown} is larger than 4 MiB"));
        }
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let is_marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
        if let Some(at) = text.lines().position(is_marker) {
            let line = u32::try_from(at + 1).ok();
            return Err(fail!(LockInvalid, "an unfinished merge left conflict markers")
                .at(Place::new(&path, line))
                .hint("keep the entries of both sides, remove the markers, then run vault install"));
        }
        let file: LockFile = toml::from_str(&text).map_err(|error| {
            let line = error.span().map(|span| line_of(&text, span.start));
            Failure::new(ErrorCode::LockInvalid, clean(error.message(), 300))
                .at(Place::new(&path, line))
        })?;
        let LockFile { schema, skills } = file;
        if schema != 1 {
            return Err(fail!(
                LockVersion,
                "{shown} has the schema {schema}; this version reads 1"
            )
            .hint("it was written by a newer version: update vault"));
        }
        // Two entries with one name would replace each other at every install.
        let mut names = BTreeSet::new();
        if let Some(twice) = skills.iter().find(|locked| !names.insert(&locked.name)) {
            return Err(fail!(LockInvalid, "{shown} names {} twice", twice.name));
        }
        Ok(Self { path, skills })
    }

    /// Fails if the source and the address of any entry disagree.
    pub fn check_addresses(&self, options: &ParseOptions) -> Result<(), Failure> {
        for locked in &self.skills {
            locked.check_address(options).map_err(|reason| {
                let (name, reason) = (&locked.name, clean(&reason, 600));
                fail!(LockInvalid, "{name}: {reason}").at(Place::new(&self.path, None))
            })?;
        }
        Ok(())
    }

    /// Returns the folder of the project, checked: fails if it is the home folder or the vault's,
    /// or if a symbolic link stands where vault would write.
    pub fn project_folder(&self, context: &Context) -> Result<ProjectFolder, Failure> {
        let (vault, home) = (context.vault_paths()?.root, context.process.home());
        Ok(ProjectFolder::new(self.folder(), &vault, home)?)
    }

    /// Returns the folder of the project: the one that contains the lock file.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Adds an entry, or replaces the one with the same name, in memory.
    pub fn put_entry(&mut self, locked: LockEntry) {
        self.skills.retain(|other| other.name != locked.name);
        self.skills.push(locked);
        // Sorted entries keep the differences between versions small.
        self.skills.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Adds or replaces an entry, writes the file, and tells the user.
    fn record_entry(mut self, context: &Context, locked: LockEntry) -> Result<(), Failure> {
        self.put_entry(locked);
        self.write_file()?;
        context
            .ui
            .note(format!("Recorded in {}", self.path.display()));
        Ok(())
    }

    /// Writes the file atomically.
    pub fn write_file(&self) -> Result<(), Failure> {
        let skills = self.skills.clone();
        let text = toml::to_string(&LockFile { schema: 1, skills })
            .map_err(|error| fail!(LockInvalid, "{error}"))?;
        let write = || -> std::io::Result<()> {
            // A rename cannot cross file systems, so the temporary file is in the same folder.
            let mut temporary = tempfile::Builder::new()
                .prefix(".vault.lock-")
                .tempfile_in(self.folder())?;
            temporary.write_all((HEAD.to_owned() + &text).as_bytes())?;
            // Temporary files are private, but everyone who has the project reads its lock file.
            temporary
                .as_file()
                .set_permissions(Permissions::from_mode(0o644))?;
            // Sync before the rename, so that a crash cannot leave an empty lock file.
            temporary.as_file().sync_all()?;
            temporary.persist(&self.path)?;
            Ok(())
        };
        write().map_err(|error| Failure::io("writing", &self.path, &error))
    }
}

/// Returns the lock's path and whether the file exists. The search goes from the current folder up
/// to the repository's root or the home folder.
fn lock_place(context: &Context) -> Result<(PathBuf, bool), Failure> {
    let here = std::path::absolute(".").map_err(|error| Failure::io("resolving", ".", &error))?;
    for folder in here.ancestors() {
        let path = folder.join(FILE);
        if path.symlink_metadata().is_ok() {
            return Ok((path, true));
        }
        // A lock above the repository belongs to another project.
        if folder.join(".git").symlink_metadata().is_ok() {
            return Ok((path, false));
        }
        // Folders above the home folder may belong to other users.
        if context.process.home() == Some(folder) {
            break;
        }
    }
    Ok((here.join(FILE), false))
}

/// Computes the content digest of a candidate (a skill that is about to be added): paths, modes and
/// bytes of its files.
pub fn candidate_digest(candidate: &Candidate) -> Digest {
    let files = candidate.package.files.iter();
    digest_of(files.map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())))
}

/// Returns the content digest of the skill that this vault signed under `name`, and the paths of
/// its files that look like secrets. Without such a skill: `None` and no paths.
pub fn installed_content(
    vault: &Vault,
    name: &SkillName,
) -> Result<(Option<Digest>, Vec<String>), Failure> {
    let installed = history::read_installed(vault, name)
        .map_err(|error| fail!(SkillDamaged, "{}", message_chain(&error)))?;
    let include = installed
        .as_ref()
        .map(|found| secrets::paths_of(&found.files));
    let digest = installed.as_ref().map(digest_of_installed);
    Ok((digest, include.unwrap_or_default()))
}

/// Computes the content digest of an installed skill.
pub fn digest_of_installed(found: &Examined) -> Digest {
    let files = found.files.iter();
    digest_of(files.map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())))
}

/// Creates the lock entry of a fetched skill. Returns `None` if the skill has no upstream.
pub fn locked_entry(candidate: &Candidate) -> Option<LockEntry> {
    let upstream = candidate.upstream.as_ref()?;
    let (name, agents) = (
        candidate.package.name.clone(),
        candidate.options.agents.clone(),
    );
    let content = (
        Some(candidate_digest(candidate)),
        candidate.secrets.included.clone(),
    );
    Some(entry_of_upstream(name, upstream, content, agents))
}

/// Creates the lock entry of a skill with this upstream. The content is its digest and the paths of
/// its files that look like secrets.
pub fn entry_of_upstream(
    name: SkillName,
    upstream: &Upstream,
    (digest, include): (Option<Digest>, Vec<String>),
    agents: Vec<AgentId>,
) -> LockEntry {
    LockEntry {
        name,
        source: upstream.identifier.to_string(),
        address: upstream.address.clone(),
        path: lock_path(upstream),
        reference: upstream.reference.clone(),
        revision: upstream.revision.clone(),
        tree: upstream.tree.clone(),
        signer: upstream.signer,
        root_version: upstream.root_version,
        signed_version: upstream.signed_version,
        digest,
        agents,
        include,
        copied_links: upstream.copied_links.clone(),
    }
}

/// Returns [`LockEntry::path`] of a skill with this upstream.
fn lock_path(upstream: &Upstream) -> Option<String> {
    let path = upstream.path.as_deref()?;
    let is_archive = upstream.identifier.as_str().starts_with("https:");
    match path {
        // In an archive, no path means its only skill, wherever it is.
        "" if is_archive => Some(".".to_owned()),
        // In a repository, no path means the root.
        "" => None,
        path => Some(path.to_owned()),
    }
}

/// Fails if the skill was fetched from an address of this machine by plain HTTP: a lock that came
/// from elsewhere must not lead there, so `vault install` would refuse the entry.
pub fn check_lockable_source(context: &Context, candidate: &Candidate) -> Result<(), Failure> {
    let address = locked_entry(candidate).and_then(|entry| entry.address);
    let Some(address) = address.filter(|address| address.starts_with("http://")) else {
        return Ok(());
    };
    if fetch::parse_options(context)?.loopback {
        return Ok(());
    }
    let address = clean(&address, 200);
    Err(fail!(
        Usage,
        "vault.lock cannot name {address}, because it is an address of this machine"
    )
    .hint("leave out --lock, or add the skill from the place where you publish it"))
}

/// Records a fetched skill in the lock of the current project. If there is no lock, `make` decides
/// between creating one and recording nothing.
pub fn lock_fetched_skill(
    context: &Context,
    candidate: &Candidate,
    make: bool,
) -> Result<(), Failure> {
    let Some(locked) = locked_entry(candidate) else {
        return Ok(());
    };
    let lock = if make {
        Some(Lock::find_or_new(context)?)
    } else {
        Lock::find_lock(context)?
    };
    let Some(lock) = lock else {
        return Ok(());
    };
    if let Err(failure) = check_lockable_source(context, candidate) {
        let warning = Warning::new("not_locked", failure.message);
        context
            .ui
            .warn(warning.hint("add it from the place where you publish it"));
        return Ok(());
    }
    lock.record_entry(context, locked)
}

/// Records a skill from a folder of the project in its lock. Fails if the folder is outside the
/// project.
pub fn lock_folder_skill(
    context: &Context,
    vault: &Vault,
    source: &str,
    name: &SkillName,
    agents: &[AgentId],
) -> Result<(), Failure> {
    let (lock, inside) = folder_in_project(context, source)?;
    let (digest, include) = installed_content(vault, name)?;
    let locked = LockEntry {
        name: name.clone(),
        source: format!("./{}", inside.display()),
        address: None,
        path: None,
        reference: None,
        revision: None,
        tree: None,
        signer: None,
        root_version: None,
        signed_version: None,
        digest,
        agents: agents.to_vec(),
        include,
        // A project reads its folders without copies of links.
        copied_links: Vec::new(),
    };
    lock.record_entry(context, locked)
}

/// Returns the project's lock, and the path of a folder below the project. Fails if the folder is
/// outside the project.
pub fn folder_in_project(context: &Context, source: &str) -> Result<(Lock, PathBuf), Failure> {
    let lock = Lock::find_or_new(context)?;
    let real = |path: &Path| {
        path.canonicalize()
            .map_err(|error| Failure::io("resolving", path, &error))
    };
    let folder = folder_of(&real(Path::new(source))?);
    let root = real(lock.folder())?;
    let inside = folder.strip_prefix(&root).map_err(|_| {
        fail!(
            LockOutside,
            "{} is outside {}",
            folder.display(),
            root.display()
        )
        .hint("a lock can only name folders in its own project: move the skill there, or into a repository")
    })?;
    let inside = inside.to_owned();
    Ok((lock, inside))
}
