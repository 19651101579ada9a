//! The port `Shelf`: a store of skills from which MCP tools read and to which they submit changes.
//! The library on a machine is one implementation, the current release of a hosted namespace
//! another.
//!
//! A reader takes one [`Snapshot`] and answers from it, so that a list and the skills in it are of
//! the same moment. A shelf filters nothing: the layer above decides which caller sees which skill,
//! in one place for all tools.

pub mod fetch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use vault_format::bundle::{File, OpenedBundle};
use vault_format::draft::{Source, Submitter};
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::keys::PublicKey;
use vault_format::name::{AgentId, DraftId, SkillName, Slug};
use vault_gate::finding::Finding;
use vault_gate::{Outcome, RawFile};
use vault_policy::Policy;
use vault_policy::search::{Ranking, Text};

use vault_store::StoreError;

/// A skill on a shelf, without its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Name, bundle hash and search texts.
    pub texts: IndexEntry,
    /// Version number in the signed manifest.
    pub version: u64,
    /// Size of the skill's bundle, in bytes.
    pub size: u64,
    /// The local name of the linked vault that the skill belongs to. Such a skill can only be
    /// changed in that vault.
    pub vault: Option<Slug>,
}

impl Entry {
    /// The skill's name.
    pub fn name(&self) -> &SkillName {
        &self.texts.name
    }

    /// Returns whether the skill belongs to a linked vault.
    pub const fn is_linked(&self) -> bool {
        self.vault.is_some()
    }
}

/// The keys that make a release valid, at the time of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReleaseKeys {
    /// Number of the newest root version (list of the vault's keys) that the shelf accepts.
    pub root_version: u64,
    /// The keys whose signatures on the release are accepted.
    pub signers: Vec<PublicKey>,
}

/// The contents of a shelf at one moment. A snapshot never changes, so it can be cached; clones
/// share the skills.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    entries: Arc<[Entry]>,
    /// Skills of linked vaults that can only be addressed as `<vault>/<name>`, because other skills
    /// have their names.
    qualified: Arc<[Entry]>,
    /// SHA-256 of the catalog's payload; `None` if the shelf is not a release.
    pub catalog: Option<Digest>,
    /// The keys that make the release valid; `None` if the shelf is not a release.
    pub keys: Option<ReleaseKeys>,
    /// The owner's policy: signed in a release, or stored beside the library. Without one, members
    /// see no skill.
    pub policy: Option<Arc<Policy>>,
    /// SHA-256 of the policy as a `vault.policy/1` object.
    pub policy_sha256: Option<Digest>,
    ranking: Arc<OnceLock<Ranking>>,
}

impl Snapshot {
    /// Creates a snapshot of these skills. If two have the same name, the first one is kept.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        // A map sorts the skills by name, and `find` relies on that order.
        let mut sorted = BTreeMap::new();
        // Keep the first, so that a later entry cannot replace a skill by using its name.
        for entry in entries {
            sorted.entry(entry.texts.name.clone()).or_insert(entry);
        }
        Self {
            entries: sorted.into_values().collect(),
            ..Self::default()
        }
    }

    /// Returns the snapshot with additional skills of linked vaults that can only be addressed as
    /// `<vault>/<name>`. Lists and searches leave those out.
    #[must_use]
    pub fn with_qualified(self, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            qualified: entries.into_iter().collect(),
            ..self
        }
    }

    /// Returns the snapshot with this policy and its digest. `None` removes the policy, so that
    /// members see no skill.
    #[must_use]
    pub fn with_policy(self, policy: Option<Arc<Policy>>) -> Self {
        Self {
            // The object form is what a release stores, so this digest is also the policy's key
            // there.
            policy_sha256: policy
                .as_ref()
                .map(|policy| Digest::of(&policy.to_object())),
            policy,
            ..self
        }
    }

    /// The skills, sorted by name, without those that need the name of their vault.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Finds the skill with this name among [`Snapshot::entries`].
    pub fn find(&self, name: &SkillName) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.texts.name.cmp(name))
            .ok()?;
        self.entries.get(at)
    }

    /// Finds a skill that can only be addressed by the name of its linked vault and its own name.
    pub fn find_qualified(&self, vault: &str, name: &str) -> Option<&Entry> {
        // Compare as text: the parts come from a caller, who may send an invalid slug or name.
        let of_vault = |entry: &&Entry| {
            entry
                .vault
                .as_ref()
                .is_some_and(|own| own.as_str() == vault)
        };
        let mut entries = self.qualified.iter().filter(of_vault);
        entries.find(|entry| entry.name().as_str() == name)
    }

    /// Tells whether [`Snapshot::ranking`] has already built the index.
    pub fn has_ranking(&self) -> bool {
        self.ranking.get().is_some()
    }

    /// Returns the index for searches, whose positions are those of [`Snapshot::entries`]. The
    /// first call builds it.
    pub fn ranking(&self) -> &Ranking {
        // Built on demand, because most snapshots are never searched and building reads every text.
        self.ranking
            .get_or_init(|| Ranking::new(self.entries.iter().map(|entry| Text::from(&entry.texts))))
    }
}

/// A skill with its files after every check, and the key under which it was verified.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The manifest, its envelope and the files.
    pub bundle: OpenedBundle,
    /// SHA-256 of the skill's bundle.
    pub bundle_hash: Digest,
    /// The key that signed the manifest.
    pub public_key: PublicKey,
}

impl Loaded {
    /// Returns the approximate size in memory, in bytes.
    pub fn memory_size(&self) -> usize {
        // An estimate for caches: 256 bytes stand for the allocations of each file, and the
        // envelope is counted three times for its decoded and parsed forms.
        let files = self.bundle.files.iter();
        let held = files.map(|file| file.bytes.len() + file.path.as_str().len() + 256);
        self.bundle.signed.as_bytes().len() * 3 + held.sum::<usize>()
    }

    /// Returns the file at this path.
    pub fn find_file(&self, path: &str) -> Option<&File> {
        self.bundle
            .files
            .iter()
            .find(|file| file.path.as_str() == path)
    }
}

/// What a shelf does with a submitted change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Writes {
    /// The shelf checks and signs the change at once.
    Signed,
    /// The shelf keeps the change as a draft until an owner with the key accepts it.
    Drafted,
    /// Another server holds the key, so the change fails with [`ShelfError::LibraryElsewhere`].
    Elsewhere,
}

/// A change that a caller submits to a shelf. The caller's rights were checked before.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds these files as a skill.
    Take {
        /// The files of the skill, not checked yet.
        files: Vec<RawFile>,
        /// Allow a new version of an existing skill (`skill_publish`). Otherwise the skill must be
        /// new or unchanged (`propose_skill`).
        replace: bool,
        /// Answer as if the change were made, but change nothing. A change that would be signed or
        /// kept as a draft is answered with [`Submitted::WouldPass`].
        check: bool,
        /// The caller may not see the existing skill of this name. The shelf makes the draft as if
        /// no skill had the name, with the same amount of work, so that neither answer nor timing
        /// reveals it. Only for shelves that keep drafts.
        hidden: bool,
    },
    /// Adds the skill in a folder of this machine. Only if caller and shelf are on the same
    /// machine.
    Folder {
        /// Path of the folder, absolute or relative to the working directory of the shelf's
        /// process.
        path: String,
        /// The provenance identifier that the caller expects; it must be the one that `vault add`
        /// would record for the folder.
        identifier: String,
        /// The name that the skill must have; `None` if the caller named none.
        skill: Option<SkillName>,
        /// Target agents in addition to those that the skill declares.
        agents: Vec<AgentId>,
    },
    /// Fetches a skill from a source.
    Fetch {
        /// The source, with its branch, tag or commit.
        source: Source,
        /// The skill to fetch, if the source has several. On a shelf that keeps drafts, it also
        /// names the draft.
        skill: Option<SkillName>,
        /// Target agents in addition to those that the skill declares.
        agents: Vec<AgentId>,
        /// Like `hidden` of [`Change::Take`], for the skill with the name that [`drafted_name`]
        /// returns.
        hidden: bool,
    },
    /// Fetches a skill again from its recorded source.
    Update(SkillName),
    /// Removes the skill with this name.
    Remove(SkillName),
}

/// Returns the skill name for a draft that asks for a skill of this source: the requested name, or
/// one derived from the last part of the source's identifier.
pub fn drafted_name(source: &Source, skill: Option<&SkillName>) -> Option<SkillName> {
    // Split at `:` too: an identifier such as `registry:name` has no slash.
    let last = source.identifier.as_str().rsplit(['/', ':']).next();
    skill
        .cloned()
        .or_else(|| SkillName::derive(last.unwrap_or_default()))
}

/// What [`Shelf::submit`] did with a change.
#[derive(Clone, Debug)]
pub enum Submitted {
    /// The skill is signed and on the shelf.
    Signed {
        /// Name under which the skill is on the shelf.
        name: SkillName,
        /// The version after the change.
        version: u64,
        /// SHA-256 of the bundle after the change.
        bundle_hash: Digest,
        /// Findings of the scan; none of them blocks the skill.
        findings: Vec<Finding>,
    },
    /// The shelf already has a skill with this name and these files, from whatever source. Nothing
    /// was changed.
    Unchanged {
        /// Name under which the shelf has the skill.
        name: SkillName,
        /// Version of the skill that stays on the shelf.
        version: u64,
        /// SHA-256 of the bundle that stays on the shelf.
        bundle_hash: Digest,
    },
    /// The skill was removed from the shelf.
    Removed {
        /// Name that the skill had.
        name: SkillName,
        /// Whether an agent's folder on this machine had a link to it.
        was_linked: bool,
    },
    /// The change waits as a draft for an owner.
    Drafted {
        /// Id of the draft.
        draft: DraftId,
        /// Name of the skill that the draft would add, change or remove.
        name: SkillName,
        /// Findings of the service's scan, which are a hint: the owner's machine scans again and
        /// decides.
        findings: Vec<Finding>,
        /// The number of waiting drafts of the same author, including this one.
        waiting: u64,
    },
    /// With `check` of [`Change::Take`]: the change would pass. Nothing was changed.
    WouldPass {
        /// The name that the skill would have.
        name: SkillName,
        /// Findings of the scan; none of them blocks the skill.
        findings: Vec<Finding>,
    },
    /// The scan blocked the skill. Nothing was changed.
    Refused {
        /// All findings of [`Outcome::Blocked`], the blocking ones first.
        findings: Vec<Finding>,
    },
}

impl Submitted {
    /// Returns the outcome of the scan; `None` if no scan ran.
    pub fn gate_outcome(&self) -> Option<Outcome> {
        match self {
            Self::Signed { findings, .. }
            | Self::WouldPass { findings, .. }
            | Self::Drafted { findings, .. } => Some(if findings.is_empty() {
                Outcome::Accepted
            } else {
                Outcome::AcceptedWithWarnings
            }),
            Self::Refused { .. } => Some(Outcome::Blocked),
            Self::Unchanged { .. } | Self::Removed { .. } => None,
        }
    }
}

/// What a change did to the agents of the shelf's machine.
#[derive(Clone, Debug, Default)]
pub struct AgentLinks {
    /// Whether some agent sees other skills than before, so that it has to be restarted.
    pub restart_required: bool,
    /// The report of the folders that were updated, as `vault add --json` prints it; `None` if no
    /// folder of an agent is linked.
    pub profiles: Option<serde_json::Value>,
    /// Names of the agents that are installed but whose folders are not linked.
    pub unlinked_agents: Vec<String>,
}

/// Whether a skill's source has changed (drifted) since the skill was fetched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DriftState {
    /// The source has another revision than the one that was fetched.
    Drifted {
        /// The recorded revision.
        recorded: String,
        /// The revision at the source now.
        upstream: String,
        /// Whether the source's history no longer contains the recorded revision: somebody
        /// rewrote it, or moved the branch or tag to other commits.
        is_rewritten: bool,
    },
    /// The source still has the content that was fetched.
    UpToDate,
    /// The source was not compared: none is recorded, or this shelf may not send requests. Holds
    /// the reason.
    Unchecked(String),
    /// The source can be read but no longer has the skill. Holds an explanation.
    Removed(String),
    /// The policy does not allow the source any more. Holds the reason.
    Refused(String),
    /// The source could not be read. Holds the reason.
    Failed(String),
}

/// The result of comparing one skill with its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drift {
    /// Name of the compared skill.
    pub name: SkillName,
    /// The recorded source as text; `None` if the shelf would have to read the whole skill to know
    /// it.
    pub source: Option<String>,
    /// The result of the comparison.
    pub state: DriftState,
}

/// The reason why a shelf cannot answer or make a change.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The skill does not exist, or no longer exists.
    #[error("there is no skill named `{0}`")]
    NotFound(SkillName),
    /// The skill exists, but its bytes differ from the signed ones.
    #[error("the stored copy of `{0}` is damaged: {1}")]
    Damaged(SkillName, String),
    /// The store lacks the object of a skill that the current release names: a fault of the
    /// service.
    #[error("the content of `{0}` is missing from the store")]
    Unavailable(SkillName),
    /// The subscription has lapsed, so the shelf gives out no content.
    #[error("the subscription of this vault has lapsed")]
    SubscriptionLapsed,
    /// The current release is not valid, because a key that signed it was revoked or an earlier
    /// version of vault published it. The shelf gives out nothing of it until the owner signs a new
    /// one.
    #[error("the current release is no longer valid: the owner has to sign a new one")]
    ReleaseAwaited,
    /// This shelf does not fetch sources of this kind.
    #[error("{0}")]
    SourceUnsupported(String),
    /// The folder cannot be read as a skill: it does not exist, is no folder, is a link, or changes
    /// while it is read.
    #[error("{0}")]
    Source(String),
    /// The source answered incorrectly or not in time. Repeating the call may help; other arguments
    /// do not.
    #[error("{0}")]
    Unreachable(String),
    /// The caller's provenance identifier is not the one of the source.
    #[error("{0}")]
    Identifier(String),
    /// The source no longer has the files that the caller reviewed.
    #[error("{0}")]
    NotReviewed(String),
    /// A skill of this name exists from another source or in a linked vault.
    #[error("{0}")]
    NameTaken(String),
    /// Another server holds the library. Repeating the call there, or later, may help.
    #[error("another server holds the library")]
    LibraryElsewhere,
    /// The namespace or the author already has the largest number of waiting drafts.
    #[error("{0}")]
    DraftsFull(String),
    /// The quota of the namespace has no room for the bytes of the change.
    #[error("{0}")]
    StorageFull(String),
    /// The draft would exceed 1 MiB, or the change another limit.
    #[error("{0}")]
    TooLarge(String),
    /// Another process is changing the library. Repeating the call may help.
    #[error("the library is in use by another process")]
    Busy,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Any other internal error. For the log only: it may name paths of this machine.
    #[error("{0}")]
    Failed(String),
}

/// A store of skills that also accepts changes.
#[async_trait]
pub trait Shelf: Send + Sync {
    /// Returns the first part of the full name `<owner>/<skill>`: the namespace's slug, or `local`.
    fn owner_name(&self) -> &str;

    /// Returns what this shelf does with a submitted change.
    fn write_mode(&self) -> Writes;

    /// Returns the current contents. The call is cheap if nothing changed since the last call.
    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError>;

    /// Loads the skill of an entry and verifies its signature, vault, name, version and every file.
    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError>;

    /// Makes a change, or keeps it as a draft for an owner, together with its entry in the audit
    /// log: both or neither.
    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError>;

    /// Updates the agents on the shelf's machine after a change. Returns `None` for a shelf that
    /// has no agents.
    async fn refresh_agents(&self) -> Option<AgentLinks> {
        None
    }

    /// Compares skills with their sources; a hosted shelf sends no requests. Skills that a rollback
    /// keeps at an earlier version are compared only if `named` is set, which means that the caller
    /// named the skills.
    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError>;
}
