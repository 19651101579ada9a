//! Finds an installed skill by its name, verifies it, and runs the actions (commands) that it
//! declares.
//!
//! An action runs from a private copy, written from the bytes that were verified for this run, so
//! later changes to the store do not affect it. The copy lies in the trust folder: write access to
//! the vault's folder alone is not enough to change it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::manifest::{ActionSpec, Manifest, Mode, SKILL_MD};
use vault_format::name::{ActionName, SkillName, SkillRef};
use vault_format::provenance::Kind;
use vault_format::root::RootState;
use vault_gate::document::{Document, Frontmatter, Secret, is_reserved_variable};

use crate::disk::FileError;
use crate::disk::Location;
use crate::disk::scratch::Scratch;
use crate::installed::installations::{self, Installation, Origin, OriginGroup};
use crate::installed::project_skills::Project;
use crate::store::{self, Damage, Examined, Trusted};
use crate::vault::{RUNNING, Vault, VaultError};

/// Environment variables that every action gets: paths of programs and home, user, terminal, and
/// locale.
const BASE_ENVIRONMENT: [&str; 19] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
];

/// The environment variables of the caller, and the rule for which of them an action gets. Settings
/// of vault (`VAULT_*`), some of which are secrets, are never passed on.
#[derive(Clone, Default)]
pub struct Environment {
    /// The environment of the process that called vault, unfiltered.
    pub variables: Vec<(OsString, OsString)>,
    /// The rule by which variables are passed on to an action.
    pub scope: Scope,
}

/// Rule for the environment variables that an action gets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scope {
    /// All variables for a skill that was made on this machine: an own skill from a local folder or
    /// from submitted text that no other person wrote. For every other skill, the same as
    /// [`Scope::Declared`].
    #[default]
    ByOrigin,
    /// The variables that the skill declares, and those that every program needs.
    Declared,
    /// Every variable of the caller except vault's own settings (`VAULT_*`).
    All,
}

impl Environment {
    /// Returns the variables that an action gets. `made_here` tells whether the skill was made on
    /// this machine.
    fn select_variables(
        &self,
        made_here: bool,
        declared: &[Secret],
    ) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let all = match self.scope {
            Scope::ByOrigin => made_here,
            Scope::Declared => false,
            Scope::All => true,
        };
        let is_wanted = move |name: &str| {
            let is_declared = || declared.iter().any(|secret| secret.name == name);
            all || BASE_ENVIRONMENT.contains(&name) || is_declared()
        };
        let variables = self.variables.iter();
        variables.filter_map(move |(name, value)| {
            // A lossy conversion is enough here: a reserved name is recognised by its prefix.
            let text = name.to_string_lossy();
            let passes = !is_reserved_variable(&text) && is_wanted(&text);
            passes.then_some((name.as_os_str(), value.as_os_str()))
        })
    }
}

/// Hides the values, because some of them are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Error of finding a skill or an action, or of running an action.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No skill with this name is installed.
    #[error("no skill named {0} is installed")]
    UnknownSkill(SkillRef),
    /// The signed manifest declares no action of this name.
    #[error("{skill} declares no action {action}")]
    UnknownAction {
        /// The skill, as the caller named it.
        skill: SkillRef,
        /// Name of the action that the caller asked for.
        action: ActionName,
        /// The actions that the skill declares.
        declared: Vec<ActionName>,
    },
    /// The installed content fails verification.
    #[error("{skill}: {damage}")]
    Damaged {
        /// The skill, as the caller named it.
        skill: SkillRef,
        /// Difference between the skill's files or manifest and the signed ones.
        damage: Damage,
    },
    /// The command could not be started.
    #[error("cannot start {command}: {cause}")]
    Start {
        /// The program, as the skill declares it.
        command: String,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The vault can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for RunError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

/// A declared action with the paths of its files made absolute.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ResolvedAction {
    /// Name of the action, as the skill declares it.
    #[serde(rename = "action")]
    pub name: ActionName,
    /// The script's absolute path, or a bare program name.
    pub command: String,
    /// Declared arguments, which precede the caller's. In a [`LocatedSkill`] those that name files
    /// of the skill are absolute paths.
    pub args: Vec<String>,
    /// Absolute path of the working directory of the action, which lies in the copy that a run
    /// makes. Before the run, `<run>` stands for the name of the copy.
    pub cwd: PathBuf,
    /// Purpose of the action for people; `null` if the skill declares none.
    pub description: Option<String>,
    /// Whether the action needs a terminal, because it asks questions there.
    pub requires_tty: bool,
}

/// A verified installed skill with its files and the key that signed it.
#[derive(Debug)]
pub struct VerifiedSkill {
    /// The name it is installed under.
    pub name: SkillName,
    /// Origin: an own skill, or the link it is installed through.
    pub origin: Origin,
    /// SHA-256 of the skill's bundle.
    pub bundle: Digest,
    /// The key that signed the manifest.
    pub signer: PublicKey,
    /// Root versions (signed lists of keys) of the vault that signed the skill.
    pub(crate) roots: Option<Arc<RootState>>,
    /// Verified manifest and files of the skill, and the envelope with the signature.
    pub examined: Examined,
    /// The frontmatter of SKILL.md. `None` for a skill that an older version of vault admitted, if
    /// this version can't parse it.
    pub frontmatter: Option<Frontmatter>,
}

/// An installed skill that was looked up but not verified.
#[derive(Clone, Debug)]
pub struct FoundSkill {
    /// The name it is installed under.
    pub name: SkillName,
    /// Origin: an own skill, or the link it is installed through.
    pub origin: Origin,
    /// Whether its bare name (the name without a vault) means this skill.
    pub bare: bool,
    /// The name that always means this skill, `<vault>/<name>`.
    pub qualified: String,
}

/// A verified installed skill, with what is needed to start its actions.
#[derive(Debug)]
pub struct LocatedSkill {
    /// The name it is installed under.
    pub name: SkillName,
    /// Origin: an own skill, or the link it is installed through.
    pub origin: Origin,
    /// SHA-256 of the skill's bundle.
    pub bundle: Digest,
    /// The signed manifest.
    pub manifest: Manifest,
    /// Absolute path of its files in the store.
    pub files: PathBuf,
    /// Actions of the skill, in the order of their names.
    pub actions: Vec<ResolvedAction>,
    /// Absolute path of the folder below which each run of an action gets a copy of the skill.
    pub copies: PathBuf,
}

/// Finds a skill and verifies all of its files.
pub fn locate_skill(vault: &Vault, skill: impl Into<SkillRef>) -> Result<LocatedSkill, RunError> {
    locate_skill_in(vault, None, skill)
}

/// Like [`locate_skill`], but looks up a bare name in the project if the user has no skill of this
/// name.
pub fn locate_skill_in(
    vault: &Vault,
    project: Option<&Project>,
    skill: impl Into<SkillRef>,
) -> Result<LocatedSkill, RunError> {
    let (place, _, examined) = find_verified(vault, project, &skill.into())?;
    let files = store::bundle_folder(&vault.store_folder(), &place.bundle)
        .join("files")
        .path();
    let copies = vault.paths().config.join(RUNNING);
    let copy = copies.join("<run>/files");
    let actions = examined
        .manifest
        .actions
        .iter()
        .map(|(name, action)| {
            let mut resolved = resolve_action(name, action, &examined.manifest, &files);
            resolved.args =
                resolve_arguments(&action.args, &action.cwd, &examined.manifest, &files);
            // An action never runs in the store.
            resolved.cwd = working_folder(&copy, action);
            resolved
        })
        .collect();
    Ok(LocatedSkill {
        name: place.name,
        origin: place.origin,
        bundle: place.bundle,
        manifest: examined.manifest,
        files,
        actions,
        copies,
    })
}

/// Finds an installed skill; `None` if it is not installed. Does not verify its files.
pub fn find_skill(
    vault: &Vault,
    skill: impl Into<SkillRef>,
) -> Result<Option<FoundSkill>, VaultError> {
    let located = installations::find_installed(vault, &skill.into())?;
    Ok(located.map(|(place, _)| FoundSkill {
        bare: place.bare,
        qualified: place.qualified_name(),
        name: place.name,
        origin: place.origin,
    }))
}

/// Reads and verifies an installed skill, and identifies the key that signed it.
pub fn inspect_skill(vault: &Vault, skill: impl Into<SkillRef>) -> Result<VerifiedSkill, RunError> {
    let (place, trusted, examined) = find_verified(vault, None, &skill.into())?;
    Ok(VerifiedSkill {
        roots: trusted.roots().cloned(),
        frontmatter: parse_frontmatter(&place.name, &examined.files),
        name: place.name,
        origin: place.origin,
        bundle: place.bundle,
        signer: examined.signer,
        examined,
    })
}

/// Returns the frontmatter of a skill; `None` if this version of vault can't parse it.
fn parse_frontmatter(name: &SkillName, files: &[File]) -> Option<Frontmatter> {
    let file = files.iter().find(|file| file.path.as_str() == SKILL_MD)?;
    let document = Document::parse_known(&file.bytes, name).ok()?;
    Some(document.frontmatter().clone())
}

/// Finds a skill and verifies all of its files, with retries while a writer replaces it.
fn find_verified(
    vault: &Vault,
    project: Option<&Project>,
    skill: &SkillRef,
) -> Result<(Installation, Trusted, Examined), RunError> {
    let mut last = None;
    // A writer may switch the skill's symlink after it was read, and remove the bundle that it
    // named. So retry, and report damage only if two attempts in a row find the same bundle.
    for _ in 0..3 {
        let (place, trusted) =
            find_in(vault, project, skill)?.ok_or_else(|| RunError::UnknownSkill(skill.clone()))?;
        match store::examine_stored(
            &vault.store_folder(),
            &place.bundle,
            Some(&place.signed_name),
            &trusted,
        ) {
            Ok(examined) => return Ok((place, trusted, examined)),
            Err(damage) if last == Some(place.bundle) => {
                return Err(RunError::Damaged {
                    skill: skill.clone(),
                    damage,
                });
            }
            Err(_) => last = Some(place.bundle),
        }
    }
    Err(RunError::UnknownSkill(skill.clone()))
}

/// Finds the user's skill of this name, or else the project's. In this order a repository can't
/// take over the name of a user's skill.
fn find_in(
    vault: &Vault,
    project: Option<&Project>,
    skill: &SkillRef,
) -> Result<Option<(Installation, Trusted)>, VaultError> {
    if let Some(user_skill) = installations::find_installed(vault, skill)? {
        return Ok(Some(user_skill));
    }
    Ok(project.and_then(|project| {
        let OriginGroup { places, trusted } = project.to_group();
        let mut places = places.into_iter();
        // A qualified name never means a skill of a project.
        Some((
            places.find(|place| skill.vault.is_none() && place.name == skill.name)?,
            trusted,
        ))
    }))
}

/// Returns the arguments of an action. Each one that names a file of the skill becomes an absolute
/// path, so that a caller can start the action from any folder.
fn resolve_arguments(args: &[String], cwd: &str, manifest: &Manifest, root: &Path) -> Vec<String> {
    let file_of = |argument: &String| {
        let mut parts: Vec<&str> = cwd.split('/').filter(|part| *part != ".").collect();
        for part in argument.split('/') {
            match part {
                "." => {}
                ".." => {
                    // A path that leaves the skill names none of its files.
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        let path = parts.join("/");
        let mut files = manifest.files.iter();
        files
            .any(|file| file.path.as_str() == path)
            .then(|| root.join(path).to_string_lossy().into_owned())
    };
    let located = args
        .iter()
        .map(|argument| file_of(argument).unwrap_or_else(|| argument.clone()));
    located.collect()
}

/// Returns an action with its program and working directory as absolute paths below `root`, the
/// folder of the skill's files.
fn resolve_action(
    name: &ActionName,
    action: &ActionSpec,
    manifest: &Manifest,
    root: &Path,
) -> ResolvedAction {
    let mut files = manifest.files.iter();
    let command = if files.any(|file| file.path.as_str() == action.command) {
        root.join(&action.command).to_string_lossy().into_owned()
    } else {
        // Not a file of the skill, so it is a program that the system finds.
        action.command.clone()
    };
    ResolvedAction {
        name: name.clone(),
        command,
        args: action.args.clone(),
        cwd: working_folder(root, action),
        description: action.description.clone(),
        requires_tty: action.requires_tty,
    }
}

/// Returns the folder in which an action runs, if `root` is the folder of the skill's files.
fn working_folder(root: &Path, action: &ActionSpec) -> PathBuf {
    if action.cwd == "." {
        root.to_owned()
    } else {
        root.join(&action.cwd)
    }
}

/// An action that is ready to start from a private copy of the skill.
#[derive(Debug)]
pub struct Run {
    /// The command with the declared arguments. The caller may add arguments and redirect the
    /// streams.
    pub command: Command,
    /// The program as the skill declares it, before its path is resolved.
    pub program: String,
    /// Whether the action needs a terminal.
    pub requires_tty: bool,
    /// The variables that the skill declares. This module never reads their values.
    pub environment: Vec<Secret>,
    /// Keeps the copy on the disk. It is deleted when this value is dropped.
    _copy: Scratch,
}

/// Verifies a skill, copies the verified bytes out, and builds the command. The action inherits the
/// standard streams, and gets the variables that `environment` selects. If the user has no skill of
/// this name, it is looked up in the project.
pub fn prepare_run(
    vault: &Vault,
    project: Option<&Project>,
    skill: impl Into<SkillRef>,
    action: &ActionName,
    environment: &Environment,
) -> Result<Run, RunError> {
    let skill = skill.into();
    let (place, _, mut examined) = find_verified(vault, project, &skill)?;
    let manifest = &examined.manifest;
    let Some(declared) = manifest.actions.get(action) else {
        return Err(RunError::UnknownAction {
            skill,
            action: action.clone(),
            declared: manifest.actions.keys().cloned().collect(),
        });
    };
    let requires_tty = declared.requires_tty;
    let declared_variables = parse_frontmatter(&examined.manifest.name, &examined.files)
        .map_or_else(Vec::new, |read| read.requires_secrets);
    let source = manifest.provenance.identifier.kind();
    // Another publisher's manifest may claim a local source, so the signer and the recorded author
    // decide as well.
    let made_here = place.origin == Origin::Local
        && matches!(source, Kind::Local | Kind::Inline)
        && vault.is_own_work(&place.name, &examined.signer)?;
    allow_scripts(&mut examined.files, &declared.command);
    // Run a private copy: the store may change between this verification and the start.
    let copy = vault.private_scratch()?;
    let files = copy.path().join("files");
    store::copy_out(&files, &examined.files)?;
    let resolved = resolve_action(action, declared, manifest, &files.path());
    let mut command = Command::new(&resolved.command);
    command
        .args(&resolved.args)
        .current_dir(&resolved.cwd)
        // Start from nothing, so that only selected variables get through.
        .env_clear()
        .envs(environment.select_variables(made_here, &declared_variables));
    Ok(Run {
        command,
        program: declared.command.clone(),
        requires_tty,
        environment: declared_variables,
        _copy: copy,
    })
}

/// Makes the declared script executable if it starts with `#!`, whatever its recorded mode.
fn allow_scripts(files: &mut [File], command: &str) {
    for file in files {
        // Submitted text and some archives do not record the executable bit.
        if file.path.as_str() == command && file.bytes.starts_with(b"#!") {
            file.mode = Mode::Executable;
        }
    }
}

impl Run {
    /// Starts the action, waits for it, and deletes the copy. Fails if it can't be started.
    pub fn status(mut self) -> Result<ExitStatus, RunError> {
        let status = self.command.status();
        status.map_err(|cause| self.start_error(cause))
    }

    /// Wraps the error of a program that could not be started.
    pub fn start_error(&self, cause: std::io::Error) -> RunError {
        RunError::Start {
            command: self.program.clone(),
            cause,
        }
    }
}
