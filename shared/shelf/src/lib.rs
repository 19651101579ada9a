//! The port `Shelf`: what MCP tools read skills from and hand changes to. The library is one, a
//! namespace's current release another.
//!
//! A reader takes one [`Snapshot`] and answers from it, so that a list and what it names are of one
//! moment. A shelf filters nothing: who may see what is decided above it, once, for every tool.

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

/// A skill on a shelf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Name, bundle and texts.
    pub texts: IndexEntry,
    /// Its signed version.
    pub version: u64,
    /// Size of its bundle in bytes.
    pub size: u64,
    /// What the linked vault that it came with is called here; such a skill is changed there, not
    /// here.
    pub vault: Option<Slug>,
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> &SkillName {
        &self.texts.name
    }

    /// Whether it came with a linked vault.
    pub const fn is_linked(&self) -> bool {
        self.vault.is_some()
    }
}

/// Under which keys a release counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReleaseKeys {
    /// The newest root version that the shelf goes by.
    pub root_version: u64,
    /// The keys whose signatures of the release count.
    pub signers: Vec<PublicKey>,
}

/// A shelf at one moment; never changed, so it can be kept by what it was made from. A copy shares
/// the skills.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    entries: Arc<[Entry]>,
    /// Skills of linked vaults whose bare names mean other skills.
    qualified: Arc<[Entry]>,
    /// SHA-256 of the catalog's payload, of a release.
    pub catalog: Option<Digest>,
    /// Under which keys it counts, of a release.
    pub keys: Option<ReleaseKeys>,
    /// What the owner signed, or wrote beside the library, about who sees what; `None`: members see
    /// nothing.
    pub policy: Option<Arc<Policy>>,
    /// SHA-256 of the policy as an object.
    pub policy_sha256: Option<Digest>,
    ranking: Arc<OnceLock<Ranking>>,
}

impl Snapshot {
    /// A shelf that holds these skills; of two of one name the first stays.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut sorted = BTreeMap::new();
        for entry in entries {
            sorted.entry(entry.texts.name.clone()).or_insert(entry);
        }
        Self {
            entries: sorted.into_values().collect(),
            ..Self::default()
        }
    }

    /// The same skills, and beside them those of linked vaults that only `<vault>/<name>` means.
    /// Lists and searches leave these out.
    #[must_use]
    pub fn with_qualified(self, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            qualified: entries.into_iter().collect(),
            ..self
        }
    }

    /// The same skills under this policy.
    #[must_use]
    pub fn with_policy(self, policy: Option<Arc<Policy>>) -> Self {
        Self {
            policy_sha256: policy
                .as_ref()
                .map(|policy| Digest::of(&policy.to_object())),
            policy,
            ..self
        }
    }

    /// The skills in the order of their names.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The skill of this name.
    pub fn find(&self, name: &SkillName) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.texts.name.cmp(name))
            .ok()?;
        self.entries.get(at)
    }

    /// The skill that only the name of its linked vault and its own mean.
    pub fn find_qualified(&self, vault: &str, name: &str) -> Option<&Entry> {
        let of_vault = |entry: &&Entry| {
            entry
                .vault
                .as_ref()
                .is_some_and(|own| own.as_str() == vault)
        };
        let mut entries = self.qualified.iter().filter(of_vault);
        entries.find(|entry| entry.name().as_str() == name)
    }

    /// Whether [`Snapshot::ranking`] was asked for before, so that the answer is there.
    pub fn has_ranking(&self) -> bool {
        self.ranking.get().is_some()
    }

    /// The index for searches, whose positions are those of [`Snapshot::entries`]; made at the
    /// first question.
    pub fn ranking(&self) -> &Ranking {
        self.ranking
            .get_or_init(|| Ranking::new(self.entries.iter().map(|entry| Text::from(&entry.texts))))
    }
}

/// A skill that was found good in every respect, with the key that it was verified under.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Manifest, its envelope, and the files.
    pub bundle: OpenedBundle,
    /// SHA-256 of the bundle.
    pub bundle_hash: Digest,
    /// The key that signed the manifest.
    pub public_key: PublicKey,
}

impl Loaded {
    /// What it takes in memory, roughly, in bytes.
    pub fn size(&self) -> usize {
        let files = self.bundle.files.iter();
        let held = files.map(|file| file.bytes.len() + file.path.as_str().len() + 256);
        self.bundle.signed.as_bytes().len() * 3 + held.sum::<usize>()
    }

    /// The file of this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.bundle
            .files
            .iter()
            .find(|file| file.path.as_str() == path)
    }
}

/// What becomes of a change that is handed to a shelf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Writes {
    /// It is gated and signed here at once.
    Signed,
    /// It waits as a draft for an owner with the key.
    Drafted,
    /// Another server holds the key: [`ShelfError::LibraryElsewhere`].
    Elsewhere,
}

/// What a caller asks a shelf to change. The rights to ask were checked before.
#[derive(Clone, Debug)]
pub enum Change {
    /// Take these files in.
    Take {
        /// The files, unchecked.
        files: Vec<RawFile>,
        /// Whether it may be a new version of a skill that is there (`skill_publish`), or must be
        /// new or equal (`propose_skill`).
        replace: bool,
        /// Answer as if it were done, and change nothing: [`Submitted::WouldPass`] where it would
        /// be signed or drafted.
        check: bool,
        /// The caller may not see the skill that has this name: it is drafted as under a name that
        /// no skill has, with the same work. Only for a shelf that makes drafts.
        hidden: bool,
    },
    /// Take the skill in that stands in this folder of this machine; only where caller and shelf
    /// are on one machine.
    Folder {
        /// The folder.
        path: String,
        /// What its provenance must be: the same that `vault add` records for it.
        identifier: String,
        /// Target agents beside those that the skill declares.
        agents: Vec<AgentId>,
    },
    /// Fetch the skill from there.
    Fetch {
        /// Where from, and at which reference.
        source: Source,
        /// Which skill of that source, where it has several; the name of the draft on a hosted
        /// shelf.
        skill: Option<SkillName>,
        /// Target agents beside those that the skill declares.
        agents: Vec<AgentId>,
        /// As in [`Change::Take`], of the skill that has the name of [`drafted_name`].
        hidden: bool,
    },
    /// Fetch it again from where it came.
    Update(SkillName),
    /// Take it out.
    Remove(SkillName),
}

/// The name of a draft that asks for a skill of this source: the skill that was named, else the end
/// of the source's own name.
pub fn drafted_name(source: &Source, skill: Option<&SkillName>) -> Option<SkillName> {
    let last = source.identifier.as_str().rsplit(['/', ':']).next();
    skill
        .cloned()
        .or_else(|| SkillName::derive(last.unwrap_or_default()))
}

/// What became of a change.
#[derive(Clone, Debug)]
pub enum Submitted {
    /// It is signed and on the shelf.
    Signed {
        /// The skill.
        name: SkillName,
        /// Its version now.
        version: u64,
        /// Its bundle now.
        bundle_hash: Digest,
        /// What the gate said beside that it passes.
        findings: Vec<Finding>,
    },
    /// On the shelf already, under this name with these files, wherever they came from; nothing was
    /// changed.
    Unchanged {
        /// The skill.
        name: SkillName,
        /// Its version.
        version: u64,
        /// Its bundle.
        bundle_hash: Digest,
    },
    /// It is off the shelf.
    Removed {
        /// The skill.
        name: SkillName,
        /// Whether a folder of an agent on this machine showed it.
        was_linked: bool,
    },
    /// It waits for an owner.
    Drafted {
        /// Id of the draft.
        draft: DraftId,
        /// The skill it is about.
        name: SkillName,
        /// What the gate said; the owner's gate decides.
        findings: Vec<Finding>,
        /// How many drafts of the same author wait now, this one included.
        waiting: u64,
    },
    /// It would pass ([`Change::Take`] with `check`); nothing was changed.
    WouldPass {
        /// The name it would have.
        name: SkillName,
        /// What the gate said beside that it passes.
        findings: Vec<Finding>,
    },
    /// The gate refused it; nothing was changed.
    Refused {
        /// [`Outcome::Blocked`], with everything that was found, what blocks first.
        findings: Vec<Finding>,
    },
}

impl Submitted {
    /// How the gate ended, where it was asked.
    pub fn outcome(&self) -> Option<Outcome> {
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

/// What the agents of this machine see after a change.
#[derive(Clone, Debug, Default)]
pub struct AgentLinks {
    /// Whether any agent sees other skills than before, so that running ones must be restarted.
    pub restart_required: bool,
    /// The report of the sync, as `vault add --json` has it; `None` if no folder is linked.
    pub profiles: Option<serde_json::Value>,
    /// The names of agents that were found and whose folders are not linked.
    pub unlinked_agents: Vec<String>,
}

/// How a skill stands to where it came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DriftState {
    /// The source has something else now.
    Drifted {
        /// What is recorded of it.
        recorded: String,
        /// What it has.
        upstream: String,
    },
    /// The same.
    UpToDate,
    /// Nothing to compare with, or this shelf may not ask; says which.
    Unchecked(String),
    /// The source could not be read; says why.
    Failed(String),
}

/// One skill's answer to a question for drift.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drift {
    /// The skill.
    pub name: SkillName,
    /// Where it came from, as recorded; `None` where a shelf does not know without reading the
    /// whole skill.
    pub source: Option<String>,
    /// How it stands.
    pub state: DriftState,
}

/// Why a shelf gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// No such skill (any more).
    #[error("there is no skill named `{0}`")]
    NotFound(SkillName),
    /// The skill is there and its bytes are not what was signed.
    #[error("the stored copy of `{0}` is damaged: {1}")]
    Damaged(SkillName, String),
    /// The object of a skill that the current release names is not in the store: our fault.
    #[error("the content of `{0}` is missing from the store")]
    Unavailable(SkillName),
    /// Content is not given out: the subscription has lapsed.
    #[error("the subscription of this vault has lapsed")]
    SubscriptionLapsed,
    /// The current release does not count: a key that signed it was revoked, or an earlier version
    /// of vault published it. Nothing of it is given out until the owner signs a new one.
    #[error("the current release is no longer valid: the owner has to sign a new one")]
    ReleaseAwaited,
    /// Sources of this kind are not fetched (yet, or not by this shelf).
    #[error("{0}")]
    SourceUnsupported(String),
    /// The folder cannot be read as a skill's: not there, no folder, a link, changing under the
    /// reader.
    #[error("{0}")]
    Source(String),
    /// The source did not answer as it should, or not in time. Repeating may help; other arguments
    /// do not.
    #[error("{0}")]
    Unreachable(String),
    /// The provenance given is not what this source has.
    #[error("{0}")]
    Identifier(String),
    /// The source has other files than those that were reviewed.
    #[error("{0}")]
    NotReviewed(String),
    /// A skill of this name is there from elsewhere, or came with a link.
    #[error("{0}")]
    NameTaken(String),
    /// Another server holds the library. Repeating there, or later, may help.
    #[error("another server holds the library")]
    LibraryElsewhere,
    /// Too many drafts wait: of the namespace, or of this author.
    #[error("{0}")]
    DraftsFull(String),
    /// The draft would pass 1 MiB, or the change another limit.
    #[error("{0}")]
    TooLarge(String),
    /// Another process changes the library. Repeating may help.
    #[error("the library is in use by another process")]
    Busy,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Anything else on our side. For the log: it may name paths of this machine.
    #[error("{0}")]
    Failed(String),
}

/// Skills to read, and a place to hand changes to.
#[async_trait]
pub trait Shelf: Send + Sync {
    /// The owner's part of `<owner>/<name>`: the namespace's slug, or `local`.
    fn owner(&self) -> &str;

    /// What becomes of changes.
    fn writes(&self) -> Writes;

    /// The shelf as it is now; cheap where nothing changed since the last one.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, ShelfError>;

    /// The skill of an entry, verified: signature, vault, name, version, every file.
    async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError>;

    /// Carries a change out or keeps it for an owner, with its audit entry. All or nothing.
    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError>;

    /// Shows the skills as they are after a change to the agents on the machine of this shelf.
    /// `None` for a shelf that has no agents.
    async fn refresh_agents(&self) -> Option<AgentLinks> {
        None
    }

    /// Compares these skills with where they came from; asks nobody on a hosted shelf. `named` says
    /// that the caller chose them: then skills that a rollback holds are compared too.
    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError>;
}
