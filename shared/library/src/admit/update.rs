//! Fetching an installed skill again from where it came.

use std::sync::Arc;

use vault_skill::draft::Submitter;
use vault_skill::finding::{Finding, Level};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_store::fetch::Fetch;
use vault_store::shelf::{Change, ShelfError, Submitted};

use crate::shelf::LibraryShelf;
use crate::vault::Vault;

/// Which skill to fetch again, and who fetches.
#[derive(Clone, Debug)]
pub struct UpdateSkill {
    /// The installed skill.
    pub name: SkillName,
    /// Who asks the source: the library itself knows no network.
    pub fetch: Arc<dyn Fetch>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Updated {
    /// The source had something else: it is checked, signed and installed as the next version.
    Updated,
    /// The source has what is installed.
    UpToDate,
    /// What the source has now breaks the format; nothing was changed.
    Invalid,
    /// A security flag stands in the way; nothing was changed.
    SecurityBlocked,
}

/// The answer to an update.
#[derive(Clone, Debug)]
pub struct UpdateReport {
    /// The skill.
    pub name: SkillName,
    /// What became of it.
    pub outcome: Updated,
    /// The version and the bundle that are installed now, where they are known: not where the gate refused.
    pub installed: Option<(u64, Digest)>,
    /// Everything that the gate found, what blocks first.
    pub findings: Vec<Finding>,
}

/// Refreshes an installed skill: the interface's `updateSkill`. The vault's source policy is asked before anything is fetched, no lock is
/// held meanwhile, and the gate is strict.
///
/// Fails when nothing is installed under the name, when its source cannot be asked, or when the vault can't be read or written.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{UpdateSkill, Updated, Vault, VaultPaths, update_skill};
/// use vault_library::add::{self, AddFetched};
/// use vault_library::known::Known;
/// use vault_skill::{draft::Source, gate::RawFile, manifest::Mode, name::SkillName, policy::Policy};
/// use vault_store::fetch::{Fetch, FetchFault, FetchedSkill, Round, Upstream};
/// use vault_store::shelf::DriftState;
/// use vault_store::{clock::{Clock as _, TestClock}, random::SeededRandom};
///
/// /// A source that has this text.
/// #[derive(Debug)]
/// struct Site(&'static str);
///
/// impl Site {
///     fn skill(&self) -> FetchedSkill {
///         let text = format!("---\nname: greet\ndescription: Greets whoever asks for it.\n---\n{}\n", self.0);
///         FetchedSkill {
///             files: vec![RawFile { path: "SKILL.md".to_owned(), mode: Mode::Plain, bytes: text.into_bytes() }],
///             folder: None,
///             upstream: Upstream {
///                 identifier: "https:https://example.com/greet/SKILL.md".parse().expect("an address"),
///                 address: None, path: None, reference: None, revision: None, tree: None,
///                 signer: None, signed_version: None,
///             },
///         }
///     }
/// }
///
/// #[async_trait::async_trait]
/// impl Fetch for Site {
///     async fn fetch(&self, _: &Source, _: Option<&SkillName>, _: Option<&Policy>) -> Result<FetchedSkill, FetchFault> {
///         Ok(self.skill())
///     }
///     async fn fetch_again(&self, _: &Upstream, _: Option<&Policy>) -> Result<FetchedSkill, FetchFault> {
///         Ok(self.skill())
///     }
///     fn round(self: Arc<Self>) -> Arc<dyn Round> {
///         self
///     }
/// }
///
/// #[async_trait::async_trait]
/// impl Round for Site {
///     async fn compare(&self, _: &Upstream, _: Option<&Policy>) -> DriftState {
///         DriftState::UpToDate
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let clock = Arc::new(TestClock::default());
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, clock.clone(), Arc::new(SeededRandom::new(1)))?;
/// let request = AddFetched { strict: true, ..AddFetched::default() };
/// let first = add::gate_fetched(Site("Say hello.").skill(), &request, &mut Known::of(&vault), clock.now())?;
/// add::admit(&vault, &[first])?;
///
/// let input = |text| UpdateSkill { name: "greet".parse().expect("a name"), fetch: Arc::new(Site(text)) };
/// let same = update_skill(&vault, &input("Say hello.")).await?;
/// assert_eq!(same.outcome, Updated::UpToDate);
/// let other = update_skill(&vault, &input("Say good day.")).await?;
/// assert_eq!((other.outcome, other.installed.map(|(version, _)| version)), (Updated::Updated, Some(2)));
/// # Ok(())
/// # }
/// ```
pub async fn update_skill(vault: &Vault, input: &UpdateSkill) -> Result<UpdateReport, ShelfError> {
    let shelf = LibraryShelf::new(vault.clone(), "local").with_fetch(Arc::clone(&input.fetch));
    let prepared = shelf.prepare(Change::Update(input.name.clone())).await?;
    let by = Submitter {
        user_id: "local".to_owned(),
        client_id: None,
    };
    let report = |name, outcome, installed, findings| UpdateReport {
        name,
        outcome,
        installed,
        findings,
    };
    Ok(match shelf.admit(&by, prepared).await? {
        Submitted::Signed {
            name,
            version,
            bundle_hash,
            findings,
        } => report(
            name,
            Updated::Updated,
            Some((version, bundle_hash)),
            findings,
        ),
        Submitted::Unchanged {
            name,
            version,
            bundle_hash,
        } => report(
            name,
            Updated::UpToDate,
            Some((version, bundle_hash)),
            Vec::new(),
        ),
        Submitted::Refused { findings } => {
            let broken = findings.iter().any(|finding| finding.level == Level::Error);
            let outcome = if broken {
                Updated::Invalid
            } else {
                Updated::SecurityBlocked
            };
            report(input.name.clone(), outcome, None, findings)
        }
        // A library signs for itself and was asked for nothing else.
        Submitted::WouldPass { name, .. }
        | Submitted::Drafted { name, .. }
        | Submitted::Removed(name) => {
            return Err(ShelfError::Failed(format!("`{name}` was not updated")));
        }
    })
}
