//! How much a namespace stores.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `stored/<namespace_id>` | `usage` | [`Usage`] |
//!
//! An upload is counted in the commit that keeps its objects, before their bytes are stored, and
//! gives back afterwards what was there already. A process that ends in between leaves a count that
//! is too high. So each visit of the garbage collection, which lists all objects anyway, corrects
//! the count: it then lies between what was listed, and that with all uploads that the listing may
//! have missed.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::kept::DELETING_SECONDS;
use super::notice::Event;
use crate::config::quota::{Quota, QuotaKind, is_near};
use crate::ports::{Ports, Versioned};

mod room;

pub use room::{Beyond, Counted, FullStorage, Needed, StorageLimit};

/// Maximum objects of uploads that no release has named yet.
pub const MAX_UNNAMED_OBJECTS: u64 = 60_000;
/// Maximum bytes of uploads that no release has named yet: 1 GiB.
pub const MAX_UNNAMED_BYTES: u64 = 1 << 30;
/// Bytes beyond the quota for files of releases, so that a full namespace can still publish: 256
/// MiB. What was verified has several times as many ([`crate::uploads::Purpose`]).
pub const ALLOWANCE_BYTES: u64 = 256 << 20;
/// Objects beyond the quota for files of releases; what was verified has several times as many.
pub const ALLOWANCE_OBJECTS: u64 = 20_000;
/// Maximum number of uploads that have not ended; a process that ends leaves one for some minutes.
const MAX_OPEN: usize = 256;

/// A number of objects and the bytes that they have together.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

impl Amount {
    /// Returns the amount of one object.
    pub const fn of_object(bytes: u64) -> Self {
        Self { bytes, objects: 1 }
    }

    /// Returns the lower of two amounts, for bytes and objects each.
    fn min(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            objects: self.objects.min(other.objects),
        }
    }

    /// Returns this amount within the two bounds; the lower one wins.
    fn clamp_to(self, lower: Self, upper: Self) -> Self {
        Self {
            bytes: self.bytes.min(upper.bytes).max(lower.bytes),
            objects: self.objects.min(upper.objects).max(lower.objects),
        }
    }

    /// Whether it reaches 80 % of a limit, where 0 is no limit.
    fn is_near(self, bytes: u64, objects: u64) -> bool {
        is_near(self.bytes, bytes) || is_near(self.objects, objects)
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    /// Subtracts, down to 0.
    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
        }
    }
}

/// Objects that come up together, or that were counted by a listing.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tally {
    /// All of them.
    pub stored: Amount,
    /// Those of them that only a release can name, and none has named.
    pub unnamed: Amount,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stored: self.stored + other.stored,
            unnamed: self.unnamed + other.unnamed,
        }
    }
}

impl Sub for Tally {
    type Output = Self;

    /// Subtracts, down to 0.
    fn sub(self, other: Self) -> Self {
        Self {
            stored: self.stored - other.stored,
            unnamed: self.unnamed - other.unnamed,
        }
    }
}

/// What a listing of all objects found that still exists.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Listed {
    /// All of them.
    pub stored: Amount,
    /// Those for releases that the current release does not name. Some may have been named by a
    /// former one.
    pub not_current: Amount,
    /// Those for releases that nothing reaches, so no release names them.
    pub unreached: Amount,
    /// Those for releases that were deleted meanwhile.
    #[serde(default)]
    pub deleted: Amount,
}

impl Add for Listed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stored: self.stored + other.stored,
            not_current: self.not_current + other.not_current,
            unreached: self.unreached + other.unreached,
            deleted: self.deleted + other.deleted,
        }
    }
}

/// What a namespace stores.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Usage {
    /// The count.
    pub tally: Tally,
    /// The part of it that was stored beyond the quota.
    pub beyond: Beyond,
    /// Whether a listing has ever counted all objects.
    pub is_counted: bool,
    /// Limits about which owners were warned since less than 80 % of them was used.
    pub warned: Warned,
    /// Whether an upload failed or never ended since the last listing, so that the count may be too
    /// high.
    pub is_doubtful: bool,
    /// Uploads that have not ended.
    open: Vec<OpenUpload>,
    /// Changes during a listing of all objects.
    listing: Option<Listing>,
}

/// Limits of stored objects about which owners were warned.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Warned {
    bytes: bool,
    objects: bool,
}

/// An upload that was counted and has not ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct OpenUpload {
    id: String,
    began_at: Timestamp,
    added: Tally,
    /// The part of it that is beyond the quota.
    #[serde(default)]
    beyond: Beyond,
}

/// Changes that a listing of all objects may have missed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Listing {
    /// Time at which the visit that lists began.
    began_at: Timestamp,
    /// Uploads that began since shortly before it.
    added: Tally,
    /// Objects that a release has named since.
    named: Amount,
}

impl Usage {
    /// Reads the usage of a namespace, with the condition for its next write.
    pub async fn find(ports: &Ports, namespace: &NamespaceId) -> Result<(Self, When), StoreError> {
        let found = ports.get::<Self>(&usage_key(namespace)).await?;
        Ok(match found {
            Some(Versioned {
                value, revision, ..
            }) => (value, When::At(revision)),
            None => (Self::default(), When::Absent),
        })
    }

    /// Returns the write that stores it.
    pub fn to_write(&self, namespace: &NamespaceId, when: When) -> Result<Write, StoreError> {
        let document = Document::from_value(self)?;
        Ok(Write::put(usage_key(namespace), document, when))
    }

    /// Counts an upload that begins; `id` names it until it ends.
    pub fn begin_upload(&mut self, id: &str, counted: Counted, now: Timestamp) {
        let Counted { added, beyond } = counted;
        self.tally = self.tally + added;
        self.beyond = self.beyond + beyond;
        self.open.push(OpenUpload {
            id: id.to_owned(),
            began_at: now,
            added,
            beyond,
        });
        if let Some(listing) = &mut self.listing {
            listing.added = listing.added + added;
        }
    }

    /// Ends an upload: only what it `stored` stays counted. One that has failed leaves a doubt.
    pub fn end_upload(&mut self, id: &str, stored: Tally, has_failed: bool) {
        self.is_doubtful |= has_failed;
        // One that took longer than any should is not corrected here but by the next listing.
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let OpenUpload { added, beyond, .. } = self.open.swap_remove(at);
        self.tally = self.tally + stored - added;
        // What was there already, or failed, is taken out of its own part beyond the quota first.
        let mut kept = beyond;
        kept.shrink(added.stored - stored.stored);
        self.beyond = self.beyond - (beyond - kept);
        if let Some(listing) = &mut self.listing {
            listing.added = listing.added + stored - added;
        }
    }

    /// Forgets uploads that must have ended without saying so.
    pub fn forget_ended(&mut self, now: Timestamp) {
        let before = self.open.len();
        self.open
            .retain(|open| now < open.began_at.plus_seconds(DELETING_SECONDS));
        self.is_doubtful |= self.open.len() < before;
    }

    /// Returns the usage with an upload.
    #[must_use]
    pub fn with(&self, added: Tally) -> Self {
        Self {
            tally: self.tally + added,
            ..Self::default()
        }
    }

    /// Whether no further upload may begin until others have ended.
    pub fn is_busy(&self, is_release: bool) -> bool {
        // Releases have as many places of their own, so that no upload keeps them out.
        self.open.len() >= MAX_OPEN * (1 + usize::from(is_release))
    }

    /// Returns the usage without uploads that have not ended.
    #[must_use]
    pub fn settled(&self) -> Self {
        let mut settled = Self {
            tally: self.tally,
            beyond: self.beyond,
            ..Self::default()
        };
        for open in &self.open {
            settled.tally = settled.tally - open.added;
            settled.beyond = settled.beyond - open.beyond;
        }
        settled
    }

    /// Records that a release names objects that the one before did not.
    pub fn name_objects(&mut self, named: Amount) {
        // Some were named by an earlier release and did not count as unnamed. The next listing
        // corrects that.
        self.tally.unnamed = self.tally.unnamed - named;
        if let Some(listing) = &mut self.listing {
            listing.named = listing.named + named;
        }
    }

    /// Notes that a visit, which began at `began_at`, begins to list all objects.
    pub fn begin_listing(&mut self, began_at: Timestamp, now: Timestamp) {
        self.forget_ended(now);
        // Uploads that began before may store their objects behind the listing's back.
        let added = self.open.iter().map(|open| open.added);
        self.listing = Some(Listing {
            began_at,
            added: added.fold(Tally::default(), Add::add),
            named: Amount::default(),
        });
    }

    /// Corrects the count by what the listing of the visit that began at `began_at` found that still
    /// exists. Does nothing if another visit has begun one since.
    pub fn end_listing(&mut self, began_at: Timestamp, listed: Listed) {
        let Some(missed) = self.listing.filter(|listing| listing.began_at == began_at) else {
            return;
        };
        self.listing = None;
        let Tally { stored, unnamed } = self.tally;
        // The first count of a vault of an earlier version begins at 0: what comes up at this moment
        // is not in it, and takes itself out of it when it fails.
        let open = self.open.iter().map(|open| open.added.stored);
        let uncounted = if self.is_counted {
            Amount::default()
        } else {
            open.fold(Amount::default(), Add::add)
        };
        let most = listed.stored + missed.added.stored;
        // What is deleted was named by no release.
        let unnamed = unnamed - listed.deleted;
        self.tally = Tally {
            stored: stored.clamp_to((listed.stored + uncounted).min(most), most),
            unnamed: unnamed.clamp_to(
                listed.unreached - missed.named,
                listed.not_current + missed.added.unnamed,
            ),
        };
        // What was deleted makes room for files of releases again.
        self.beyond.shrink(stored - self.tally.stored);
        self.is_doubtful = false;
        self.is_counted = true;
    }

    /// Forgets files beyond the quota as far as there is room for them in it now.
    pub fn settle_beyond(&mut self, quota: &Quota) {
        let over = |used: u64, limit: u64| match limit {
            0 => 0,
            _ => used.saturating_sub(limit),
        };
        let stored = self.tally.stored;
        self.beyond.limit_to(Amount {
            bytes: over(stored.bytes, quota.bytes),
            objects: over(stored.objects, quota.objects),
        });
    }

    /// Returns the warnings to owners: one for each limit of which 80 % is used, once until less is.
    /// None while the count is in doubt: a warning must be true.
    pub fn take_warnings(&mut self, quota: &Quota) -> Vec<Event> {
        if self.is_doubtful {
            return Vec::new();
        }
        let stored = self.settled().tally.stored;
        let limits = [
            (QuotaKind::Bytes, stored.bytes, &mut self.warned.bytes),
            (QuotaKind::Objects, stored.objects, &mut self.warned.objects),
        ];
        let mut events = Vec::new();
        for (kind, used, warned) in limits {
            let limit = quota.limit_of(kind);
            let is_near = is_near(used, limit);
            if is_near && !*warned {
                let quota = kind;
                events.push(Event::QuotaNear { quota, used, limit });
            }
            *warned = is_near;
        }
        events
    }

    /// Whether 80 % of the quota is used.
    pub fn is_near(&self, quota: &Quota) -> bool {
        self.tally.stored.is_near(quota.bytes, quota.objects)
    }

    /// Whether unused uploads have to go before their time: 80 % of the quota, or of the bound for
    /// unnamed uploads, is used.
    pub fn is_short(&self, quota: &Quota) -> bool {
        let unnamed = self.tally.unnamed;
        self.is_near(quota) || unnamed.is_near(MAX_UNNAMED_BYTES, MAX_UNNAMED_OBJECTS)
    }
}

/// Returns the key of the usage of a namespace.
fn usage_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(format!("stored/{namespace}"), "usage")
}

#[cfg(test)]
mod tests;
