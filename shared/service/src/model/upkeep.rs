//! Where background work stands.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `work` | `collection` | [`StepLock`] of the garbage collection |
//! | `work` | `background` | [`LastRun`] of all background work |
//! | `collected` | `<slug>` | [`Visit`] of the garbage collection to a namespace |

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, Document, RecordKey, When, Write};

use super::usage::Tally;
use crate::ports::{Ports, Versioned};

/// The partition of the visits.
pub const VISITS: &str = "collected";

/// Position among the objects of a namespace: an index into the collected classes, and the last
/// object of that class that was visited.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
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
    /// The objects that this visit has counted up to there.
    #[serde(default)]
    pub counted: Tally,
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
