//! The vault as a shelf, the port through which tools list, read and change skills: serves the
//! installed skills, and admits and signs submitted changes at once, or keeps them as drafts for
//! the owner.
//!
//! A listing is cached until the vault's generation number changes. A skill's bytes are verified
//! when they are requested. All file access runs on blocking threads.

mod changes;
pub mod drafts;

pub use crate::installed::listing::{InstalledSkill as Listed, Listing, list_installed};
pub use crate::installed::verified_search::{Hit, search_installed};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vault_format::hash::Digest;

use async_trait::async_trait;
use tokio::sync::Mutex;
use vault_format::bundle::OpenedBundle;
use vault_format::draft::Submitter;
use vault_format::name::{SkillName, SkillRef};
use vault_format::text::printable;
use vault_policy::Policy;
use vault_shelf::fetch::{Fetch, Upstream};
use vault_shelf::{
    AgentLinks, Change, Drift, DriftState, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted,
    Writes,
};

use crate::admit;
use crate::admit::add::{AddError, read_policy};
use crate::admit::update::upstream_of;
use crate::agents::{self, Machine};
use crate::disk::lock::LockError;
use crate::installed::compared_source::{
    ComparedSkill, CurrentSource, NotCompared, RecordedSources, folder_drift,
};
use crate::installed::{installations, source_folders};
use crate::store::{self, Damage, Trusted};
use crate::vault::policy::{self, POLICY_FILE};
use crate::vault::{Vault, VaultError};

/// Number of attempts to list the skills while writers keep changing the vault.
const TRIES: u32 = 5;
/// Time limit for asking all sources of one drift check (the comparison of skills with their
/// sources). Skills whose sources have not answered by then are reported as unchecked.
const DRIFT_TIME: Duration = Duration::from_secs(15);

/// A shelf of the skills in a vault on this machine. Clones share the cached listing.
#[derive(Clone, Debug)]
pub struct LibraryShelf {
    vault: Vault,
    owner: String,
    /// Fetcher for skills from other places. Without one, such sources are rejected.
    fetch: Option<Arc<dyn Fetch>>,
    /// Machine whose agents see changes at once. Without it, their links stay as they are.
    machine: Option<Machine>,
    /// Whether callers may learn how skills differ from the folders of this machine from which they
    /// were added.
    reads_folders: bool,
    /// Whether changes wait as drafts and are not signed.
    keeps_drafts: bool,
    last: Arc<Mutex<Option<Arc<CachedView>>>>,
}

/// A change that is ready to be admitted: what it needs from the network is fetched.
#[derive(Debug)]
pub struct PreparedChange {
    change: Change,
    /// The fetched skill of a [`Change::Fetch`] or [`Change::Update`]; `None` for other changes.
    source: Option<admit::Source>,
    /// SHA-256 over the files that an owner reviewed; `None` for a change without review.
    reviewed: Option<Digest>,
}

impl PreparedChange {
    /// Sets the SHA-256 over the files that an owner reviewed, for a change by another person. If
    /// the change has other files, it is rejected; otherwise the skill is recorded as another
    /// person's work.
    #[must_use]
    pub fn with_reviewed(self, reviewed: Option<Digest>) -> Self {
        Self { reviewed, ..self }
    }

    fn new(change: Change, source: Option<admit::Source>) -> Self {
        Self {
            change,
            source,
            reviewed: None,
        }
    }
}

/// The installed skills at one moment, as the shelf caches them.
#[derive(Debug)]
struct CachedView {
    /// Generation number of the vault at that moment; `None` if a change was in progress, so that
    /// the view may be stale and must be scanned again.
    generation: Option<u64>,
    snapshot: Arc<Snapshot>,
    policy: PolicyState,
    sources: HashMap<SkillName, String>,
}

/// The policy of the vault, or the reason why it can't be read.
type PolicyState = Result<Option<Policy>, String>;

impl LibraryShelf {
    /// Creates a shelf whose skills are named `<owner>/<name>`. The owner is `local`, or the slug
    /// that the library is published under.
    pub fn new(vault: Vault, owner: impl Into<String>) -> Self {
        Self {
            vault,
            owner: owner.into(),
            fetch: None,
            machine: None,
            reads_folders: false,
            keeps_drafts: false,
            last: Arc::default(),
        }
    }

    /// Returns this shelf, which now fetches skills from other places with `fetch`.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self {
            fetch: Some(fetch),
            ..self
        }
    }

    /// Returns this shelf, which now updates the links in the folders of this machine's agents when
    /// [`Shelf::refresh_agents`] is called.
    #[must_use]
    pub fn with_agents(self, machine: Option<Machine>) -> Self {
        Self { machine, ..self }
    }

    /// Returns this shelf, which now compares skills with the folders of this machine that they
    /// were added from. Only for callers on this machine.
    #[must_use]
    pub fn with_folders(self) -> Self {
        Self {
            reads_folders: true,
            ..self
        }
    }

    /// Returns this shelf, which now keeps changes as drafts for the owner instead of signing them,
    /// if `keeps_drafts` is true.
    #[must_use]
    pub fn with_drafts(self, keeps_drafts: bool) -> Self {
        Self {
            keeps_drafts,
            ..self
        }
    }

    /// Performs the network part of a change: checks the policy, then fetches. Changes nothing and
    /// holds no lock.
    pub async fn prepare_change(&self, change: Change) -> Result<PreparedChange, ShelfError> {
        let fetched = match &change {
            Change::Fetch { source, skill, .. } => {
                let fetch = self.require_fetcher(source.identifier.as_str())?;
                let policy = self.source_policy().await?;
                let fetched = fetch.fetch(source, skill.as_ref(), policy.as_ref()).await;
                Some(fetched.map_err(AddError::from)?)
            }
            Change::Update(name) => {
                // A folder of this machine is read at admission and needs no fetch.
                if let Some(folder) = self.recorded_folder(name).await? {
                    let source = Some(admit::Source::folder(&folder));
                    return Ok(PreparedChange::new(change, source));
                }
                let name = name.clone();
                let upstream = self
                    .run_blocking(move |vault| Ok(upstream_of(vault, &name)?))
                    .await?;
                let fetch = self.require_fetcher(upstream.identifier.as_str())?;
                let policy = self.source_policy().await?;
                let fetched = fetch.fetch_again(&upstream, policy.as_ref()).await;
                Some(fetched.map_err(AddError::from)?)
            }
            _ => None,
        };
        let source = fetched.map(|skill| admit::Source::Fetched(Box::new(skill)));
        Ok(PreparedChange::new(change, source))
    }

    /// Returns the folder from which an own skill was added; `None` if callers may not have it
    /// read.
    async fn recorded_folder(&self, name: &SkillName) -> Result<Option<PathBuf>, ShelfError> {
        if !self.reads_folders {
            return Ok(None);
        }
        let name = name.clone();
        let folders = self
            .run_blocking(|vault| Ok(source_folders::recorded_folders(vault)?))
            .await?;
        let folder = folders.into_iter().find(|folder| folder.name == name);
        Ok(folder.map(|folder| folder.path))
    }

    /// Admits a change that [`Self::prepare_change`] returned.
    pub async fn admit_prepared(
        &self,
        by: &Submitter,
        prepared: PreparedChange,
    ) -> Result<Submitted, ShelfError> {
        let by = by.user_id.clone();
        self.run_blocking(move |vault| changes::apply_change(vault, by, prepared))
            .await
    }

    fn require_fetcher(&self, source: &str) -> Result<&Arc<dyn Fetch>, ShelfError> {
        self.fetch.as_ref().ok_or_else(|| {
            ShelfError::SourceUnsupported(format!(
                "skills from `{}` cannot be fetched here; add a folder of this machine",
                printable(source)
            ))
        })
    }

    /// Reads the policy that decides what may be fetched. If it can't be read, this fails, so that
    /// nothing is fetched.
    async fn source_policy(&self) -> Result<Option<Policy>, ShelfError> {
        self.run_blocking(|vault| Ok(read_policy(vault)?)).await
    }

    /// The vault that the shelf serves.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Runs work with file access on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Vault) -> Result<T, ShelfError> + Send + 'static,
    ) -> Result<T, ShelfError> {
        let vault = self.vault.clone();
        tokio::task::spawn_blocking(move || work(&vault))
            .await
            .map_err(|broken| ShelfError::Failed(format!("a task ended unexpectedly: {broken}")))?
    }

    /// Returns the current view of the installed skills. Callers that wait for it share one scan.
    async fn current_view(&self) -> Result<Arc<CachedView>, ShelfError> {
        // Hold this lock during the scan, so that concurrent callers do not start scans of their
        // own.
        let mut last = self.last.lock().await;
        let before = last.clone();
        let view = self
            .run_blocking(move |vault| refresh_view(vault, before))
            .await?;
        *last = Some(Arc::clone(&view));
        Ok(view)
    }
}

#[async_trait]
impl Shelf for LibraryShelf {
    fn owner_name(&self) -> &str {
        &self.owner
    }

    fn write_mode(&self) -> Writes {
        if self.keeps_drafts {
            Writes::Drafted
        } else {
            Writes::Signed
        }
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        Ok(Arc::clone(&self.current_view().await?.snapshot))
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        let entry = entry.clone();
        self.run_blocking(move |vault| load_skill(vault, &entry))
            .await
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        let prepared = self.prepare_change(change).await?;
        if self.keeps_drafts {
            let by = by.clone();
            return self
                .run_blocking(move |vault| drafts::submit_draft(vault, &by, prepared))
                .await;
        }
        self.admit_prepared(by, prepared).await
    }

    async fn refresh_agents(&self) -> Option<AgentLinks> {
        let machine = self.machine.clone()?;
        let refreshed = self.run_blocking(move |vault| Ok(refresh_agents(vault, &machine)));
        Some(refreshed.await.unwrap_or_default())
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        let view = self.current_view().await?;
        let entries: Vec<Entry> = entries.iter().map(|entry| (*entry).clone()).collect();
        let comparison = LocalComparison {
            fetches: self.fetch.is_some(),
            reads_folders: self.reads_folders,
        };
        let compared = self
            .run_blocking(move |vault| comparison.compare_locally(vault, &view, &entries, named));
        let (mut drifts, upstreams) = compared.await?;
        let Some(fetch) = self.fetch.clone().filter(|_| !upstreams.is_empty()) else {
            return Ok(drifts);
        };
        let policy = self.source_policy().await?;
        let (places, upstreams): (Vec<usize>, Vec<_>) = upstreams.into_iter().unzip();
        let mut answer = |at: usize, state| drifts[places[at]].state = state;
        let compare = fetch.compare(upstreams, policy.as_ref(), &mut answer);
        // Keep the answers that arrive in time. All other skills keep the state that says that
        // their source did not answer.
        let _all_or_late = tokio::time::timeout(DRIFT_TIME, compare).await;
        Ok(drifts)
    }
}

/// A source to ask over the network, with the position of its skill.
type SourceToFetch = (usize, Upstream);

/// Which sources a shelf may compare skills with.
#[derive(Clone, Copy)]
struct LocalComparison {
    fetches: bool,
    reads_folders: bool,
}

impl LocalComparison {
    /// Compares skills with their sources as far as that needs no network. Also returns the sources
    /// to ask over the network.
    fn compare_locally(
        self,
        vault: &Vault,
        view: &CachedView,
        entries: &[Entry],
        named: bool,
    ) -> Result<(Vec<Drift>, Vec<SourceToFetch>), ShelfError> {
        let sources = RecordedSources::read(vault)?;
        let folders = if self.reads_folders {
            source_folders::compare_all(vault)?
        } else {
            Vec::new()
        };
        let (mut drifts, mut upstreams) = (Vec::new(), Vec::new());
        for entry in entries {
            let provenance = view.sources.get(entry.name()).cloned();
            let mut source = provenance.clone();
            let current = if entry.is_linked() {
                Err(NotCompared::Linked)
            } else {
                let own = ComparedSkill {
                    name: entry.name(),
                    bundle: &entry.texts.bundle_hash,
                    provenance: provenance.as_deref().unwrap_or_default(),
                };
                sources.current_source(own, named)?
            };
            let unchecked = |why: &str| DriftState::Unchecked(why.to_owned());
            let state = match current {
                Err(why) => DriftState::Unchecked(why.to_string()),
                Ok(CurrentSource::Folder(path)) if self.reads_folders => {
                    source = Some(path.display().to_string());
                    let state = folders
                        .iter()
                        .find(|(folder, _)| folder.name == *entry.name());
                    folder_drift(state.map(|(_, state)| state), entry.version)
                }
                // A remote caller must not learn paths of this machine, so the message does not
                // contain the path.
                Ok(CurrentSource::Folder(_)) => {
                    unchecked("was added from a folder on the machine that holds the vault")
                }
                Ok(CurrentSource::Fetched(upstream)) if self.fetches => {
                    upstreams.push((drifts.len(), *upstream));
                    unchecked(
                        "its source did not answer in time; name this skill to ask for it alone",
                    )
                }
                Ok(CurrentSource::Fetched(_)) => unchecked("this server does not contact sources"),
            };
            drifts.push(Drift {
                name: entry.name().clone(),
                source,
                state,
            });
        }
        Ok((drifts, upstreams))
    }
}

/// Updates the links of this machine's agents. A failure is only logged, because the change itself
/// succeeded. The doctor reports such problems.
fn refresh_agents(vault: &Vault, machine: &Machine) -> AgentLinks {
    let report = agents::sync_linked_folders(vault, machine).unwrap_or_else(|error| {
        tracing::warn!(%error, "the agents' links were not updated");
        None
    });
    // The names are only a hint in the answer. A failure here must not look like a failed change.
    let unlinked = agents::list_unlinked(vault, machine).unwrap_or_default();
    AgentLinks {
        restart_required: report.as_ref().is_some_and(|done| done.restart_required),
        profiles: report.and_then(|report| serde_json::to_value(report).ok()),
        unlinked_agents: unlinked
            .iter()
            .map(|agent| agent.display_name.clone())
            .collect(),
    }
}

impl CachedView {
    /// Returns whether this view may still be served. It may be while the next change is in
    /// progress.
    fn is_current(&self, generation: u64) -> bool {
        self.generation
            .is_some_and(|listed| listed == generation || listed + 1 == generation)
    }
}

/// Lists the installed skills, or reuses `before` if it is still current.
fn refresh_view(
    vault: &Vault,
    before: Option<Arc<CachedView>>,
) -> Result<Arc<CachedView>, ShelfError> {
    let policy = policy::read_policy(vault).map_err(|error| error.to_string());
    // Compare the policy by its content: if it can no longer be read, the generation number stays
    // the same.
    let before = before.filter(|before| before.policy == policy);
    for _ in 1..TRIES {
        let generation = settled_generation(vault)?;
        if let Some(before) = before.as_ref().filter(|view| view.is_current(generation)) {
            return Ok(Arc::clone(before));
        }
        let view = scan_view(vault, &policy, generation)?;
        // A writer may have begun and ended during the scan, which may then have seen half of the
        // change.
        if vault.generation()? == generation {
            return Ok(view);
        }
    }
    // Writers kept changing the vault. The odd number 1 marks this view as possibly stale.
    scan_view(vault, &policy, 1)
}

/// Returns the generation number, which is odd while a writer is at work. If it is odd because a
/// writer was killed, makes it even first.
fn settled_generation(vault: &Vault) -> Result<u64, ShelfError> {
    let generation = vault.generation()?;
    if generation.is_multiple_of(2) {
        return Ok(generation);
    }
    // If nobody holds the lock, no writer is at work, and taking the lock cleans up after a killed
    // one.
    drop(vault.clone().with_wait(Duration::ZERO).begin_change());
    Ok(vault.generation()?)
}

/// Lists the installed skills for a new view.
fn scan_view(
    vault: &Vault,
    policy: &PolicyState,
    generation: u64,
) -> Result<Arc<CachedView>, ShelfError> {
    if let Err(error) = policy {
        tracing::error!(%error, "{} is not valid: members see nothing until it is fixed", POLICY_FILE);
    }
    let listing = list_installed(vault)?;
    for (name, origin, damage) in &listing.damaged {
        tracing::warn!(skill = %name, ?origin, %damage, "a damaged skill is left out");
    }
    let mut sources = HashMap::new();
    let (mut entries, mut qualified) = (Vec::new(), Vec::new());
    for skill in listing.skills {
        let is_bare = !skill.shadowed;
        if is_bare {
            sources.insert(skill.name.clone(), skill.texts.provenance.clone());
        }
        let entry = Entry {
            version: skill.version,
            size: skill.size,
            vault: skill.vault,
            texts: skill.texts.into_entry(skill.name, skill.bundle),
        };
        let entries = if is_bare {
            &mut entries
        } else {
            &mut qualified
        };
        entries.push(entry);
    }
    // Without a policy, only owners see skills.
    let readable = policy.clone().unwrap_or_default().map(Arc::new);
    Ok(Arc::new(CachedView {
        generation: generation.is_multiple_of(2).then_some(generation),
        snapshot: Arc::new(
            Snapshot::new(entries)
                .with_qualified(qualified)
                .with_policy(readable),
        ),
        policy: policy.clone(),
        sources,
    }))
}

fn load_skill(vault: &Vault, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
    let name = entry.name();
    let hash = &entry.texts.bundle_hash;
    let (signed_name, trusted) = signed_name_and_trust(vault, entry)?;
    let damaged = |text: &str| ShelfError::Damaged(name.clone(), text.to_owned());
    let store = vault.store_folder();
    // Encoding the files again proves that they still have the requested bundle hash.
    let (examined, _) = store::examine_and_encode(&store, hash, Some(&signed_name), &trusted)
        .map_err(|damage| match damage {
            Damage::Unreadable(error) => ShelfError::Failed(error.to_string()),
            // The skill was removed after it was listed.
            Damage::Missing(_) if !entry.is_linked() && !is_installed(vault, entry) => {
                ShelfError::NotFound(name.clone())
            }
            damage => damaged(&damage.to_string()),
        })?;
    if examined.manifest.version != entry.version {
        return Err(damaged("another version is installed"));
    }
    Ok(Arc::new(Loaded {
        public_key: examined.signer,
        bundle_hash: *hash,
        bundle: OpenedBundle {
            manifest: examined.manifest,
            signed: examined.signed,
            files: examined.files,
        },
    }))
}

/// Returns the name in the manifest of a listed skill, and the trust for verifying it.
fn signed_name_and_trust(vault: &Vault, entry: &Entry) -> Result<(SkillName, Trusted), ShelfError> {
    let name = entry.name();
    let Some(linked) = &entry.vault else {
        // The caller chose this bundle from a listing, so it may be read although a newer version
        // may have replaced it since.
        return Ok((name.clone(), vault.trusted_in_any_version()?));
    };
    let skill_ref = SkillRef::qualified(linked.clone(), name.clone());
    let installed = installations::find_installed(vault, &skill_ref)?;
    installed
        .map(|(place, trusted)| (place.signed_name, trusted))
        .ok_or_else(|| ShelfError::NotFound(name.clone()))
}

fn is_installed(vault: &Vault, entry: &Entry) -> bool {
    let link = vault.skills_folder().join(entry.name().as_str());
    store::bundle_at(&link).ok().flatten() == Some(entry.texts.bundle_hash)
}

impl From<VaultError> for ShelfError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Lock(LockError::Busy { .. }) => Self::Busy,
            error => Self::Failed(error.to_string()),
        }
    }
}
