//! The library as a shelf: serves its skills to tools, and admits and signs their changes at once.
//!
//! The snapshot of the installed skills is cached until the vault's generation number changes. A
//! skill's bytes are verified when they are requested, and cached by bundle hash. All file access
//! runs on blocking threads.

mod changes;

pub use crate::installed::list::{InstalledSkill as Listed, Listing, list};
pub use crate::installed::search::{Hit, search};

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use vault_skill::bundle::OpenedBundle;
use vault_skill::draft::Submitter;
use vault_skill::finding::printable;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::policy::{MAX_BYTES, Policy};
use vault_skill::provenance::{Kind, ProvenanceId};
use vault_store::fetch::{Fetch, FetchedSkill};
use vault_store::recent::Recent;
use vault_store::shelf::{
    Change, Drift, DriftState, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes,
};

use crate::admit::add::{AddError, read_policy};
use crate::admit::update::upstream_of;
use crate::disk::{self, lock::LockError};
use crate::installed::list::{InstalledSkill, read_place};
use crate::installed::place::{Origin, places_of};
use crate::store::{self, Damage, Reader, Trusted, Want};
use crate::vault::policy::POLICY_FILE;
use crate::vault::{Vault, VaultError};

/// Capacity of the cache of verified skills, in bytes.
const CACHED_BYTES: usize = 4 << 20;
/// How often a listing is retried while writers keep changing the vault.
const TRIES: u32 = 5;
/// Time limit for all sources of one drift check together. Skills whose sources have not answered
/// by then are reported as unchecked.
const DRIFT_TIME: Duration = Duration::from_secs(15);

/// A library that tools read from and submit changes to. Clones share the caches.
#[derive(Clone, Debug)]
pub struct LibraryShelf {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    vault: Vault,
    owner: String,
    /// The number of listings started so far. A caller that waited for the lock reuses the last
    /// listing if it started after the caller arrived.
    listings: AtomicU64,
    last: tokio::sync::Mutex<Option<(u64, Arc<View>)>>,
    verified: Recent<Digest, Arc<Loaded>>,
    /// Fetches skills from other places; without a fetcher such sources are rejected.
    fetch: Option<Arc<dyn Fetch>>,
}

/// A change whose network access is complete.
#[derive(Debug)]
pub struct Prepared(Ready);

#[derive(Debug)]
enum Ready {
    Plain(Change),
    Fetched {
        skill: Box<FetchedSkill>,
        agents: Vec<AgentId>,
        /// The installed skill to update; `None` adds a new one.
        update: Option<SkillName>,
    },
}

/// The installed skills at one moment.
#[derive(Debug)]
struct View {
    /// The vault's generation number; `None` if a change was in progress, so that the view may
    /// already be stale.
    generation: Option<u64>,
    snapshot: Arc<Snapshot>,
    policy: PolicyText,
    sources: Arc<HashMap<SkillName, String>>,
}

/// What the manifest of a listed skill must match.
struct Expected {
    signed_name: SkillName,
    trusted: Trusted,
    /// Whether the listed bundle is still the installed one.
    installed: bool,
}

/// The exact bytes of the policy file, or why it could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
enum PolicyText {
    None,
    Bytes(Vec<u8>),
    Unreadable(String),
}

impl LibraryShelf {
    /// Creates a shelf whose skills are named `<owner>/<name>`. The owner is `local`, or the slug
    /// that the library is published under.
    pub fn new(vault: Vault, owner: impl Into<String>) -> Self {
        Self {
            held: Arc::new(Held::new(vault, owner.into())),
        }
    }

    /// Returns a shelf of the same library with empty caches, which fetches skills from other
    /// places with `fetch`.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        let held = Held {
            fetch: Some(fetch),
            ..Held::new(self.held.vault.clone(), self.held.owner.clone())
        };
        Self {
            held: Arc::new(held),
        }
    }

    /// Performs the network part of a change: checks the policy, then fetches. Changes nothing and
    /// holds no lock.
    pub async fn prepare(&self, change: Change) -> Result<Prepared, ShelfError> {
        match change {
            Change::Fetch {
                source,
                skill,
                agents,
            } => {
                let fetch = self.fetcher(source.identifier.as_str())?;
                let policy = self.source_policy().await?;
                let fetched = fetch.fetch(&source, skill.as_ref(), policy.as_ref()).await;
                Ok(Prepared(Ready::Fetched {
                    skill: Box::new(fetched.map_err(AddError::from)?),
                    agents,
                    update: None,
                }))
            }
            Change::Update(name) => {
                let asked = name.clone();
                let upstream = self
                    .beside(move |held| Ok(upstream_of(&held.vault, &asked)?))
                    .await?;
                let fetch = self.fetcher(upstream.identifier.as_str())?;
                let policy = self.source_policy().await?;
                let fetched = fetch.fetch_again(&upstream, policy.as_ref()).await;
                Ok(Prepared(Ready::Fetched {
                    skill: Box::new(fetched.map_err(AddError::from)?),
                    agents: Vec::new(),
                    update: Some(name),
                }))
            }
            change => Ok(Prepared(Ready::Plain(change))),
        }
    }

    /// Applies a prepared change.
    pub async fn admit(&self, by: &Submitter, prepared: Prepared) -> Result<Submitted, ShelfError> {
        let by = by.user_id.clone();
        self.beside(move |held| match prepared.0 {
            Ready::Plain(change) => held.submit(&by, change),
            Ready::Fetched {
                skill,
                agents,
                update,
            } => held.admit_fetched(*skill, agents, update.as_ref()),
        })
        .await
    }

    fn fetcher(&self, source: &str) -> Result<Arc<dyn Fetch>, ShelfError> {
        self.held.fetch.clone().ok_or_else(|| {
            ShelfError::SourceUnsupported(format!(
                "skills from `{}` cannot be fetched here; add a folder of this machine",
                printable(source)
            ))
        })
    }

    /// Reads the current policy from its file. Fails if it can't be read, so that nothing is
    /// fetched.
    async fn source_policy(&self) -> Result<Option<Policy>, ShelfError> {
        self.beside(|held| Ok(read_policy(&held.vault)?)).await
    }

    /// The vault behind this shelf.
    pub fn vault(&self) -> &Vault {
        &self.held.vault
    }

    /// Runs file access on a blocking thread.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Held) -> Result<T, ShelfError> + Send + 'static,
    ) -> Result<T, ShelfError> {
        let held = Arc::clone(&self.held);
        tokio::task::spawn_blocking(move || work(&held))
            .await
            .map_err(|broken| ShelfError::Failed(format!("a task broke off: {broken}")))?
    }

    /// Returns the current view, or the one that another caller listed while this one waited.
    async fn view(&self) -> Result<Arc<View>, ShelfError> {
        let arrived = self.held.listings.load(Ordering::SeqCst);
        let mut last = self.held.last.lock().await;
        if let Some((listing, view)) = &*last
            && *listing > arrived
        {
            return Ok(Arc::clone(view));
        }
        let listing = self.held.listings.fetch_add(1, Ordering::SeqCst) + 1;
        let before = last.as_ref().map(|(_, view)| Arc::clone(view));
        let view = self
            .beside(move |held| held.refresh(before.as_ref()))
            .await?;
        *last = Some((listing, Arc::clone(&view)));
        Ok(view)
    }
}

#[async_trait]
impl Shelf for LibraryShelf {
    fn owner(&self) -> &str {
        &self.held.owner
    }

    fn writes(&self) -> Writes {
        Writes::Signed
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        Ok(Arc::clone(&self.view().await?.snapshot))
    }

    async fn about(&self, name: &SkillName) -> Result<Arc<Snapshot>, ShelfError> {
        let asked = name.clone();
        match self.beside(move |held| held.look_up(&asked)).await? {
            Some(snapshot) => Ok(Arc::new(snapshot)),
            None => self.snapshot().await,
        }
    }

    async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        let entry = entry.clone();
        self.beside(move |held| held.load(&entry)).await
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        let prepared = self.prepare(change).await?;
        self.admit(by, prepared).await
    }

    async fn drift(&self, entries: &[&Entry]) -> Result<Vec<Drift>, ShelfError> {
        let view = self.view().await?;
        let mut drifts: Vec<Drift> = entries.iter().map(|entry| view.drift(entry)).collect();
        let Some(fetch) = self.held.fetch.clone() else {
            return Ok(drifts);
        };
        let own: Vec<(usize, Digest, SkillName)> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.linked)
            .map(|(at, entry)| (at, entry.texts.bundle_hash, entry.name().clone()))
            .collect();
        let asked = self
            .beside(move |held| Ok(changes::upstreams(&held.vault, own)))
            .await?;
        if asked.is_empty() {
            return Ok(drifts);
        }
        let policy = self.source_policy().await?;
        let (places, upstreams): (Vec<usize>, Vec<_>) = asked.into_iter().unzip();
        let late = "its source was not asked within the time of one call; ask for it alone";
        for at in &places {
            drifts[*at].state = DriftState::Unchecked(late.to_owned());
        }
        let mut answer = |at: usize, state| drifts[places[at]].state = state;
        let compare = fetch.compare(upstreams, policy.as_ref(), &mut answer);
        let _all_or_late = tokio::time::timeout(DRIFT_TIME, compare).await;
        Ok(drifts)
    }
}

impl View {
    fn drift(&self, entry: &Entry) -> Drift {
        let source = self.sources.get(entry.name()).cloned();
        let kind = source
            .as_deref()
            .and_then(|source| source.parse::<ProvenanceId>().ok())
            .map(|source| source.kind());
        let why = if entry.linked {
            "came with a linked vault; pulling that vault updates it"
        } else {
            match kind {
                Some(Kind::Local) => "was added from a folder; add the folder again to update it",
                Some(Kind::Inline) => "was handed in as text; there is no source to compare with",
                Some(_) => "nobody here asks its source",
                None => "its source is not recorded",
            }
        };
        Drift {
            name: entry.name().clone(),
            source,
            state: DriftState::Unchecked(why.to_owned()),
        }
    }
}

impl Held {
    fn new(vault: Vault, owner: String) -> Self {
        Self {
            vault,
            owner,
            listings: AtomicU64::new(0),
            last: tokio::sync::Mutex::default(),
            verified: Recent::new(CACHED_BYTES),
            fetch: None,
        }
    }

    /// A snapshot of only the skill with this name, read from its bytes; empty if there is none.
    /// `None` during a change, or if the skill is damaged: it may hide another skill with the same
    /// name, which only a full listing finds.
    fn look_up(&self, name: &SkillName) -> Result<Option<Snapshot>, ShelfError> {
        let vault = &self.vault;
        let policy = self.read_policy();
        let generation = self.settled_generation()?;
        let groups = places_of(vault, std::slice::from_ref(name)).map_err(failed)?;
        let mut groups = groups.iter();
        let found = groups.find_map(|group| Some((group.places.first()?, &group.trusted)));
        let mut entries = Vec::new();
        if let Some((place, trusted)) = found {
            match read_place(vault, place, trusted) {
                Ok(read) => {
                    let skill = InstalledSkill::new(place.clone(), &read.row, read.texts);
                    entries.push(entry(skill));
                }
                Err(damage) => {
                    tracing::warn!(skill = %name, origin = ?place.origin, %damage, "a damaged skill is left out");
                    return Ok(None);
                }
            }
        }
        if !generation.is_multiple_of(2) || vault.generation().map_err(failed)? != generation {
            return Ok(None);
        }
        Ok(Some(Snapshot::new(entries).with_policy(policy.parse())))
    }

    /// Lists the installed skills, or reuses `before` if it is still current.
    fn refresh(&self, before: Option<&Arc<View>>) -> Result<Arc<View>, ShelfError> {
        let policy = self.read_policy();
        for _ in 1..TRIES {
            let generation = self.settled_generation()?;
            if let Some(before) = before
                && before.still_holds(generation)
            {
                return Ok(before.under(policy));
            }
            let view = self.scan(&policy, generation)?;
            // A writer may have started and finished during the scan, which then may have seen half
            // of its change.
            if self.vault.generation().map_err(failed)? == generation {
                return Ok(view);
            }
        }
        // Writers kept changing the vault. An odd generation marks this view as possibly stale.
        self.scan(&policy, 1)
    }

    /// The generation number, which is odd while a writer is at work. If a killed writer left it
    /// odd, this makes it even first.
    fn settled_generation(&self) -> Result<u64, ShelfError> {
        let generation = self.vault.generation().map_err(failed)?;
        if generation.is_multiple_of(2) {
            return Ok(generation);
        }
        // If the lock is free, no writer is at work. Taking and releasing it settles what a killed
        // writer left.
        let settled = self.vault.clone().with_wait(Duration::ZERO);
        drop(settled.change());
        self.vault.generation().map_err(failed)
    }

    fn scan(&self, policy: &PolicyText, generation: u64) -> Result<Arc<View>, ShelfError> {
        let vault = &self.vault;
        let listing = list(vault).map_err(failed)?;
        for (name, origin, damage) in &listing.damaged {
            tracing::warn!(skill = %name, ?origin, %damage, "a damaged skill is left out");
        }
        let mut sources = HashMap::new();
        let mut entries = Vec::with_capacity(listing.skills.len());
        for skill in listing.skills {
            if skill.shadowed {
                continue;
            }
            sources.insert(skill.name.clone(), skill.texts.provenance.clone());
            entries.push(entry(skill));
        }
        let view = View {
            generation: generation.is_multiple_of(2).then_some(generation),
            snapshot: Arc::new(Snapshot::new(entries).with_policy(policy.parse())),
            policy: policy.clone(),
            sources: Arc::new(sources),
        };
        Ok(Arc::new(view))
    }

    fn read_policy(&self) -> PolicyText {
        match disk::read(&self.vault.paths().root.join(POLICY_FILE), MAX_BYTES as u64) {
            Ok(None) => PolicyText::None,
            Ok(Some(bytes)) => PolicyText::Bytes(bytes),
            Err(error) => PolicyText::Unreadable(error.to_string()),
        }
    }

    fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        let name = entry.name();
        let hash = &entry.texts.bundle_hash;
        let Expected {
            signed_name,
            trusted,
            installed,
        } = self.expected(entry)?;
        let damaged = |text: &str| ShelfError::Damaged(name.clone(), text.to_owned());
        if installed
            && let Some(loaded) = self.verified.find(hash)
            && trusted.keys.contains(&loaded.public_key)
            && loaded.bundle.manifest.vault_id == trusted.vault_id
            && loaded.bundle.manifest.name == signed_name
            && loaded.bundle.manifest.version == entry.version
        {
            return Ok(loaded);
        }
        // Encoding the files again checks that they still have the requested bundle hash.
        let store = self.vault.store();
        let examined = Reader::new(&store)
            .examine(hash, Some(&signed_name), &trusted, Want::Bytes)
            .and_then(|examined| store::encode(hash, &examined).map(|_| examined))
            .map_err(|damage| self.damaged(entry, damage))?;
        if examined.manifest.version != entry.version {
            return Err(damaged("another version is in its place"));
        }
        let signer = examined.signed.signer(&trusted.keys).copied();
        let loaded = Arc::new(Loaded {
            public_key: signer.ok_or_else(|| damaged("it is not signed"))?,
            bundle_hash: *hash,
            bundle: OpenedBundle {
                manifest: examined.manifest,
                signed: examined.signed,
                files: examined.files,
            },
        });
        let size = loaded.size();
        self.verified.insert(*hash, Arc::clone(&loaded), size);
        Ok(loaded)
    }

    fn expected(&self, entry: &Entry) -> Result<Expected, ShelfError> {
        let name = entry.name();
        let hash = entry.texts.bundle_hash;
        let mut groups = places_of(&self.vault, std::slice::from_ref(name)).map_err(failed)?;
        if !entry.linked {
            let own = groups.swap_remove(0);
            return Ok(Expected {
                signed_name: name.clone(),
                trusted: own.trusted,
                installed: own.places.iter().any(|place| place.bundle == hash),
            });
        }
        let linked = groups.into_iter().skip(1).filter_map(|mut group| {
            let place = group.places.pop()?;
            Some(Expected {
                installed: place.bundle == hash,
                signed_name: place.signed_name,
                trusted: group.trusted,
            })
        });
        // Two linked vaults may have a skill of this name: prefer the one with the requested
        // bundle.
        linked
            .min_by_key(|expected| !expected.installed)
            .ok_or_else(|| ShelfError::NotFound(name.clone()))
    }

    /// Maps a failed read to an error. A skill that was removed after it was listed is not found,
    /// rather than damaged.
    fn damaged(&self, entry: &Entry, damage: Damage) -> ShelfError {
        let name = entry.name().clone();
        match damage {
            Damage::Unreadable(error) => ShelfError::Failed(error.to_string()),
            Damage::Missing(_) if !entry.linked && !self.is_installed(entry) => {
                ShelfError::NotFound(name)
            }
            damage => ShelfError::Damaged(name, damage.to_string()),
        }
    }

    fn is_installed(&self, entry: &Entry) -> bool {
        let link = self.vault.skills().join(entry.name().as_str());
        store::bundle_at(&link).ok().flatten() == Some(entry.texts.bundle_hash)
    }
}

impl View {
    /// Whether this view is still current. It remains valid while the next change is in progress.
    fn still_holds(&self, generation: u64) -> bool {
        self.generation
            .is_some_and(|held| held == generation || held + 1 == generation)
    }

    /// The same skills with another policy.
    fn under(self: &Arc<Self>, policy: PolicyText) -> Arc<Self> {
        if self.policy == policy {
            return Arc::clone(self);
        }
        let snapshot = Snapshot::clone(&self.snapshot).with_policy(policy.parse());
        Arc::new(Self {
            generation: self.generation,
            snapshot: Arc::new(snapshot),
            policy,
            sources: Arc::clone(&self.sources),
        })
    }
}

impl PolicyText {
    /// Parses the policy. Returns `None` if there is none or it is invalid, and logs the latter.
    /// Without a policy, only owners see skills.
    fn parse(&self) -> Option<Arc<Policy>> {
        let text = match self {
            Self::None => return None,
            Self::Unreadable(error) => Err(error.clone()),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|error| error.to_string()),
        };
        let policy =
            text.and_then(|text| Policy::from_toml(text).map_err(|error| error.to_string()));
        match policy {
            Ok(policy) => Some(Arc::new(policy)),
            Err(error) => {
                tracing::error!(%error, "{} is broken: members see nothing until it is mended", POLICY_FILE);
                None
            }
        }
    }
}

fn entry(skill: InstalledSkill) -> Entry {
    Entry {
        version: skill.version,
        size: skill.size,
        linked: skill.origin != Origin::Local,
        texts: skill.texts.into_entry(skill.name, skill.bundle),
    }
}

fn failed(error: VaultError) -> ShelfError {
    match error {
        VaultError::Lock(LockError::Busy { .. }) => ShelfError::Busy,
        error => ShelfError::Failed(error.to_string()),
    }
}
