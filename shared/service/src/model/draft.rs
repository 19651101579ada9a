//! Drafts: requests of people and clients to the owners and publishers of a namespace. The bytes
//! are an object of the class `drafts`; the record holds the state of the draft.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `draft/<namespace_id>` | `<draft id>` | [`DraftRecord`] of a draft that is open |
//! | `draft-ended/<namespace_id>` | `<draft id>` | [`DraftRecord`] of an ended one, for 90 days |
//! | `draft-by/<namespace_id>` | `<user id>/<draft id>` | index: the drafts of an author, [`AuthorEntry`]; ends with the draft's record |
//! | `draft-slot/<namespace_id>` | `release/<user id>`, `key_request/<public key>`, `content/<user id>/<request>` | [`Slot`]: the one open draft of this user, of this key, or of this user for this change |
//! | `draft-count/<namespace_id>` | `all` | `{pending}`: content drafts beyond the first four of each author |
//! | `draft-count/<namespace_id>` | `by/<user id>` | [`Queue`]: the content drafts of an author |
//! | `draft-count/<namespace_id>` | `release`, `key_request` | `{open}`: proposals, key requests |
//! | `draft-count/<namespace_id>` | `key_request/<user id>` | `{open}`: key requests of an author |
//! | `limit/draft/<namespace_id>/<user id>` | a day | how many drafts an author has handed in |
//!
//! A content draft asks for the change of a skill. A proposal is a draft that asks for signatures
//! on a release. A slot is a record that makes two equal open drafts impossible. Places limit how
//! many content drafts may be open at once: each author has a few, and all authors share more.
//!
//! Counters are separate from the namespace's own record, so that authors cannot make an owner's
//! publish conflict. A draft, its index, its counters and the audit entry are one commit, and so is
//! each step that ends a draft.
//!
//! Publishing a release writes nothing to proposals: whether a proposal is accepted or outdated
//! follows from the namespace's record ([`super::proposal`]).

use serde::{Deserialize, Serialize};
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::{DraftId, NamespaceId, SkillName};
use vault_format::root::KeyName;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{Document, RecordKey, When, Write};

use super::kept::{self, ObjectName};
use super::limits::Window;
use super::proposal::Proposed;

use crate::ports::Ports;

pub use vault_api::{DraftKind as Kind, DraftState as State};

/// Maximum number of open content drafts of one author in the author's own places, which no other
/// author can take.
pub const MAX_OWN: i64 = 4;
/// Maximum number of open content drafts of one author in the places that all authors share.
pub const MAX_SHARED_OF_AUTHOR: i64 = 16;
/// Maximum number of open content drafts in the places that all authors of a namespace share.
pub const MAX_SHARED: i64 = 100;
/// Maximum number of open proposals of a namespace: the maximum number of keys in the release role.
pub const MAX_PROPOSALS: i64 = 32;
/// Maximum number of open key requests of a namespace: the maximum number of keys in a root
/// document.
pub const MAX_KEY_REQUESTS: i64 = 40;
/// Maximum number of open key requests of one author in a namespace.
pub const MAX_KEY_REQUESTS_OF_AUTHOR: i64 = 4;
/// Maximum number of drafts that one author submits on one day (UTC). Ended drafts free their
/// places, but their bytes are stored for a while.
pub const MAX_A_DAY: u32 = 200;
/// Lifetime of the record of an ended draft, in seconds: 90 days.
pub const ENDED_SECONDS: i64 = 90 * 24 * 3600;
/// Maximum number of characters of the reason for which a draft is declined.
pub const MAX_REASON_CHARS: usize = 500;

/// Kind of place that a content draft takes in its author's queue.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueShare {
    /// One of the author's own places.
    Own,
    /// One of the places that all authors share; the only kind in drafts of earlier versions.
    #[default]
    Shared,
}

/// The change of a skill that a user without the vault's key requests.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Content {
    /// Skill that the draft adds, replaces or removes.
    pub name: SkillName,
    /// SHA-256 of the skill's bundle that the author saw; `None` for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// Number of flags, findings without a block, from the service's security scan.
    pub flags: u64,
    /// The kind of place that the draft takes.
    #[serde(default)]
    pub place: QueueShare,
    /// Digest of the requested change, without the draft's id, time and app: equal for two equal
    /// requests. `None` in drafts of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
}

/// A key with which its holder asks to publish.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RequestedKey {
    /// The key, which has signed the request.
    pub public_key: PublicKey,
    /// Name that the key is to have in the vault.
    pub name: KeyName,
}

/// What a draft asks for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// Add or replace a skill with files in the draft.
    Propose(Content),
    /// Add or update a skill from its source.
    Install(Content),
    /// Remove a skill.
    Remove(Content),
    /// Give a key the right to publish.
    KeyRequest(RequestedKey),
    /// Add the signatures that a release lacks.
    Release(Proposed),
}

/// The record of a draft, which does not contain its bytes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DraftRecord {
    /// Id of the draft. Ids sort by the time of the submission.
    pub id: DraftId,
    /// Kind of the request, with the values that only this kind has.
    #[serde(flatten)]
    pub subject: Subject,
    /// SHA-256 of the draft's bytes, under which they are stored.
    pub sha256: Digest,
    /// Size of the draft, in bytes.
    pub size: u64,
    /// Time at which the draft was submitted.
    pub submitted_at: Timestamp,
    /// Author of the draft, with the app.
    pub submitted_by: Submitter,
    /// Recorded state. The present state of a proposal may differ: see [`super::outcome`].
    pub state: State,
    /// Time of the last change of the state; that of the submission at first.
    pub changed_at: Timestamp,
    /// Number of the release that contains the change, once the draft is accepted.
    pub release: Option<u64>,
    /// Reason for which the draft was declined; or the files that the draft leaves out because they
    /// look like secrets.
    pub reason: Option<String>,
    /// Time until which the server of a self-signed namespace has claimed the draft to sign it; no
    /// other step ends the draft before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitting_until: Option<Timestamp>,
}

/// Entry of a draft in the index of its author.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AuthorEntry {
    /// Id of the draft, which may be open or ended.
    pub id: DraftId,
}

/// The record that names the only open draft of its slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Slot {
    /// Id of the open draft that occupies the slot.
    pub id: DraftId,
}

/// Counters of open content drafts of an author. The counter of all authors together has only
/// `pending`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Queue {
    /// Number of open drafts in the author's own places.
    #[serde(default)]
    pub own: i64,
    /// Number of open drafts in the places that all authors share.
    #[serde(default)]
    pub pending: i64,
}

/// A step that ends a draft, with the values that its record keeps.
#[derive(Clone, Debug)]
pub struct Ending {
    /// State that the draft gets.
    pub state: State,
    /// Time at which the draft ends.
    pub at: Timestamp,
    /// Number of the release that contains the change, for an acceptance.
    pub release: Option<u64>,
    /// Reason for declining the draft, or the files that an acceptance leaves out.
    pub reason: Option<String>,
}

impl DraftRecord {
    /// Creates the record of a draft with these bytes, submitted now.
    pub fn new(id: DraftId, subject: Subject, bytes: &[u8], now: Timestamp, by: Submitter) -> Self {
        Self {
            id,
            subject,
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            submitted_at: now,
            submitted_by: by,
            state: State::Pending,
            changed_at: now,
            release: None,
            reason: None,
            admitting_until: None,
        }
    }

    /// Returns the kind of the draft, as answers name it.
    pub const fn kind(&self) -> Kind {
        match self.subject {
            Subject::Propose(_) => Kind::Propose,
            Subject::Install(_) => Kind::Install,
            Subject::Remove(_) => Kind::Remove,
            Subject::KeyRequest(_) => Kind::KeyRequest,
            Subject::Release(_) => Kind::Release,
        }
    }

    /// Returns the change of a skill that the draft asks for; `None` for other kinds.
    pub const fn content(&self) -> Option<&Content> {
        match &self.subject {
            Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
                Some(content)
            }
            Subject::KeyRequest(_) | Subject::Release(_) => None,
        }
    }

    /// Returns the release that the draft proposes; `None` for other kinds.
    pub const fn proposed(&self) -> Option<&Proposed> {
        match &self.subject {
            Subject::Release(proposed) => Some(proposed),
            _ => None,
        }
    }

    /// Returns the name of the object that contains the draft's bytes.
    pub fn object_name(&self) -> ObjectName {
        ObjectName::new(Class::Drafts, self.sha256)
    }

    /// Returns the same draft in this place. Has no effect on drafts that take no place.
    #[must_use]
    pub fn in_place(mut self, place: QueueShare) -> Self {
        if let Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) =
            &mut self.subject
        {
            content.place = place;
        }
        self
    }

    /// Returns the record of the same draft after a step that ends it.
    #[must_use]
    pub fn into_ended(self, ending: &Ending) -> Self {
        Self {
            state: ending.state,
            changed_at: ending.at,
            release: ending.release,
            // The reason that the draft got when it was submitted (missing files) stays if the
            // ending has none.
            reason: ending.reason.clone().or(self.reason),
            admitting_until: None,
            ..self
        }
    }

    /// Returns the key of the draft's slot; `None` if it takes none.
    pub fn slot_key(&self, namespace: &NamespaceId) -> Option<RecordKey> {
        match &self.subject {
            Subject::KeyRequest(key) => Some(key_slot(namespace, &key.public_key)),
            Subject::Release(_) => Some(proposal_slot(namespace, &self.submitted_by.user_id)),
            Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
                let request = content.request.as_ref()?;
                Some(content_slot(namespace, &self.submitted_by.user_id, request))
            }
        }
    }

    /// Returns the writes that count the draft as open. Each fails if its counter is full.
    pub fn counting_writes(&self, namespace: &NamespaceId) -> Vec<Write> {
        self.own_counters(namespace)
            .into_iter()
            .map(|(key, field, most)| Write::count(key, field, 1, most))
            .collect()
    }

    /// Returns the window in which the author's drafts of this day are counted.
    pub fn daily_window(&self, namespace: &NamespaceId) -> Window<'static> {
        let author = format!("{namespace}/{}", self.submitted_by.user_id);
        Window::about_subject("draft", author, MAX_A_DAY, 24 * 3600)
    }

    /// Returns the counters in which the draft counts, each with its key, its field and its
    /// maximum.
    fn own_counters(&self, namespace: &NamespaceId) -> Vec<(RecordKey, &'static str, i64)> {
        let author = &self.submitted_by.user_id;
        let named = |name: &str| RecordKey::new(counters_partition(namespace), name);
        match &self.subject {
            Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
                let of_author = author_queue_key(namespace, author);
                match content.place {
                    // Not in the shared counter, so that other authors cannot use up these places.
                    QueueShare::Own => vec![(of_author, "own", MAX_OWN)],
                    QueueShare::Shared => vec![
                        (of_author, "pending", MAX_SHARED_OF_AUTHOR),
                        (draft_queue_key(namespace), "pending", MAX_SHARED),
                    ],
                }
            }
            Subject::KeyRequest(_) => vec![
                (
                    named(&format!("key_request/{author}")),
                    "open",
                    MAX_KEY_REQUESTS_OF_AUTHOR,
                ),
                (named("key_request"), "open", MAX_KEY_REQUESTS),
            ],
            Subject::Release(_) => vec![(named("release"), "open", MAX_PROPOSALS)],
        }
    }

    /// Returns the writes that store the draft and its index entry, without those that count it.
    pub fn listing_writes(&self, namespace: &NamespaceId) -> Result<Vec<Write>, StoreError> {
        let author = &self.submitted_by.user_id;
        Ok(vec![
            Write::put(
                draft_key(namespace, &self.id),
                Document::from_value(self)?,
                When::Absent,
            ),
            Write::put(
                authored_key(namespace, author, &self.id),
                Document::from_value(&AuthorEntry { id: self.id })?,
                When::Absent,
            ),
        ])
    }

    /// Returns the write that takes the draft's slot, under this condition; `None` if the draft
    /// takes none.
    pub fn slot_write(
        &self,
        namespace: &NamespaceId,
        when: When,
    ) -> Result<Option<Write>, StoreError> {
        let Some(key) = self.slot_key(namespace) else {
            return Ok(None);
        };
        let slot = Document::from_value(&Slot { id: self.id })?;
        Ok(Some(Write::put(key, slot, when)))
    }

    /// Returns the writes that replace the open draft, read at `revision`, by this ended one. With
    /// `replaced`, another draft takes over its slot and its place in the counters.
    pub fn ending_writes(
        &self,
        namespace: &NamespaceId,
        revision: u64,
        replaced: bool,
    ) -> Result<Vec<Write>, StoreError> {
        let author = &self.submitted_by.user_id;
        let until = self.changed_at.plus_seconds(ENDED_SECONDS);
        let mut writes = vec![
            // The one condition of this commit: of two steps that end a draft at once, one fails
            // here. The writes below need none.
            Write::delete(draft_key(namespace, &self.id), When::At(revision)),
            Write::put_until(
                ended_key(namespace, &self.id),
                Document::from_value(self)?,
                When::Any,
                until,
            ),
            Write::put_until(
                authored_key(namespace, author, &self.id),
                Document::from_value(&AuthorEntry { id: self.id })?,
                When::Any,
                until,
            ),
        ];
        if !replaced {
            // The slot names this draft, because it is open.
            writes.extend(
                self.slot_key(namespace)
                    .map(|slot| Write::delete(slot, When::Any)),
            );
            let counters = self.own_counters(namespace).into_iter();
            // Earlier versions permitted more drafts of one author, so the maximum is not checked
            // here.
            writes.extend(
                counters.map(|(key, field, _)| Write::count(key, field, -1, i64::from(u32::MAX))),
            );
        }
        Ok(writes)
    }
}

/// Returns the partition that lists a namespace's open drafts, oldest first.
pub fn drafts_partition(namespace: &NamespaceId) -> String {
    format!("draft/{namespace}")
}

/// Returns the key of the [`DraftRecord`] while the draft is open.
pub fn draft_key(namespace: &NamespaceId, id: &DraftId) -> RecordKey {
    RecordKey::new(drafts_partition(namespace), id.as_str())
}

/// Returns the partition that lists a namespace's ended drafts, oldest first.
pub fn ended_partition(namespace: &NamespaceId) -> String {
    format!("draft-ended/{namespace}")
}

/// Returns the key to which the [`DraftRecord`] moves when the draft ends.
pub fn ended_key(namespace: &NamespaceId, id: &DraftId) -> RecordKey {
    RecordKey::new(ended_partition(namespace), id.as_str())
}

/// Returns the partition that lists drafts by their authors; the prefix `<user id>/` selects one
/// author's, oldest first.
pub fn authored_partition(namespace: &NamespaceId) -> String {
    format!("draft-by/{namespace}")
}

fn authored_key(namespace: &NamespaceId, author: &str, id: &DraftId) -> RecordKey {
    RecordKey::new(authored_partition(namespace), format!("{author}/{id}"))
}

/// Returns the key of the slot for an author's drafts that ask for the same change of a skill.
fn content_slot(namespace: &NamespaceId, author: &str, request: &Digest) -> RecordKey {
    RecordKey::new(
        format!("draft-slot/{namespace}"),
        format!("content/{author}/{request}"),
    )
}

/// Returns the key of the record that names a user's open proposal.
pub fn proposal_slot(namespace: &NamespaceId, user: &str) -> RecordKey {
    RecordKey::new(format!("draft-slot/{namespace}"), format!("release/{user}"))
}

/// Returns the key of the record that names the open request of a key.
pub fn key_slot(namespace: &NamespaceId, key: &PublicKey) -> RecordKey {
    let name = format!("key_request/{key}");
    RecordKey::new(format!("draft-slot/{namespace}"), name)
}

pub(super) fn counters_partition(namespace: &NamespaceId) -> String {
    format!("draft-count/{namespace}")
}

/// Returns the key of the counter of the content drafts in shared places.
pub fn draft_queue_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(counters_partition(namespace), "all")
}

/// Returns the key of the [`Queue`] that counts an author's open content drafts.
pub fn author_queue_key(namespace: &NamespaceId, author: &str) -> RecordKey {
    RecordKey::new(counters_partition(namespace), format!("by/{author}"))
}

/// Returns all open drafts of a namespace, oldest first.
pub async fn open_drafts(
    ports: &Ports,
    namespace: &NamespaceId,
) -> Result<Vec<super::Versioned<DraftRecord>>, StoreError> {
    // The counters bound the number of open drafts, so all of them fit into memory.
    let found = kept::all_records(ports, &drafts_partition(namespace)).await?;
    let seen = found
        .into_iter()
        .map(|record| super::Versioned::read(Some(record)));
    seen.filter_map(Result::transpose).collect()
}
