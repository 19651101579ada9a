//! The usage of a namespace: how many objects and bytes it stores, and which uploads are open.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `stored/<namespace_id>` | `usage` | [`Usage`] |
//!
//! An upload is counted in the commit that protects its objects from deletion, before their bytes
//! are stored. Afterwards, objects that were stored already are taken out of the count. A process
//! that dies in between leaves a count that is too high. So each visit of the garbage collection to
//! the namespace, which lists all objects anyway, corrects the count: to at least the listed
//! amount, and at most that amount plus the uploads that the listing may have missed.
//!
//! A release names objects by their hash. An object that was uploaded for a release is unnamed
//! until a release contains it, and unnamed objects have a bound of their own.

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

/// Maximum number of unnamed objects.
pub const MAX_UNNAMED_OBJECTS: u64 = 60_000;
/// Maximum size of all unnamed objects, in bytes: 1 GiB.
pub const MAX_UNNAMED_BYTES: u64 = 1 << 30;
/// The allowance: number of bytes that files of releases may take beyond the quota, so that a full
/// namespace can still publish: 256 MiB. Verified proposals and releases get it several times
/// ([`crate::uploads::Purpose`]).
pub const ALLOWANCE_BYTES: u64 = 256 << 20;
/// Number of objects in the allowance.
pub const ALLOWANCE_OBJECTS: u64 = 20_000;
/// Maximum number of open uploads. A process that dies leaves an upload open for some minutes.
const MAX_OPEN: usize = 256;

/// A number of objects and the bytes that they have together.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Amount {
    /// Size of all objects together, in bytes.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl Amount {
    /// Returns the amount of one object of this size.
    pub const fn of_object(bytes: u64) -> Self {
        Self { bytes, objects: 1 }
    }

    /// Returns the smaller number of bytes and the smaller number of objects of two amounts.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            objects: self.objects.min(other.objects),
        }
    }

    /// Limits both numbers to the range from `lower` to `upper`; `lower` wins if it is above
    /// `upper`.
    fn clamp_to(self, lower: Self, upper: Self) -> Self {
        Self {
            bytes: self.bytes.min(upper.bytes).max(lower.bytes),
            objects: self.objects.min(upper.objects).max(lower.objects),
        }
    }

    /// Whether a number reaches 80 % of its limit; a limit of 0 is none.
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

    /// Subtracts bytes and objects; a result below 0 becomes 0.
    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
        }
    }
}

/// Amount of a group of objects: of an upload, or of all that a namespace stores.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tally {
    /// All objects of the group.
    pub stored: Amount,
    /// Objects of the group that were uploaded for a release, while no release has named them.
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

    /// Subtracts both amounts; a result below 0 becomes 0.
    fn sub(self, other: Self) -> Self {
        Self {
            stored: self.stored - other.stored,
            unnamed: self.unnamed - other.unnamed,
        }
    }
}

/// Amounts that a listing of all objects has found.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ListedUsage {
    /// All objects that still exist.
    pub stored: Amount,
    /// Objects for releases that the current release does not name. A former release may name them.
    pub not_current: Amount,
    /// Objects for releases that no root reaches, so that no release that counts names them.
    pub unreached: Amount,
    /// Objects for releases that the visit has deleted.
    #[serde(default)]
    pub deleted: Amount,
}

impl Add for ListedUsage {
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

/// The record of what a namespace stores, with the uploads that have not ended.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Usage {
    /// What the namespace stores, with open uploads.
    pub tally: Tally,
    /// The part of `tally` that was permitted beyond the quota.
    pub beyond: Beyond,
    /// Whether a listing has counted all objects at least once.
    pub is_counted: bool,
    /// Limits for which owners have been warned and of which still 80 % is used.
    pub warned: Warned,
    /// Whether an upload failed or was forgotten since the last listing, so that the count may be
    /// too high.
    pub is_doubtful: bool,
    open: Vec<OpenUpload>,
    /// Changes since the beginning of a listing of all objects; `None` if none is running.
    listing: Option<Listing>,
}

/// For each limit, whether owners have been warned that 80 % of it is used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Warned {
    bytes: bool,
    objects: bool,
}

/// An open upload: it was counted and has not ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct OpenUpload {
    id: String,
    began_at: Timestamp,
    added: Tally,
    /// The part of the upload that was permitted beyond the quota.
    #[serde(default)]
    beyond: Beyond,
}

/// Changes that a listing of all objects may have missed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Listing {
    /// Time at which the visit with the listing began.
    began_at: Timestamp,
    /// Amounts of the uploads that were open when the listing began, or began since.
    added: Tally,
    /// Objects that a release has named since the listing began.
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

    /// Returns the write that stores the usage, under the condition that [`Usage::find`] returned
    /// with it.
    pub fn to_write(&self, namespace: &NamespaceId, when: When) -> Result<Write, StoreError> {
        let document = Document::from_value(self)?;
        Ok(Write::put(usage_key(namespace), document, when))
    }

    /// Counts an upload that begins; `id` identifies it until it ends.
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

    /// Ends an upload: only the amount that it really `stored` stays counted. After a failure the
    /// count is doubtful, because it is unknown what was stored.
    pub fn end_upload(&mut self, id: &str, stored: Tally, has_failed: bool) {
        self.is_doubtful |= has_failed;
        // An upload that took too long was forgotten, and is corrected by the next listing.
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let OpenUpload { added, beyond, .. } = self.open.swap_remove(at);
        self.tally = self.tally + stored - added;
        // Objects that were stored already, or that failed, first reduce the upload's own part
        // beyond the quota.
        let mut kept = beyond;
        kept.shrink(added.stored - stored.stored);
        self.beyond = self.beyond - (beyond - kept);
        if let Some(listing) = &mut self.listing {
            listing.added = listing.added + stored - added;
        }
    }

    /// Forgets uploads whose process must have died.
    pub fn forget_ended(&mut self, now: Timestamp) {
        let before = self.open.len();
        self.open
            .retain(|open| now < open.began_at.plus_seconds(DELETING_SECONDS));
        self.is_doubtful |= self.open.len() < before;
    }

    /// Returns a usage with the count after this upload, to compare it with limits.
    #[must_use]
    pub fn with(&self, added: Tally) -> Self {
        Self {
            tally: self.tally + added,
            ..Self::default()
        }
    }

    /// Whether no further upload may begin because too many are open.
    pub fn is_busy(&self, is_release: bool) -> bool {
        // Releases may have as many more, so that other uploads cannot keep them out.
        self.open.len() >= MAX_OPEN * (1 + usize::from(is_release))
    }

    /// Returns the usage without open uploads.
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

    /// Records that a release names objects that no release has named so far.
    pub fn name_objects(&mut self, named: Amount) {
        self.tally.unnamed = self.tally.unnamed - named;
        if let Some(listing) = &mut self.listing {
            listing.named = listing.named + named;
        }
    }

    /// Records that a visit, which began at `began_at`, begins to list all objects.
    pub fn begin_listing(&mut self, began_at: Timestamp, now: Timestamp) {
        self.forget_ended(now);
        // Open uploads may store objects that the listing has already passed.
        let added = self.open.iter().map(|open| open.added);
        self.listing = Some(Listing {
            began_at,
            added: added.fold(Tally::default(), Add::add),
            named: Amount::default(),
        });
    }

    /// Corrects the count by the listing of the visit that began at `began_at`. Does nothing and
    /// returns false if that listing was not begun, or another visit has begun one since.
    pub fn end_listing(&mut self, began_at: Timestamp, listed: ListedUsage) -> bool {
        let Some(missed) = self.listing.filter(|listing| listing.began_at == began_at) else {
            return false;
        };
        self.listing = None;
        let Tally { stored, unnamed } = self.tally;
        // For a vault of an earlier version the count begins at 0. Open uploads are then not in the
        // listing, but are subtracted when they fail, so they are added here.
        let open = self.open.iter().map(|open| open.added.stored);
        let uncounted = if self.is_counted {
            Amount::default()
        } else {
            open.fold(Amount::default(), Add::add)
        };
        let most = listed.stored + missed.added.stored;
        // Deleted objects were named by no release.
        let unnamed = unnamed - listed.deleted;
        self.tally = Tally {
            stored: stored.clamp_to((listed.stored + uncounted).min(most), most),
            unnamed: unnamed.clamp_to(
                listed.unreached - missed.named,
                listed.not_current + missed.added.unnamed,
            ),
        };
        // Deleted objects make room again for files of releases.
        self.beyond.shrink(stored - self.tally.stored);
        self.is_doubtful = false;
        self.is_counted = true;
        true
    }

    /// Reduces the amount that counts as beyond the quota to the amount by which the count exceeds
    /// the quota now.
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

    /// Returns the warnings to owners: one for each limit of which 80 % is used, repeated only
    /// after less was used. Returns none while the count is doubtful, because a warning must be
    /// true.
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

    /// Lets the next change of the usage warn again, because this warning was not queued.
    pub fn repeat_warning(&mut self, dropped: &Event) {
        match dropped {
            Event::QuotaNear {
                quota: QuotaKind::Bytes,
                ..
            } => self.warned.bytes = false,
            Event::QuotaNear {
                quota: QuotaKind::Objects,
                ..
            } => self.warned.objects = false,
            _ => {}
        }
    }

    /// Whether 80 % of the quota is used.
    pub fn is_near(&self, quota: &Quota) -> bool {
        self.tally.stored.is_near(quota.bytes, quota.objects)
    }

    /// Whether space is short, so that unused uploads are to be deleted early: 80 % of the quota,
    /// or of the bound for unnamed objects, is used.
    pub fn is_short(&self, quota: &Quota) -> bool {
        let unnamed = self.tally.unnamed;
        self.is_near(quota) || unnamed.is_near(MAX_UNNAMED_BYTES, MAX_UNNAMED_OBJECTS)
    }
}

fn usage_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(format!("stored/{namespace}"), "usage")
}

#[cfg(test)]
mod tests;
