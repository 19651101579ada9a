//! Where background work stands.
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
use super::usage::Listed;
use crate::ports::{Ports, Versioned};

/// The partition of the visits.
pub const VISITS: &str = "collected";

/// Position among the objects of a namespace: an index into the collected classes, and the last
/// object of that class that was visited.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ObjectPosition(pub usize, pub Option<Digest>);

/// The visits of the garbage collection to a namespace.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Visit {
    /// Time at which the latest visit began; it may have taken several runs.
    pub began_at: Option<Timestamp>,
    /// Time at which a run was last here.
    pub visited_at: Option<Timestamp>,
    /// Time at which a visit last came to its end.
    pub ended_at: Option<Timestamp>,
    /// Position of a visit that has not ended.
    pub within: Option<ObjectPosition>,
    /// Objects that this visit has listed up to there.
    #[serde(default)]
    pub listed: Listed,
}

impl Visit {
    /// Returns whether a visit has to go on, or to begin, `pause` seconds after the last beginning.
    pub fn is_due(&self, now: Timestamp, pause: i64) -> bool {
        self.within.is_some()
            || self
                .began_at
                .is_none_or(|began| now >= began.plus_seconds(pause))
    }

    /// Returns the key of the visits to this namespace.
    pub fn key(slug: &Slug) -> RecordKey {
        RecordKey::new(VISITS, slug.as_str())
    }
}

/// Time for which a [`RootWalk`] is kept, in seconds: 7 days.
const WALK_SECONDS: i64 = 7 * 24 * 3600;

/// Position of a visit among the temporary roots of its namespace, for some of the objects. A
/// namespace may have more of these roots than one run can read.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RootWalk {
    /// [`Visit::began_at`] of its visit. Another visit begins a walk of its own.
    pub began_at: Option<Timestamp>,
    /// Position of the visit, in front of the objects that are judged.
    pub position: ObjectPosition,
    /// Position behind these objects.
    pub end: ObjectPosition,
    /// Time before they were listed.
    pub listed_at: Timestamp,
    /// Those of them that no root reaches, as far as the roots are read.
    pub unreached: BTreeSet<ObjectName>,
    /// Those of them that the current release does not name, which each run finds out anew.
    #[serde(skip)]
    pub not_current: BTreeSet<ObjectName>,
    /// Key of the last temporary root that was read.
    pub after: Option<String>,
}

impl RootWalk {
    /// Begins a walk for the objects behind `position`, which are listed from now on.
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

    /// Returns whether the record of a walk has room for so many unreached objects.
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

    /// Returns the key of the walk of a namespace.
    pub fn key(namespace: &NamespaceId) -> RecordKey {
        RecordKey::new("work", format!("roots/{namespace}"))
    }
}

/// Keeps a step to one process. Two at once would do no harm, only the same work twice. Records of
/// earlier versions have further members, which are ignored.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct StepLock {
    /// Time at which the step counts as abandoned.
    pub busy_until: Option<Timestamp>,
}

impl StepLock {
    /// Takes the lock for some seconds. Returns its revision, or `None` while another process has
    /// it.
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

    /// Releases the lock, unless it was lost to another process.
    pub async fn release(ports: &Ports, key: RecordKey, revision: u64) -> Result<(), StoreError> {
        save(ports, key, &Self::default(), When::At(revision))
            .await
            .map(drop)
    }
}

/// The last run of background work, for the operator.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastRun {
    /// Time at which a run last ended without a failure.
    pub succeeded_at: Option<Timestamp>,
    /// Time at which the first of the failures since then happened.
    pub failing_since: Option<Timestamp>,
}

impl LastRun {
    /// Returns the key of the record.
    pub fn key() -> RecordKey {
        RecordKey::new("work", "background")
    }

    /// Records that a run has ended.
    pub async fn record(ports: &Ports, failed: bool) -> Result<(), StoreError> {
        let now = ports.now();
        let stored = ports.get::<Self>(&Self::key()).await?;
        let (before, when) = match stored {
            Some(Versioned {
                value, revision, ..
            }) => (value, When::At(revision)),
            None => (Self::default(), When::Absent),
        };
        let after = if failed {
            Self {
                failing_since: before.failing_since.or(Some(now)),
                ..before
            }
        } else {
            Self {
                succeeded_at: Some(now),
                failing_since: None,
            }
        };
        // Another process that was faster has recorded a run that ended just as late.
        save(ports, Self::key(), &after, when).await.map(drop)
    }
}

/// Stores a record. Returns its new revision; `None` when another process changed it meanwhile.
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
