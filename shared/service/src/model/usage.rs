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

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::kept::DELETING_SECONDS;
use super::notice::Event;
use crate::config::quota::Quota;
use crate::ports::{Ports, Versioned};
use crate::units::{format_count, format_size};

/// Maximum objects of uploads that no release has named yet.
pub const MAX_UNNAMED_OBJECTS: u64 = 60_000;
/// Maximum bytes of uploads that no release has named yet: 1 GiB.
pub const MAX_UNNAMED_BYTES: u64 = 1 << 30;
/// Bytes beyond the quota for files of releases, so that a full namespace can still publish: 256
/// MiB. Catalogs, which only a verified release stores, have twice as many.
pub const ALLOWANCE_BYTES: u64 = 256 << 20;
/// Objects beyond the quota for files of releases; for catalogs twice as many.
pub const ALLOWANCE_OBJECTS: u64 = 20_000;
/// Part of a limit at which owners are warned, in percent.
const WARNED_PERCENT: u64 = 80;
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

    /// Returns this amount within the two bounds; the lower one wins.
    fn clamp_to(self, lower: Self, upper: Self) -> Self {
        Self {
            bytes: self.bytes.min(upper.bytes).max(lower.bytes),
            objects: self.objects.min(upper.objects).max(lower.objects),
        }
    }

    /// Whether it reaches 80 % of a limit, where 0 is no limit.
    fn is_near(self, bytes: u64, objects: u64) -> bool {
        let near = |used: u64, limit: u64| {
            limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(WARNED_PERCENT)
        };
        near(self.bytes, bytes) || near(self.objects, objects)
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
}

impl Add for Listed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stored: self.stored + other.stored,
            not_current: self.not_current + other.not_current,
            unreached: self.unreached + other.unreached,
        }
    }
}

/// What a namespace stores.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Usage {
    /// The count.
    pub tally: Tally,
    /// Whether owners were warned since it was last below 80 % of the quota.
    pub is_warned: bool,
    /// Whether an upload failed or never ended since the last listing, so that the count may be too
    /// high.
    pub is_doubtful: bool,
    /// Uploads that have not ended.
    open: Vec<OpenUpload>,
    /// Changes during a listing of all objects.
    listing: Option<Listing>,
}

/// An upload that was counted and has not ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct OpenUpload {
    id: String,
    began_at: Timestamp,
    added: Tally,
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
    pub fn begin_upload(&mut self, id: &str, added: Tally, now: Timestamp) {
        self.tally = self.tally + added;
        self.open.push(OpenUpload {
            id: id.to_owned(),
            began_at: now,
            added,
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
        let added = self.open.swap_remove(at).added;
        self.tally = self.tally + stored - added;
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
    pub fn is_busy(&self) -> bool {
        self.open.len() >= MAX_OPEN
    }

    /// Returns the usage without uploads that have not ended.
    #[must_use]
    pub fn settled(&self) -> Self {
        let open = self.open.iter().map(|open| open.added);
        Self {
            tally: self.tally - open.fold(Tally::default(), Add::add),
            ..Self::default()
        }
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
        self.tally = Tally {
            stored: stored.clamp_to(listed.stored, listed.stored + missed.added.stored),
            unnamed: unnamed.clamp_to(
                listed.unreached - missed.named,
                listed.not_current + missed.added.unnamed,
            ),
        };
        self.is_doubtful = false;
    }

    /// Returns the warning to owners where 80 % of the quota is used, once until less is.
    pub fn take_warning(&mut self, quota: &Quota) -> Option<Event> {
        let is_near = self.is_near(quota);
        let was_warned = std::mem::replace(&mut self.is_warned, is_near);
        (self.is_warned && !was_warned).then(|| self.near_event(quota))
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

/// What an upload adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// Files of a release, which may use the allowance.
    pub release_files: Tally,
    /// All else.
    pub other: Tally,
    /// Whether the files are the catalog of a verified release and the list of its objects.
    pub is_release: bool,
}

impl Needed {
    /// Returns both parts together.
    pub fn total(&self) -> Tally {
        self.release_files + self.other
    }
}

/// A limit of what a namespace stores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StorageLimit {
    /// Bytes of the quota.
    Bytes,
    /// Objects of the quota.
    Objects,
    /// Bytes of uploads that no release names.
    UnnamedBytes,
    /// Number of uploads that no release names.
    UnnamedObjects,
}

impl StorageLimit {
    /// Returns its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Objects => "objects",
            Self::UnnamedBytes => "unnamed_bytes",
            Self::UnnamedObjects => "unnamed_objects",
        }
    }
}

/// Error: a limit has no room for an upload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub struct FullStorage {
    /// The limit.
    pub of: StorageLimit,
    /// What is stored.
    pub used: u64,
    /// What the upload adds.
    pub asked: u64,
    /// The most that may be stored.
    pub limit: u64,
}

impl fmt::Display for FullStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = |number: u64| format_count(number, "object", "objects");
        let text: &dyn Fn(u64) -> String = match self.of {
            StorageLimit::Bytes | StorageLimit::UnnamedBytes => &format_size,
            StorageLimit::Objects | StorageLimit::UnnamedObjects => &objects,
        };
        let (used, asked, limit) = (text(self.used), text(self.asked), text(self.limit));
        match self.of {
            StorageLimit::Bytes | StorageLimit::Objects => write!(
                f,
                "This vault stores {used} of at most {limit}, and this needs {asked} more. Objects \
                 that no release names any more are deleted after 30 days; the operator of this \
                 service can raise the quota."
            ),
            StorageLimit::UnnamedBytes | StorageLimit::UnnamedObjects => write!(
                f,
                "This vault stores {used} that no release names, of at most {limit}, and this needs \
                 {asked} more. Publish a release that names them, or wait: unused uploads are \
                 deleted."
            ),
        }
    }
}

impl FullStorage {
    /// Returns the numbers as the member `quota` of an answer.
    pub fn to_json(self) -> Value {
        json!({
            "name": self.of.name(), "used": self.used, "asked": self.asked, "limit": self.limit,
        })
    }
}

/// Checks that `asked` more fit, where a limit of 0 is none and something that asks for nothing
/// always fits: a quota that was lowered refuses only what adds.
fn check_limit(of: StorageLimit, used: u64, asked: u64, limit: u64) -> Result<(), FullStorage> {
    if limit == 0 || asked == 0 || used.saturating_add(asked) <= limit {
        return Ok(());
    }
    Err(FullStorage {
        of,
        used,
        asked,
        limit,
    })
}

/// Checks an amount against limits of bytes and objects.
fn check_amount(used: Amount, asked: Amount, bytes: u64, objects: u64) -> Result<(), FullStorage> {
    check_limit(StorageLimit::Bytes, used.bytes, asked.bytes, bytes)?;
    check_limit(StorageLimit::Objects, used.objects, asked.objects, objects)
}

impl Usage {
    /// Checks that there is room for an upload; fails with the first limit that has none.
    pub fn check_room(&self, needed: &Needed, quota: &Quota) -> Result<(), FullStorage> {
        let (used, other) = (self.tally.stored, needed.other.stored);
        check_amount(used, other, quota.bytes, quota.objects)?;
        let (unnamed, more) = (self.tally.unnamed, needed.other.unnamed);
        check_limit(
            StorageLimit::UnnamedBytes,
            unnamed.bytes,
            more.bytes,
            MAX_UNNAMED_BYTES,
        )?;
        check_limit(
            StorageLimit::UnnamedObjects,
            unnamed.objects,
            more.objects,
            MAX_UNNAMED_OBJECTS,
        )?;
        // A quota without a limit stays one.
        let beyond = |limit: u64, allowance: u64| match limit {
            0 => 0,
            _ => limit.saturating_add(allowance * (1 + u64::from(needed.is_release))),
        };
        check_amount(
            used + other,
            needed.release_files.stored,
            beyond(quota.bytes, ALLOWANCE_BYTES),
            beyond(quota.objects, ALLOWANCE_OBJECTS),
        )
    }

    /// Returns the warning that the quota is nearly used up.
    fn near_event(&self, quota: &Quota) -> Event {
        let stored = self.tally.stored;
        Event::QuotaNear {
            bytes: stored.bytes,
            bytes_limit: quota.bytes,
            objects: stored.objects,
            objects_limit: quota.objects,
        }
    }
}

#[cfg(test)]
mod tests;
