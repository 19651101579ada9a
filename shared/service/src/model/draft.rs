//! Drafts: what people and clients ask an owner to take in. The bytes are an object of the class `drafts`, the record says what stands there.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `draft/<namespace_id>` | `<draft id>` | [`DraftRecord`] |
//! | `draft-by/<namespace_id>` | `<user id>/<draft id>` | index: the drafts of an author, [`Authored`] |
//! | `draft-count/<namespace_id>` | `all` | `{pending}`: how many wait in the namespace |
//! | `draft-count/<namespace_id>` | `by/<user id>` | `{pending}`: how many of an author wait |
//!
//! Counters stand beside the namespace's own record, so that authors cannot make an owner's publish conflict. A draft, its index, both
//! counters and the audit entry are one commit.

use serde::{Deserialize, Serialize};
use vault_format::draft::{Draft, Request, Submitter};
use vault_format::hash::Digest;
use vault_format::name::{DraftId, NamespaceId, SkillName};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, Records, When, Write};

use super::kept::{self, ObjectName};
use vault_store::objects::Class;

/// Most drafts that wait in a namespace.
pub const MAX_PENDING: i64 = 100;
/// Most drafts of one author that wait in a namespace.
pub const MAX_PENDING_OF_AUTHOR: i64 = 20;

/// What a draft asks for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Take files in.
    Propose,
    /// Fetch a skill from its source.
    Install,
    /// Take a skill out.
    Remove,
}

/// Where a draft stands. Each step is a conditional write by whoever makes it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for an owner.
    Pending,
    /// A release carries it.
    Accepted,
    /// An owner said no.
    Declined,
    /// Its author took it back.
    Withdrawn,
}

/// A draft without its content.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DraftRecord {
    /// Its id.
    pub id: DraftId,
    /// What it asks for.
    pub kind: Kind,
    /// The skill that it is about.
    pub name: SkillName,
    /// The bundle that its author saw; `None` for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// SHA-256 of the draft's bytes: the object's name, and how damage shows.
    pub sha256: Digest,
    /// Their number.
    pub size: u64,
    /// When it came in.
    pub submitted_at: Timestamp,
    /// Who sent it.
    pub submitted_by: Submitter,
    /// How many flags the service's gate raised.
    pub flags: u64,
    /// Where it stands.
    pub state: State,
    /// When that changed last.
    pub changed_at: Timestamp,
    /// The release that carries it.
    pub release: Option<u64>,
    /// Why an owner said no.
    pub reason: Option<String>,
}

/// A draft in the list of its author.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Authored {
    /// The draft.
    pub id: DraftId,
}

/// A counter of waiting drafts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Queue {
    /// How many wait.
    #[serde(default)]
    pub pending: i64,
}

impl DraftRecord {
    /// The record of a draft that just came in as these bytes.
    pub fn new(draft: &Draft, bytes: &[u8]) -> Self {
        Self {
            id: draft.draft_id,
            kind: match draft.request {
                Request::Propose { .. } => Kind::Propose,
                Request::Install { .. } => Kind::Install,
                Request::Remove => Kind::Remove,
            },
            name: draft.name.clone(),
            base_bundle_hash: draft.base_bundle_hash,
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            submitted_at: draft.submitted_at,
            submitted_by: draft.submitted_by.clone(),
            flags: draft.gate.flags.len() as u64,
            state: State::Pending,
            changed_at: draft.submitted_at,
            release: None,
            reason: None,
        }
    }

    /// The object with its content.
    pub fn object(&self) -> ObjectName {
        ObjectName::new(Class::Drafts, self.sha256)
    }

    /// The writes that keep a new draft. The first fails when the namespace's queue is full, the second when its author's is.
    pub fn creation(&self, namespace: &NamespaceId) -> Result<Vec<Write>, StoreError> {
        let author = &self.submitted_by.user_id;
        Ok(vec![
            Write::count(queue_key(namespace), "pending", 1, MAX_PENDING),
            Write::count(
                author_queue_key(namespace, author),
                "pending",
                1,
                MAX_PENDING_OF_AUTHOR,
            ),
            Write::put(key(namespace, &self.id), Document::of(self)?, When::Absent),
            Write::put(
                authored_key(namespace, author, &self.id),
                Document::of(&Authored { id: self.id })?,
                When::Absent,
            ),
        ])
    }
}

/// The partition that lists a namespace's drafts, oldest first.
pub fn partition(namespace: &NamespaceId) -> String {
    format!("draft/{namespace}")
}

/// Where a draft stands.
pub fn key(namespace: &NamespaceId, id: &DraftId) -> RecordKey {
    RecordKey::new(partition(namespace), id.as_str())
}

/// The partition that lists drafts by their authors; a prefix `<user id>/` is one author's, oldest first.
pub fn authored_partition(namespace: &NamespaceId) -> String {
    format!("draft-by/{namespace}")
}

fn authored_key(namespace: &NamespaceId, author: &str, id: &DraftId) -> RecordKey {
    RecordKey::new(authored_partition(namespace), format!("{author}/{id}"))
}

/// Where the counter of a namespace's waiting drafts stands.
pub fn queue_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(format!("draft-count/{namespace}"), "all")
}

/// Where the counter of an author's waiting drafts stands.
pub fn author_queue_key(namespace: &NamespaceId, author: &str) -> RecordKey {
    RecordKey::new(format!("draft-count/{namespace}"), format!("by/{author}"))
}

/// The objects of all drafts that wait.
pub(crate) async fn pending_objects(
    records: &dyn Records,
    namespace: &NamespaceId,
) -> Result<Vec<ObjectName>, StoreError> {
    let mut objects = Vec::new();
    for record in kept::all(records, &partition(namespace)).await? {
        let draft: DraftRecord = record.read()?;
        if draft.state == State::Pending {
            objects.push(draft.object());
        }
    }
    Ok(objects)
}
