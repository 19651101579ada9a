//! `vault.lock`: the skills of a project with their exact commit, tree and content, so that another
//! machine installs the same.
//!
//! The file is TOML and is committed with the project. It holds no signatures. Each machine passes
//! the skills through its own gate and signs them with its own vault's key. The content digest
//! ensures that the installed files are the locked ones. `docs/projects.md` describes the format.

pub mod conflict;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use vault_format::{
    hash::Digest,
    name::{AgentId, SkillName},
    root::VaultFingerprint,
};
use vault_gate::requirements::{StatedRequirement, parse_requirements};
use vault_library::{Examined, admit::Candidate, project::ProjectFolder};
use vault_shelf::fetch::Upstream;
use vault_sources::{ParseOptions, check_address, site::digest_of};

use self::conflict::{Sides, split_conflict};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure, Place},
    lookup::folder_of,
    tasks::fetch,
    text::{clean, join, line_of},
};

/// The file name of a project's lock file.
pub const FILE: &str = "vault.lock";
/// Maximum size of a lock file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
const HEAD: &str = "# The skills of this project, as `vault install` restores them. Written by vault: commit it, and change it by\n# `vault add`, `update` and `remove` with `--project`.\n\n";

/// The parsed lock file of a project.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The path of the lock file.
    pub path: PathBuf,
    /// The locked skills, sorted by name.
    pub skills: Vec<LockEntry>,
    /// The text of the file when it was read; `None` if there was none.
    text: Option<String>,
}

/// The lock file's entry of one skill. An entry without a digest is not resolved: a person wrote it
/// by hand, and the next `vault install` fetches the skill and completes the entry.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
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
    /// The skills that this one requires, as its SKILL.md states them; at most 32.
    #[serde(
        default,
        deserialize_with = "read_requires",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub requires: Vec<StatedRequirement>,
    /// Whether it came only because other skills of the project require it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_requirement: bool,
    /// Members that a newer version wrote. They are kept when the file is written. What changes the
    /// installed bytes raises the schema, so an unknown member never does.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, toml::Value>,
}

impl LockEntry {
    /// Creates the entry of a folder of the project, given by its path below the project.
    pub fn of_folder(name: SkillName, path: &str, digest: Digest) -> Self {
        Self {
            name,
            source: format!("./{path}"),
            address: None,
            path: None,
            reference: None,
            revision: None,
            tree: None,
            signer: None,
            root_version: None,
            signed_version: None,
            digest: Some(digest),
            agents: Vec::new(),
            include: Vec::new(),
            copied_links: Vec::new(),
            requires: Vec::new(),
            as_requirement: false,
            unknown: BTreeMap::new(),
        }
    }

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

    /// Returns whether the source is a folder of the project.
    pub fn is_folder(&self) -> bool {
        self.source.starts_with("./")
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

/// Reads the requirements of an entry within the bounds of those of a skill.
fn read_requires<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<StatedRequirement>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    parse_requirements(&texts).map_err(|reason| D::Error::custom(format!("`requires` {reason}")))
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    schema: u32,
    #[serde(default, rename = "skill", skip_serializing_if = "Vec::is_empty")]
    skills: Vec<LockEntry>,
}

impl Lock {
    /// Reads a lock, or returns an empty one if there is no file. Warns of members that this version
    /// does not know.
    pub fn read_or_empty(context: &Context, path: PathBuf) -> Result<Self, Failure> {
        if path.symlink_metadata().is_err() {
            return Ok(Self::new(path, None));
        }
        let lock = Self::read_lock(path)?;
        for locked in &lock.skills {
            let members: Vec<&String> = locked.unknown.keys().collect();
            if !members.is_empty() {
                let (name, members) = (&locked.name, clean(&join(members), 200));
                let text = format!(
                    "vault.lock says {members} of {name}, which this version does not know"
                );
                let hint = "the entry is kept as it is; check the spelling, or update vault";
                context.ui.warn_with("lock_member_unknown", text, hint);
            }
        }
        Ok(lock)
    }

    /// Creates a lock without skills. `text` is that of the file which it will replace.
    const fn new(path: PathBuf, text: Option<String>) -> Self {
        Self {
            path,
            skills: Vec::new(),
            text,
        }
    }

    /// Reads a lock file. Errors name the wrong line.
    pub fn read_lock(path: PathBuf) -> Result<Self, Failure> {
        let text = read_text(&path)?;
        let is_marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
        if let Some(at) = text.lines().position(is_marker) {
            let line = u32::try_from(at + 1).ok();
            let place = Place::new(&path, line);
            return Err(match split_conflict(&text) {
                Some(Sides { ours, theirs }) => {
                    let (ours, theirs) = (ours.shown(), theirs.shown());
                    fail!(LockInvalid, "a merge of {ours} and {theirs} left conflict markers")
                        .hint("vault install --resolve keeps the skills of both sides, and asks where they differ")
                }
                None => fail!(LockInvalid, "an unfinished merge left conflict markers")
                    .hint("take a side as it is: git checkout --ours vault.lock, or --theirs"),
            }
            .at(place));
        }
        match parse_entries(&text) {
            Ok(skills) => Ok(Self {
                skills,
                ..Self::new(path, Some(text))
            }),
            Err((line, failure)) => Err(failure.at(Place::new(&path, line))),
        }
    }

    /// Reads the two sides of a merge that left conflict markers in a lock file, with an empty lock to
    /// put them into; `None` if there are none.
    pub fn read_conflict(path: PathBuf) -> Result<Option<(Sides, Self)>, Failure> {
        let text = read_text(&path)?;
        Ok(split_conflict(&text).map(|sides| (sides, Self::new(path, Some(text)))))
    }

    /// Returns the path of the lock of the current project, or of that in the folder `root`. Fails if
    /// there is none.
    pub fn find_existing(context: &Context, root: Option<&Path>) -> Result<PathBuf, Failure> {
        let (path, exists) = Self::find_path(context, root)?;
        if exists {
            return Ok(path);
        }
        let failure = match root {
            Some(_) => fail!(NoLock, "{} does not exist", shown(&path)),
            None => fail!(NoLock, "found no vault.lock in this folder or above it"),
        };
        Err(failure.hint("vault setup --project, or vault add <source> --project, creates one"))
    }

    /// Returns the lock's path and whether the file exists. Without `root`, the nearest one counts,
    /// from the current folder up to the repository's root; outside of a repository, only that of the
    /// current folder.
    pub fn find_path(context: &Context, root: Option<&Path>) -> Result<(PathBuf, bool), Failure> {
        let exists = |path: PathBuf| {
            let exists = path.symlink_metadata().is_ok();
            (path, exists)
        };
        if let Some(root) = root {
            return Ok(exists(root.join(FILE)));
        }
        let failed = |error| Failure::io("resolving", ".", &error);
        let here = std::path::absolute(".").map_err(failed)?;
        let owner = std::fs::metadata(&here).map_err(failed)?.uid();
        // Other users may put files into a folder above, such as `/tmp`. They count for nothing.
        let is_owned = |path: &Path| {
            let metadata = path.symlink_metadata();
            metadata.is_ok_and(|metadata| path.parent() == Some(&*here) || metadata.uid() == owner)
        };
        let mut nearest = None;
        for folder in here.ancestors() {
            let path = folder.join(FILE);
            if nearest.is_none() && is_owned(&path) {
                nearest = Some(path.clone());
            }
            // A lock above the repository belongs to another project.
            if is_owned(&folder.join(".git")) {
                return Ok(exists(nearest.unwrap_or(path)));
            }
            // Folders above the home folder may belong to other users.
            if context.process.home() == Some(folder) {
                break;
            }
        }
        Ok(exists(here.join(FILE)))
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

    /// Returns the folder of the project whose lock has this path, checked: fails if it is the home
    /// folder, the vault's or the trust folder, or if a symbolic link stands where vault would write.
    pub fn project_folder(context: &Context, path: &Path) -> Result<ProjectFolder, Failure> {
        let (vault, home) = (context.vault_paths()?, context.process.home());
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = ProjectFolder::new(folder, &vault.root, home)?;
        let trust = vault.config.canonicalize().unwrap_or(vault.config);
        if folder.path().starts_with(&trust) || folder.path() == Path::new("/") {
            let shown = shown(folder.path());
            return Err(fail!(ProjectInvalid, "{shown} cannot be a project")
                .hint("keep vault.lock in the folder of a project"));
        }
        Ok(folder)
    }

    /// Returns the folder of the project: the one that contains the lock file.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns the entry of this name.
    pub fn find_entry(&self, name: &SkillName) -> Option<&LockEntry> {
        self.skills.iter().find(|locked| locked.name == *name)
    }

    /// Adds an entry, or replaces the one with the same name, in memory. Members that this version
    /// does not know stay.
    pub fn put_entry(&mut self, mut locked: LockEntry) {
        if let Some(at) = self
            .skills
            .iter()
            .position(|other| other.name == locked.name)
        {
            let before = self.skills.swap_remove(at);
            for (member, value) in before.unknown {
                locked.unknown.entry(member).or_insert(value);
            }
        }
        self.skills.push(locked);
        // Sorted entries keep the differences between versions small.
        self.skills.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Writes the file, and tells the user.
    pub fn record(&self, context: &Context) -> Result<(), Failure> {
        self.write_file()?;
        context
            .ui
            .note(format!("Recorded in {}", shown(&self.path)));
        Ok(())
    }

    /// Returns the names of the locked skills.
    pub fn names(&self) -> BTreeSet<SkillName> {
        self.skills
            .iter()
            .map(|locked| locked.name.clone())
            .collect()
    }

    /// Returns the path of a folder or SKILL.md below the project, with `/`. Fails if it is outside
    /// the project, or the project itself.
    pub fn path_inside(&self, source: &Path) -> Result<String, Failure> {
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|error| Failure::io("resolving", path, &error))
        };
        let (folder, root) = (folder_of(&real(source)?), real(self.folder())?);
        let (shown, project) = (
            clean(&folder.display().to_string(), 400),
            clean(&root.display().to_string(), 400),
        );
        let inside = folder.strip_prefix(&root).map_err(|_| {
            fail!(LockOutside, "{shown} is outside {project}").hint(
                "a lock can only name folders in its own project: move the skill there, or into a repository",
            )
        })?;
        match inside.to_str() {
            Some("") => Err(
                fail!(Usage, "{project} is the whole project, not a skill of it")
                    .hint("move the skill into a folder of its own"),
            ),
            // A link to the skill would be in its own place.
            Some(inside) if is_read_by_agents(inside) => Err(fail!(
                Usage,
                "agents of this project read {shown} already"
            )
            .hint(
                "to have vault pin it, move it to another folder of the project, such as skills",
            )),
            Some(inside) => Ok(inside.to_owned()),
            None => Err(fail!(
                Usage,
                "{shown} is not UTF-8, so vault.lock cannot name it"
            )),
        }
    }

    /// Writes the file atomically.
    pub fn write_file(&self) -> Result<(), Failure> {
        let skills = self.skills.clone();
        let text = toml::to_string(&LockFile { schema: 1, skills })
            .map_err(|error| fail!(LockInvalid, "{error}"))?;
        let text = HEAD.to_owned() + &text;
        if text.len() as u64 > MAX_BYTES {
            let path = shown(&self.path);
            return Err(fail!(LockTooLarge, "{path} would be larger than 4 MiB"));
        }
        let exists = self.path.symlink_metadata().is_ok();
        let now = exists.then(|| read_text(&self.path)).transpose()?;
        if now != self.text {
            let path = shown(&self.path);
            return Err(fail!(LockChanged, "{path} changed while this command ran")
                .hint("it was left as it is now; run the command again"));
        }
        let write = || -> std::io::Result<()> {
            // A rename cannot cross file systems, so the temporary file is in the same folder.
            let mut temporary = tempfile::Builder::new()
                .prefix(".vault.lock-")
                .tempfile_in(self.folder())?;
            temporary.write_all(text.as_bytes())?;
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

/// Returns whether agents read a folder of the project without vault, as `.claude/skills/pdf`.
pub fn is_read_by_agents(inside: &str) -> bool {
    inside.starts_with('.')
        && Path::new(inside)
            .parent()
            .is_some_and(|parent| parent.ends_with("skills"))
}

/// Returns a path for messages. The name of a folder may contain any character.
fn shown(path: &Path) -> String {
    clean(&path.display().to_string(), 400)
}

/// Reads the text of a lock file.
fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::io("reading", path, &error);
    let shown = shown(path);
    // A repository may bring along a link or a FIFO under this name.
    let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(fail!(LockInvalid, "{shown} is not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(fail!(LockTooLarge, "{shown} is larger than 4 MiB"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Parses the entries of a lock file. The failure has the number of the wrong line, if one is.
fn parse_entries(text: &str) -> Result<Vec<LockEntry>, (Option<u32>, Failure)> {
    let file: LockFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        let message = clean(error.message(), 300);
        (line, Failure::new(ErrorCode::LockInvalid, message))
    })?;
    let LockFile { schema, skills } = file;
    if schema != 1 {
        let failure = fail!(
            LockVersion,
            "it has the schema {schema}; this version reads 1"
        )
        .hint("it was written by a newer version: update vault");
        return Err((None, failure));
    }
    // Two entries with one name would replace each other at every install.
    let mut names = BTreeSet::new();
    if let Some(twice) = skills.iter().find(|locked| !names.insert(&locked.name)) {
        let failure = fail!(LockInvalid, "it names {} twice", twice.name)
            .hint("remove one of the two entries");
        return Err((None, failure));
    }
    // A person wrote an entry without a digest, and a misspelt member would change what it means.
    let mut written = skills.iter().filter(|locked| locked.digest.is_none());
    let member = written.find_map(|locked| Some((&locked.name, locked.unknown.keys().next()?)));
    if let Some((name, member)) = member {
        let member = clean(member, 64);
        let failure = fail!(LockInvalid, "{name} has the unknown member {member}");
        return Err((None, failure));
    }
    Ok(skills)
}

/// Computes the content digest of a candidate (a skill that is about to be added): paths, modes and
/// bytes of its files.
pub fn candidate_digest(candidate: &Candidate) -> Digest {
    let files = candidate.package.files.iter();
    digest_of(files.map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())))
}

/// Computes the content digest of an installed skill.
pub fn digest_of_installed(found: &Examined) -> Digest {
    let files = found.files.iter();
    digest_of(files.map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())))
}

/// Creates the lock entry of a fetched skill, without what it requires. Returns `None` if the skill has no upstream.
pub fn locked_entry(candidate: &Candidate) -> Option<LockEntry> {
    let upstream = candidate.upstream.as_ref()?;
    Some(LockEntry {
        name: candidate.package.name.clone(),
        source: upstream.identifier.to_string(),
        address: upstream.address.clone(),
        path: lock_path(upstream),
        reference: upstream.reference.clone(),
        revision: upstream.revision.clone(),
        tree: upstream.tree.clone(),
        signer: upstream.signer,
        root_version: upstream.root_version,
        signed_version: upstream.signed_version,
        digest: Some(candidate_digest(candidate)),
        agents: candidate.options.agents.clone(),
        include: candidate.secrets.included.clone(),
        copied_links: upstream.copied_links.clone(),
        requires: Vec::new(),
        as_requirement: false,
        unknown: BTreeMap::new(),
    })
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
pub fn check_lockable_source(context: &Context, entry: &LockEntry) -> Result<(), Failure> {
    let address = entry.address.as_deref();
    let Some(address) = address.filter(|address| address.starts_with("http://")) else {
        return Ok(());
    };
    if fetch::parse_options(context)?.loopback {
        return Ok(());
    }
    let address = clean(address, 200);
    Err(fail!(
        Usage,
        "vault.lock cannot name {address}, because it is an address of this machine"
    )
    .hint("leave out --project, or add the skill from the place where you publish it"))
}
