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
//! Counters stand beside the namespace's own record, so that authors cannot make an owner's publish
//! conflict. A draft, its index, its counters and the audit entry are one commit, and so is each
//! step that ends it.
//!
//! A release that is published does not write to proposals: whether it is accepted or outdated by
//! then follows from the namespace's record ([`super::proposal`]).

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

/// Maximum number of content drafts of one author that wait in a namespace whatever the others
/// have: its own places.
pub const MAX_OWN: i64 = 4;
/// Maximum number of content drafts of one author that wait in places that all authors share.
pub const MAX_SHARED_OF_AUTHOR: i64 = 16;
/// Maximum number of content drafts that wait in the places that the authors of a namespace share.
pub const MAX_SHARED: i64 = 100;
/// Maximum number of proposals that are open in a namespace: as many as keys may be in the release
/// role.
pub const MAX_PROPOSALS: i64 = 32;
/// Maximum number of key requests that are open in a namespace: as many as keys may be in a root
/// document.
pub const MAX_KEY_REQUESTS: i64 = 40;
/// Maximum number of key requests of one author that are open in a namespace.
pub const MAX_KEY_REQUESTS_OF_AUTHOR: i64 = 4;
/// Maximum number of drafts that one author hands in on one day (UTC): ended ones free their
/// places, but their bytes stay for a while.
pub const MAX_A_DAY: u32 = 200;
/// Lifetime of the record of an ended draft, in seconds: 90 days.
pub const ENDED_SECONDS: i64 = 90 * 24 * 3600;
/// Maximum number of characters of the reason for which a draft is declined.
pub const MAX_REASON_CHARS: usize = 500;

/// Kind of place that a content draft takes in its author's queue.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// One of the author's own.
    Own,
    /// One of those that all authors share. Drafts of earlier versions have no other.
    #[default]
    Shared,
}

/// The change of a skill that a user without the vault's key asks for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Content {
    /// The skill.
    pub name: SkillName,
    /// The bundle that its author saw; `None` for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// Number of flags that the service's gate raised.
    pub flags: u64,
    /// The place that it takes.
    #[serde(default)]
    pub place: Place,
    /// Digest of what it asks for, without its id, its time and the app: equal for two equal
    /// requests. Drafts of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
}

/// A key whose holder asks to publish with it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RequestedKey {
    /// The key, which has signed the request.
    pub public_key: PublicKey,
    /// The name that it would like.
    pub name: KeyName,
}

/// Subject of a draft.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// Take files in.
    Propose(Content),
    /// Fetch a skill from its source.
    Install(Content),
    /// Take a skill out.
    Remove(Content),
    /// Make a key a publisher's.
    KeyRequest(RequestedKey),
    /// Add the signatures that a release lacks.
    Release(Proposed),
}

/// A draft without its bytes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DraftRecord {
    /// Its id.
    pub id: DraftId,
    /// Its subject.
    #[serde(flatten)]
    pub subject: Subject,
    /// SHA-256 of the draft's bytes: the name of the object, and the proof that it is intact.
    pub sha256: Digest,
    /// Number of these bytes.
    pub size: u64,
    /// Time at which it came in.
    pub submitted_at: Timestamp,
    /// Its author.
    pub submitted_by: Submitter,
    /// Its state, as far as a person or the service has recorded it; see [`super::proposal`] for
    /// proposals.
    pub state: State,
    /// Time of the last change of the state.
    pub changed_at: Timestamp,
    /// The release that has it.
    pub release: Option<u64>,
    /// Reason for declining it, or the files it lacks because they look like secrets.
    pub reason: Option<String>,
    /// Time until which the server of a self-signed namespace is busy admitting it; no other step
    /// ends it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitting_until: Option<Timestamp>,
}

/// A draft in the list of its author.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AuthorEntry {
    /// The draft.
    pub id: DraftId,
}

/// The one open draft of a user, or of a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Slot {
    /// The draft.
    pub id: DraftId,
}

/// A counter of waiting content drafts: of an author, or (then only `pending`) of a namespace.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Queue {
    /// Number of drafts in the author's own places.
    #[serde(default)]
    pub own: i64,
    /// Number of drafts in shared places.
    #[serde(default)]
    pub pending: i64,
}

/// A step that ends a draft, with the values that its record keeps.
#[derive(Clone, Debug)]
pub struct Ending {
    /// State in which it ends.
    pub state: State,
    /// Time of the step.
    pub at: Timestamp,
    /// The release that has it.
    pub release: Option<u64>,
    /// Reason for declining it, or the files that an acceptance leaves out.
    pub reason: Option<String>,
}

impl DraftRecord {
    /// Returns the record of a draft that comes in now as these bytes.
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

    /// Returns the kind of request.
    pub const fn kind(&self) -> Kind {
        match self.subject {
            Subject::Propose(_) => Kind::Propose,
            Subject::Install(_) => Kind::Install,
            Subject::Remove(_) => Kind::Remove,
            Subject::KeyRequest(_) => Kind::KeyRequest,
            Subject::Release(_) => Kind::Release,
        }
    }

    /// Returns the change of a skill that it asks for, if it is about one.
    pub const fn content(&self) -> Option<&Content> {
        match &self.subject {
            Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
                Some(content)
            }
            Subject::KeyRequest(_) | Subject::Release(_) => None,
        }
    }

    /// Returns the release that it proposes, if it is about one.
    pub const fn proposed(&self) -> Option<&Proposed> {
        match &self.subject {
            Subject::Release(proposed) => Some(proposed),
            _ => None,
        }
    }

    /// Returns the object with its bytes.
    pub fn object_name(&self) -> ObjectName {
        ObjectName::new(Class::Drafts, self.sha256)
    }

    /// Returns the same draft in this place, if it takes one.
    #[must_use]
    pub fn in_place(mut self, place: Place) -> Self {
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
            // The reason given when it came in (missing files) outlives an ending without one.
            reason: ending.reason.clone().or(self.reason),
            admitting_until: None,
            ..self
        }
    }

    /// Returns the key of the record of its slot, if it takes one.
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

    /// Returns the writes that count it. Each fails if its counter is full.
    pub fn counting_writes(&self, namespace: &NamespaceId) -> Vec<Write> {
        self.own_counters(namespace)
            .into_iter()
            .map(|(key, field, most)| Write::count(key, field, 1, most))
            .collect()
    }

    /// Returns the count of what its author has handed in on this day.
    pub fn daily_window(&self, namespace: &NamespaceId) -> Window<'static> {
        let author = format!("{namespace}/{}", self.submitted_by.user_id);
        Window::about_subject("draft", author, MAX_A_DAY, 24 * 3600)
    }

    /// Returns the counters that it is in, each with its key, its field and its bound.
    fn own_counters(&self, namespace: &NamespaceId) -> Vec<(RecordKey, &'static str, i64)> {
        let author = &self.submitted_by.user_id;
        let named = |name: &str| RecordKey::new(counters_partition(namespace), name);
        match &self.subject {
            Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
                let of_author = author_queue_key(namespace, author);
                match content.place {
                    // Not in the shared counter, so that other authors cannot crowd an author out.
                    Place::Own => vec![(of_author, "own", MAX_OWN)],
                    Place::Shared => vec![
                        (of_author, "pending", MAX_SHARED_OF_AUTHOR),
                        (queue_key(namespace), "pending", MAX_SHARED),
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

    /// Returns the writes that list it, without those that count it.
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

    /// Returns the write by which it takes its slot, under this condition; `None` where it takes
    /// none.
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

    /// Returns the writes by which the draft, open at `revision`, becomes this ended one. With
    /// `replaced`, the draft that takes its slot takes its place in the counters too.
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
            // An open draft is the one that its slot names.
            writes.extend(
                self.slot_key(namespace)
                    .map(|slot| Write::delete(slot, When::Any)),
            );
            let counters = self.own_counters(namespace).into_iter();
            // Earlier versions let an author have more, so the bound is not asked here.
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

/// Returns the key of an open draft.
pub fn draft_key(namespace: &NamespaceId, id: &DraftId) -> RecordKey {
    RecordKey::new(drafts_partition(namespace), id.as_str())
}

/// Returns the partition that lists a namespace's ended drafts, oldest first.
pub fn ended_partition(namespace: &NamespaceId) -> String {
    format!("draft-ended/{namespace}")
}

/// Returns the key of an ended draft.
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

/// Returns the key of the slot of an author's drafts that ask for the same change of a skill.
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
pub fn queue_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(counters_partition(namespace), "all")
}

/// Returns the key of the counter of an author's waiting content drafts.
pub fn author_queue_key(namespace: &NamespaceId, author: &str) -> RecordKey {
    RecordKey::new(counters_partition(namespace), format!("by/{author}"))
}

/// Returns all open drafts of a namespace.
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
