//! The room for an upload: within the quota, or within an allowance beyond it.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ALLOWANCE_BYTES, ALLOWANCE_OBJECTS, Amount, MAX_UNNAMED_BYTES, MAX_UNNAMED_OBJECTS, Tally,
    Usage,
};
use crate::config::quota::Quota;
use crate::units::{format_count, format_size};

/// What was stored beyond the quota. What is deleted makes room here too, so a vault grows beyond its
/// quota by its allowances at most, however much it held before.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Beyond {
    /// Files of releases.
    pub files: Amount,
    /// Skills that were signed again after their key was revoked.
    pub again: Amount,
}

impl Beyond {
    /// Takes out what is gone, first of the skills, whose former ones go in the end.
    pub(super) fn shrink(&mut self, gone: Amount) {
        let of_again = self.again.min(gone);
        self.again = self.again - of_again;
        self.files = self.files - (gone - of_again);
    }

    /// Forgets what is more than this amount.
    pub(super) fn limit_to(&mut self, most: Amount) {
        self.files = self.files.min(most);
        self.again = self.again.min(most - self.files);
    }
}

impl Add for Beyond {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            again: self.again + other.again,
        }
    }
}

impl Sub for Beyond {
    type Output = Self;

    /// Subtracts, down to 0.
    fn sub(self, other: Self) -> Self {
        Self {
            files: self.files - other.files,
            again: self.again - other.again,
        }
    }
}

/// What is counted for an upload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// What it adds.
    pub added: Tally,
    /// The part of it that is beyond the quota.
    pub beyond: Beyond,
}

/// What an upload adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// Files of a release, which may use the allowance.
    pub release_files: Tally,
    /// All else.
    pub other: Tally,
    /// How many times the allowance is open to the files.
    pub allowances: u64,
    /// How far beyond the quota all else may go, where a vault has to sign skills again.
    pub again: Amount,
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

/// Checks that `asked` more fit, where something that asks for nothing always fits.
fn check_limit(of: StorageLimit, used: u64, asked: u64, limit: u64) -> Result<(), FullStorage> {
    if asked == 0 || used.saturating_add(asked) <= limit {
        return Ok(());
    }
    Err(FullStorage {
        of,
        used,
        asked,
        limit,
    })
}

/// An allowance beyond the quota.
#[derive(Clone, Copy)]
struct Allowance {
    /// What is taken of it.
    taken: Amount,
    /// The allowance.
    most: Amount,
}

impl Allowance {
    /// Returns how much of what is `asked` for is beyond the quota. Fails if the allowance has no
    /// room for that. It is not measured from the quota: a vault that held more before the quota was
    /// set must still be able to publish. What adds nothing always fits.
    fn count_beyond(
        self,
        used: Amount,
        asked: Amount,
        quota: &Quota,
    ) -> Result<Amount, FullStorage> {
        let Self { taken, most } = self;
        let bytes = Growth {
            used: used.bytes,
            asked: asked.bytes,
            limit: quota.bytes,
        };
        let objects = Growth {
            used: used.objects,
            asked: asked.objects,
            limit: quota.objects,
        };
        Ok(Amount {
            bytes: bytes.count_beyond(StorageLimit::Bytes, taken.bytes, most.bytes)?,
            objects: objects.count_beyond(StorageLimit::Objects, taken.objects, most.objects)?,
        })
    }
}

/// Bytes or objects that are to be stored.
#[derive(Clone, Copy)]
struct Growth {
    used: u64,
    asked: u64,
    /// 0 is no limit.
    limit: u64,
}

impl Growth {
    fn count_beyond(self, of: StorageLimit, taken: u64, most: u64) -> Result<u64, FullStorage> {
        let Self { used, asked, limit } = self;
        if limit == 0 {
            return Ok(0);
        }
        let beyond = used.saturating_add(asked).saturating_sub(limit.max(used));
        if beyond > 0 && taken.saturating_add(beyond) > most {
            return Err(FullStorage {
                of,
                used,
                asked,
                limit,
            });
        }
        Ok(beyond)
    }
}

impl Usage {
    /// Checks that there is room for an upload, and returns what to count for it; fails with the
    /// first limit that has none.
    pub fn check_room(&self, needed: &Needed, quota: &Quota) -> Result<Counted, FullStorage> {
        let (used, other) = (self.tally.stored, needed.other.stored);
        let again = Allowance {
            taken: self.beyond.again,
            most: needed.again,
        };
        let again = again.count_beyond(used, other, quota)?;
        let (unnamed, more) = (self.tally.unnamed, needed.other.unnamed);
        let bounds = [
            (
                StorageLimit::UnnamedBytes,
                unnamed.bytes,
                more.bytes,
                MAX_UNNAMED_BYTES + needed.again.bytes,
            ),
            (
                StorageLimit::UnnamedObjects,
                unnamed.objects,
                more.objects,
                MAX_UNNAMED_OBJECTS + needed.again.objects,
            ),
        ];
        for (of, used, asked, limit) in bounds {
            check_limit(of, used, asked, limit)?;
        }
        let files = Allowance {
            taken: self.beyond.files,
            most: Amount {
                bytes: ALLOWANCE_BYTES * needed.allowances,
                objects: ALLOWANCE_OBJECTS * needed.allowances,
            },
        };
        let files = files.count_beyond(used + other, needed.release_files.stored, quota)?;
        Ok(Counted {
            added: needed.total(),
            beyond: Beyond { files, again },
        })
    }
}
