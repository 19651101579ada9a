//! Progress of background work. The garbage collection of objects goes through the namespaces; a
//! visit is its work on one of them, which may take several runs.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `work` | `collection` | [`StepLock`] of the garbage collection |
//! | `work` | `background` | [`LastRun`] of all background work |
//! | `work` | `roots/<namespace_id>` | [`RootWalk`] of a visit that ran out of time |
//! | `collected` | `<slug>` | [`Visit`] of the garbage collection to a namespace |

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, Document, RecordKey, When, Write};

use super::kept::{MAX_NAMES, ObjectName};
use super::usage::ListedUsage;
use crate::ports::{Ports, Versioned};

/// Partition of the [`Visit`] records, one for each namespace.
pub const VISITS: &str = "collected";

/// Position of a visit among the objects of a namespace: an index into the collected classes, and
/// the hash of the last object of that class that was handled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ObjectPosition(pub usize, pub Option<Digest>);

/// The record of the last visit of the garbage collection to a namespace, and of its progress.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Visit {
    /// Time at which the last visit began.
    pub began_at: Option<Timestamp>,
    /// Time at which a run last worked on the namespace.
    pub visited_at: Option<Timestamp>,
    /// Time at which a visit last ended.
    pub ended_at: Option<Timestamp>,
    /// Position of the visit; `None` if it has ended.
    pub within: Option<ObjectPosition>,
    /// Amounts of the objects that the visit has listed before the position `within`.
    #[serde(default)]
    pub listed: ListedUsage,
}

impl Visit {
    /// Whether the visit has to continue, or a new one to begin, `pause` seconds after the last one
    /// began.
    pub fn is_due(&self, now: Timestamp, pause: i64) -> bool {
        self.within.is_some()
            || self
                .began_at
                .is_none_or(|began| now >= began.plus_seconds(pause))
    }

    /// Returns the key of the record for this namespace.
    pub fn key(slug: &Slug) -> RecordKey {
        RecordKey::new(VISITS, slug.as_str())
    }
}

/// Lifetime of the record of a [`RootWalk`], in seconds: 7 days.
const WALK_SECONDS: i64 = 7 * 24 * 3600;

/// Progress of a visit in comparing a group of objects with the temporary roots of the namespace
/// (see [`super::kept`]). A namespace may have more of these roots than one run can read.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RootWalk {
    /// [`Visit::began_at`] of the visit; another visit starts again.
    pub began_at: Option<Timestamp>,
    /// Position of the visit before the group of objects.
    pub position: ObjectPosition,
    /// Position of the visit after the group of objects.
    pub end: ObjectPosition,
    /// Time just before the group was listed.
    pub listed_at: Timestamp,
    /// Objects of the group that none of the roots read so far reaches.
    pub unreached: BTreeSet<ObjectName>,
    /// Objects of the group that the current release does not name; each run computes them again.
    #[serde(skip)]
    pub not_current: BTreeSet<ObjectName>,
    /// Key of the last temporary root that was read.
    pub after: Option<String>,
}

impl RootWalk {
    /// Begins a walk for the objects after `position`, which are listed after this call.
    pub fn begin(position: ObjectPosition, now: Timestamp) -> Self {
        Self {
            began_at: None,
            position,
            end: position,
            listed_at: now,
            unreached: BTreeSet::new(),
            not_current: BTreeSet::new(),
            after: None,
        }
    }

    /// Whether the record of a walk has room for this many unreached objects.
    pub const fn has_room(unreached: usize) -> bool {
        unreached <= MAX_NAMES
    }

    /// Reads the walk that a visit stored at `position`.
    pub async fn load(
        ports: &Ports,
        namespace: &NamespaceId,
        began_at: Option<Timestamp>,
        position: ObjectPosition,
    ) -> Result<Option<Self>, StoreError> {
        let stored = ports.get::<Self>(&Self::key(namespace)).await?;
        let own = stored.map(|stored| stored.value);
        Ok(own.filter(|walk| walk.began_at == began_at && walk.position == position))
    }

    /// Stores the walk of a namespace, in place of an earlier one.
    pub async fn store(&self, ports: &Ports, namespace: &NamespaceId) -> Result<(), StoreError> {
        let until = ports.now().plus_seconds(WALK_SECONDS);
        let document = Document::from_value(self)?;
        let write = Write::put_until(Self::key(namespace), document, When::Any, until);
        ports.records.commit_writes(vec![write]).await.map(drop)
    }

    /// Returns the key of the walk of a namespace, of which it has at most one.
    pub fn key(namespace: &NamespaceId) -> RecordKey {
        RecordKey::new("work", format!("roots/{namespace}"))
    }
}

/// A lock that lets one process do a step of background work. Without it two processes would only
/// do the same work twice, without harm. Records of earlier versions have further members, which
/// are ignored.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct StepLock {
    /// Time from which the lock counts as abandoned; `None` if it is free.
    pub busy_until: Option<Timestamp>,
}

impl StepLock {
    /// Takes the lock for this many seconds. Returns the revision to release it with, or `None`
    /// while another process holds it.
    pub async fn take(
        ports: &Ports,
        key: RecordKey,
        seconds: i64,
    ) -> Result<Option<u64>, StoreError> {
        let now = ports.now();
        let stored = ports.get::<Self>(&key).await?;
        let (lock, when) = match stored {
            Some(seen) => (seen.value, When::At(seen.revision)),
            None => (Self::default(), When::Absent),
        };
        if lock.busy_until.is_some_and(|busy| now < busy) {
            return Ok(None);
        }
        let busy_until = Some(now.plus_seconds(seconds));
        save(ports, key, &Self { busy_until }, when).await
    }

    /// Releases the lock, unless another process has taken it over.
    pub async fn release(ports: &Ports, key: RecordKey, revision: u64) -> Result<(), StoreError> {
        save(ports, key, &Self::default(), When::At(revision))
            .await
            .map(drop)
    }
}

/// Outcome of the last runs of background work, for the operator.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastRun {
    /// Time at which a run last ended without a failure; `None` if none ever did.
    pub succeeded_at: Option<Timestamp>,
    /// Time of the first failed run since the last success; `None` if there was none.
    pub failing_since: Option<Timestamp>,
    /// Whether the garbage collection of a namespace took longer than three days, as the last run
    /// that knew it recorded.
    #[serde(default)]
    pub late: bool,
}

impl LastRun {
    /// Returns the key of the only record of this kind.
    pub fn key() -> RecordKey {
        RecordKey::new("work", "background")
    }

    /// Records that a run has ended, with or without a failure, and whether the garbage collection is
    /// late if the run knows it.
    pub async fn record(
        ports: &Ports,
        failed: bool,
        is_late: Option<bool>,
    ) -> Result<(), StoreError> {
        let now = ports.now();
        let stored = ports.get::<Self>(&Self::key()).await?;
        let (before, when) = match stored {
            Some(Versioned {
                value, revision, ..
            }) => (value, When::At(revision)),
            None => (Self::default(), When::Absent),
        };
        let late = is_late.unwrap_or(before.late);
        let after = if failed {
            Self {
                failing_since: before.failing_since.or(Some(now)),
                late,
                ..before
            }
        } else {
            Self {
                succeeded_at: Some(now),
                failing_since: None,
                late,
            }
        };
        // If another process was faster, it has recorded a run that ended at the same time.
        save(ports, Self::key(), &after, when).await.map(drop)
    }
}

/// Stores a record under a condition. Returns its new revision; `None` if the condition failed
/// because another process changed the record.
pub async fn save(
    ports: &Ports,
    key: RecordKey,
    value: &impl Serialize,
    when: When,
) -> Result<Option<u64>, StoreError> {
    let write = Write::put(key, Document::from_value(value)?, when);
    match ports.records.commit_writes(vec![write]).await? {
        Commit::Done(revisions) => Ok(revisions.first().copied().flatten()),
        Commit::Failed { .. } => Ok(None),
    }
}
