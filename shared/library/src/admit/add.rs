//! The library function that adds one skill from any source: it fetches the files if necessary,
//! runs the gate (the scan that may block a skill), signs the skill and installs it.

use std::path::Path;
use std::sync::Arc;

use vault_format::manifest::SKILL_MD;
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::text::printable;
use vault_policy::Policy;
use vault_shelf::fetch::{Fetch, FetchFault};

use super::{
    AdmitError, AdmitReport, Candidate, Neighbours, Options, Source, admit_one, examine_candidate,
};
use crate::disk;
use crate::vault::policy::{self, ResolveError};
use crate::vault::{Vault, VaultError};

/// The skill to add, and how to fetch it.
#[derive(Clone, Debug)]
pub struct AddSkill {
    /// A local folder or SKILL.md, or any source that `fetch` understands: an archive, a
    /// repository, the address of a site, an entry of a registry.
    pub source: String,
    /// The skill to take from a source that has several.
    pub skill: Option<SkillName>,
    /// Fetches sources that are not local folders; the library itself has no network access.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// Name, strictness and other choices of the owner for this skill.
    pub options: Options,
}

impl AddSkill {
    /// Adds a local folder in strict mode, under the skill's own name.
    pub fn from_folder(folder: &Path) -> Self {
        Self {
            source: folder.to_string_lossy().into_owned(),
            skill: None,
            fetch: None,
            options: Options::default(),
        }
    }
}

/// Error of adding a skill, from fetching to admission. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// `policy.toml` can't be read. Nothing is fetched then, because the policy may forbid the
    /// source.
    #[error(
        "the policy of this vault cannot be read, so nothing is fetched until its owner fixes it"
    )]
    Policy(#[source] ResolveError),
    /// The policy rejects the source, the source lacks the skill, or it can't be reached.
    #[error(transparent)]
    Fetch(#[from] FetchFault),
    /// The installed skill records no source that an update can fetch: it was submitted as text, or
    /// its record is missing.
    #[error("{}", no_source_message(name, identifier.as_ref()))]
    NoSource {
        /// The skill that should be updated.
        name: SkillName,
        /// The source in its signed manifest; `None` if the manifest can't be read.
        identifier: Option<ProvenanceId>,
    },
    /// The skill was fetched or read, but not admitted.
    #[error(transparent)]
    Admit(#[from] AdmitError),
}

impl From<VaultError> for AddError {
    fn from(failed: VaultError) -> Self {
        Self::Admit(failed.into())
    }
}

fn no_source_message(name: &SkillName, identifier: Option<&ProvenanceId>) -> String {
    use vault_format::provenance::Kind;
    match identifier {
        Some(source) if source.kind() == Kind::Inline => {
            format!("`{name}` was submitted as text; publish the new text instead")
        }
        Some(source) => format!("`{name}` is from {source}; add it from there again"),
        None => format!("the source of `{name}` is not known"),
    }
}

/// Adds a skill: reads or fetches it, runs the gate, signs it and installs it. If the same content
/// is already installed under this name, the result is [`super::Admission::Unchanged`]. The vault's
/// source policy is checked before anything is fetched. No lock is held during the fetch.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{AddSkill, Vault, VaultPaths, add_skill, admit::Admission};
/// use vault_store::{clock::SystemClock, random::SystemRandom};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let skill = folder.path().join("greet");
/// std::fs::create_dir(&skill)?;
/// std::fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Greets whoever asks for it.\n---\nSay hello.\n")?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;
///
/// let input = AddSkill::from_folder(&skill);
/// let report = add_skill(&vault, &input).await?;
/// assert_eq!((report.name.as_str(), report.version, report.admission), ("greet", 1, Admission::Added));
/// assert_eq!(add_skill(&vault, &input).await?.admission, Admission::Unchanged);
/// # Ok(())
/// # }
/// ```
pub async fn add_skill(vault: &Vault, input: &AddSkill) -> Result<AdmitReport, AddError> {
    let source = match &input.fetch {
        // A folder that exists is always local, even if its text could also name a repository.
        Some(fetch) if !is_folder(&input.source) => {
            let policy = read_policy(vault)?;
            let skill = input.skill.as_ref();
            let fetched = fetch.fetch_text(&input.source, skill, policy.as_ref());
            Source::Fetched(Box::new(fetched.await?))
        }
        _ => Source::Folder(input.source.clone()),
    };
    // A folder is one skill. If the caller named another skill, adding this one instead would be
    // wrong.
    let named = input.skill.clone();
    let named = named.filter(|_| matches!(source, Source::Folder(_)));
    // The gate computes and reads files for longer than a task may block the async runtime.
    let (vault, options) = (vault.clone(), input.options.clone());
    let admitted = tokio::task::spawn_blocking(move || {
        let mut neighbours = Neighbours::for_vault(&vault);
        let candidate = examine_candidate(source, &options, &mut neighbours)?;
        if let Some(named) = named {
            check_named(&candidate, &named).map_err(FetchFault::NotFound)?;
        }
        Ok(admit_one(&vault, &candidate)?)
    });
    join_blocking(admitted.await)
}

/// Fails if the skill of a folder has another name than the caller asked for, in its SKILL.md and
/// in the vault. The error is the message to show.
pub(crate) fn check_named(candidate: &Candidate, named: &SkillName) -> Result<(), String> {
    let author = candidate.package.frontmatter.name.as_str();
    if author == named.as_str() || candidate.package.name == *named {
        return Ok(());
    }
    let text = format!("the folder is the skill {author}, not {named}");
    Err(printable(&text))
}

/// Adds a local folder, given by its path or the path of its SKILL.md.
pub fn add_folder(
    vault: &Vault,
    folder: &Path,
    options: &Options,
) -> Result<AdmitReport, AdmitError> {
    admit_source(vault, Source::folder(folder), options)
}

/// Examines one source and admits it, without a review in between.
pub(crate) fn admit_source(
    vault: &Vault,
    source: Source,
    options: &Options,
) -> Result<AdmitReport, AdmitError> {
    let candidate = examine_candidate(source, options, &mut Neighbours::for_vault(vault))?;
    admit_one(vault, &candidate)
}

/// Returns whether the source is a local folder or SKILL.md. The URL of a SKILL.md ends with the
/// same name, but does not exist as a path.
fn is_folder(source: &str) -> bool {
    let path = Path::new(source);
    let is_skill_md = path.file_name().is_some_and(|name| name == SKILL_MD);
    disk::is_folder(path) || (is_skill_md && disk::is_there(path))
}

/// Reads the policy that decides what may be fetched. If it can't be read, nothing may be fetched.
pub(crate) fn read_policy(vault: &Vault) -> Result<Option<Policy>, AddError> {
    // An unreadable policy must not count as an absent one: it may forbid the source.
    policy::read_source_policy(vault).map_err(|error| {
        tracing::error!(%error, "the policy cannot be read: nothing is fetched");
        AddError::Policy(error)
    })
}

/// Returns the result of work on a blocking thread. If the work panicked, the panic continues here.
pub(super) fn join_blocking<T>(finished: Result<T, tokio::task::JoinError>) -> T {
    match finished {
        Ok(value) => value,
        Err(broken) => match broken.try_into_panic() {
            // A panic is a bug. As an [`AddError`] it would look like a fault of the skill.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => panic!("blocking work was cancelled: {cancelled}"),
        },
    }
}
