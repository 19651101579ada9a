//! Adding one skill, from wherever it is: the interface's `addSkill`.

use std::path::Path;
use std::sync::Arc;

use vault_skill::manifest::SKILL_MD;
use vault_skill::name::SkillName;
use vault_skill::policy::Policy;
use vault_skill::provenance::ProvenanceId;
use vault_store::fetch::{Fetch, FetchFault};

use super::{AdmitError, AdmitReport, Neighbours, Options, Source, admit_one, examine};
use crate::disk;
use crate::vault::policy::{self, ResolveError};
use crate::vault::{Vault, VaultError};

/// Which skill to add, and who fetches it.
#[derive(Clone, Debug)]
pub struct AddSkill {
    /// A folder or SKILL.md of this machine, or any source that `fetch` understands: an archive, a repository, the address
    /// of a site, an entry of a registry.
    pub source: String,
    /// Which skill of the source, where it has several.
    pub skill: Option<SkillName>,
    /// Fetches sources that are no folder; the library itself knows no network.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// The owner's wishes.
    pub options: Options,
}

impl AddSkill {
    /// Adds a folder of this machine, strictly, under the skill's own name.
    pub fn from_folder(folder: &Path) -> Self {
        Self {
            source: folder.to_string_lossy().into_owned(),
            skill: None,
            fetch: None,
            options: Options::default(),
        }
    }
}

/// Why a skill was not fetched and admitted. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The policy can't be read: nothing is fetched until it can.
    #[error(
        "the policy of this vault cannot be read, so that nothing is fetched until its owner mends it"
    )]
    Policy(#[source] ResolveError),
    /// The source was not fetched.
    #[error(transparent)]
    Fetch(#[from] FetchFault),
    /// The skill has no source that can be asked.
    #[error("{}", no_source(name, identifier.as_ref()))]
    NoSource {
        /// The skill.
        name: SkillName,
        /// Its recorded source, where it is known.
        identifier: Option<ProvenanceId>,
    },
    /// What was fetched or read was not admitted.
    #[error(transparent)]
    Admit(#[from] AdmitError),
}

impl From<VaultError> for AddError {
    fn from(failed: VaultError) -> Self {
        Self::Admit(failed.into())
    }
}

fn no_source(name: &SkillName, identifier: Option<&ProvenanceId>) -> String {
    use vault_skill::provenance::Kind;
    match identifier {
        Some(source) if source.kind() == Kind::Inline => {
            format!("`{name}` was handed in as text; publish the new text instead")
        }
        Some(source) => format!("`{name}` is from {source}; add it from there again"),
        None => format!("the source of `{name}` is not known"),
    }
}

/// Adds a skill: reads or fetches it, gates it, signs it and installs it. Content that is installed already under this
/// name is "unchanged". The vault's source policy is asked before anything is fetched, and no lock is held meanwhile.
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
        Some(fetch) if !is_folder(&input.source) => {
            let policy = read_policy(vault)?;
            let skill = input.skill.as_ref();
            let fetched = fetch.fetch_text(&input.source, skill, policy.as_ref());
            Source::Fetched(Box::new(fetched.await?))
        }
        _ => Source::Folder(input.source.clone()),
    };
    let (vault, options) = (vault.clone(), input.options.clone());
    let admitted = tokio::task::spawn_blocking(move || add(&vault, source, &options));
    Ok(joined(admitted.await)?)
}

/// Adds a folder of this machine, or a file named SKILL.md: then the folder that it stands in.
pub fn add_folder(
    vault: &Vault,
    folder: &Path,
    options: &Options,
) -> Result<AdmitReport, AdmitError> {
    add(vault, Source::folder(folder), options)
}

/// Examines and admits one source.
pub(crate) fn add(
    vault: &Vault,
    source: Source,
    options: &Options,
) -> Result<AdmitReport, AdmitError> {
    let candidate = examine(source, options, &mut Neighbours::of(vault))?;
    admit_one(vault, &candidate)
}

/// Whether this is a folder or a SKILL.md of this machine. The address of a SKILL.md ends like one, and is neither.
fn is_folder(source: &str) -> bool {
    let path = Path::new(source);
    let is_skill_md = path.file_name().is_some_and(|name| name == SKILL_MD);
    disk::is_folder(path) || (is_skill_md && disk::is_there(path))
}

/// The policy as it is in the file now. One that can't be read lets nothing through.
pub(crate) fn read_policy(vault: &Vault) -> Result<Option<Policy>, AddError> {
    policy::read_policy(vault).map_err(|error| {
        tracing::error!(%error, "the policy cannot be read: nothing is fetched");
        AddError::Policy(error)
    })
}

/// The result of blocking work; a panic of it goes on here.
pub(super) fn joined<T>(finished: Result<T, tokio::task::JoinError>) -> T {
    match finished {
        Ok(value) => value,
        Err(broken) => match broken.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => panic!("blocking work was cancelled: {cancelled}"),
        },
    }
}
